"""Avro values that common tools write, and bytes that no tool writes."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import Schema
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from hypothesis import given, settings
from hypothesis import strategies as st

from frazil.error_codes import INTERNAL
from frazil.errors import Retryable, Terminal
from frazil.records.formats.avro.avro import AvroFormat
from frazil.records.model.dead_letter import DeadCode
from frazil.records.model.format import NamedSchema, WriterSchema
from tests.unit.records.formats.avro_values import ENUM, FIXED, HEAD, NODE, logical, written

LONG = written("long", 2**62)
DEAD = [
    ("boolean of 2", "boolean", b"\2", DeadCode.INVALID_AVRO),
    ("int of 33 bits", "int", written("long", 2**31), DeadCode.INVALID_AVRO),
    ("long of 11 bytes", "long", b"\xff" * 10 + b"\1", DeadCode.INVALID_AVRO),
    ("long of 65 bits", "long", b"\xff" * 9 + b"\2", DeadCode.INVALID_AVRO),
    ("cut long", "long", b"\xff", DeadCode.INVALID_AVRO),
    ("cut double", "double", b"\0" * 7, DeadCode.INVALID_AVRO),
    ("cut fixed", FIXED, b"a", DeadCode.INVALID_AVRO),
    ("text longer than the value", "string", LONG, DeadCode.INVALID_AVRO),
    ("text of negative length", "string", b"\1", DeadCode.INVALID_AVRO),
    ("no utf-8", "string", b"\2\xff", DeadCode.INVALID_AVRO),
    ("something behind", "int", b"\2\2", DeadCode.INVALID_AVRO),
    ("symbol too high", ENUM, b"\4", DeadCode.INVALID_AVRO),
    ("negative symbol", ENUM, b"\1", DeadCode.INVALID_AVRO),
    ("branch too high", ["null", "int"], b"\4\2", DeadCode.INVALID_AVRO),
    ("negative branch", ["null", "int"], b"\1\2", DeadCode.INVALID_AVRO),
    ("more items than bytes", {"type": "array", "items": "int"}, LONG, DeadCode.INVALID_AVRO),
    ("more entries than bytes", {"type": "map", "values": "null"}, LONG, DeadCode.INVALID_AVRO),
    ("endless recursion", NODE, b"\0\2" * 100_000, DeadCode.TOO_DEEP),
    ("time of the next day", logical("int", "time-millis"), written("int", 86_400_000), DeadCode.OUT_OF_RANGE),
    ("negative time", logical("long", "time-micros"), b"\1", DeadCode.OUT_OF_RANGE),
    ("millis beyond", logical("long", "timestamp-millis"), LONG, DeadCode.OUT_OF_RANGE),
    ("odd nanos", logical("long", "timestamp-nanos"), b"\2", DeadCode.LOSSY_CAST),
    ("no uuid", logical("string", "uuid"), b"\2x", DeadCode.INVALID_TEXT),
    ("digits beyond", logical("bytes", "decimal", precision=2), b"\2\x64", DeadCode.OUT_OF_RANGE),
    ("decimal of no bytes", logical("bytes", "decimal", precision=2), b"\0", DeadCode.INVALID_AVRO),
]


@pytest.mark.parametrize(("schema", "datum", "code"), [c[1:] for c in DEAD], ids=[c[0] for c in DEAD])
def test_bytes_that_claim_too_much_are_dead(schema: Any, datum: bytes, code: DeadCode, decode: Any) -> None:
    """No number in a value is believed before it is checked, and the reason names the field."""
    top = {"type": "record", "name": "Top", "fields": [{"name": "f", "type": schema}]}
    decoder = AvroFormat.of_schema(json.dumps(top))

    assert decode(decoder, [datum]) == [code]
    reason = decoder.decode(pa.array([datum])).dead[0]
    behind = "to end at byte" in reason.message
    assert reason.path.startswith("f") is not (behind or code is DeadCode.TOO_DEEP)


UNUSABLE = {
    "no json": "{",
    "no avro": '{"type": "nonsense"}',
    "unknown reference": '"com.acme.Order"',
    "no fields": '{"type": "record", "name": "R", "fields": []}',
    "77 digits": json.dumps(logical("bytes", "decimal", precision=77)),
    "items of no bytes": '{"type": "array", "items": "null"}',
    "a thousand levels": '{"type": "array", "items": ' * 5000 + '"int"' + "}" * 5000,
}


@pytest.mark.parametrize("text", UNUSABLE.values(), ids=UNUSABLE)
def test_a_schema_without_columns_kills_its_records_only(text: str, schemas: Any, decode: Any) -> None:
    """Each record of a schema without columns is a dead letter; records of other schemas land."""
    schemas.add(1, "AVRO", text)
    schemas.add(2, "AVRO", '"int"')

    decoder = AvroFormat(schemas)

    assert decode(decoder, [HEAD + b"\2", b"\0\0\0\0\2\2"]) == [DeadCode.UNUSABLE_SCHEMA, {"value": 1}]
    with pytest.raises(Terminal):
        AvroFormat.of_schema(text)


def test_types_that_double_with_each_level_are_refused_in_time(schemas: Any, decode: Any) -> None:
    """Thirty small types that hold each other twice would be a billion columns."""
    text: Any = {"type": "record", "name": "R0", "fields": [{"name": "a", "type": "int"}]}
    for level in range(1, 30):
        fields = [{"name": "a", "type": text}, {"name": "b", "type": f"R{level - 1}"}]
        text = {"type": "record", "name": f"R{level}", "fields": fields}
    schemas.add(1, "AVRO", json.dumps(text))

    assert decode(AvroFormat(schemas), [HEAD + b"\2"]) == [DeadCode.UNUSABLE_SCHEMA]


def test_two_writer_schemas_of_the_reference_serializer_land_from_one_batch(schemas: Any, decode: Any) -> None:
    """Each value is read with the schema it was written with; the registry is asked once for each."""
    first = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
    second = {**first, "fields": [*first["fields"], {"name": "note", "type": ["null", "string"], "default": None}]}
    context = SerializationContext("orders", MessageField.VALUE)
    old = AvroSerializer(schemas.client, json.dumps(first))({"id": 1}, context)
    new = AvroSerializer(schemas.client, json.dumps(second))({"id": 2, "note": "x"}, context)
    decoder = AvroFormat(schemas)

    assert decode(decoder, [old, new, old]) == [{"id": 1}, {"id": 2, "note": "x"}, {"id": 1}]
    assert decode(decoder, [new]) == [{"id": 2, "note": "x"}]
    assert len(schemas.asked) == 2


def test_references_are_found(schemas: Any, decode: Any) -> None:
    """A type that is registered under a name of its own is part of the schema."""
    address = {"type": "record", "name": "acme.Address", "fields": [{"name": "city", "type": "string"}]}
    order = {"type": "record", "name": "acme.Order", "fields": [{"name": "to", "type": "Address"}]}
    schemas.add(1, "AVRO", json.dumps(order), NamedSchema("acme.Address", json.dumps(address)))

    assert decode(AvroFormat(schemas), [HEAD + b"\2x"]) == [{"to": {"city": "x"}}]


def test_an_unknown_id_and_another_kind_are_named(schemas: Any, decode: Any) -> None:
    """A registry that surely has no such schema, and one that has another format's."""
    schemas.add(2, "JSON", "{}")

    assert decode(AvroFormat(schemas), [HEAD + b"\2", b"\0\0\0\0\2{}", b"", b"x"]) == [
        DeadCode.UNKNOWN_SCHEMA,
        DeadCode.UNUSABLE_SCHEMA,
        DeadCode.EMPTY_VALUE,
        DeadCode.INVALID_WIRE,
    ]


