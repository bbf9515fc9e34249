"""Tables that PyIceberg can't write get their part of a batch by Spark: once, whatever happens in between."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from frazil.batch.changes import Removal, RemovedRange
from frazil.batch.position import BatchMark
from frazil.failpoints import Failpoint
from frazil.iceberg.catalog.table import staging_table
from frazil.iceberg.commit.commit import Refused
from frazil.iceberg.commit.summary_state import RolledBack, SummaryValue, mark_of, read_summary
from frazil.iceberg.files.data_files import RowFileWriter
from frazil.iceberg.schema.schema import arrow_columns
from frazil.pipeline.models.pipeline_file import Destination
from frazil.records.model.spec import KafkaColumns
from tests.rest_catalog import RestServer
from tests.spark.documents import COLUMNS, KEY, TABLE, Docs, sqlite
from tests.spark.kills import Killed, at_failpoint, kill, repeat_append


@pytest.fixture
def docs(tmp_path: Path, spark: SparkSession) -> Docs:
    """An empty table of documents."""
    return Docs(spark, sqlite(tmp_path))


def document(offset: int, n: int) -> tuple[int, str]:
    """A row as it is read."""
    return offset, f'{{"at":{offset},"n":{n}}}'


def test_documents_land_once(docs: Docs) -> None:
    """The first batch lands in an empty table, the next after it; each twice asked for, once there."""
    first = docs.change(1, range(3), None)
    snapshot = docs.land(first)
    second = docs.change(2, range(3, 5), 1)
    docs.land(second)
    assert docs.land(first) == snapshot
    docs.land(second)
    assert docs.rows() == [document(number, 1) for number in range(3)] + [document(number, 2) for number in (3, 4)]
    assert set(docs.metadata.refs) == {"main"}
    summary = read_summary(docs.metadata, KEY, TABLE)
    assert isinstance(summary, SummaryValue)
    assert (mark_of(summary), summary.summary["added-records"]) == (BatchMark(2, "id-2", 0), "2")
    assert json.loads(docs.metadata.properties[KEY])["snapshot"] == summary.snapshot_id


def test_rest_catalog_finishes_killed_append(
    spark: SparkSession, rest_server: RestServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a server, as by a database: a killed one is finished, and nothing is left behind."""
    rest_server.empty()
    docs = Docs(spark, rest_server.lake())
    docs.land(docs.change(1, range(1), None))
    change = docs.change(2, range(1, 3), 1)
    with monkeypatch.context() as patch:
        at_failpoint(patch, Failpoint.BRANCH_STAGED, kill)
        with pytest.raises(Killed):
            docs.land(change)
    docs.land(change)
    assert docs.rows() == [document(0, 1), document(1, 2), document(2, 2)]
    assert set(docs.metadata.refs) == {"main"}
    assert docs.metadata.format_version == 3


