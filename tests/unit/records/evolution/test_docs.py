"""What a schema says about its fields reaches the columns that are made for them."""

from __future__ import annotations

import base64
import io
import json
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.message_factory import GetMessageClass

from frazil.batch.facts import Staged
from frazil.batch.schema_change import SchemaChange
from frazil.records.casting.source import docs_of, with_doc
from frazil.records.evolution.infer import FieldBudget
from frazil.records.evolution.schema_requests import SchemaRequests, merge_changes
from frazil.records.formats.protobuf.schema import Schema
from frazil.records.model.format import FormatSpec, WriterSchema
from tests.format_specs import format_spec
from tests.unit.records.evolution.evolving import land, spec, transformed
from tests.unit.records.formats.envelopes import envelope, fields

LONG = "x" * 300

AVRO = {
    "type": "record",
    "name": "r",
    "fields": [
        {"name": "id", "type": "int", "doc": " its \n number\u0007 "},
        {
            "name": "at",
            "doc": LONG,
            "type": [
                "null",
                {"type": "record", "name": "p", "fields": [{"name": "zip", "type": "int", "doc": "code"}]},
            ],
        },
        {"name": "lines", "type": {"type": "array", "items": "p"}},
        {"name": "odd", "type": "int", "doc": ["no text"]},
        {"name": "bare", "type": "int", "doc": " \ud800 "},
    ],
}
JSON_SCHEMA = {
    "type": "object",
    "properties": {
        "id": {"type": "integer", "description": "its number"},
        "at": {
            "type": "object",
            "description": LONG,
            "properties": {"zip": {"type": "integer", "description": "code"}},
        },
        "lines": {
            "type": "array",
            "items": {"type": "object", "properties": {"zip": {"type": "integer", "description": "code"}}},
        },
        "odd": {"type": "integer", "description": ""},
        "bare": {"type": "integer"},
    },
}
PROTO = f"""
syntax = "proto2";
package shop;
// The message itself.
message Order {{
  // its
  // number
  optional int64 id = 1;
  message Place {{
    optional int32 zip = 1; // code
  }}
  /* {LONG} */
  optional Place at = 2;
  repeated Place lines = 3;
  optional int32 odd = 4;
  optional int32 bare = 5 [default = 3];
}}
"""
VALUE: dict[str, Any] = {"id": 1, "at": {"zip": 2}, "lines": [{"zip": 3}], "odd": 4, "bare": 5}


def _avro() -> bytes:
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, fastavro.parse_schema(AVRO), VALUE)
    return buffer.getvalue()


def _protobuf() -> bytes:
    message = GetMessageClass(Schema(WriterSchema("PROTOBUF", PROTO)).named("Order"))(**VALUE)
    text: bytes = message.SerializeToString()
    return text


def _connect() -> bytes:
    place = fields(zip={"type": "int32", "doc": "code"})
    number = {"type": "int32"}
    lines = {"type": "array", "items": place}
    docs = {"id": number | {"doc": "its number"}, "at": place | {"doc": LONG}}
    return envelope(fields(**docs, lines=lines, odd=number | {"doc": 7}, bare=number), json.dumps(VALUE))


class _Registry:
    """A registry of one JSON Schema."""

    def schema(self, schema_id: int | Any) -> WriterSchema | None:
        assert schema_id == 1
        return WriterSchema("JSON", json.dumps(JSON_SCHEMA))


SPECS: dict[str, tuple[FormatSpec, bytes]] = {
    "avro": (format_spec("avro", schema=json.dumps(AVRO)), _avro()),
    "protobuf": (format_spec("protobuf", schema=PROTO, message="Order"), _protobuf()),
    "json-schema": (format_spec("json-schema", _Registry()), b"\0\0\0\0\1" + json.dumps(VALUE).encode()),
    "json-envelope": (format_spec("json-envelope"), _connect()),
}

DOCS = {
    ("id",): "its number",
    ("at",): "x" * 254 + "…",
    ("at", "zip"): "code",
    ("lines", "element", "zip"): "code",
}


