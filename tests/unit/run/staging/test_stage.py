"""The work of one task, on records from memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from frazil.batch.audit import Tolerance
from frazil.batch.facts import Counts, Range
from frazil.batch.schema_change import SchemaChange
from frazil.iceberg.catalog.catalog import Lake
from frazil.iceberg.catalog.table import TABLE_PROPERTIES, staging_table
from frazil.iceberg.files.data_files import TableWriters
from frazil.iceberg.ledger.ledger import UNPARTITIONED
from frazil.kafka.client.cluster import Cluster
from frazil.records.model.rows import KAFKA_SCHEMA
from frazil.records.model.spec import Evolution, RecordSpec
from frazil.run.staging import stage
from frazil.run.staging.stage import StageOrder, stage_records
from tests.unit.records.kafka_batches import kafka_batch

SPEC = RecordSpec(pa.schema([pa.field("id", pa.int64())]))
GOOD, BAD = b'{"id": 1}', b"broken"


def order(tolerance: Tolerance | None) -> StageOrder:
    return StageOrder("p", 1, Cluster("c", {}), (), 100, {"shop.orders": SPEC}, {}, None, tolerance=tolerance)


@pytest.mark.parametrize(
    ("tolerance", "batches"),
    [
        (Tolerance(1, 0, 0), 2),
        (Tolerance(1, 0, 2), 3),
        (Tolerance(1, 0, 0, fails=False), 5),
        (Tolerance(0, 0, None), 5),
        (None, 5),
    ],
    ids=["none", "max_count", "alert", "rate", "dry run"],
)
def test_task_stops_at_the_limit_of_dead_letters(tolerance: Tolerance | None, batches: int) -> None:
    """It stops behind the batch of records that makes too many; without a limit of the number it reads all."""
    sizes: list[int] = []

    def reader() -> Iterator[pa.RecordBatch]:
        for number, values in enumerate(([GOOD], [BAD, BAD], [BAD], [GOOD], [BAD])):
            sizes.append(number)
            yield kafka_batch(values)

    staged = stage_records(order(tolerance), reader())

    assert len(sizes) == batches
    assert staged.stopped is (batches < 5)
    assert staged.samples["INVALID_JSON"].offset == 100


def test_every_engine_counts_records_by_age() -> None:
    """What every engine does with its records counts them, once, if it is told when the ends were fixed."""
    batches = [kafka_batch([GOOD, BAD]), kafka_batch([GOOD])]
    fixed_at = datetime.fromtimestamp(0, UTC) + timedelta(days=365 * 100)

    staged = stage_records(replace(order(None), fixed_at=fixed_at.isoformat()), batches)

    assert sum(staged.ages.values()) == 3
    assert stage_records(order(None), batches).ages == {}


def test_dead_letter_with_a_time_beyond_year_9999_ends_no_task() -> None:
    """Python knows no such instant: the first letter of a code is told by its coordinates alone."""
    late = pa.array([9_000_000_000_000_000_000], pa.int64()).cast(KAFKA_SCHEMA.field("timestamp").type)

    staged = stage_records(order(None), [kafka_batch([BAD]).set_column(3, "timestamp", late)])

    assert staged.samples["INVALID_JSON"].offset == 100


EVOLVING = replace(SPEC, evolution=Evolution())
MORE = b'{"id": 2, "note": "x"}'


@pytest.fixture
def orders(tmp_path: Path) -> StageOrder:
    """An order that writes rows of a table which follows its records."""
    lake = Lake("lake", f"sqlite:///{tmp_path}/catalog.db", f"file://{tmp_path}/warehouse", {})
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "_kafka_offset", LongType()))
    table = lake.create_table("shop.orders", schema, UNPARTITIONED, TABLE_PROPERTIES)
    spec = replace(EVOLVING, kafka_columns=None)
    return StageOrder(
        "p",
        1,
        Cluster("c", {}),
        (),
        100,
        {"shop.orders": spec},
        {"shop.orders": staging_table("shop.orders", table)},
        None,
    )


def test_task_that_needs_a_column_lands_nothing(orders: StageOrder) -> None:
    """Where a record needs a column, nothing of its task counts: it tells all that is needed, and to read its ranges again."""
    # Two stretches of one partition: what lies between them is another task's, which may have landed it.
    ranges = (Range("t", 0, 0, 3), Range("t", 0, 40, 42))
    batches = [kafka_batch([GOOD, GOOD]), kafka_batch([MORE, BAD]), kafka_batch([b'{"id": 3, "size": 1}'])]

    staged = stage_records(replace(orders, ranges=ranges), batches)

    assert staged.demands == {"shop.orders": (change_of("note", "string"), change_of("size", "long"))}
    assert (staged.total, staged.rows("shop.orders"), staged.dead_codes, staged.bytes) == (Counts(), 0, {}, 0)
    assert staged.again == ranges


def test_files_of_a_task_that_needs_a_column_are_listed(orders: StageOrder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that were written before the record came are told, so that somebody deletes them."""
    monkeypatch.setattr(stage, "TableWriters", partial(TableWriters, most_bytes=1))

    staged = stage_records(orders, [kafka_batch([GOOD]), kafka_batch([MORE]), kafka_batch([MORE])])

    assert (len(staged.void), staged.files) == (1, {})
    assert all(Path(path.removeprefix("file://")).exists() for path in staged.void)


def change_of(name: str, type_: str) -> SchemaChange:
    return SchemaChange((name,), "add", type_, position=1)  # the second field of its record
