"""Records as JsonConverter writes them, and what becomes of them."""

from __future__ import annotations

import base64
import json

import pyarrow as pa

from frazil.records.formats.connect_json.envelope import EnvelopeFormat
from frazil.records.model.format import BARE, Decoded

Schema = dict[str, object]
DATA = "org.apache.kafka.connect.data."
DEBEZIUM = "io.debezium."
DECIMAL_2 = {"type": "bytes", "name": DATA + "Decimal", "parameters": {"scale": "2"}}
GOOD = b'{"schema":{"type":"struct","fields":[{"type":"int32","field":"a"}]},"payload":{"a":7}}'


def envelope(schema: Schema | None, payload: str) -> bytes:
    return f'{{"schema":{json.dumps(schema)},"payload":{payload}}}'.encode()


def number(value: int) -> str:
    return json.dumps(base64.b64encode(value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True)).decode())


def fields(**schemas: Schema) -> Schema:
    return {"type": "struct", "fields": [schema | {"field": name} for name, schema in schemas.items()]}


def decode(values: list[bytes]) -> Decoded:
    """Decode twice: the second time with beginnings remembered. Both must say the same."""
    expected_format = EnvelopeFormat()
    array = pa.array([b"skipped", *values], pa.binary()).slice(1)
    first, second = expected_format.decode(array), expected_format.decode(array)
    assert outcomes(first) == outcomes(second)
    assert outcomes(first).keys() == set(range(len(values)))
    for group in first.groups:
        group.columns.validate(full=True)
        assert group.positions.to_pylist() == sorted(group.positions.to_pylist())
    return first


def outcomes(decoded: Decoded) -> dict[int, object]:
    results: dict[int, object] = dict(decoded.dead)
    for group in decoded.groups:
        results |= {
            position: repr(row)
            for position, row in zip(group.positions.to_pylist(), group.columns.to_pylist(), strict=True)
        }
    return results


def bare(schema: Schema | None, payload: str) -> tuple[pa.DataType, object]:
    """Return type and value of one payload, or its code, decoded between good neighbours of another schema."""
    decoded = decode([GOOD, envelope(schema, payload), GOOD])
    assert decoded.groups[0].columns.to_pylist() == [{"a": 7}, {"a": 7}]
    if decoded.dead:
        return pa.null(), decoded.dead[1].code
    group = decoded.groups[1]
    assert group.positions.to_pylist() == [1]
    return group.columns.schema.field(BARE).type, group.columns.column(BARE)[0].as_py()


def named(name: str, base: str, **parameters: str) -> Schema:
    return {"type": base, "name": name, "parameters": parameters}
