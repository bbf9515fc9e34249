"""Kafka Connect's JSON with schemas: valid and invalid envelopes, and how records are grouped."""

from __future__ import annotations

import json
import pickle

import pyarrow as pa
import pytest

from frazil.records.formats.connect_json.envelope import EnvelopeFormat
from frazil.records.model.dead_letter import MAX_DEPTH, DeadCode
from tests.unit.records.formats.envelopes import GOOD, Schema, bare, decode, envelope, fields, outcomes

FRAMES: dict[str, tuple[bytes, DeadCode]] = {
    "no bytes": (b"", DeadCode.EMPTY_VALUE),
    "not UTF-8": (GOOD.replace(b"7", b'"\xff"'), DeadCode.INVALID_UTF8),
    "not JSON": (GOOD[:-1], DeadCode.INVALID_JSON),
    "something behind": (GOOD + b"}", DeadCode.INVALID_JSON),
    "NaN": (GOOD.replace(b"7", b"NaN"), DeadCode.INVALID_JSON),
    "a list": (b"[]", DeadCode.NOT_AN_OBJECT),
    "a text": (b'"x"', DeadCode.NOT_AN_OBJECT),
    "plain JSON": (b'{"a":1}', DeadCode.INVALID_ENVELOPE),
    "empty object": (b"{}", DeadCode.INVALID_ENVELOPE),
    "no payload": (b'{"schema":{"type":"int8"}}', DeadCode.INVALID_ENVELOPE),
    "no schema": (b'{"payload":1}', DeadCode.INVALID_ENVELOPE),
    "a third field": (GOOD[:-1] + b',"x":1}', DeadCode.INVALID_ENVELOPE),
    "schema as text": (b'{"schema":"int8","payload":1}', DeadCode.INVALID_ENVELOPE),
    "schema as list": (b'{"schema":[],"payload":1}', DeadCode.INVALID_ENVELOPE),
    "deep payload": (GOOD.replace(b"7", b"[" * 1000 + b"]" * 1000), DeadCode.TOO_DEEP),
    "payload too deep by one": (
        GOOD.replace(b"7", b"[" * (MAX_DEPTH - 1) + b"]" * (MAX_DEPTH - 1)),
        DeadCode.TOO_DEEP,
    ),
    "payload as deep as can be": (
        GOOD.replace(b"7", b"[" * (MAX_DEPTH - 2) + b"]" * (MAX_DEPTH - 2)),
        DeadCode.INVALID_ENVELOPE,
    ),
    "deep schema": (
        b'{"schema":' + b'{"type":"array","items":' * 400 + b"0" + b"}" * 400 + b',"payload":[]}',
        DeadCode.TOO_DEEP,
    ),
}


@pytest.mark.parametrize(("value", "code"), FRAMES.values(), ids=FRAMES.keys())
def test_invalid_envelope_is_a_dead_letter_alone(value: bytes, code: DeadCode) -> None:
    """Whatever comes instead of an envelope has its reason, and good records before and behind are rows."""
    decoded = decode([GOOD, value, GOOD])
    assert {position: reason.code for position, reason in decoded.dead.items()} == {1: code}
    assert len(decoded.dead[1].message) < 250
    assert decoded.groups[0].columns.to_pylist() == [{"a": 7}, {"a": 7}]


FORMS: dict[str, bytes] = {
    "payload first": b'{"payload":{"a":7},"schema":{"type":"struct","fields":[{"type":"int32","field":"a"}]}}',
    "blanks": GOOD.replace(b":", b" :\r\n\t ").replace(b",", b" , ").replace(b"{", b"{ ") + b"\n",
    "byte order mark": b"\xef\xbb\xbf" + GOOD,
    "escaped names": GOOD.replace(b"payload", b"\\u0070ayload"),
    "payload twice": GOOD.replace(b'"payload":', b'"payload":{"a":1},"payload":'),
    "schema twice": GOOD.replace(b'{"schema":', b'{"schema":{"type":"int8"},"schema":', 1),
    "schema behind again": b'{"schema":{"type":"int8"},"payload":{"a":7},' + GOOD[1:].split(b',"payload"')[0] + b"}",
    "more in the schema": GOOD.replace(b'"struct"', b'"struct","name":"x.Value","version":1,"doc":"\\"payload\\":"'),
    "more in the payload": GOOD.replace(b"7", b'7,"b":{"payload":1}'),
}


