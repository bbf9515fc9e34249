"""Hostile schemas and records: verify names the values that it does not judge, and continues."""

from __future__ import annotations

import json
from base64 import b64encode
from decimal import Decimal
from pathlib import Path

import pytest

from frazil.pipeline.models.value import Value
from frazil.pipeline.syntax.types import Primitive
from frazil.verify.values.formats import Decode, format_decoder
from frazil.verify.values.json_document import Unfit
from frazil.verify.values.native import SchemaReader, UnjudgedError, python_value

PROTO = 'syntax = "proto3"; message Order { int64 id = 1; }'


def of_registry(form: str, text: str, imports: dict[str, str] | None = None) -> Decode:
    """The reader of values whose schema a registry has."""
    registry = SchemaReader(lambda _: (text, imports or {}))
    decoder = format_decoder(Value.model_validate({"format": form, "registry": "r"}), registry)
    assert decoder is not None
    return decoder


@pytest.mark.parametrize(
    "name", ["{}/own.proto", "../../{}/own.proto", "a/../../own.proto", "", ".", "a\0b", "x" * 999]
)
def test_reference_writes_no_file_outside_the_schema(tmp_path: Path, name: str) -> None:
    """Whoever may register schemas chooses the names of references."""
    decode = of_registry("protobuf", PROTO, {name.format(tmp_path): "written"})

    with pytest.raises(UnjudgedError, match="schema"):
        decode(b"\0\0\0\0\1\0\x08\x01", {})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["verified.proto/x", "google/type/date.proto/x"])
def test_reference_that_is_a_folder_too_is_not_judged(name: str) -> None:
    """One name can't be both."""
    with pytest.raises(UnjudgedError, match="schema"):
        of_registry("protobuf", PROTO, {name: PROTO})(b"\0\0\0\0\1\0\x08\x01", {})


@pytest.mark.parametrize("name", ["grpc_tools/__init__.py", "sitecustomize.py", "pathlib.py"])
def test_reference_is_not_run_as_python(tmp_path: Path, name: str) -> None:
    """The compiler does not take its modules from the folder of the schema."""
    code = f"open({str(tmp_path / 'own')!r}, 'w').close()"

    assert of_registry("protobuf", PROTO, {name: code})(b"\0\0\0\0\1\0\x08\x01", {}) == {"id": 1}
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("package google.type; message M { Date d = 1; } message Date { string year = 1; }", b"\x0a\3\x0a\1x"),
        ("package google.protobuf; message M { StringValue d = 1; } message StringValue { int32 x = 1; }", b"\x0a\0"),
        ("package google.protobuf; message M { Timestamp d = 1; } message Timestamp { int32 x = 1; }", b"\x0a\0"),
        ("message M { int32 ParseFromString = 1; }", b"\x08\1"),
        ("message M { int32 DESCRIPTOR = 1; }", b"\x08\1"),
    ],
)
def test_own_messages_by_googles_names_are_not_judged(text: str, value: bytes) -> None:
    """A schema may define what Google's library knows otherwise, and fields that hide the library's methods."""
    with pytest.raises(UnjudgedError, match="its schema has messages or fields"):
        of_registry("protobuf", f'syntax = "proto3"; {text}')(b"\0\0\0\0\1\0" + value, {})


def test_imports_that_ingestion_brings_are_read() -> None:
    """Confluent's and Google's types come with neither schema nor compiler."""
    text = """syntax = "proto3"; import "confluent/meta.proto"; import "confluent/type/decimal.proto";
        import "google/type/decimal.proto"; import "google/type/date.proto"; import "google/type/timeofday.proto";
        message M { int64 id = 1 [(confluent.field_meta).doc = "x"]; confluent.type.Decimal a = 2;
        google.type.Decimal b = 3; }"""

    assert of_registry("protobuf", text)(b"\0\0\0\0\1\0\x08\1", {}) == {"id": 1, "a": None, "b": None}


