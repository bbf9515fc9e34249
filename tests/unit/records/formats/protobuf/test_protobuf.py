"""Protocol Buffers: schemas, frames, and bytes that are no message."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from hypothesis import given, settings
from hypothesis import strategies as st

from frazil.errors import Terminal
from frazil.records.formats.protobuf.protobuf import ProtobufFormat
from frazil.records.model.dead_letter import DeadCode
from frazil.records.model.format import NamedSchema
from tests.unit.records.formats.protobuf_messages import UNSET, decoder, message

PROTO2 = 'syntax = "proto2"; message M { required int32 r = 1; optional string s = 2 [default = "q"]; optional group G = 3 { optional int32 x = 1; } extensions 100 to 200; }'


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"\x08\1", {"r": 1, "s": None, "g": None}),
        (b"\x08\1\x12\1y\x1b\x08\5\x1c", {"r": 1, "s": "y", "g": {"x": 5}}),
        (b"\x12\1y", DeadCode.INVALID_PROTOBUF),
        (b"\x08\1\x12\1\xff", DeadCode.INVALID_PROTOBUF),
    ],
    ids=["unset", "group", "required missing", "bad text"],
)
def test_proto2_has_presence_groups_and_required_fields(raw: bytes, expected: object, decode: Any) -> None:
    """Required fields are held to, and text is checked although the runtime does not."""
    assert decode(ProtobufFormat.of_schema(PROTO2, "M"), [raw]) == [expected]


def test_editions_compile(decode: Any) -> None:
    """Presence follows the edition's features."""
    text = 'edition = "2023"; message M { int32 a = 1; int32 b = 2 [features.field_presence = IMPLICIT]; }'

    assert decode(ProtobufFormat.of_schema(text, "M"), [b""]) == [{"a": None, "b": 0}]


@pytest.mark.parametrize(
    ("text", "references"),
    [
        ("syntax", []),
        ('syntax = "proto3"; message M { Nope n = 1; }', []),
        ('syntax = "proto3"; import "no/such.proto"; message M { int32 a = 1; }', []),
        ('syntax = "proto3"; message M {}', []),
        ('syntax = "proto3"; message M { int32 a = 1; }', [NamedSchema("../../x.proto", "")]),
        ('syntax = "proto3"; message M { int32 a = 1; }', [NamedSchema("/x.proto", "")]),
        ('syntax = "proto3"; message M { int32 a = 1; }', [NamedSchema("a", ""), NamedSchema("a/b", "")]),
        ('syntax = "proto3"; message M { int32 a = 1; }', [NamedSchema("é" * 150, "")]),
    ],
    ids=[
        *("no source", "no such type", "no such import", "no fields", "up the folders", "absolute", "file and folder"),
        "a name of many bytes",
    ],
)
def test_a_schema_that_does_not_compile_kills_its_records_only(
    text: str, references: list[NamedSchema], schemas: Any, decode: Any
) -> None:
    """The compiler's complaint is in the reason; nothing is written outside of its folder."""
    schemas.add(1, "PROTOBUF", text, *references)

    assert decode(ProtobufFormat(schemas), [b"\0\0\0\0\1\0"]) == [DeadCode.UNUSABLE_SCHEMA]
    with pytest.raises(Terminal):
        ProtobufFormat.of_schema(text, "M", tuple(references))


def test_messages_of_the_reference_serializer_land_by_their_index(schemas: Any, decode: Any) -> None:
    """First, later and nested messages of one file, and another writer schema, in one batch."""
    context = SerializationContext("t", MessageField.VALUE)

    def framed(protobuf_message: Any) -> bytes:
        serializer = ProtobufSerializer(type(protobuf_message), schemas.client, {"use.deprecated.format": False})
        return bytes(serializer(protobuf_message, context))

    small = 'syntax = "proto3"; package p; message A { message B { message C { int32 x = 1; } } } message D { string s = 1; }'
    grown = small.replace("string s = 1;", "string s = 1; bool n = 2;").replace("package p", "package q")
    deep, first, new = message("A.B.C", small, x=5), message("D", small, s="a"), message("D", grown, s="b", n=True)
    values = [framed(first), framed(deep), framed(new), b"\0\0\0\0\1\4\0", b"\0\0\0\0\1", framed(first)]

    assert decode(ProtobufFormat(schemas), values) == [
        {"s": "a"},
        {"x": 5},
        {"s": "b", "n": True},
        DeadCode.INVALID_WIRE,
        DeadCode.INVALID_WIRE,
        {"s": "a"},
    ]


def test_a_schema_kept_as_descriptor_finds_the_files_that_it_imports(schemas: Any, decode: Any) -> None:
    """The reference registers descriptors, whose well-known imports are not among the references."""
    sent_message = message(s="x", ts={"seconds": 1}, cd={"value": b"\x7b", "scale": 2})
    serializer = ProtobufSerializer(type(sent_message), schemas.client, {"use.deprecated.format": False})
    (row,) = decode(ProtobufFormat(schemas), [serializer(sent_message, SerializationContext("t", MessageField.VALUE))])

    assert (row["s"], row["ts"], row["cd"]) == ("x", datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), Decimal("1.23"))


def test_references_source_and_both_ways_of_keeping_a_schema(schemas: Any, decode: Any) -> None:
    """A file that imports another one; an unknown id and another kind beside it."""
    main = 'syntax = "proto3"; import "acme/city.proto"; message M { acme.City to = 1; }'
    city = 'syntax = "proto3"; package acme; message City { string name = 1; }'
    schemas.add(1, "PROTOBUF", main, NamedSchema("acme/city.proto", city))
    schemas.add(2, "AVRO", '"int"')

    assert decode(ProtobufFormat(schemas), [b"\0\0\0\0\1\0\x0a\3\x0a\1x", b"\0\0\0\0\2\0", b"\0\0\0\0\3\0", b""]) == [
        {"to": {"name": "x"}},
        DeadCode.UNUSABLE_SCHEMA,
        DeadCode.UNKNOWN_SCHEMA,
        DeadCode.EMPTY_VALUE,
    ]


def good() -> bytes:
    """A message of many kinds of fields."""
    return bytes(message(s="ü", r=[1, 300], m={"x": 5}, mp={"k": 1}, u64=2**64 - 1, d=0.5).SerializeToString())


def test_a_message_cut_anywhere_is_dead_or_a_message_of_fewer_fields(decode: Any) -> None:
    """The encoding has no end mark, so a cut between fields can't be told; none makes a wrong value."""
    raw = good()
    (whole,) = decode(decoder(), [raw])

    for result in decode(decoder(), [raw[:end] for end in range(len(raw))]):
        assert result is DeadCode.INVALID_PROTOBUF or all(result[n] in (whole[n], UNSET.get(n)) for n in whole)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.binary(max_size=64), min_size=100, max_size=100))
def test_arbitrary_bytes_never_fail_and_good_neighbours_land(values: list[bytes]) -> None:
    """Ten thousand values of noise between two good ones."""
    batch = pa.array([good(), *values, good()], pa.binary())
    decoded = decoder().decode(batch)

    positions = [position for group in decoded.groups for position in group.positions.to_pylist()]
    assert sorted([*positions, *decoded.dead]) == list(range(len(batch)))
    assert {0, len(batch) - 1} <= set(positions)
