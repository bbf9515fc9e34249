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


def _maybe(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | strategy | strategy | strategy


def _value(data_type: pa.DataType) -> st.SearchStrategy[Any]:
    if pa.types.is_struct(data_type):
        return st.fixed_dictionaries({field.name: _maybe(_value(field.type)) for field in data_type})
    if pa.types.is_list(data_type):
        return st.lists(_maybe(_value(data_type.value_type)), max_size=3)
    if pa.types.is_map(data_type):
        return st.dictionaries(st.sampled_from(["a", "b"]), _maybe(TEXT), max_size=2)
    scalars = {
        pa.int64(): _SMALL,
        pa.float64(): st.sampled_from([0.0, -0.5, 1e300, 0.1]),
        pa.bool_(): st.booleans(),
        pa.decimal128(10, 2): st.sampled_from(["0.00", "1.10", "-99.99"]).map(Decimal),
    }
    return scalars.get(data_type, TEXT)


_OP = st.sampled_from(["c", "u", "d", "r", "t", "z"])
_PLAIN = {field.name: _maybe(_value(field.type)) for field in FIELDS} | {"op": _maybe(_OP)}


@st.composite
def _json(draw: st.DrawFn) -> bytes:
    cells = draw(st.fixed_dictionaries({}, optional=_PLAIN))
    odd = draw(st.sampled_from(["", "", "", "", "extra", "extra", "wrong", "broken", "text", "", "", ""]))
    if odd in {"broken", "text"}:
        return b'{"id": 1' if odd == "broken" else b'"text"'
    if odd:
        cells["extra" if odd == "extra" else "id"] = draw(st.sampled_from(["x", [1], {"y": None}]))
    return json.dumps(cells, default=float).encode()


_KINDS: Mapping[str, tuple[str, ...]] = {
    "wide": ("id", "name", "price", "score", "good", "ms", "at", "doc", "tags", "items", "place", "attrs"),
    "narrow": ("id", "name", "tags", "place"),
    "change": ("op", "before", "after", "source", "ms"),
}
"""Names of the fields that values with a schema of their own have."""


def _connect(data_type: pa.DataType) -> dict[str, Any]:
    if pa.types.is_struct(data_type):
        return {
            "type": "struct",
            "fields": [{**_connect(each.type), "field": each.name} for each in data_type],
            "optional": True,
        }
    if pa.types.is_list(data_type):
        return {"type": "array", "items": _connect(data_type.value_type), "optional": True}
    if pa.types.is_map(data_type):
        return {"type": "map", "keys": {"type": "string"}, "values": _connect(data_type.item_type), "optional": True}
    if pa.types.is_decimal(data_type):
        name = "org.apache.kafka.connect.data.Decimal"
        return {"type": "bytes", "name": name, "parameters": {"scale": "2"}, "optional": True}
    names = {pa.int64(): "int64", pa.float64(): "double", pa.bool_(): "boolean"}
    return {"type": names.get(data_type, "string"), "optional": True}


def _schema_of(kind: str) -> pa.DataType:
    return pa.struct([FIELDS.field(name) for name in _KINDS[kind]])


def _json_form(payload: Any) -> Any:
    if isinstance(payload, dict):
        return {name: _json_form(value) for name, value in payload.items()}
    if isinstance(payload, Decimal):
        whole = int(payload * 100)
        return base64.b64encode(whole.to_bytes(8, "big", signed=True)).decode()
    return payload


@st.composite
def _envelope(draw: st.DrawFn) -> bytes:
    kind = draw(st.sampled_from(sorted(_KINDS)))
    payload = {name: draw(_PLAIN[name]) for name in _KINDS[kind]}
    if draw(st.integers(0, 9)) == 4:
        payload["extra"] = 1
    value_sent: Any = _json_form(payload) if draw(st.integers(0, 15)) != 7 else draw(st.sampled_from([None, 5, "x"]))
    return json.dumps({"schema": _connect(_schema_of(kind)), "payload": value_sent}).encode()


def _avro_type(name: str, data_type: pa.DataType) -> Any:
    if pa.types.is_struct(data_type):
        schema: Any = {"type": "record", "name": name, "fields": _avro_fields(name, data_type)}
    elif pa.types.is_list(data_type):
        schema = {"type": "array", "items": _avro_type(f"{name}_item", data_type.value_type)}
    elif pa.types.is_map(data_type):
        schema = {"type": "map", "values": _avro_type(f"{name}_value", data_type.item_type)}
    elif pa.types.is_decimal(data_type):
        schema = {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}
    else:
        schema = {pa.int64(): "long", pa.float64(): "double", pa.bool_(): "boolean"}.get(data_type, "string")
    return ["null", schema]


def _avro_fields(name: str, data_type: pa.DataType) -> list[dict[str, Any]]:
    # Names of Avro have no hyphen; no such field is in the kinds above.
    return [{"name": each.name, "type": _avro_type(f"{name}_{each.name}", each.type)} for each in data_type]


_AVRO: Final = {
    kind: {"type": "record", "name": kind, "fields": _avro_fields(kind, _schema_of(kind))} for kind in sorted(_KINDS)
}


@dataclass(frozen=True)
class _Writers:
    def schema(self, schema_id: int | UUID) -> WriterSchema | None:
        writer_schemas = {
            number: WriterSchema("AVRO", json.dumps(schema)) for number, schema in enumerate(_AVRO.values())
        }
        return writer_schemas.get(schema_id) if isinstance(schema_id, int) else None


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
    records = [(draw(st.sampled_from("pq")), draw(_KEYS), _sometimes_none(draw, encoder)) for _ in range(size)]
    return records_of(*records, headers=[draw(st.sampled_from([[], ["h"], ["g", "h"]])) for _ in range(size)])


def _sometimes_none(draw: st.DrawFn, encoder: str) -> bytes | None:
    # Numbers in the middle: those at the ends are drawn more often.
    value = draw(ENCODERS[encoder][1])
    return {7: None, 8: b""}.get(draw(st.integers(0, 15)), value)
