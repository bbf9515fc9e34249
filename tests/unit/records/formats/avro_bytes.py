"""Random Avro schemas, and random values of them as bytes: well formed, or nearly."""

from __future__ import annotations

import json
import struct
from random import Random
from typing import Any

from tests.unit.records.formats.avro_values import logical

_PLAIN: tuple[Any, ...] = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
_LOGICAL: tuple[Any, ...] = (
    logical("int", "date"),
    logical("int", "time-millis"),
    logical("long", "time-micros"),
    logical("long", "timestamp-millis"),
    logical("long", "timestamp-nanos"),
    logical("long", "local-timestamp-micros"),
    {"type": "long", "connect.name": "io.debezium.time.NanoTime"},
    logical("string", "uuid"),
    logical("bytes", "decimal", precision=5, scale=2),
    logical("bytes", "decimal", precision=38, scale=9),
    logical("bytes", "decimal", precision=76),
)
_UUID = b"0a1B2c3D-4e5F-6071-8293-a4b5c6d7e8f9"


class Shape:
    """A schema, part by part; types with names get new ones.

    Args:
        rng: Decides.
    """

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._named = 0

    def any(self, depth: int) -> Any:
        """A type with at most so many levels of others in it."""
        rng = self._rng
        kind = rng.choice(("plain", "logical", "named", "record", "array", "map", "union", "option", "option"))
        if depth == 0 or kind in {"plain", "logical", "named"}:
            return self._named_type() if kind == "named" else rng.choice(_LOGICAL if kind == "logical" else _PLAIN)
        if kind == "record":
            return self.record(depth - 1, rng.randrange(4))
        if kind in {"array", "map"}:
            item = self.any(depth - 1)
            return {"type": kind, "items" if kind == "array" else "values": "int" if item == "null" else item}
        return ["null", self._branch(depth - 1)] if kind == "option" else self._union()

    def record(self, depth: int, fields: int) -> Any:
        """A record of so many fields; now and then it may hold itself."""
        name = self._name()
        fields_drawn = [{"name": f"f{number}", "type": self.any(depth)} for number in range(fields)]
        if self._rng.random() < 0.1:
            fields_drawn.append({"name": "self", "type": ["null", name]})
        return {"type": "record", "name": name, "fields": fields_drawn}

    def _named_type(self) -> Any:
        if self._rng.random() < 0.5:
            return {"type": "enum", "name": self._name(), "symbols": ["A", "B", "C"]}
        size = self._rng.choice((0, 1, 3, 16, 300))
        fixed = {"type": "fixed", "name": self._name(), "size": size}
        return fixed | self._rng.choice(({}, {"logicalType": "decimal", "precision": 2}, {"logicalType": "uuid"}))

    def _branch(self, depth: int) -> Any:
        schema_drawn = self.any(depth)
        return "string" if schema_drawn == "null" or isinstance(schema_drawn, list) else schema_drawn

    def _union(self) -> Any:
        return self._rng.sample(["null", "int", "string", logical("bytes", "decimal", precision=4)], 3)

    def _name(self) -> str:
        self._named += 1
        return f"T{self._named}"


class Bytes:
    """Values of a schema.

    Args:
        rng: Decides.
    """

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._known: dict[str, Any] = {}

    def of(self, schema: Any) -> bytes:
        """A value, its bytes at times not those of the schema."""
        datum = self._any(schema)
        roll = self._rng.random()
        if roll < 0.1:
            return datum[: self._rng.randrange(len(datum) + 1)]
        if roll < 0.2 and datum:
            index = self._rng.randrange(len(datum))
            return datum[:index] + self._rng.choice((b"", b"\xff", b"\1", b"\x80", b"\xff" * 9)) + datum[index + 1 :]
        return datum + self._rng.choice((b"", b"", b"", b"", b"", b"", b"\0"))

    def _any(self, schema: Any) -> bytes:
        if isinstance(schema, list):
            index = (
                self._rng.randrange(len(schema)) if self._rng.random() < 0.98 else self._rng.choice((-1, len(schema)))
            )
            return number(index) + (self._any(schema[index]) if 0 <= index < len(schema) else b"")
        kind = schema if isinstance(schema, str) else schema["type"]
        if kind in self._known:
            return self._any(self._known[kind])
        if kind == "record":
            self._known[schema["name"]] = schema
            return b"".join(self._any(field["type"]) for field in schema["fields"])
        return self._blocks(schema) if kind in {"array", "map"} else self._leaf(kind, schema)

    def _blocks(self, schema: Any) -> bytes:
        encoded = b""
        for _ in range(self._rng.choice((0, 1, 1, 1, 2))):
            count = self._rng.choice((1, 1, 2, 3, 20))
            is_map = schema["type"] == "map"
            items = b"".join(
                (_sized(b"key%d" % self._rng.randrange(40)) if is_map else b"")
                + self._any(schema["values" if is_map else "items"])
                for _ in range(count)
            )
            encoded += (number(count) if self._rng.random() < 0.5 else number(-count) + number(len(items))) + items
        return encoded + b"\0"

    def _leaf(self, kind: str, schema: Any) -> bytes:
        rng = self._rng
        if kind in {"bytes", "string"}:
            return _sized(self._text(schema.get("logicalType") if isinstance(schema, dict) else None))
        if kind in {"int", "long"}:
            bits = rng.choice((3, 7, 16, 20, 26, 31) if kind == "int" else (7, 16, 36, 50, 63))
            return number(rng.randrange(-(1 << bits), 1 << bits) // 1000 * 1000 + (rng.random() < 0.1))
        if kind in {"float", "double"}:
            return struct.pack("<f" if kind == "float" else "<d", rng.choice((0.0, -1.5, float("inf"), rng.random())))
        if kind == "fixed":
            return rng.randbytes(schema["size"])
        return b"" if kind == "null" else self._seldom(b"\6", b"\0", b"\2" if kind == "enum" else b"\1")

    def _text(self, meaning: str | None) -> bytes:
        rng = self._rng
        if meaning == "uuid":
            return self._seldom(rng.choice((_UUID[:-1], _UUID.replace(b"-", b"f"))), _UUID, _UUID.upper())
        if meaning == "decimal":
            long = rng.choice((b"\0" * 20 + b"\7", b"", rng.randbytes(rng.randrange(1, 34))))
            return self._seldom(long, b"\xff\xfe", b"\x7f", b"\0\0\0\1", b"\x80")
        return self._seldom(b"\xff", b"", b"x", "Köln".encode(), "\N{GRINNING FACE}".encode() * 5, b"k" * 70)

    def _seldom(self, odd: bytes, *usual: bytes) -> bytes:
        return odd if self._rng.random() < 0.03 else self._rng.choice(usual)


def _sized(raw: bytes) -> bytes:
    return number(len(raw)) + raw


def number(value: int) -> bytes:
    """A zigzag varint."""
    zigzag, encoded = (value << 1) ^ (value >> 63), b""
    while zigzag > 0x7F:
        encoded += bytes([zigzag & 0x7F | 0x80])
        zigzag >>= 7
    return encoded + bytes([zigzag])


def text(schema: Any) -> str:
    """A schema as a registry has it."""
    return json.dumps(schema)
