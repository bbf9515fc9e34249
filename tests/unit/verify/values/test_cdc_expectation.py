"""Verify and the code that writes read changes independently, by the same promise."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from frazil.verify.values.canonical import column_values
from frazil.verify.values.cdc_expectation import ChangeReader
from frazil.verify.values.column_readers import Bad
from tests.unit.records.cdc.landing import TABLE, landed, pipeline

COLUMNS = {
    "id": {"type": "long", "required": True},
    "called": {"type": "string", "from": "name"},
    "cost": "decimal(9,2)",
    "op": {"type": "string", "from": ["_cdc", "op"]},
    "place": {"type": "string", "from": ["_cdc", "order"]},
}
WORDS = {"insert": ["I"], "update": ["U"], "delete": ["D"], "truncate": ["T"]}
FIELDS = {"insert": ["insert"], "delete": ["delete"]}

IDS = st.sampled_from([1, 2, 2, 2.0, 2.5, "2", None, 2**63])
PLACEHOLDER = "__debezium_unavailable_value"
NAMES = st.sampled_from(["a", "é", PLACEHOLDER, [PLACEHOLDER], [*PLACEHOLDER.encode()], 7, None, {"x": 1}])
COSTS = st.sampled_from([1, 1.5, "1.50", 1.234, None])
MORE = st.sampled_from([1, PLACEHOLDER])
ROWS = st.none() | st.fixed_dictionaries({}, optional={"id": IDS, "name": NAMES, "cost": COSTS, "more": MORE})
OPS = (
    "c",
    "u",
    "d",
    "r",
    "t",
    "m",
    "I",
    "U",
    "D",
    "T",
    "insert",
    "update",
    "delete",
    "load",
    "INSERT",
    "UPDATE",
    "DELETE",
)
OPS_SENT = st.sampled_from([*OPS, "TRUNCATE", "ALTER", "table-alter", "create-table", None, 1])
DMS_ROWS = st.none() | st.fixed_dictionaries(
    {}, optional={"id": IDS, "name": NAMES, "cost": COSTS, "more": MORE, "BI_id": IDS, "BI_name": NAMES}
)
TEXTS = {"id": st.sampled_from(["1", "2", "x", None]), "name": st.sampled_from(["a", None])}
TEXT_ROWS = st.none() | st.fixed_dictionaries({}, optional={**TEXTS, "cost": st.sampled_from(["1.5", "y", None])})
LISTS = st.none() | st.lists(TEXT_ROWS, max_size=3)
SOURCE = st.none() | st.fixed_dictionaries({}, optional={"lsn": st.just(9), "file": st.just("f"), "pos": st.just(4)})

FORMATS: dict[str, tuple[Any, st.SearchStrategy[Any]]] = {
    "debezium": (
        {"format": "debezium"},
        st.fixed_dictionaries({"op": OPS_SENT}, optional={"before": ROWS, "after": ROWS, "source": SOURCE}),
    ),
    "dms": (
        {"format": "dms"},
        st.fixed_dictionaries(
            {
                "metadata": st.fixed_dictionaries(
                    {"operation": OPS_SENT, "record-type": st.sampled_from(["data", "control"])}
                )
            },
            optional={"data": DMS_ROWS, "before-image": ROWS},
        ),
    ),
    "maxwell": (
        {"format": "maxwell"},
        st.fixed_dictionaries(
            {"type": OPS_SENT}, optional={"data": ROWS, "old": ROWS, "position": st.sampled_from(["m.1:7", "x", None])}
        ),
    ),
    "canal": (
        {"format": "canal"},
        st.fixed_dictionaries(
            {"type": OPS_SENT}, optional={"data": LISTS, "old": LISTS, "isDdl": st.sampled_from([True, False, None])}
        ),
    ),
    "op_column": (
        {"format": "op_column", "op": "m.op", "row": "new", "before": "old", "values": WORDS},
        st.fixed_dictionaries(
            {"m": st.none() | st.fixed_dictionaries({"op": OPS_SENT})}, optional={"new": ROWS, "old": ROWS}
        ),
    ),
    "envelope": (
        {"format": "envelope", "values": FIELDS},
        st.fixed_dictionaries({}, optional={"insert": ROWS, "delete": ROWS, "update": ROWS}),
    ),
}


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("order_by", [None, "place"])
@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_two_readings_of_a_change_agree(name: str, order_by: str | None, data: st.DataObject) -> None:
    """For any record, valid or not, both readings give the same rows, or none."""
    changes, values = FORMATS[name]
    declared = pipeline(changes=changes, columns=COLUMNS, order_by=order_by)
    document = data.draw(values)
    outcomes = landed(declared, [document])
    destination = declared.destinations[0]
    readings = ChangeReader(destination, destination.columns, declared.value).row(json.dumps(document).encode())
    rows = outcomes.rows[TABLE]
    if isinstance(readings, Bad):
        assert (rows.num_rows, outcomes.dead.num_rows) == (0, 1), readings
        return
    assert outcomes.dead.num_rows == 0, outcomes.dead.column("message")
    cells = [column_values(rows.column(of), column.parsed) for of, column in destination.columns.items()]
    staged = list(zip(*cells, strict=True))
    assert [reading.op for reading in readings] == rows.column("_frazil_op").to_pylist()
    assert [reading.row for reading in readings if reading.op == "upsert"] == [
        row for reading, row in zip(readings, staged, strict=True) if reading.op == "upsert"
    ]
    assert [reading.key or (None,) for reading in readings] == [row[:1] for row in staged]
    if order_by is not None:
        assert [reading.order for reading in readings] == [row[-1] for row in staged]
