"""Changes whose rows add columns: verify and the code that writes read them independently, by the same promise."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from frazil.pipeline.models.pipeline_file import Destination
from frazil.pipeline.models.value import Column
from frazil.records.model.column import type_name
from frazil.verify.values.canonical import column_values, null_empty_values
from frazil.verify.values.cdc_expectation import ChangeReader
from frazil.verify.values.column_readers import Bad
from tests.unit.records.cdc.growing import grown
from tests.unit.records.cdc.landing import TABLE, pipeline
from tests.unit.verify.values.test_cdc_expectation import FORMATS

COLUMNS = {
    "id": {"type": "int", "required": True},
    "cost": "decimal(9,2)",
    "op": {"type": "string", "from": ["_cdc", "op"]},
}


def columns_of(to: Destination, schema: pa.Schema) -> dict[str, Column]:
    """The final columns, as verify reads them from the table."""
    found = {}
    for field in schema:
        declared = to.columns.get(field.name)
        own = {} if declared is None else declared.model_dump(by_alias=True, exclude_unset=True)
        if field.name != "_rescued":
            found[field.name] = Column.model_validate(
                own | {"type": type_name(field.type), "required": not field.nullable}
            )
    return found


@pytest.mark.parametrize("name", FORMATS)
@given(data=st.data())
@settings(max_examples=25, deadline=None, phases=(Phase.explicit, Phase.reuse, Phase.generate))
def test_verify_and_staging_read_the_same_rows_of_any_records(name: str, data: st.DataObject) -> None:
    """For any records, valid or not, both readings give the same rows, or none."""
    assert_same_readings(name, data.draw(st.lists(FORMATS[name][1], min_size=1, max_size=3)))


@pytest.mark.parametrize(
    ("name", "sent"),
    [
        ("op_column", {"m": {"op": "D"}, "old": {"id": 1}, "new": {"id": 2.5}}),
        ("dms", {"metadata": {"operation": "UPDATE", "record-type": "control"}, "data": {"id": 2, "BI_id": "2"}}),
    ],
)
def test_verify_and_staging_agree_on_rows_that_do_not_count(name: str, sent: object) -> None:
    """Each image of a deleted row must have a fitting key; a record without row change is not checked."""
    assert_same_readings(name, [sent])


@pytest.mark.parametrize("op", ["t", "m", "d"])
@pytest.mark.parametrize("found", [{"a\ud800": "x"}, {"a": "\ud800"}, "\ud800"], ids=["name", "inside", "text"])
def test_half_a_character_in_a_row_that_does_not_count_is_no_fault_of_the_record(op: str, found: object) -> None:
    """Texts of a truncate or message, and of a delete beside its key, never land."""
    first = {"op": "c", "after": {"id": 1, "note": "x"}}
    assert_same_readings("debezium", [first, {"op": op, "before": {"id": 2}, "after": {"id": 2, "note": found}}])


def assert_same_readings(name: str, sent: list[Any]) -> None:
    """Decode the records for staging, and read them as verify does."""
    declared = pipeline(changes=FORMATS[name][0], columns=COLUMNS, evolve="widen")
    found = grown(declared, sent)
    columns = columns_of(declared.destinations[0], found.columns[TABLE])
    teller = ChangeReader(declared.destinations[0], columns, declared.value)
    rows = found.outcomes.rows[TABLE]
    dead = set(found.outcomes.dead.column("offset").to_pylist())
    cells = [
        [null_empty_values(of) for of in column_values(rows.column(name), of.parsed)] for name, of in columns.items()
    ]
    staged: dict[int, list[tuple[str, tuple[Any, ...]]]] = {}
    for offset, op, row in zip(
        rows.column("_kafka_offset").to_pylist(),
        rows.column("_frazil_op").to_pylist(),
        zip(*cells, strict=True),
        strict=True,
    ):
        staged.setdefault(offset, []).append((op, row))
    for offset, of in enumerate(sent, 100):
        told = teller.row(json.dumps(of).encode())
        assert isinstance(told, Bad) == (offset in dead), (of, told)
        if not isinstance(told, Bad):
            assert [each.op for each in told] == [op for op, _ in staged.get(offset, [])]
            for each, (op, row) in zip(told, staged.get(offset, []), strict=True):
                assert (each.key or (None,)) == row[:1]
                assert op != "upsert" or each.row == row


@pytest.mark.parametrize(
    "columns", [{}, {"_cdc": "string"}, {"fact": {"type": "long", "from": ["_cdc", "x"]}}], ids=str
)
def test_field_named_like_metadata_is_read_from_the_record(columns: dict[str, Any]) -> None:
    """Without `changes` there are no facts, and the field is the record's own."""
    declared = pipeline(write="upsert", columns={"id": {"type": "int", "required": True}, **columns}, evolve="widen")
    sent = {"id": 1, "_cdc": {"x": 5} if "fact" in columns else "mine"}
    found = grown(declared, [sent])
    taken = columns_of(declared.destinations[0], found.columns[TABLE])
    told = ChangeReader(declared.destinations[0], taken, declared.value).row(json.dumps(sent).encode())
    (row,) = found.outcomes.rows[TABLE].select(list(taken)).to_pylist()
    assert not isinstance(told, Bad)
    assert [each.row for each in told] == [tuple(row.values())]
    assert (*row.values(),)[1] in {5, "mine"}
