"""Rows that leave a table in the commit of a batch: exactly those, and never a value of the others changes."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.table.snapshots import Operation
from pyiceberg.transforms import BucketTransform
from pyiceberg.types import StringType

from frazil.batch.changes import Removal, RemovedRange
from frazil.iceberg.catalog.catalog import Lake
from frazil.iceberg.commit.commit import REMOVED_KEY, Change, commit, fit_of
from frazil.iceberg.commit.removal import matches, row_filter
from frazil.iceberg.schema.schema import declared_schema, declared_spec
from tests.unit.iceberg.coordinates import (
    COLUMNS,
    SPECS,
    Row,
    change,
    create,
    data_paths,
    every_snapshot_is_readable,
    everything,
    foreign,
    numbered,
    removing,
    summary_of,
)
from tests.unit.iceberg.orders import TABLE, destination, elsewhere, mark


def test_replaced_rows_change_in_one_snapshot(lines: Lake) -> None:
    """Old rows go and new ones come in one snapshot; the older snapshot still shows the old ones."""
    before = commit(lines, change(lines, mark(1), None, numbered(range(10))))
    new = [Row(100 + n, offset=n, batch=2) for n in range(3, 6)]

    after = commit(lines, change(lines, mark(2), mark(1), new, removing(3, 6)))

    old = numbered(range(10))
    assert everything(lines) == [*old[:3], *old[6:], *new]
    assert everything(lines, before) == old
    summary = summary_of(lines, after)
    assert summary["operation"] is Operation.OVERWRITE
    assert summary[REMOVED_KEY] == "3"
    assert summary["total-records"] == "10"
    assert len(lines.load_table(TABLE).metadata.snapshots) == 2


ROWS = st.lists(
    st.builds(
        Row,
        id=st.just(0),
        topic=st.sampled_from(
            ["orders", "returns", "orders-of-a-rather-long-name", "orders-of-a-rather-long-name-2", None]
        ),
        partition=st.sampled_from([0, 1, None]),
        offset=st.one_of(st.integers(0, 12), st.none()),
        batch=st.sampled_from([1, 2, 3, None]),
        day=st.sampled_from(["mon", "tue"]),
    ),
    max_size=12,
)
RANGES = st.builds(
    RemovedRange,
    topic=st.sampled_from(["orders", "returns", "orders-of-a-rather-long-name", "absent"]),
    partition=st.sampled_from([0, 1, None]),
    start=st.integers(0, 12),
    end=st.one_of(st.none(), st.integers(0, 13)),
    since=st.integers(0, 3),
)


def goes(row: Row, removed_range: RemovedRange) -> bool:
    if row.topic is None or row.partition is None or row.offset is None or row.batch is None:
        return False
    return (
        row.topic == removed_range.topic
        and removed_range.partition in (None, row.partition)
        and removed_range.start <= row.offset
        and (removed_range.end is None or row.offset < removed_range.end)
        and row.batch >= removed_range.since
    )


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    landed=st.lists(ROWS, min_size=1, max_size=3),
    ranges=st.lists(RANGES, max_size=4),
    spec=st.sampled_from(SPECS),
    evolved=st.booleans(),
)
def test_exactly_rows_of_the_ranges_are_removed(
    tmp_path_factory: pytest.TempPathFactory,
    landed: list[list[Row]],
    ranges: list[RemovedRange],
    spec: list[str],
    evolved: bool,
) -> None:
    """Whatever lies in a table, in however many files and partition specs: exactly the rows of the ranges go."""
    lake = fresh(tmp_path_factory.mktemp("lake"))
    create(lake, spec)
    number = itertools.count()
    rows = [[row._replace(id=next(number)) for row in of_batch] for of_batch in landed]
    for of_batch in rows:
        foreign(lake, of_batch)
    if evolved:
        evolve(lake)

    commit(lake, change(lake, mark(1), None, [], Removal(COLUMNS, tuple(ranges))))

    kept_rows = [
        row for of_batch in rows for row in of_batch if not any(goes(row, removed_range) for removed_range in ranges)
    ]
    assert everything(lake) == kept_rows
    assert len(everything(lake, lake.load_table(TABLE).metadata.snapshots[0].snapshot_id)) == len(rows[0])


def fresh(folder: Path) -> Lake:
    return Lake("lake", f"sqlite:///{folder}/catalog.db", f"file://{folder}/warehouse", {})


def evolve(lake: Lake) -> None:
    with elsewhere(lake).load_table(TABLE).update_spec() as update:
        update.add_field("_kafka_offset", BucketTransform(2), "offset_bucket")


@settings(max_examples=200, deadline=None)
@given(rows=ROWS, ranges=st.lists(RANGES, max_size=4))
def test_scan_planning_and_row_check_agree(rows: list[Row], ranges: list[RemovedRange]) -> None:
    """Of rows at hand exactly those of the ranges match, and the answer is never null."""
    names = ("topic", "partition", "offset", "batch")
    types = (pa.string(), pa.int32(), pa.int64(), pa.int64())
    columns = [
        pa.array([getattr(row, name) for row in rows], data_type) for name, data_type in zip(names, types, strict=True)
    ]
    batch = pa.record_batch(columns, names=[COLUMNS.topic, COLUMNS.partition, COLUMNS.offset, COLUMNS.batch])

    matches_of_rows = matches(batch, Removal(COLUMNS, tuple(ranges)))

    assert matches_of_rows.to_pylist() == [any(goes(row, removed_range) for removed_range in ranges) for row in rows]


def test_removal_of_nothing_removes_nothing() -> None:
    """No ranges, no rows: the filter is false, not true."""
    assert str(row_filter(Removal(COLUMNS, ()))) == "AlwaysFalse()"


def test_hundred_topics_fit_one_filter(lake: Lake) -> None:
    """A replay of a hundred topics with ten partitions each is one filter of a thousand ranges."""
    create(lake, [])
    foreign(lake, numbered(range(10)))
    ranges = [RemovedRange(f"t{n}", p, 0, 5, 0) for n in range(100) for p in range(10)]

    commit(lake, change(lake, mark(1), None, [], Removal(COLUMNS, (*ranges, *removing(2, 4).ranges))))

    assert [row.id for row in everything(lake)] == [0, 1, 4, 5, 6, 7, 8, 9]


def test_files_without_matching_rows_are_kept(lake: Lake) -> None:
    """Only a file that holds rows to remove and others is rewritten; a file of removed rows only is just dropped."""
    create(lake, [])
    for ids in (range(10), range(10, 20), range(20, 30)):
        foreign(lake, numbered(ids))
    foreign(lake, [Row(40, offset=5), Row(41, offset=25)])  # statistics say: may hold 10..20; it does not
    before = data_paths(lake)

    snapshot_id = commit(lake, change(lake, mark(1), None, [], removing(8, 20)))

    assert len(before & data_paths(lake)) == 2
    assert len(data_paths(lake) - before) == 1
    summary = summary_of(lake, snapshot_id)
    assert (summary["added-data-files"], summary["deleted-data-files"], summary[REMOVED_KEY]) == ("1", "2", "12")
    assert [row.id for row in everything(lake)] == [*range(8), *range(20, 30), 40, 41]


def test_batch_that_replaces_nothing_is_an_append(lines: Lake) -> None:
    """Where no row matches the commit is an append, and the table's files stay."""
    foreign(lines, numbered(range(10)))
    before = data_paths(lines)

    snapshot_id = commit(lines, change(lines, mark(1), None, [Row(50, offset=50)], removing(50, 60)))

    assert summary_of(lines, snapshot_id)["operation"] is Operation.APPEND
    assert summary_of(lines, snapshot_id)[REMOVED_KEY] == "0"
    assert before < data_paths(lines)


