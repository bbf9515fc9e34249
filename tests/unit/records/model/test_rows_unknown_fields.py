"""Fields that no column takes are counted in all formats, or refused if the pipeline file says so."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pytest

from frazil.batch.facts import NAMES_SHOWN, UnknownFields
from frazil.records.json.typed import typed_decoder
from frazil.records.model.dead_letter import DeadCode
from frazil.records.model.format import FormatSpec, WriterSchema
from frazil.records.model.rows import UnknownFieldPairs
from frazil.records.model.spec import RecordSpec
from frazil.records.transforms.kinds.field_values import Cast
from frazil.records.transforms.kinds.nested import Explode
from tests.format_specs import format_spec
from tests.unit.records.kafka_batches import BATCH_NUMBER, OneTable, OneTableOutcomes, decode_both, kafka_batch

INT, TEXT = pa.int64(), pa.string()
INNER = pa.struct([pa.field("b", INT)])
COLUMNS = pa.schema([pa.field("a", INT), pa.field("s", INNER), pa.field("m", pa.map_(TEXT, INNER))])
JSON_SCHEMA = {
    "type": "object",
    "properties": {
        "a": {"type": "integer"},
        "s": {"type": "object", "properties": {"b": {"type": "integer"}}},
        "m": {"type": "object", "additionalProperties": {"type": "object", "properties": {"b": {"type": "integer"}}}},
    },
}
PLAIN = pa.schema(list(COLUMNS)[:2])
"""Maps have no block path."""

AVRO = {
    "type": "record",
    "name": "r",
    "fields": [{"name": "a", "type": "long"}, {"name": "x", "type": ["null", "long"]}],
}
PROTO = 'syntax = "proto3"; message S { int64 b = 1; } message R { int64 a = 1; S s = 2; map<string, S> m = 3; }'
SHORT, LONG = b"\x08\x01", b"\x08\x01\x38\x05"  # a = 1; and a field 7
INSIDE = b"\x08\x01\x12\x04\x08\x02\x48\x01"  # a = 1, s = {b: 2, field 9}
IN_MAP = b"\x1a\x07\x0a\x01k\x12\x02\x48\x01"  # m = {k: {field 9}}


def test_ignored_fields_leave_no_trace() -> None:
    """Only fields at the top count, also where they are null, and only of records that land."""
    values = [
        b'{"a":1}',
        b'{"a":1,"x":null,"y":2}',
        b'{"a":1,"s":{"b":1,"z":9}}',
        b'{"a":1,"x":1,"x":2}',
        b'{"a":"no","x":1}',
        b'{"x":"\\ud800","a":1.0}',
        b"broken",
    ]

    outcomes = decode_both(RecordSpec(PLAIN), kafka_batch([*values, None]))

    assert outcomes.unknown_fields == UnknownFields(3, {"x": 3, "y": 1})


@pytest.mark.parametrize("policy", ["rescue", "fail"])
def test_rescued_or_refused_fields_are_not_counted_as_left_out(policy: Any) -> None:
    """A rescued field is not lost, nor is that of a dead letter."""
    spec = RecordSpec(PLAIN.append(pa.field("r", TEXT)), unknown_fields=policy, rescued_column="r")

    assert decode_both(spec, kafka_batch([b'{"a":1,"x":1}', b'{"a":1}'])).unknown_fields == UnknownFields()


def test_new_unknown_field_keeps_values_decoded_as_blocks() -> None:
    """Values with fields that no column takes are still decoded as blocks, whether the batch before had any or not."""
    decoder = typed_decoder(RecordSpec(PLAIN))
    assert decoder is not None
    plain, more = [b'{"a":%d}' % n for n in range(50)], [b'{"a":%d,"x":{"a":[1]}}' % n for n in range(50)]

    for values, records in ((plain, 0), (more, 50), ([*plain, *more], 50), (plain, 0), (plain, 0)):
        block = decoder.decode(pa.array(values, pa.binary()))
        assert len(block.positions) == len(values)
        assert block.unknown_fields.count().records == records


def test_unknown_names_are_kept_in_a_bounded_number() -> None:
    """If names are data, a new one in every record, their number and length are limited; the count of records is not."""
    whole = UnknownFields()
    for batch in range(20):
        names = [f"{batch}-{n}-{'long' * 100}" for n in range(200)] + ["each"]
        whole += UnknownFieldPairs.from_names({n: (name, "each") for n, name in enumerate(names)}).count()

    assert whole.records == 20 * 201
    assert whole.names["each"] == 20 * 201
    assert len(whole.names) <= 500
    assert max(map(len, whole.names)) <= 81
    assert len(whole.shown.names) == NAMES_SHOWN
    assert next(iter(whole.shown.names)) == "each"


def test_line_about_unknown_fields_is_shown_only_where_needed() -> None:
    """Without unknown fields there is no line."""
    assert UnknownFields().summary is None
    assert UnknownFields(1).summary == "1 record with fields that no column takes"
    assert UnknownFields(1500, {"x": 1200}).summary == "1,500 records with fields that no column takes (`x` 1,200)"


def outcomes(format_spec: FormatSpec, values: list[bytes], **options: Any) -> OneTableOutcomes:
    spec = RecordSpec(options.pop("columns", COLUMNS), format_spec, **options)
    return OneTable(spec, BATCH_NUMBER).decode(kafka_batch(values))


def envelope(payload: Mapping[str, object], *fields: Mapping[str, object]) -> bytes:
    inner = {"type": "struct", "optional": True, "field": "s", "fields": [{"type": "int64", "field": "b"}]}
    schema = {"type": "struct", "fields": [{"type": "int64", "field": "a"}, inner, *fields]}
    return json.dumps({"schema": schema, "payload": payload}).encode()


class Registered:
    """Knows one schema."""

    def schema(self, _: object) -> WriterSchema:
        """The one."""
        return WriterSchema("JSON", json.dumps(JSON_SCHEMA))


def framed(value: Mapping[str, object]) -> bytes:
    return b"\0\0\0\0\1" + json.dumps(value).encode()


CASES = {
    "json-schema": (format_spec("json-schema", source=Registered()), framed({"a": 1}),
                    [framed({"a": 1, "x": None}), framed({"s": {"z": 1}, "m": {"k": {"b": 1, "y": 2}}})],
                    {"m.y": 1, "s.z": 1, "x": 1}),
    "avro": (format_spec("avro", schema=json.dumps(AVRO)), b"\x02\x00", [b"\x02\x02\x04"], {"x": 1}),
    "protobuf": (format_spec("protobuf", schema=PROTO, message="R"), SHORT, [LONG, INSIDE, SHORT + IN_MAP],
                 {"#7": 1, "s.#9": 1, "m.#9": 1}),
    "envelope": (format_spec("json-envelope"), envelope({"a": 1}),
                 [envelope({"a": 1, "x": 2}), envelope({"a": 1, "s": {"b": 1, "y": None}})], {"x": 1, "s.y": 1}),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_fields_outside_of_schema_or_columns_are_counted(case: str) -> None:
    """A field of the schema without a column counts like a field that the schema does not have."""
    how, plain, more, names = CASES[case]

    assert outcomes(how, [plain, *more]).unknown_fields == UnknownFields(len(more), names)


@pytest.mark.parametrize("case", CASES)
def test_fields_outside_of_the_schema_are_refused_on_request(case: str) -> None:
    """`fail` makes a dead letter of each such record and lets the others land."""
    how, plain, more, _ = CASES[case]

    done = outcomes(how, [plain, *more, plain], unknown_fields="fail")

    assert done.dead.column("code").to_pylist() == [DeadCode.UNKNOWN_FIELD] * len(more)
    assert done.rows.column("a").to_pylist() == [1, 1]
    assert done.unknown_fields == UnknownFields()


def test_field_that_cannot_be_rescued_is_counted() -> None:
    """A field of an unknown number has no name and no type to keep it by: it is counted."""
    how, plain, more, _ = CASES["protobuf"]
    columns = COLUMNS.append(pa.field("_rescued", TEXT))

    assert outcomes(how, [plain, *more], columns=columns, unknown_fields="rescue").unknown_fields.records == 3


PART = pa.struct([("b", INT), ("z", INT)])
HOLDER = {"type": "record", "name": "P", "fields": [{"name": "b", "type": "long"}, {"name": "z", "type": "long"}]}
DEEP = {
    "type": "record",
    "name": "r",
    "fields": [
        {"name": "s", "type": ["null", HOLDER]},
        {"name": "l", "type": {"type": "array", "items": ["null", "P"]}},
        {"name": "m", "type": {"type": "map", "values": "P"}},
    ],
}
AVRO_DEEP = format_spec("avro", schema=json.dumps(DEEP))
NOTHING_DEEP, S_DEEP = b"\x00\x00\x00", b"\x02\x02\x04\x00\x00"
L_DEEP, M_DEEP = b"\x00\x04\x02\x02\x04\x00\x00\x00", b"\x00\x00\x02\x02k\x02\x04\x00"


@pytest.mark.parametrize("policy", ["ignore", "rescue"])
@pytest.mark.parametrize(
    ("columns", "sources", "names"),
    [
        (
            [("s", INNER), ("l", pa.list_(INNER)), ("m", pa.map_(TEXT, INNER))],
            {},
            {"s.z": 1, "l.z": 1, "m.z": 1},
        ),
        ([("s", PART), ("l", pa.list_(PART)), ("m", pa.map_(TEXT, PART))], {}, {}),
        ([("s", TEXT), ("l", TEXT), ("m", TEXT)], {}, {}),
        ([("b", INT), ("l", TEXT), ("m", TEXT)], {"b": ("s", "b")}, {"s.z": 1}),
        ([("b", INT), ("z", INT), ("l", TEXT), ("m", TEXT)], {"b": ("s", "b"), "z": ("s", "z")}, {}),
        ([("b", INT), ("all", TEXT), ("l", pa.list_(INNER)), ("m", TEXT)], {"b": ("s", "b"), "all": ()}, {}),
    ],
    ids=["structs", "all of them", "as text", "one by path", "both by path", "whole value"],
)
def test_unknown_field_of_a_struct_is_counted(
    policy: Any, columns: list[tuple[str, pa.DataType]], sources: Any, names: dict[str, int]
) -> None:
    """Each record counts once, wherever the struct is: in a field, in a list, in a map. Rescuing can't keep these."""
    schema = pa.schema([*columns, ("_rescued", TEXT)] if policy == "rescue" else columns)

    results = outcomes(
        AVRO_DEEP,
        [NOTHING_DEEP, S_DEEP, L_DEEP, M_DEEP],
        columns=schema,
        sources=sources,
        unknown_fields=policy,
    )

    assert results.dead.num_rows == 0
    assert results.unknown_fields == UnknownFields(len(names), names)