def test_rival_append_on_main_is_kept(docs: Docs, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody appends between the branch and the fast-forward: both are there, ours once."""
    docs.land(docs.change(1, range(1), None))
    foreign = docs.spark.table(f"`{docs.lake.name}`.{TABLE}").selectExpr("*").limit(1)
    foreign = foreign.withColumn("_kafka_offset", foreign["_kafka_offset"] + 100)
    at_failpoint(
        monkeypatch, Failpoint.FOLLOW_COMMITTING, lambda: foreign.writeTo(f"`{docs.lake.name}`.{TABLE}").append()
    )
    docs.land(docs.change(2, range(1, 2), 1))
    assert docs.rows() == [document(0, 1), document(1, 2), (100, document(0, 1)[1])]
    assert set(docs.metadata.refs) == {"main"}


def test_batch_finished_by_rival_lands_once(docs: Docs, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two give the same part at the same time: the rows are there once, and both say the same snapshot."""
    change, second_changes = docs.change(1, range(2), None), []
    at_failpoint(monkeypatch, Failpoint.FOLLOW_COMMITTING, lambda: second_changes.append(docs.land(change)))
    assert [docs.land(change)] == second_changes
    assert docs.rows() == [document(0, 1), document(1, 1)]
    assert set(docs.metadata.refs) == {"main"}


def test_append_that_spark_repeats_lands_once(docs: Docs, monkeypatch: pytest.MonkeyPatch) -> None:
    """A branch that has the rows twice never becomes main: another one is begun."""
    docs.land(docs.change(1, range(1), None))
    repeat_append(monkeypatch)
    docs.land(docs.change(2, range(1, 3), 1))
    assert docs.rows() == [document(0, 1), document(1, 2), document(2, 2)]
    assert set(docs.metadata.refs) == {"main"}


def test_append_that_is_repeated_late_does_not_reach_main(docs: Docs, monkeypatch: pytest.MonkeyPatch) -> None:
    """Main becomes what was checked, whatever is written to the branch between the look and that."""
    docs.land(docs.change(1, range(1), None))

    def repeat() -> None:
        [name] = (name for name in docs.metadata.refs if docs.metadata.refs[name].snapshot_id != first)
        branch = f"`{docs.lake.name}`.{TABLE}.`branch_{name}`"
        docs.spark.table(branch).limit(1).writeTo(branch).append()

    first = docs.metadata.current_snapshot_id
    at_failpoint(monkeypatch, Failpoint.BRANCH_STAGED, repeat)
    docs.land(docs.change(2, range(1, 3), 1))
    assert docs.rows() == [document(0, 1), document(1, 2), document(2, 2)]
    assert set(docs.metadata.refs) == {"main"}


@pytest.mark.parametrize("place", [Failpoint.BRANCH_MADE, Failpoint.BRANCH_STAGED])
def test_kill_before_fast_forward_neither_loses_nor_doubles_rows(
    docs: Docs, monkeypatch: pytest.MonkeyPatch, place: Failpoint
) -> None:
    """Nobody sees a prepared branch; the next one lands the rows, and drops what was left behind."""
    docs.land(docs.change(1, range(1), None))
    change = docs.change(2, range(1, 3), 1)
    at_failpoint(monkeypatch, place, kill)
    with pytest.raises(Killed):
        docs.land(change)
    assert docs.rows() == [document(0, 1)]
    assert len(docs.metadata.refs) == 2
    docs.land(change)
    assert docs.rows() == [document(0, 1), document(1, 2), document(2, 2)]
    assert set(docs.metadata.refs) == {"main"}


def test_kill_before_properties_is_not_taken_for_rollback(docs: Docs, monkeypatch: pytest.MonkeyPatch) -> None:
    """Main has the batch and the property still names the one before: what main carries counts, and is finished."""
    first = docs.land(docs.change(1, range(1), None))
    change = docs.change(2, range(1, 2), 1)
    at_failpoint(monkeypatch, Failpoint.FOLLOW_COMMITTED, kill)
    with pytest.raises(Killed):
        docs.land(change)
    assert json.loads(docs.metadata.properties[KEY])["snapshot"] == first
    assert mark_of(read_summary(docs.metadata, KEY, TABLE)) == BatchMark(2, "id-2", 0)
    assert isinstance(read_summary(docs.metadata, KEY, TABLE), SummaryValue)
    snapshot = docs.land(change)
    assert json.loads(docs.metadata.properties[KEY])["snapshot"] == snapshot
    assert docs.rows() == [document(0, 1), document(1, 2)]


def test_rollback_is_noticed(docs: Docs) -> None:
    """Main moved back to batch 1: the property says that batch 2 was there."""
    first = docs.land(docs.change(1, range(1), None))
    docs.land(docs.change(2, range(1, 2), 1))
    docs.spark.sql(f"CALL `{docs.lake.name}`.system.rollback_to_snapshot('{TABLE}', {first})").collect()
    summary = read_summary(docs.metadata, KEY, TABLE)
    assert isinstance(summary, RolledBack)
    assert mark_of(summary) == BatchMark(1, "id-1", 0)


def test_batch_lands_only_on_its_predecessor(docs: Docs) -> None:
    """A table that holds another batch than expected, or is another table, gets nothing."""
    docs.land(docs.change(1, range(1), None))
    with pytest.raises(Refused, match="holds"):
        docs.land(docs.change(3, range(1), 2))
    change = docs.change(2, range(1), 1)
    with pytest.raises(Refused, match="table"):
        docs.land(replace(change, fit=replace(change.fit, uuid="another")))
    assert docs.rows() == [document(0, 1)]
    assert set(docs.metadata.refs) == {"main"}


def test_rows_of_range_are_replaced_in_one_step(docs: Docs) -> None:
    """Rows of a range go and others come in one step: of this topic, partition and range, and no others."""
    docs.land(docs.change(1, range(6), None))
    removal = Removal(COLUMNS, (RemovedRange("docs's", 0, 2, 4, 1), RemovedRange("docs's", None, 5, None, 2)))
    docs.land(docs.change(2, range(2, 4), 1, removal))
    assert docs.rows() == [document(number, 2 if number in (2, 3) else 1) for number in range(6)]
    docs.land(replace(docs.change(3, range(0), 2, replace(removal, ranges=removal.ranges[:1]))))
    assert [offset for offset, _ in docs.rows()] == [0, 1, 4, 5]
    assert mark_of(read_summary(docs.metadata, KEY, TABLE)) == BatchMark(3, "id-3", 0)


EVERY_TYPE = {
    "boolean": True,
    "int": -(2**31),
    "long": 2**63 - 1,
    "float": 0.5,
    "double": float("inf"),
    "date": date(1, 1, 1),
    "timestamp": datetime(9999, 12, 31, 23, 59, 59, 999999),
    "timestamptz": datetime(1900, 1, 1, 0, 0, 0, 1, tzinfo=UTC),
    "string": "é😀\x00",
    "binary": b"\x00\xff",
    "fixed[2]": b"\x00\xff",
    "decimal(38,2)": Decimal("123456789012345678901234567890123456.78"),
    "list<struct<a: int, select: list<string>>>": [{"a": 1, "select": ["x", None]}, None],
    "map<string, struct<b: timestamptz>>": {"k": {"b": datetime(2026, 5, 1, tzinfo=UTC)}},
    "struct<c: decimal(10,2), d: binary>": {"c": Decimal("1.10"), "d": b""},
}


def test_every_type_comes_in_as_staged(spark: SparkSession, tmp_path: Path) -> None:
    """Every type that a pipeline file may name beside a variant comes in as it was staged, required or null."""
    odd = "a `b`.c"
    columns: dict[str, object] = {odd: {"type": "long", "required": True}, "doc": {"type": "variant", "from": []}}
    columns |= {
        f"c{index}": {"type": type_name, "required": index % 2 == 0} for index, type_name in enumerate(EVERY_TYPE)
    }
    destination = Destination.model_validate({"table": TABLE, "columns": columns})
    docs = Docs(spark, sqlite(tmp_path), destination)
    table = docs.lake.load_table(TABLE)
    schema = pa.schema([*arrow_columns(table, destination), *KafkaColumns().fields])
    full = {odd: 1, "doc": '{"a":null}'} | {f"c{index}": example for index, example in enumerate(EVERY_TYPE.values())}
    bare = {name: None if name.startswith("c") and int(name[1:]) % 2 else example for name, example in full.items()}
    writer = RowFileWriter(staging_table(TABLE, table))
    writer.write(pa.RecordBatch.from_pylist([full, bare], schema=schema.remove_metadata()))

    docs.land(replace(docs.change(1, range(0), None), files=writer.close()))

    names = tuple(name for name in schema.names if name != "doc")
    rows = docs.lake.load_table(TABLE).scan(selected_fields=names).to_arrow().to_pylist()
    expected = pa.RecordBatch.from_pylist([full, bare], schema=schema).select(names).to_pylist()
    assert sorted(rows, key=str) == sorted(expected, key=str)
