"""A merged table, compared with a model of its topic."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Message
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from frazil.iceberg.schema.schema import declared_schema
from frazil.pipeline.models.pipeline_file import KafkaColumns, Pipeline
from frazil.verify.facts.ledger import Batch, Range, read_batches
from frazil.verify.facts.result import Findings, PartitionResult
from frazil.verify.merged import MergedCheck, digests
from frazil.verify.model import Model, RecordPlace
from frazil.verify.rules import rules_of
from frazil.verify.tables import ScannedTable
from frazil.verify.values.column_readers import Bad, ColumnChanges
from tests.unit.records.cdc.landing import TABLE, landed, pipeline
from tests.unit.verify.facts.test_coverage import batch as ledger_row

STAMP = datetime(2024, 5, 1, tzinfo=UTC)
MICROS = int(STAMP.timestamp() * 1_000_000)
OPS = {"format": "op_column", "op": "op", "values": {"insert": ["I"], "update": ["U"], "delete": ["D"]}}
ORDERED = {"id": {"type": "long", "required": True}, "name": "string", "at": {"type": "int", "required": True}}
DOCUMENTS: list[dict[str, Any]] = [
    {"op": "I", "id": 1, "name": "Ann", "at": 1},
    {"op": "I", "id": 2, "name": "Bob", "at": 2},
    {"op": "U", "id": 1, "name": "Anna", "at": 3},
    {"op": "D", "id": 2, "at": 4},
    {"op": "I", "id": 3, "name": "Eve", "at": 5},
]
HARD, SOFT = pipeline(changes=OPS), pipeline(changes=OPS, columns=ORDERED, order_by="at", deletes="soft")


def rows_of(declared: Pipeline) -> dict[int, dict[str, Any]]:
    """The rows of the table after all changes, by key."""
    table: dict[int, dict[str, Any]] = {}
    is_soft = declared.destinations[0].deleted_column is not None
    for row in landed(declared, DOCUMENTS, first_offset=0).rows[TABLE].to_pylist():
        row["_kafka_timestamp"] = STAMP
        cells = {name: cell for name, cell in row.items() if name not in ("_frazil_op", "_frazil_place")}
        if row["_frazil_op"] == "upsert":
            table[row["id"]] = cells
        elif is_soft:
            table[row["id"]] |= {name: cell for name, cell in cells.items() if cell is not None}
        else:
            del table[row["id"]]
    return table


def merged_table(declared: Pipeline, root: Path, rows: list[dict[str, Any]]) -> Table:
    """The table, with these rows."""
    catalog = SqlCatalog("lake", uri=f"sqlite:///{root}/catalog.db", warehouse=f"file://{root}/warehouse")
    catalog.create_namespace("shop")
    table = catalog.create_table(TABLE, declared_schema(declared.destinations[0]))
    if rows:
        table.append(pa.Table.from_pylist(rows, schema=table.schema().as_arrow()))
    return table


def checked(
    declared: Pipeline,
    table: Table,
    low: int = 0,
    earlier: Mapping[int, ColumnChanges] | None = None,
    batches: Mapping[int, Batch] | None = None,
) -> tuple[list[tuple[str, int | None]], PartitionResult]:
    """Kind and offset of each difference, and the counts of the one partition."""
    [destination], findings = declared.destinations, Findings()
    rules = rules_of(declared, [], TABLE, destination.columns, earlier)
    model = Model()
    for offset, document in list(enumerate(DOCUMENTS))[low:]:
        readings = rules.row(json.dumps(document).encode(), "orders", Message())
        assert not isinstance(readings, Bad)
        of: list[Any] = [(each, digests(each.row, MICROS, rules) if each.op == "upsert" else b"") for each in readings]
        model.add_change(RecordPlace("orders", 0, offset, 7), MICROS, of)
    held_table = ScannedTable(table, TABLE, KafkaColumns())
    check = MergedCheck(
        destination,
        destination.columns,
        held_table,
        rules,
        {("orders", 0): low},
        {"orders": 0},
        findings,
        batches or {},
    )
    [result] = check.results(model, [PartitionResult("orders", 0)])
    model.close()
    return [(difference.kind, difference.offset) for difference in findings.described], result


@pytest.mark.parametrize("declared", [HARD, SOFT], ids=["hard", "soft"])
def test_correct_table_has_no_difference(declared: Pipeline, tmp_path: Path) -> None:
    """Deleted rows are removed or marked; the other rows have the values of their last change."""
    rows = [*rows_of(declared).values()]
    differences, result = checked(declared, merged_table(declared, tmp_path, rows))
    assert differences == []
    assert result.rows == len(rows) == (2 if declared is HARD else 3)


@pytest.mark.parametrize(
    ("declared", "key", "change", "difference"),
    [
        (HARD, 1, None, ("missing", 2)),
        (HARD, 1, {"name": "Ann"}, ("changed", 2)),
        (HARD, 1, {"_kafka_offset": 0}, ("changed", 2)),
        (HARD, 2, {"id": 2, "name": "Bob"}, ("unexpected", 3)),
        (HARD, 9, {"id": 9, "name": "Zed"}, ("unexpected", 1)),
        (SOFT, 1, {"_frazil_deleted": True}, ("missing", 2)),
        (SOFT, 2, {"_frazil_deleted": False}, ("unexpected", 3)),
        (SOFT, 3, {"_kafka_timestamp": datetime(2020, 1, 1, tzinfo=UTC)}, ("changed", 4)),
    ],
)
def test_wrong_row_is_reported(
    declared: Pipeline, key: int, change: Mapping[str, Any] | None, difference: tuple[str, int], tmp_path: Path
) -> None:
    """A missing, additional, outdated or altered row is reported with its record."""
    rows = rows_of(declared)
    place = {"_kafka_topic": "orders", "_kafka_partition": 0, "_kafka_offset": 1, "_kafka_timestamp": STAMP}
    if change is None:
        del rows[key]
    else:
        rows[key] = rows.get(key, place) | change
    differences, _ = checked(declared, merged_table(declared, tmp_path, [*rows.values()]))
    assert differences == [difference]


class CountedRanges(tuple[Range, ...]):  # noqa: SLOT001 - it has a count
    """Ranges that count how often somebody goes through them."""

    walks = 0

    def __iter__(self) -> Iterator[Range]:
        self.walks += 1
        return super().__iter__()


def test_ranges_of_a_batch_are_read_once(tmp_path: Path) -> None:
    """They are not searched for each key, because a batch may have read thousands of partitions."""
    ranges = CountedRanges([Range("orders", 1, 0, 5), Range("orders", 0, 0, 3), Range("orders", 0, 3, 4)])
    rows = [row | {"_frazil_batch": 7} for row in rows_of(SOFT).values()]
    [batch] = read_batches([ledger_row(7, "ingest", 0, 5)], "shop.ledger")
    differences, _ = checked(SOFT, merged_table(SOFT, tmp_path, rows), batches={7: replace(batch, ranges=ranges)})

    assert differences == [("changed", 4)]  # no range has it
    assert ranges.walks == 1


def test_key_with_two_rows_is_reported(tmp_path: Path) -> None:
    """Two rows of one key are wrong, even if each has the right values."""
    rows = [*rows_of(HARD).values()]
    differences, result = checked(HARD, merged_table(HARD, tmp_path, [*rows, rows[0]]))
    assert {kind for kind, _ in differences} == {"duplicate"}
    assert result.duplicate == 1


def test_rows_older_than_the_log_are_left_alone(tmp_path: Path) -> None:
    """A row whose last change Kafka deleted is only counted."""
    differences, result = checked(HARD, merged_table(HARD, tmp_path, [*rows_of(HARD).values()]), low=3)
    assert differences == []
    assert result.unchecked == 1


@pytest.mark.parametrize(
    ("change", "expected"),
    [({"name": None}, []), ({"at": 9}, [("changed", 2)]), ({"name": None, "at": 9}, [("changed", 2)])],
)
def test_lost_value_is_not_excused_by_a_new_column(
    change: Mapping[str, Any], expected: list[tuple[str, int]], tmp_path: Path
) -> None:
    """In rows from before the column `name`, only this column may differ from the record."""
    declared = pipeline(changes=OPS, columns=ORDERED)
    rows = rows_of(declared)
    rows[1] |= change
    differences, result = checked(
        declared,
        merged_table(declared, tmp_path, [*rows.values()]),
        earlier={7: ColumnChanges(frozenset({"name", "at", "gone"}), frozenset({"name", "gone"}))},
    )
    assert differences == expected
    assert result.lenient == 2 - len(expected)
