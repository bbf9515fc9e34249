"""Blocks of envelopes have the same outcomes as single values."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from frazil.records.formats.connect_json.envelope import EnvelopeFormat
from tests.unit.records.formats.connect_json.test_types import CASES
from tests.unit.records.formats.envelopes import Schema, envelope, fields
from tests.unit.records.json_documents import objects, outcomes

NEVER_BLOCKS = (
    "map",
    "as number",
    "fraction of zero",
    "infinite",
    "any scale",
    "beyond reason",
    "default",
    "no schema",
)
"""Parts of the names of cases that are read one by one, and whatever is in a struct beside them."""

EVERY_TYPE = {name: case for name, case in CASES.items() if not any(part in name for part in NEVER_BLOCKS)}
TYPED = fields(**{name: schema or {} for name, (schema, _, _, _) in EVERY_TYPE.items()})
TYPED_VALUES = {name: value for name, (_, value, _, _) in EVERY_TYPE.items()}
POINT = fields(x={"type": "int32"}, y={"type": "string", "optional": True})
NULLS = fields(
    a={"type": "int64", "default": 7},
    b={"type": "string", "optional": True, "default": "x"},
    c={"type": "array", "optional": True, "items": {**POINT, "optional": True}},
    d={**POINT, "optional": True},
    e={"type": "double"},
)
NULLS_VALUES = {"a": "1", "b": '"y"', "c": '[{"x": 1}, null]', "d": '{"x": 2, "y": "z"}', "e": "0.5"}
SHAPES: list[tuple[Schema, dict[str, str]]] = [
    (TYPED, TYPED_VALUES),
    (NULLS, NULLS_VALUES),
    (POINT, {"x": "1", "y": '"z"'}),
    ({**POINT, "optional": True}, {"x": "1", "y": '"z"'}),
]


@st.composite
def envelopes(draw: st.DrawFn) -> bytes:
    """An envelope whose payload, or what stands around it, may be odd."""
    schema, good = draw(st.sampled_from(SHAPES))
    payload = draw(objects(good) | objects(good) | st.sampled_from(["null", "1", "[]", "{}"]))
    raw = envelope(schema, payload)
    around = [b"}", b"}", b"}", b"} ", b',"more":1}', b',"payload":null}', b',"schema":null}', b"}}", b"", b"\xff}"]
    return raw[:-1] + draw(st.sampled_from(around))


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(st.lists(envelopes(), min_size=1, max_size=8))
def test_blocks_and_single_values_agree(values: list[bytes]) -> None:
    """Rows, reasons with their texts, and the names of unknown fields are the same, also when beginnings are remembered."""
    fast, exact = EnvelopeFormat(), EnvelopeFormat(blocks=False)
    expected_format = outcomes(exact, values)
    assert outcomes(fast, values) == expected_format
    assert outcomes(fast, values) == expected_format


def test_good_values_are_read_as_a_block_of_each_schema() -> None:
    """Equal outcomes prove nothing if blocks never decide anything: a byte order mark is left to the single values."""
    written = [
        envelope(schema, "{" + ",".join(f'"{name}":{value}' for name, value in good.items()) + "}")
        for schema, good in SHAPES
    ]
    values = written * 100 + [b"\xef\xbb\xbf" + value for value in written]
    decoded = EnvelopeFormat().decode(pa.array(values, pa.binary()))
    assert [len(group.positions) for group in decoded.groups] == [100] * 4 + [1] * 4
    assert not decoded.dead


def test_unknown_field_is_counted_beside_a_tombstone() -> None:
    """A payload that is null has no row, and no field that nobody knows: its neighbour has one."""
    schema = {**POINT, "optional": True}
    payloads = ['{"x": 1, "y": "z"}', "null", '{"x": 1, "y": "z", "extra": 1}']
    values = pa.array([envelope(schema, payload) for payload in payloads], pa.binary())

    for blocks in (True, False):
        assert dict(EnvelopeFormat(blocks=blocks).decode(values).unknown_fields.by_position()) == {2: ["extra"]}


@pytest.mark.parametrize("second", [fields(b={"type": "string", "optional": True}), {}])
@pytest.mark.parametrize("blocks", [True, False])
def test_record_with_two_schemas_decides_nothing_for_others(second: Schema, blocks: bool) -> None:
    """The last schema counts, and is not the one that the record begins with: no other record is read by it."""
    good = envelope(POINT, '{"x": 1, "y": "z"}')
    hostile = good[:-1] + b',"schema":' + json.dumps(second).encode() + b"}"
    envelopes = EnvelopeFormat(blocks=blocks)

    envelopes.decode(pa.array([hostile], pa.binary()))
    decoded = envelopes.decode(pa.array([good, good], pa.binary()))

    assert [row for group in decoded.groups for row in group.columns.to_pylist()] == [{"x": 1, "y": "z"}] * 2