def test_schema_file_that_does_not_compile_is_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The compiler takes a tenth of a second: not for each record."""
    value = Value.model_validate({"format": "protobuf", "schema_file": "m.proto", "message": "M"})
    decode = format_decoder(value.model_copy(update={"schema_": "message of nothing"}), None)
    assert decode is not None

    with pytest.raises(UnjudgedError, match="does not compile here"):
        decode(b"", {})
    monkeypatch.setattr("sys.executable", "/absent")  # another attempt could not start the compiler
    with pytest.raises(UnjudgedError, match="does not compile here"):
        decode(b"", {})


@pytest.mark.parametrize(("path", "name"), [(b"\0", "a"), (b"\2\0", "a"), (b"\2\2", "b"), (b"\4\2\2", "d")])
def test_numbers_in_front_lead_to_the_message(path: bytes, name: str) -> None:
    """By its place among the messages of the file, then of the message."""
    text = """syntax = "proto3"; message Z { int64 a = 1; }
        message M { int64 b = 1; message Y { int64 c = 1; } message K { int64 d = 1; } }"""

    assert of_registry("protobuf", text)(b"\0\0\0\0\1" + path + b"\x08\x01", {}) == {name: 1}


NODE = '{"type": "record", "name": "node", "fields": [{"name": "next", "type": ["null", "node"]}]}'
WIDE = '{"type": "array", "items": "null"}'
EMPTY = '{"type": "array", "items": {"type": "record", "name": "e", "fields": []}}'
NULLS = json.dumps(
    {
        "type": "array",
        "items": {
            "type": "record",
            "name": "n",
            "fields": [{"name": "a", "type": "long"}, *({"name": f"f{n}", "type": "null"} for n in range(100))],
        },
    }
)
DECIMAL = '{"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}'


def varint(number: int) -> bytes:
    encoded, rest = bytearray(), number << 1
    while rest > 0x7F:
        encoded.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([*encoded, rest])


@pytest.mark.parametrize(
    ("schema", "value", "why"),
    [
        (NODE, b"\2" * 5_000 + b"\0", "levels"),
        (NODE, b"\2" * 50 + b"\0", "levels"),
        (WIDE, varint(50_000_000) + b"\0", "items"),
        (WIDE, varint(1_500_000) * 2 + b"\0", "items"),
        (WIDE, varint(1_990_000) + b"\0", "without bytes"),
        (EMPTY, varint(1_990_000) + b"\0", "without bytes"),
        (NULLS, varint(200) + b"\2" * 200 + b"\0", "without bytes"),
        ('{"type": "map", "values": "null"}', b"\1", "ends|end within"),
        (DECIMAL, varint(400_000) + b"\1" * 400_000, "4096"),
        ('"long"', b"\xff" * 1_000 + b"\1", "64 bits"),
        ('"int"', varint(1 << 31), "32 bits"),
        ('"boolean"', b"\2", "neither"),
        ('["null", "long"]', b"\1", "branch"),
        ('{"type": "enum", "name": "e", "symbols": ["A"]}', b"\1", "symbol"),
        ('"string"', b"\1", "length"),
    ],
)
def test_sizes_that_avro_claims_are_bounded(schema: str, value: bytes, why: str) -> None:
    """No record crashes the check or holds it up: what is beyond the bounds is not judged, and the reason says why."""
    decode = of_registry("avro", schema)

    with pytest.raises((UnjudgedError, Unfit), match=why):
        decode(b"\0\0\0\0\1" + value, {})


@pytest.mark.parametrize(
    ("schema", "value", "name"), [(NODE, b"\2" * 49 + b"\0", "next"), (WIDE, varint(9_000) + b"\0", "value")]
)
def test_values_within_the_bounds_are_read(schema: str, value: bytes, name: str) -> None:
    """As many levels and items as tables take."""
    assert of_registry("avro", schema)(b"\0\0\0\0\1" + value, {}).keys() == {name}


def test_large_decimal_of_an_envelope_is_not_judged() -> None:
    """Its conversion takes the square of its length."""
    schema = {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": "2"}}
    value = json.dumps({"schema": schema, "payload": "AQEB" * 100_000}).encode()
    decode = format_decoder(Value.model_validate({"format": "json-envelope"}), None)
    assert decode is not None

    with pytest.raises(UnjudgedError, match="4096"):
        decode(value, {})


def test_all_digits_of_a_decimal_are_read() -> None:
    """Python rounds to 28 digits unless told otherwise; columns hold 38."""
    number = 10**37 + 1
    schema = {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": "2"}}
    payload = b64encode(number.to_bytes(16, "big", signed=True)).decode()
    decode = format_decoder(Value.model_validate({"format": "json-envelope"}), None)
    assert decode is not None

    assert decode(json.dumps({"schema": schema, "payload": payload}).encode(), {}) == {"value": Decimal(f"{number}e-2")}
    assert python_value(Primitive("decimal", (38, 2)), number) == Decimal(f"{number}e-2")


def test_message_index_is_bounded() -> None:
    """A number of the way has at most ten bytes, and the way as many numbers as there are."""
    for path in (b"\xff" * 400_000 + b"\1", varint(1 << 60)):
        with pytest.raises((UnjudgedError, Unfit), match="number"):
            of_registry("protobuf", PROTO)(b"\0\0\0\0\1" + path, {})
