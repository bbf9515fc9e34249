"""A field twice, under two names."""

from __future__ import annotations

import pyarrow as pa

from frazil.records.transforms.kinds.field_sets import CopyValue
from tests.unit.records.transforms.frames import dead_messages, frame_of, run

SHAPE = pa.schema([pa.field("a", pa.int64(), nullable=False), pa.field("a.b", pa.string())])
ROWS: list[dict[str, object]] = [{"a": 1, "a.b": None}, {"a": 2, "a.b": "x"}]


def test_the_copy_has_value_and_type_of_the_field():
    """Required stays required; a dot in a name is a dot."""
    value = run(CopyValue("a", "c"), frame_of(ROWS, SHAPE)).frame.value

    assert value.to_pylist() == [{**row, "c": row["a"]} for row in ROWS]
    assert value.schema.field("c") == pa.field("c", pa.int64(), nullable=False)


def test_a_field_of_the_targets_name_is_replaced_where_it_stands():
    """As the sink does with maps."""
    value = run(CopyValue("a.b", "a"), frame_of(ROWS, SHAPE)).frame.value

    assert value.to_pylist() == [{"a": None, "a.b": None}, {"a": "x", "a.b": "x"}]


def test_records_of_a_shape_without_the_field_fail():
    """They say which fields they have."""
    done = run(CopyValue("b", "c"), frame_of(ROWS, SHAPE))

    assert set(dead_messages(done).values()) == {"CopyValue: expected a field b, found a, a.b"}
