"""Names, levels and fields in any number: each record is a row or a dead letter, and memory has a bound."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
import pytest

from frazil.batch.schema_change import MOST_DEMANDS, SchemaChange, bound_demands
from frazil.records.model.dead_letter import MAX_DEPTH, DeadCode
from frazil.records.model.spec import Evolution, RecordSpec
from frazil.records.transforms.kinds.field_sets import HoistField
from frazil.records.transforms.kinds.nested import Flatten
from frazil.records.transforms.kinds.sql import Sql
from tests.unit.records.cdc.growing import grown
from tests.unit.records.cdc.landing import TABLE, pipeline
from tests.unit.records.evolution.evolving import land, spec, transformed
from tests.unit.records.kafka_batches import BATCH_NUMBER, OneTable, kafka_batch

pytestmark = pytest.mark.unit

ID = pa.field("id", pa.int64())
LONG = "n" * 500


def sql(*columns: object) -> RecordSpec:
    """A table that follows what an expression makes of its records."""
    id_spec = spec([ID])
    return RecordSpec(
        id_spec.columns,
        fields=id_spec.columns,
        infers=True,
        transforms=(*columns, Sql("*, 1 AS added")),  # type: ignore[arg-type]
        evolution=id_spec.evolution,
    )


PATHS = {
    "declared": RecordSpec(pa.schema([ID])),
    "declared text": RecordSpec(pa.schema([ID, pa.field("deep", pa.string())])),
    "whole": RecordSpec(pa.schema([ID, pa.field("whole", pa.string())]), sources={"id": ("id",), "whole": ()}),
    "evolving": spec([ID]),
    "evolving deep": spec([ID], Evolution(max_depth=MAX_DEPTH)),
    "evolving full": spec([ID, pa.field("_rescued", pa.string())], Evolution(max_columns=0)),
    "transformed": transformed(spec([ID])),
    "SQL": sql(),
    "SQL behind transforms": sql(HoistField("outer"), HoistField("more")),
}


@pytest.mark.parametrize("characters", [65, 255, 256, 500, 50_000])
@pytest.mark.parametrize("follows", [spec([ID]), transformed(spec([ID]))], ids=["plain", "transformed"])
def test_field_with_a_long_name_lands_and_the_table_goes_on(characters: int, follows: RecordSpec):
    """A name that a column can have becomes one, a longer one goes to the rescued fields; the next batch lands."""
    name = "ñ" * characters
    landed = land([[{"id": 1, name: 2}, {"id": 2}]], follows)
    assert [row["id"] for row in landed.rows] == [1, 2]
    if characters <= Evolution().max_name_length:
        assert landed.rows[0][name] == 2
    else:
        assert json.loads(landed.rows[0]["_rescued"]) == {name: 2}
        assert set(landed.columns) == {"id", "_rescued"}
    assert land([[{"id": 3, name: 4}]], landed.spec).rounds == []


def test_long_names_inside_of_objects_are_rescued_with_the_object():
    """A struct gets the fields that have a name for a column; what a record has beside these is kept as it was."""
    landed = land([[{"id": 1, "place": {"city": "Bonn", LONG: 2}}]], spec([ID]))
    assert landed.columns["place"] == pa.struct([("city", pa.string())])
    assert json.loads(landed.rows[0]["_rescued"]) == {"place": {"city": "Bonn", LONG: 2}}


HALVES = ('{"id": 1, "a": {"\\udc00": 1}}', '{"id": 1, "a": [{"\\udc00": 1, "b": 2}]}', '{"id": 1, "\\ud800": 1}')


@pytest.mark.parametrize("value", HALVES, ids=("object", "list", "top"))
@pytest.mark.parametrize("path", [*PATHS.values(), sql(Flatten())], ids=[*PATHS, "flat"])
def test_half_a_character_in_a_name_ends_no_run(path: RecordSpec, value: str):
    """Arrow has no such names: the record is a row without that field, or a dead letter, and its neighbour lands."""
    landed = land([[value.encode(), b'{"id": 2}']], path)
    rows = [row["id"] for row in landed.rows]
    assert 2 in rows or path is PATHS["SQL behind transforms"]  # whose column is not there
    assert len(rows) + len(landed.codes) == 2


@pytest.mark.parametrize("characters", [64, 65, 500, 5_000])
def test_declared_columns_may_have_names_of_any_length(characters: int):
    """A pipeline author may declare what records may not bring."""
    columns = pa.schema([pa.field("x" * characters, pa.int64())])
    outcomes = OneTable(RecordSpec(columns), BATCH_NUMBER).decode(
        kafka_batch([b'{"%s": 5}' % (b"x" * characters)] * 20)
    )
    assert outcomes.rows.column(0).to_pylist() == [5] * 20


@pytest.mark.parametrize("name", ["\N{ICE CUBE}" * 255, "a|b(c)[d]*" * 25])
def test_a_hundred_long_names_are_decoded(name: str):
    """The check for suspect values depends on the names of columns, so it has a bound of its own."""
    names = [f"{number:03}{name}"[:255] for number in range(100)]
    landed = land([[{"id": 1}, dict.fromkeys(names, 1.5)]], spec([ID]))
    assert [{row[name] for name in names} for row in landed.rows] == [{None}, {1.5}]


def nested(levels: int, opening: str = '{"a":', closing: str = "}") -> bytes:
    """A record of so many levels."""
    return f'{{"id":1,"deep":{opening * (levels - 1)}1{closing * (levels - 1)}}}'.encode()


@pytest.mark.parametrize("brackets", [('{"a":', "}"), ("[", "]")], ids=["objects", "lists"])
@pytest.mark.parametrize("path", PATHS.values(), ids=PATHS.keys())
def test_one_limit_of_levels_holds_on_every_path(path: RecordSpec, brackets: tuple[str, str]):
    """Of values beside each other the one within the limit lands, and those beyond it are dead letters."""
    depths = [MAX_DEPTH, MAX_DEPTH + 1, 63, 64, 100, 300, 1_000, 50_000]
    landed = land([[nested(depth, *brackets) for depth in depths]], path)
    assert len(landed.rows) == 1
    assert landed.codes == [DeadCode.TOO_DEEP] * 7


@pytest.mark.parametrize("levels", [MAX_DEPTH - 1, MAX_DEPTH, 60, 300, 1_000])
@pytest.mark.parametrize("changes", ["cdc", "upsert"])
def test_one_limit_of_levels_holds_for_changes(changes: str, levels: int):
    """Rows that changes tell of have the same limit, which counts from the root of the value."""
    inside = nested(levels - 1).decode() if changes == "cdc" else nested(levels).decode()
    value = f'{{"op":"c","ts_ms":1,"after":{inside}}}' if changes == "cdc" else inside
    how = {"changes": {"format": "debezium"}} if changes == "cdc" else {}
    declared = pipeline(write=changes, evolve="widen", columns={"id": {"type": "long", "required": True}}, **how)
    outcomes = grown(declared, [value.encode()]).outcomes
    assert outcomes.dead.column("code").to_pylist() == ([] if levels <= MAX_DEPTH else [DeadCode.TOO_DEEP])
    assert outcomes.rows[TABLE].num_rows == (levels <= MAX_DEPTH)


def test_shape_deeper_than_arrow_hands_over_is_a_dead_letter():
    """Transforms may add levels until DuckDB can't take them; a field that merely passes through is not handed over."""
    hoists = tuple(HoistField(f"level_{number}") for number in range(20))
    passed, handed_over = (
        land([[nested(MAX_DEPTH)]], replace(sql(), transforms=(*hoists, Sql(select))))
        for select in ("*, 1 AS added", "*, level_19 IS NULL AS added")
    )
    assert (len(passed.rows), passed.codes) == (1, [])
    assert handed_over.codes == [DeadCode.TRANSFORM_FAILED]