@pytest.mark.parametrize("value", FORMS.values(), ids=FORMS.keys())
def test_form_of_the_json_makes_no_difference(value: bytes) -> None:
    """Order, blanks, repeated keys: the record means what JSON says, also when beginnings are remembered."""
    decoded = decode([GOOD, value, value, GOOD])
    assert decoded.dead == {}
    rows = [row for group in decoded.groups for row in group.columns.to_pylist()]
    assert rows == [{"a": 7}] * 4


def test_records_are_grouped_by_schema() -> None:
    """A batch holds several schemas: each is a group, with the positions of its records."""
    wide = fields(a={"type": "int32"}, b={"type": "string", "optional": True, "default": None})
    values = [GOOD, envelope(wide, '{"a":1,"b":"x"}'), GOOD, envelope(None, '"t"'), envelope(wide, '{"a":2}')]
    decoded = decode(values)
    assert [group.positions.to_pylist() for group in decoded.groups] == [[0, 2], [1, 4], [3]]
    assert decoded.groups[1].columns.schema == pa.schema(
        [pa.field("a", pa.int32(), nullable=False), pa.field("b", pa.string())]
    )
    assert decoded.groups[1].columns.to_pylist() == [{"a": 1, "b": "x"}, {"a": 2, "b": None}]


def test_path_leads_to_the_fault() -> None:
    """The reason names the place, from the record's root."""
    schema = fields(x={"type": "array", "items": fields(y={"type": "int8"})})
    broken = fields(x={"type": "array", "items": {"type": "map", "keys": {"type": "?"}}})
    dead = decode([envelope(schema, '{"x":[{"y":1},{"y":"no"}]}'), envelope(broken, "{}")]).dead
    assert [reason.path for reason in dead.values()] == ["payload.x[1].y", "schema.fields[0].items.keys"]
    assert dead[0].message == 'expected int8, found text "no"'


def test_default_stands_for_null() -> None:
    """As with `replace.null.with.default=true`, also where null would be allowed."""
    schema = fields(a={"type": "int8", "default": 1, "optional": True}, b={"type": "int8", "default": 2})
    values = [envelope(schema, '{"a":null,"b":3}'), envelope(schema, '{"a":4}')]
    assert decode(values).groups[0].columns.to_pylist() == [{"a": 1, "b": 3}, {"a": 4, "b": 2}]


def test_types_may_be_nested_to_the_limit_and_no_further() -> None:
    """A schema that would exhaust the stack is refused, the deepest allowed one is read."""
    schema: Schema = {"type": "int8"}
    payload = "1"
    for _ in range(MAX_DEPTH - 2):
        schema, payload = {"type": "array", "items": schema}, f"[{payload}]"
    assert bare(schema, payload)[1] == json.loads(payload)
    assert bare({"type": "array", "items": schema}, f"[{payload}]")[1] is DeadCode.TOO_DEEP


def test_more_schemas_than_are_remembered_are_read() -> None:
    """Forgetting costs time and nothing else."""
    values = [envelope(fields(**{f"f{n}": {"type": "int32"}}), f'{{"f{n}":{n}}}') for n in range(300)]
    results = outcomes(decode(values))
    assert results == {n: repr({f"f{n}": n}) for n in range(300)}


def test_format_travels_to_executors() -> None:
    """A copy made from the bytes of a used format decodes alike."""
    expected_format = EnvelopeFormat()
    values = pa.array([GOOD, b"{}"])
    before = expected_format.decode(values)
    copy = pickle.loads(pickle.dumps(expected_format))  # noqa: S301 (made in the line before)
    assert copy == expected_format
    assert outcomes(copy.decode(values)) == outcomes(before)
