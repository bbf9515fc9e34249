"""Whatever is put in comes back or is dead: schemas and payloads of any shape."""

from __future__ import annotations

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from frazil.records.model.dead_letter import DeadCode
from frazil.records.model.format import BARE
from tests.unit.records.formats.envelopes import DATA, DEBEZIUM, GOOD, Schema, decode, fields, outcomes

SCALARS = {
    "int32": st.integers(-(1 << 31), (1 << 31) - 1),
    "int64": st.integers(-(1 << 63), (1 << 63) - 1),
    "double": st.floats(allow_nan=False, allow_infinity=False),
    "boolean": st.booleans(),
    "string": st.text(st.characters(codec="utf-8")),
}


@st.composite
def written(draw: st.DrawFn, depth: int = 2) -> tuple[Schema, object]:
    """Draw a schema and a value of it as JSON has it."""
    kind = draw(st.sampled_from([*SCALARS, *(["array", "struct"] if depth else [])]))
    if kind == "array":
        schema, value = draw(written(depth - 1))
        return {"type": "array", "items": schema}, [value] * draw(st.integers(0, 2))
    if kind == "struct":
        names = draw(st.lists(st.text(st.characters(codec="utf-8"), max_size=3), unique=True, min_size=1, max_size=3))
        inner = {name: draw(written(depth - 1)) for name in names}
        return fields(**{name: schema for name, (schema, _) in inner.items()}), {n: v for n, (_, v) in inner.items()}
    if draw(st.booleans()):
        return {"type": kind, "optional": True}, draw(SCALARS[kind] | st.none())
    return {"type": kind}, draw(SCALARS[kind])


@settings(deadline=None)
@given(st.lists(written(), max_size=4), st.booleans())
def test_what_a_converter_wrote_comes_back(records: list[tuple[Schema, object]], ascii_only: bool) -> None:
    """Schemas of any shape, mixed in a batch, give the values that were put in."""
    values = [
        json.dumps({"schema": schema, "payload": payload}, ensure_ascii=ascii_only).encode()
        for schema, payload in records
    ]
    results = outcomes(decode(values))
    for position, (schema, payload) in enumerate(records):
        if payload is None:
            assert results[position].code is DeadCode.NULL_VALUE
        else:
            assert results[position] == repr(payload if schema["type"] == "struct" else {BARE: payload})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["type", "fields", "field", "items", "keys", "values", "name", "a"]), inner)
    ),
    max_leaves=8,
)
KINDS = st.sampled_from(["struct", "array", "map", "int8", "bytes", "string", "double", "boolean", "int64"])
NAMES = st.sampled_from([DATA + "Decimal", DATA + "Date", DEBEZIUM + "time.NanoTime", DEBEZIUM + "data.Uuid"])
ODD_SCHEMAS = st.recursive(
    st.fixed_dictionaries({"type": KINDS}, optional={"name": NAMES, "default": JSON, "parameters": JSON}),
    lambda inner: (
        st.fixed_dictionaries({"type": KINDS, "items": inner, "keys": inner, "values": inner})
        | st.lists(inner, max_size=3).map(
            lambda schemas: {"type": "struct", "fields": [f | {"field": str(n)} for n, f in enumerate(schemas)]}
        )
    ),
    max_leaves=4,
)


@settings(deadline=None)
@given(st.lists(st.tuples(ODD_SCHEMAS | JSON, JSON, st.binary(max_size=3), st.integers(0, 400)), max_size=4))
def test_nothing_makes_decoding_fail(records: list[tuple[object, object, bytes, int]]) -> None:
    """Schemas, payloads and bytes of no meaning are rows or dead letters, and good neighbours are rows."""
    values = [GOOD]
    for schema, payload, junk, cut in records:
        raw = json.dumps({"schema": schema, "payload": payload}).encode()
        values += [raw, raw[:cut] + junk + raw[cut:], junk, GOOD]
    results = outcomes(decode(values))
    assert all(results[position] == repr({"a": 7}) for position, value in enumerate(values) if value == GOOD)
