"""Random records of several formats and shapes."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from io import BytesIO
from typing import Any, Final
from uuid import UUID

import fastavro
import pyarrow as pa
from hypothesis import strategies as st

from frazil.records.model.format import FormatSpec, WriterSchema
from tests.format_specs import format_spec
from tests.unit.records.alone import records_of

PLACE = pa.struct([("city", pa.string()), ("at", pa.int64())])
_IMAGE = pa.struct([("id", pa.int64()), ("name", pa.string())])
_DMS = [(name, pa.string()) for name in ("record-type", "operation", "schema-name", "table-name")]
FIELDS: Final = pa.schema(
    [
        ("id", pa.int64()),
        ("name", pa.string()),
        ("price", pa.decimal128(10, 2)),
        ("score", pa.float64()),
        ("good", pa.bool_()),
        ("ms", pa.int64()),
        ("at", pa.string()),
        ("doc", pa.string()),
        ("tags", pa.list_(pa.string())),
        ("items", pa.list_(pa.struct([("sku", pa.string()), ("n", pa.int64())]))),
        ("place", PLACE),
        ("attrs", pa.map_(pa.string(), pa.string())),
        ("op", pa.string()),
        ("before", _IMAGE),
        ("after", pa.struct([*_IMAGE, ("more", pa.string())])),
        ("source", pa.struct([("db", pa.string()), ("table", pa.string())])),
        ("data", _IMAGE),
        ("metadata", pa.struct(_DMS)),
    ]
)
"""What a JSON value may have; the other formats say themselves what it has."""

TEXT = st.sampled_from(["", "1", "22", "x", "true", "2024-02-29", "9999999999", '{"a": 1, "b": "y"}', "ü", "[", "1e3"])
_SMALL = st.sampled_from([0, 1, -1, 7, 200, 2**31, 1709210096123, 2**62])


def _maybe(of: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | of | of | of


def _value(of: pa.DataType) -> st.SearchStrategy[Any]:
    if pa.types.is_struct(of):
        return st.fixed_dictionaries({field.name: _maybe(_value(field.type)) for field in of})
    if pa.types.is_list(of):
        return st.lists(_maybe(_value(of.value_type)), max_size=3)
    if pa.types.is_map(of):
        return st.dictionaries(st.sampled_from(["a", "b"]), _maybe(TEXT), max_size=2)
    scalars = {
        pa.int64(): _SMALL,
        pa.float64(): st.sampled_from([0.0, -0.5, 1e300, 0.1]),
        pa.bool_(): st.booleans(),
        pa.decimal128(10, 2): st.sampled_from(["0.00", "1.10", "-99.99"]).map(Decimal),
    }
    return scalars.get(of, TEXT)


_OP = st.sampled_from(["c", "u", "d", "r", "t", "z"])
_PLAIN = {field.name: _maybe(_value(field.type)) for field in FIELDS} | {"op": _maybe(_OP)}


@st.composite
def _json(draw: st.DrawFn) -> bytes:
    found = draw(st.fixed_dictionaries({}, optional=_PLAIN))
    odd = draw(st.sampled_from(["", "", "", "", "extra", "extra", "wrong", "broken", "text", "", "", ""]))
    if odd in {"broken", "text"}:
        return b'{"id": 1' if odd == "broken" else b'"text"'
    if odd:
        found["extra" if odd == "extra" else "id"] = draw(st.sampled_from(["x", [1], {"y": None}]))
    return json.dumps(found, default=float).encode()


_KINDS: Mapping[str, tuple[str, ...]] = {
    "wide": ("id", "name", "price", "score", "good", "ms", "at", "doc", "tags", "items", "place", "attrs"),
    "narrow": ("id", "name", "tags", "place"),
    "change": ("op", "before", "after", "source", "ms"),
}
"""Names of the fields that values with a schema of their own have."""


def _connect(of: pa.DataType) -> dict[str, Any]:
    if pa.types.is_struct(of):
        return {
            "type": "struct",
            "fields": [{**_connect(each.type), "field": each.name} for each in of],
            "optional": True,
        }
    if pa.types.is_list(of):
        return {"type": "array", "items": _connect(of.value_type), "optional": True}
    if pa.types.is_map(of):
        return {"type": "map", "keys": {"type": "string"}, "values": _connect(of.item_type), "optional": True}
    if pa.types.is_decimal(of):
        name = "org.apache.kafka.connect.data.Decimal"
        return {"type": "bytes", "name": name, "parameters": {"scale": "2"}, "optional": True}
    names = {pa.int64(): "int64", pa.float64(): "double", pa.bool_(): "boolean"}
    return {"type": names.get(of, "string"), "optional": True}


def _schema_of(kind: str) -> pa.DataType:
    return pa.struct([FIELDS.field(name) for name in _KINDS[kind]])


def _sent(found: Any) -> Any:
    if isinstance(found, dict):
        return {name: _sent(value) for name, value in found.items()}
    if isinstance(found, Decimal):
        whole = int(found * 100)
        return base64.b64encode(whole.to_bytes(8, "big", signed=True)).decode()
    return found


@st.composite
def _envelope(draw: st.DrawFn) -> bytes:
    kind = draw(st.sampled_from(sorted(_KINDS)))
    payload = {name: draw(_PLAIN[name]) for name in _KINDS[kind]}
    if draw(st.integers(0, 9)) == 4:
        payload["extra"] = 1
    sent: Any = _sent(payload) if draw(st.integers(0, 15)) != 7 else draw(st.sampled_from([None, 5, "x"]))
    return json.dumps({"schema": _connect(_schema_of(kind)), "payload": sent}).encode()


def _avro_type(name: str, of: pa.DataType) -> Any:
    if pa.types.is_struct(of):
        made: Any = {"type": "record", "name": name, "fields": _avro_fields(name, of)}
    elif pa.types.is_list(of):
        made = {"type": "array", "items": _avro_type(f"{name}_item", of.value_type)}
    elif pa.types.is_map(of):
        made = {"type": "map", "values": _avro_type(f"{name}_value", of.item_type)}
    elif pa.types.is_decimal(of):
        made = {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}
    else:
        made = {pa.int64(): "long", pa.float64(): "double", pa.bool_(): "boolean"}.get(of, "string")
    return ["null", made]


def _avro_fields(name: str, of: pa.DataType) -> list[dict[str, Any]]:
    # Names of Avro have no hyphen; no such field is in the kinds above.
    return [{"name": each.name, "type": _avro_type(f"{name}_{each.name}", each.type)} for each in of]


_AVRO: Final = {
    kind: {"type": "record", "name": kind, "fields": _avro_fields(kind, _schema_of(kind))} for kind in sorted(_KINDS)
}


@dataclass(frozen=True)
class _Writers:
    def schema(self, schema_id: int | UUID) -> WriterSchema | None:
        known = {number: WriterSchema("AVRO", json.dumps(of)) for number, of in enumerate(_AVRO.values())}
        return known.get(schema_id) if isinstance(schema_id, int) else None


@st.composite
def _avro(draw: st.DrawFn) -> bytes:
    kind = draw(st.sampled_from(sorted(_KINDS)))
    out = BytesIO()
    fastavro.schemaless_writer(out, _AVRO[kind], {name: draw(_PLAIN[name]) for name in _KINDS[kind]})
    number = draw(st.sampled_from([list(_AVRO).index(kind)] * 15 + [99]))
    return b"\0" + number.to_bytes(4, "big") + out.getvalue()


ENCODERS: Final[Mapping[str, tuple[FormatSpec, st.SearchStrategy[bytes]]]] = {
    "json": (format_spec("json"), _json()),
    "json-envelope": (format_spec("json-envelope"), _envelope()),
    "avro": (format_spec("avro", source=_Writers()), _avro()),
}
_KEYS = st.sampled_from(
    [b'{"k": 1, "t": "x"}', None, b'{"k": 2}', b'{"k": 3}', None, b'{"t": null, "z": 1}', b"{", b'{"k": 4}']
)
KEY_FIELDS: Final = pa.schema([("k", pa.int64()), ("t", pa.string())])


@st.composite
def batches(draw: st.DrawFn, encoder: str) -> pa.RecordBatch:
    """Up to seven records, with keys, of two topics, some with a header."""
    size = draw(st.integers(2, 7))
    found = [(draw(st.sampled_from("pq")), draw(_KEYS), _sometimes_none(draw, encoder)) for _ in range(size)]
    return records_of(*found, headers=[draw(st.sampled_from([[], ["h"], ["g", "h"]])) for _ in range(size)])


def _sometimes_none(draw: st.DrawFn, encoder: str) -> bytes | None:
    # Numbers in the middle: those at the ends are drawn more often.
    value = draw(ENCODERS[encoder][1])
    return {7: None, 8: b""}.get(draw(st.integers(0, 15)), value)