def test_removal_from_an_empty_table_lands_new_rows(lines: Lake) -> None:
    """A removal from a table without snapshots lands the new rows."""
    commit(lines, change(lines, mark(1), None, [Row(1)], removing(0, None)))

    assert everything(lines) == [Row(1)]


def test_emptied_table_takes_further_batches(lines: Lake) -> None:
    """A table whose rows all go is empty and takes further batches."""
    commit(lines, change(lines, mark(1), None, numbered(range(5))))
    commit(lines, change(lines, mark(2), mark(1), [], removing(0, None)))

    assert everything(lines) == []

    commit(lines, change(lines, mark(3), mark(2), [Row(7)]))
    assert everything(lines) == [Row(7)]
    every_snapshot_is_readable(lines)


def test_rows_of_an_earlier_incarnation_stay(lines: Lake) -> None:
    """The topic was made anew at batch 3: equal offsets of lower batches are other records."""
    commit(lines, change(lines, mark(1), None, [Row(1, offset=5, batch=1), Row(2, offset=5, batch=3)]))

    commit(lines, change(lines, mark(2), mark(1), [], removing(0, None, since=3)))

    assert [row.id for row in everything(lines)] == [1]


def change_of(lake: Lake, removal: Removal) -> Change:
    """A batch without rows of its own, for a table of any shape."""
    fit = fit_of(lake.load_table(TABLE).metadata)
    return Change(TABLE, (), {}, (), fit, lambda _: None, lambda _: None, "follow", removal=removal)


def test_values_of_surviving_rows_are_unchanged(lake: Lake) -> None:
    """Survivors keep every value of every type, also where the file is older than a column of the table."""
    columns = {"id": "int", "u": "uuid", "d": "decimal(10,2)", "t": "timestamptz", "b": "binary", "f": "double"}
    columns |= {"l": "list<string>", "s": "struct<a: int, b: list<long>>", "m": "map<string, date>"}
    declared = destination(columns=columns, partition_by=["day(t)"], kafka_columns={})
    schema = declared_schema(declared)
    table = lake.create_table(TABLE, schema, declared_spec(declared, schema), {})
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    values = {"u": uuid4().bytes, "d": Decimal("1.20"), "t": moment, "b": b"\xff", "f": float("nan"), "l": ["a", None]}
    values |= {"s": {"a": 1, "b": []}, "m": [("k", moment.date())]}
    origin = {COLUMNS.topic: "orders", COLUMNS.partition: 0, COLUMNS.batch: 1, "_kafka_timestamp": None}
    rows = [{"id": n, COLUMNS.offset: n} | origin | (values if n % 2 else {}) for n in range(6)]
    table.append(pa.Table.from_pylist(rows, schema_to_pyarrow(table.schema(), include_field_ids=False)))
    with table.update_schema() as update:
        update.add_column("note", StringType())
    before = lake.load_table(TABLE).scan().to_arrow().sort_by("id")

    commit(lake, change_of(lake, removing(2, 4)))

    after = lake.load_table(TABLE).scan().to_arrow().sort_by("id")
    assert [repr(row) for row in after.to_pylist()] == [
        repr(row) for row in before.to_pylist() if row["id"] not in (2, 3)
    ]
