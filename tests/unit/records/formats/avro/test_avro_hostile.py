"""Avro schemas and values of an attacker: each has an outcome, within bounded time and memory."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest

from frazil.records.formats.avro.avro import AvroFormat
from frazil.records.model.dead_letter import DeadCode

pytestmark = pytest.mark.timeout(60)

HEAD: Final = b"\0\0\0\0\1"
A_LOT: Final = b"\x80\x80\x80\x80\x80\x40"
"""2 to the power of 40, as a varint."""

UNUSABLE, INVALID, TOO_DEEP = DeadCode.UNUSABLE_SCHEMA, DeadCode.INVALID_AVRO, DeadCode.TOO_DEEP


def record(name: str, **fields: Any) -> dict[str, Any]:
    """The schema of a record."""
    return {
        "type": "record",
        "name": name,
        "fields": [{"name": field, "type": type_name} for field, type_name in fields.items()],
    }


def fixed(size: Any, name: str = "f") -> dict[str, Any]:
    """The schema of so many bytes."""
    return {"type": "fixed", "name": name, "size": size}


def array(items: Any) -> dict[str, Any]:
    """The schema of a list."""
    return {"type": "array", "items": items}


def doubled(count: int) -> dict[str, Any]:
    """A record that holds another one twice, which holds another one twice."""
    schema = record(f"R{count}", x="int")
    for number in range(count - 1, -1, -1):
        schema = record(f"R{number}", a=schema, b=f"R{number + 1}")
    return schema


DEEP = '{"type":"array","items":' * 5_000 + '"int"' + "}" * 5_000
NULLS = {f"n{number}": "null" for number in range(4_000)}

HOSTILE: list[tuple[str, Any, bytes, DeadCode | None]] = [
    ("a size beyond 32 bits", fixed(1 << 31), b"", UNUSABLE),
    ("a size beyond 64 bits", record("r", f=fixed(1 << 64)), b"", UNUSABLE),
    ("a negative size", fixed(-5), b"", UNUSABLE),
    ("a size as text", fixed("5"), b"", UNUSABLE),
    ("a size as truth", fixed(True), b"", UNUSABLE),  # noqa: FBT003 - a value
    ("a size within itself", record("r", n=["null", "r"], f=fixed("5")), b"\0", UNUSABLE),
    ("a huge size", record("r", f=fixed((1 << 31) - 1)), b"\0", INVALID),
    (
        "huge sizes of nothing",
        record("r", **{f"f{number}": ["null", fixed(1 << 24, f"x{number}")] for number in range(50)}),
        b"\0" * 50,
        None,
    ),
    ("a list of nulls", array("null"), A_LOT, UNUSABLE),
    ("a list of records without fields", array(record("r")), A_LOT, UNUSABLE),
    ("a list of no bytes", array(fixed(0)), A_LOT, UNUSABLE),
    ("a list of records of nulls", array(record("r", k="boolean", **NULLS)), A_LOT, UNUSABLE),
    ("a map of records of nulls", {"type": "map", "values": record("r", **NULLS)}, A_LOT, UNUSABLE),
    ("a block of many items", array("int"), A_LOT, INVALID),
    ("a block of many items, with its size", array("int"), b"\xff" * 9 + b"\1\0", INVALID),
    ("a map of nulls", {"type": "map", "values": "null"}, A_LOT, INVALID),
    ("a record within itself", record("r", n=["null", "r"]), b"\2" * 100_000 + b"\0", TOO_DEEP),
    ("a record that is itself", record("r", n="r"), b"", TOO_DEEP),
    ("records doubled", doubled(40), b"", UNUSABLE),
    ("many fields", record("r", **{f"f{number}": "int" for number in range(100_000)}), b"", UNUSABLE),
    ("lists within lists", DEEP, b"", UNUSABLE),
    ("a long name", record("n" * 1_000_000, **{"f" * 1_000_000: "int"}), b"\0", None),
    ("a large enum", {"type": "enum", "name": "e", "symbols": [f"s{number}" for number in range(99_999)]}, b"\0", None),
    ("no symbols", {"type": "enum", "name": "e", "symbols": 5}, b"\0", UNUSABLE),
    ("no fields", {"type": "record", "name": "r", "fields": {"a": 1}}, b"\0", UNUSABLE),
    ("a field twice", {**record("r"), "fields": [{"name": "a", "type": "int"}] * 2}, b"\0\0", UNUSABLE),
    ("a number", 5, b"\0", UNUSABLE),
    (
        "a wrong default",
        {**record("r"), "fields": [{"name": "a", "type": "int", "default": "x" * 999_999}]},
        b"",
        UNUSABLE,
    ),
    ("a decimal of many digits", {"type": "bytes", "logicalType": "decimal", "precision": 10**9}, b"\2\1", UNUSABLE),
]


@pytest.mark.parametrize("count", [1, 40])
@pytest.mark.parametrize(("schema", "value", "code"), [c[1:] for c in HOSTILE], ids=[c[0] for c in HOSTILE])
def test_every_record_of_a_hostile_schema_has_an_outcome(
    schema: Any, value: bytes, code: DeadCode | None, count: int, schemas: Any, decode: Any
) -> None:
    """One by one or many at once: a row or a dead letter; values of another schema land."""
    schemas.add(1, "AVRO", schema if schema is DEEP else json.dumps(schema))
    schemas.add(2, "AVRO", '"int"')

    *outcomes, last = decode(AvroFormat(schemas), [HEAD + value] * count + [b"\0\0\0\0\2\2"])
    assert {outcome if isinstance(outcome, DeadCode) else None for outcome in outcomes} == {code}
    assert last == {"value": 1}