@pytest.mark.parametrize("policy", ["ignore", "fail", "rescue"])
def test_unset_protobuf_field_is_not_counted(policy: Any) -> None:
    """A Protobuf field without presence always has a value; where it was not sent it is no field that is left out."""
    proto = (
        'syntax = "proto3"; enum E { NONE = 0; SOME = 1; } message S { int64 b = 1; string z = 2; } message R { int64 a = 1;'
        " string t = 2; E e = 3; repeated int64 l = 4; map<string, int64> m = 5; bool f = 6; bytes y = 7; uint64 u = 8;"
        " double d = 9; optional int64 o = 10; S s = 11; }"
    )
    how = format_spec("protobuf", schema=proto, message="R")
    a = b"\x08\x01"
    fields = {
        "t": b"\x12\x01x", "e": b"\x18\x01", "l": b"\x22\x01\x05", "m": b"\x2a\x05\x0a\x01k\x10\x01", "f": b"\x30\x01",
        "y": b"\x3a\x01y", "u": b"\x40\x01", "d": b"\x49\0\0\0\0\0\0\xf0?", "o": b"\x50\x00",
    }  # fmt: skip
    inside = [b"\x5a\x02\x08\x01", b"\x5a\x03\x12\x01z"]
    schema = [("a", INT), ("s", INNER), *([("_rescued", TEXT)] if policy == "rescue" else [])]

    results = outcomes(
        how, [a, *(a + name for name in (*fields.values(), *inside))], columns=pa.schema(schema), unknown_fields=policy
    )

    if policy == "fail":
        assert results.dead.column("path").to_pylist() == [*fields, "s.z"]
        assert results.rows.column("a").to_pylist() == [1, 1]
    elif policy == "ignore":
        assert results.unknown_fields == UnknownFields(len(fields) + 1, {**dict.fromkeys(fields, 1), "s.z": 1})
    else:
        assert results.rows.column("_rescued").null_count == 3
        assert results.unknown_fields == UnknownFields(1, {"s.z": 1})


@pytest.mark.parametrize(("policy", "dead", "records"), [("ignore", 0, 2), ("fail", 2, 0)])
def test_undeclared_fields_before_transforms_are_counted(policy: Any, dead: int, records: int) -> None:
    """Before transforms JSON has declared fields; all others are counted."""
    values = [b'{"a":1}', b'{"a":2,"x":1}', b'{"a":3.0,"x":1}']
    fields = pa.schema([pa.field("a", INT)])

    spec = RecordSpec(fields, fields=fields, transforms=(Cast({"a": "int64"}),), unknown_fields=policy)
    done = decode_both(spec, kafka_batch(values))

    assert (len(done.dead), done.unknown_fields.records) == (dead, records)


def test_exploded_record_counts_once() -> None:
    """Counts are of records."""
    fields = pa.schema([pa.field("a", pa.list_(INT)), pa.field("x", INT)])
    spec = RecordSpec(pa.schema([pa.field("a", INT)]), fields=fields, transforms=(Explode("a"),))

    outcomes = decode_both(spec, kafka_batch([b'{"a":[1,2,3],"x":1}', b'{"a":[4]}']))

    assert outcomes.rows.num_rows == 4
    assert outcomes.unknown_fields == UnknownFields(1, {"x": 1})