def test_a_type_within_itself_is_json_from_there_on(decode: Any) -> None:
    """Endless types have a first level of columns and the rest as text."""
    node = {
        **NODE,
        "fields": [*NODE["fields"], {"name": "d", "type": logical("bytes", "decimal", precision=4, scale=2)}],
    }
    one = b"\2\0\2\x7b"
    decoder = AvroFormat.of_schema(json.dumps(node))

    assert decode(decoder, [b"\2\2" + one + b"\2\x7b"]) == [
        {"v": 1, "next": '{"v":1,"next":null,"d":1.23}', "d": Decimal("1.23")}
    ]


def test_single_object_encoding_is_recognised_by_its_fingerprint(decode: Any) -> None:
    """The fingerprint of `"int"` is the one that the specification's algorithm gives; another one is no head."""
    decoder = AvroFormat.of_schema('"int"')
    fingerprint = (0x7275D51A3F395C8F).to_bytes(8, "little")

    assert decode(decoder, [b"\xc3\1" + fingerprint + b"\2", b"\2", b"\xc3\1" + bytes(8) + b"\2"]) == [
        {"value": 1},
        {"value": 1},
        DeadCode.INVALID_AVRO,
    ]


MIXED = {
    "type": "record",
    "name": "Mixed",
    "fields": [
        {"name": "s", "type": "string"},
        {"name": "n", "type": ["null", "long", ENUM]},
        {"name": "l", "type": {"type": "array", "items": ["null", "double"]}},
        {"name": "m", "type": {"type": "map", "values": "bytes"}},
        {"name": "i", "type": "int"},
        {"name": "f", "type": FIXED},
        {"name": "r", "type": NODE},
    ],
}
GOOD = {"s": "ü", "n": 300, "l": [1.5, None], "m": {"k": b"v"}, "i": -5, "f": b"ab", "r": {"v": 1, "next": None}}