@pytest.mark.parametrize(("format_spec_sent", "value"), SPECS.values(), ids=SPECS)
@pytest.mark.parametrize("is_transformed", [False, True], ids=["plain", "transformed"])
def test_new_columns_have_docs_of_their_schema(
    format_spec_sent: FormatSpec, value: bytes, *, is_transformed: bool
) -> None:
    """Of fields inside as well, in one line of bounded length; what is no text is no doc. A doc alone asks for nothing."""
    evolving_spec = spec(format=format_spec_sent)
    landed = land([[value]], transformed(evolving_spec) if is_transformed else evolving_spec)
    (changes,) = landed.rounds
    from_executor = Staged.from_json(Staged(demands={"a.t": changes}).to_json()).demands["a.t"]
    assert {path: doc for change in from_executor for path, doc in change.docs} == DOCS
    assert landed.codes == []
    assert len(landed.rows) == 1


def test_doc_of_the_values_of_a_map_is_theirs() -> None:
    """Iceberg calls them `value`."""
    amounts = pa.field("m", pa.map_(pa.string(), with_doc(pa.field("value", pa.int32()), "in cents")))
    assert list(docs_of(amounts)) == [(("m", "value"), "in cents")]


def test_docs_do_not_depend_on_which_records_come_first() -> None:
    """Of two docs of one column the one that sorts first counts."""
    docs = [SchemaChange(("a",), "add", "int", docs=((("a",), text),)) for text in ("new", "old")]
    followed = spec([pa.field("id", pa.int32())])
    assert merge_changes(docs, followed) == merge_changes(docs[::-1], followed) == (docs[0],)


def test_docs_are_kept_of_fields_within_the_budget_alone() -> None:
    """Names inside may be data, without end, each with a doc: a task remembers as many docs as fields."""
    requests = SchemaRequests(budget=FieldBudget(5))
    for number in range(100):
        name = f"f{number}"
        docs = [(("at", "element", name), "x" * 255), (("at",), "all")]
        requests.add(("at",), pa.list_(pa.struct([pa.field(name, pa.int32())])), docs=docs)

    (request,) = requests.adds.values()
    assert len(request.docs) == 5
    assert request.docs[("at",)] == "all"


def test_docs_are_asked_for_with_their_fields_alone() -> None:
    """A task leaves out fields that can't get a column in any case, and what their schema says of them."""
    requests, names = SchemaRequests(), [f"f{number}" for number in range(2_000)]
    docs = [(("at", name), "x") for name in names]
    requests.add(("at",), pa.struct([pa.field(name, pa.int32()) for name in names]), docs=docs)

    (change,) = requests.demands(spec())

    assert len(change.docs) == change.type.count(":") < len(names)


def test_doc_of_two_spellings_is_the_one_that_sorts_first() -> None:
    """Whatever the spelling of its name."""
    requests = SchemaRequests(fold=True)
    for name, doc in (("X", "first"), ("x", "second")):
        requests.add((name,), pa.int32(), docs=[((name,), doc)])
    assert [*requests.adds[("x",)].docs.values()] == ["first"]


@pytest.mark.parametrize("path", [[4, 0, 2, 5], [4, 7, 2, 0], [4, 0, 3, 0, 2, 0]], ids=str)
def test_comment_of_no_field_does_no_harm(path: list[int]) -> None:
    """A registry keeps descriptors that somebody else made: a comment that stands nowhere is none, and the schema is read."""
    file = FileDescriptorProto(name="order.proto", syntax="proto3")
    file.message_type.add(name="Order").field.add(name="id", number=1, type=3, label=1)
    file.source_code_info.location.add(path=path, span=[0, 0, 1], leading_comments="nowhere")
    schema = Schema(WriterSchema("PROTOBUF", base64.b64encode(file.SerializeToString()).decode()))
    assert (schema.named("Order").name, schema.comments) == ("Order", {})