def wide(records: int, fields: int) -> Iterator[dict[str, object]]:
    """Records whose fields are all different."""
    return ({f"field_{record}_{number}": number for number in range(fields)} for record in range(records))


@pytest.mark.parametrize(
    "values",
    [
        list(wide(25, 1_000)),
        list(wide(1, 25_000)),
        [{"u": document} for document in wide(25, 1_000)],
        [{"u": [document]} for document in wide(25, 1_000)],
        [{"u": next(wide(1, 25_000))}],
        [{name: [] for document in wide(25, 1_000) for name in document}],
    ],
    ids=["records", "one record", "objects", "lists", "one object", "nothing told"],
)
def test_keys_that_are_data_fill_the_columns_and_all_else_is_kept(values: list[object]):
    """More distinct names than are remembered: each record is a row, and the table has as many columns as it may have."""
    landed = land([values], spec([ID], Evolution(max_columns=20)))
    assert len(landed.rows) == len(values)
    assert len(landed.columns) <= 22


MANY_NAMES = """
from pathlib import Path
from tests.unit.records.evolution.evolving import land, spec
from tests.unit.records.decoder.test_decode_bounds import ID, wide

def peak():  # not ru_maxrss: Linux counts the memory of whoever started a process as its own
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) // 1024

before = peak()
landed = land([list(wide(1_100, 1_000))], spec([ID]))
assert len(landed.tasks[0].rows["a.t"]) == 1_100
print(peak() - before)
"""


@pytest.mark.full
def test_27_megabytes_of_distinct_names_take_less_than_a_gigabyte():
    """What decoding takes at its peak is bounded by the bytes of a batch, however many names are in them."""
    done = subprocess.run([sys.executable, "-c", MANY_NAMES], check=True, capture_output=True, text=True)
    assert int(done.stdout) < 1_024


def test_number_of_requested_columns_is_bounded():
    """Changes of columns that are there go before those that bring more."""
    adds = {SchemaChange((f"a{number}",), "add", "long") for number in range(MOST_DEMANDS + 10)}
    changes = {SchemaChange(("z",), "widen", "long"), SchemaChange(("z",), "optional")}
    bounded = bound_demands(adds | changes)
    assert list(bounded) == sorted(bounded)
    assert len(bounded) == MOST_DEMANDS + 2
    assert changes < set(bounded)