def test_a_value_cut_anywhere_is_dead(decode: Any) -> None:
    """No prefix of a value is a value."""
    datum = written(MIXED, GOOD)
    cuts = [datum[:end] for end in range(1, len(datum))]

    decoded_data = decode(AvroFormat.of_schema(json.dumps(MIXED)), [*cuts, datum])

    assert decoded_data[:-1] == [DeadCode.INVALID_AVRO] * len(cuts)
    assert isinstance(decoded_data[-1], dict)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.binary(max_size=64), min_size=100, max_size=100))
def test_arbitrary_bytes_never_fail_and_good_neighbours_land(values: list[bytes]) -> None:
    """Ten thousand values of noise, framed, between two good ones."""
    datum = written(MIXED, GOOD)
    batch = pa.array([datum, *values, datum], pa.binary())
    decoded = AvroFormat.of_schema(json.dumps(MIXED)).decode(batch)

    positions = [position for group in decoded.groups for position in group.positions.to_pylist()]
    assert sorted([*positions, *decoded.dead]) == list(range(len(batch)))
    assert {0, len(batch) - 1} <= set(positions)


DRAWN = st.fixed_dictionaries(
    {
        "s": st.text(),
        "n": st.none() | st.integers(-(2**63), 2**63 - 1) | st.sampled_from(["A", "B"]),
        "l": st.lists(st.none() | st.floats(allow_nan=False)),
        "m": st.dictionaries(st.text(), st.binary()),
        "i": st.integers(-(2**31), 2**31 - 1),
        "f": st.binary(min_size=2, max_size=2),
        "r": st.just({"v": 1, "next": None}),
    }
)


@settings(deadline=None)
@given(st.lists(DRAWN, min_size=1, max_size=5))
def test_what_the_reference_writes_is_read_back(rows: list[dict[str, Any]]) -> None:
    """Any values of a schema come out as they went in."""
    decoded = AvroFormat.of_schema(json.dumps(MIXED)).decode(pa.array([written(MIXED, row) for row in rows]))

    assert not decoded.dead
    assert decoded.groups[0].columns.to_pylist() == [
        {
            **row,
            "n": None if row["n"] is None else {"long": _if(int, row["n"]), "E": _if(str, row["n"])},
            "m": list(row["m"].items()),
        }
        for row in rows
    ]


def _if(kind: type, value: object) -> object:
    return value if isinstance(value, kind) else None


def test_registered_schemas_of_the_reference_have_no_other_reading(schemas: Any, decode: Any) -> None:
    """The serializer's own logical types (datetime, Decimal) come out as the same instants and digits."""
    text = json.dumps(
        {
            "type": "record",
            "name": "R",
            "fields": [
                {"name": "at", "type": logical("long", "timestamp-micros")},
                {"name": "price", "type": logical("bytes", "decimal", precision=10, scale=2)},
            ],
        }
    )
    row = {"at": datetime(1969, 12, 31, 23, 59, 59, 999999, UTC), "price": Decimal("-12345678.90")}
    value = AvroSerializer(schemas.client, Schema(text, "AVRO"))(row, SerializationContext("t", MessageField.VALUE))

    assert decode(AvroFormat(schemas), [value]) == [row]


class Down:
    """A registry that fails once, and answers the second request."""

    def __init__(self) -> None:
        self._asked = 0

    def schema(self, _: object) -> WriterSchema:
        """Return a schema, from the second time on."""
        self._asked += 1
        if self._asked == 1:
            raise INTERNAL.retryable("the registry is down")
        return WriterSchema("AVRO", '"int"')


def test_a_registry_that_is_down_makes_no_dead_letters(decode: Any) -> None:
    """Nothing is decided about the records, and the next try decides."""
    decoder = AvroFormat(Down())

    with pytest.raises(Retryable):
        decode(decoder, [HEAD + b"\2"])
    assert decode(decoder, [HEAD + b"\2"]) == [{"value": 1}]
