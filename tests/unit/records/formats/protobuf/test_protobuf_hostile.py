"""Protobuf schemas and messages of an attacker: each has an outcome, within bounded time."""

from __future__ import annotations

from typing import Any, Final

import pytest

from frazil.records.formats.protobuf.protobuf import ProtobufFormat
from frazil.records.model.dead_letter import DeadCode
from frazil.records.model.format import NamedSchema

pytestmark = pytest.mark.timeout(120)

HEAD: Final = b"\0\0\0\0\1\0"
UNUSABLE, INVALID = DeadCode.UNUSABLE_SCHEMA, DeadCode.INVALID_PROTOBUF
PROTO3: Final = 'syntax = "proto3";\n'


def chain(count: int, *fields: str) -> str:
    """Messages of which each holds the next one."""
    fields_of_messages = [
        " ".join(f"M{number + 1} {field} = {n};" for n, field in enumerate(fields, 1)) for number in range(count)
    ]
    parts = "".join(f"message M{index} {{ {body} }}\n" for index, body in enumerate(fields_of_messages))
    return f"{PROTO3}{parts}message M{count} {{ int32 x = 1; }}"


def nested(count: int) -> str:
    """Messages that are declared within each other."""
    return PROTO3 + "".join(f"message M{number} {{ int32 x = 1; " for number in range(count)) + "}" * count


HOSTILE: list[tuple[str, str, bytes, DeadCode | None]] = [
    ("a chain of messages", chain(3_000, "a"), b"", UNUSABLE),
    ("messages doubled", chain(40, "a", "b"), b"", UNUSABLE),
    ("messages nested", nested(5_000), b"", UNUSABLE),
    (
        "many messages",
        PROTO3 + "".join(f"message M{number} {{ int32 a = 1; }}\n" for number in range(9_999)),
        b"",
        None,
    ),
    ("a file of this machine", PROTO3 + 'import "/etc/hostname"; message M { int32 a = 1; }', b"", UNUSABLE),
    ("a file outside", PROTO3 + 'import "../../../etc/hostname"; message M { int32 a = 1; }', b"", UNUSABLE),
    ("a circle of imports", PROTO3 + 'import "a.proto"; message M { int32 a = 1; }', b"", UNUSABLE),
    ("a length beyond the value", PROTO3 + "message M { repeated bool m = 1; }", b"\x0a\x80\x80\x80\x10\1", INVALID),
    (
        "an own timestamp",
        'syntax = "proto3"; package google.protobuf; message Timestamp { string a = 1; }',
        b"",
        UNUSABLE,
    ),
    (
        "an own date within a message",
        'syntax = "proto3"; package google; message M { type.Date d = 1; } message type { message Date { string year = 1; } }',
        b"\x0a\x03\x0a\x01x",
        UNUSABLE,
    ),
    (
        "an own decimal",
        'syntax = "proto3"; package google.type; message Decimal { repeated string value = 1; }',
        b"",
        UNUSABLE,
    ),
    ("groups within groups", PROTO3 + "message M { int32 a = 1; }", b"\x2b" * 10_000 + b"\x2c" * 10_000, INVALID),
    (
        "a number of megabytes",
        PROTO3 + "message M { A a = 1; } message A { int32 x = 1; int32 y = 2; int32 z = 3; }",
        b"\x10" + b"\xff" * 4_000_000,
        INVALID,
    ),
]


@pytest.mark.parametrize(("text", "value", "code"), [c[1:] for c in HOSTILE], ids=[c[0] for c in HOSTILE])
def test_every_record_of_a_hostile_schema_has_an_outcome(
    text: str, value: bytes, code: DeadCode | None, schemas: Any, decode: Any
) -> None:
    """A row or a dead letter; messages of another schema land, and no file is read but those of the schema."""
    circle = (f'{PROTO3}import "{name}.proto"; message {name.upper()} {{}}' for name in "ba")
    schemas.add(1, "PROTOBUF", text, *map(NamedSchema, ("a.proto", "b.proto"), circle))
    schemas.add(2, "PROTOBUF", PROTO3 + "message Good { int32 x = 1; }")

    first, second = decode(ProtobufFormat(schemas), [HEAD + value, b"\0\0\0\0\2\0\x08\x07"])
    assert (first if isinstance(first, DeadCode) else None) is code
    assert second == {"x": 7}
