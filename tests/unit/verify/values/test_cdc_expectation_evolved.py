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


def columns_of(destination: Destination, schema: pa.Schema) -> dict[str, Column]:
    """The final columns, as verify reads them from the table."""
    cells = {}
    for field in schema:
        declared = destination.columns.get(field.name)
        own = {} if declared is None else declared.model_dump(by_alias=True, exclude_unset=True)
        if field.name != "_rescued":
            cells[field.name] = Column.model_validate(
                own | {"type": type_name(field.type), "required": not field.nullable}
            )
    return cells


@pytest.mark.parametrize("name", FORMATS)
@given(data=st.data())
@settings(max_examples=25, deadline=None, phases=(Phase.explicit, Phase.reuse, Phase.generate))
def test_verify_and_staging_read_the_same_rows_of_any_records(name: str, data: st.DataObject) -> None:
    """For any records, valid or not, both readings give the same rows, or none."""
    assert_same_readings(name, data.draw(st.lists(FORMATS[name][1], min_size=1, max_size=3)))


@pytest.mark.parametrize(
    ("name", "document"),
    [
        ("op_column", {"m": {"op": "D"}, "old": {"id": 1}, "new": {"id": 2.5}}),
        ("dms", {"metadata": {"operation": "UPDATE", "record-type": "control"}, "data": {"id": 2, "BI_id": "2"}}),
    ],
)
def test_verify_and_staging_agree_on_rows_that_do_not_count(name: str, document: object) -> None:
    """Each image of a deleted row must have a fitting key; a record without row change is not checked."""
    assert_same_readings(name, [document])


@pytest.mark.parametrize("op", ["t", "m", "d"])
@pytest.mark.parametrize("document", [{"a\ud800": "x"}, {"a": "\ud800"}, "\ud800"], ids=["name", "inside", "text"])
def test_half_a_character_in_a_row_that_does_not_count_is_no_fault_of_the_record(op: str, document: object) -> None:
    """Texts of a truncate or message, and of a delete beside its key, never land."""
    first = {"op": "c", "after": {"id": 1, "note": "x"}}
    assert_same_readings("debezium", [first, {"op": op, "before": {"id": 2}, "after": {"id": 2, "note": document}}])


def assert_same_readings(name: str, documents: list[Any]) -> None:
    """Decode the records for staging, and read them as verify does."""
    declared = pipeline(changes=FORMATS[name][0], columns=COLUMNS, evolve="widen")
    growth = grown(declared, documents)
    columns = columns_of(declared.destinations[0], growth.columns[TABLE])
    teller = ChangeReader(declared.destinations[0], columns, declared.value)
    rows = growth.outcomes.rows[TABLE]
    dead = set(growth.outcomes.dead.column("offset").to_pylist())
    cells = [
        [null_empty_values(cell) for cell in column_values(rows.column(name), column_type.parsed)]
        for name, column_type in columns.items()
    ]
    staged: dict[int, list[tuple[str, tuple[Any, ...]]]] = {}
    for offset, op, row in zip(
        rows.column("_kafka_offset").to_pylist(),
        rows.column("_frazil_op").to_pylist(),
        zip(*cells, strict=True),
        strict=True,
    ):
        staged.setdefault(offset, []).append((op, row))
    for offset, document in enumerate(documents, 100):
        readings = teller.row(json.dumps(document).encode())
        assert isinstance(readings, Bad) == (offset in dead), (document, readings)
        if not isinstance(readings, Bad):
            assert [each.op for each in readings] == [op for op, _ in staged.get(offset, [])]
            for each, (op, row) in zip(readings, staged.get(offset, []), strict=True):
                assert (each.key or (None,)) == row[:1]
                assert op != "upsert" or each.row == row


@pytest.mark.parametrize(
    "columns", [{}, {"_cdc": "string"}, {"fact": {"type": "long", "from": ["_cdc", "x"]}}], ids=str
)
def test_field_named_like_metadata_is_read_from_the_record(columns: dict[str, Any]) -> None:
    """Without `changes` there are no facts, and the field is the record's own."""
    declared = pipeline(write="upsert", columns={"id": {"type": "int", "required": True}, **columns}, evolve="widen")
    document = {"id": 1, "_cdc": {"x": 5} if "fact" in columns else "mine"}
    growth = grown(declared, [document])
    columns_now = columns_of(declared.destinations[0], growth.columns[TABLE])
    readings = ChangeReader(declared.destinations[0], columns_now, declared.value).row(json.dumps(document).encode())
    (row,) = growth.outcomes.rows[TABLE].select(list(columns_now)).to_pylist()
    assert not isinstance(readings, Bad)
    assert [each.row for each in readings] == [tuple(row.values())]
    assert (*row.values(),)[1] in {5, "mine"}
