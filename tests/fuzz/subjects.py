"""What the decoders are fed: a format and its columns, good values, ways in which a value can be bad, and telling parts."""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import partial
from struct import pack

import pyarrow as pa

from frazil.records.formats.catalogue import FORMATS
from frazil.records.model.spec import RecordSpec
from tests.format_specs import format_spec
from tests.fuzz import structures
from tests.fuzz.structures import Structure
from tests.fuzz.tokens import BINARY_TOKENS, ENVELOPE_TOKENS, JSON_TOKENS, LINE_TOKENS, PROTO_TOKENS, TEXT_TOKENS, deep
from tests.fuzz.writers import (
    AVRO,
    JSON_SCHEMA,
    LINE,
    NESTED,
    PROTOBUF,
    WRITERS,
    framed,
    in_avro,
    in_envelope,
    in_json,
    in_line,
    in_protobuf,
)

Fault = Callable[[bytes], bytes]


@dataclass(frozen=True, slots=True)
class Subject:
    """A format with what it is fed.

    Attributes:
        name: As it is asked for.
        spec: What is wanted of the records.
        good: Returns the nth good value.
        faults: What makes a dead letter of a good value.
        tokens: Parts that mean something in this format, to insert anywhere.
        head: Bytes before a value's own, such as the frame of a Schema Registry.
        structure: Returns a random value that is well formed.
        specs: Of a table that follows its records, what is wanted of them when it has these columns; None: it never changes.
    """

    name: str
    spec: RecordSpec
    good: Callable[[int], bytes]
    faults: Mapping[str, Fault]
    tokens: tuple[bytes, ...]
    head: bytes = b""
    structure: Structure | None = None
    specs: Callable[[pa.Schema], RecordSpec] | None = None

    def spec_of(self, columns: pa.Schema) -> RecordSpec:
        """What is wanted of the records once the table has other columns."""
        return self.spec if self.specs is None else self.specs(columns)


def cut(value: bytes) -> bytes:
    """A value that ends early."""
    return value[:-7]


def _put(old: bytes, new: bytes) -> Fault:
    return partial(_replaced, old, new)


def _replaced(old: bytes, new: bytes, value: bytes) -> bytes:
    if old not in value:
        raise ValueError(f"{old!r} is not in {value!r}")
    return value.replace(old, new, 1)


def _unknown_field(value: bytes) -> bytes:
    return framed(99, value[5:])


NO_TEXT = {"not UTF-8": _put(b"record", b"rec\xffrd")}
JSON_FAULTS = {
    "cut off": cut,
    **NO_TEXT,
    "wrong type": _put(b'"id": ', b'"id": "x", "_": '),
    "missing": _put(b'"id": ', b'"no": '),
    "lossy": _put(b'"count": ', b'"count": 0.5, "_": '),
    "two documents": lambda value: value * 2,
}
DOCUMENT_FAULTS = {name: JSON_FAULTS[name] for name in ("cut off", "not UTF-8", "two documents")}
ONCE = {"repeated key": _put(b'"name": ', b'"id": 1, "name": ')}
FRAMED = {"cut off": cut, "unknown schema": _unknown_field}
LINE_FAULTS = {"cut off": _put(b",said no", b""), **NO_TEXT, "wrong type": _put(b"00:00", b"00:00x")}
QUOTED_FAULTS = {
    "open quote": lambda value: value[:-1],
    **NO_TEXT,
    "behind a quote": _put(b'",', b'"x,'),
    "fields": lambda value: value + b',"more"',
}


def _spec(columns: pa.Schema, name: str = "json", **options: object) -> RecordSpec:
    declared = {field.name for field in fields(FORMATS[name])}
    own = {key: options.pop(key) for key in list(options) if key in declared}
    return RecordSpec(columns, format_spec(name, **own), **options)  # type: ignore[arg-type]


def _text(n: int) -> bytes:
    return b"record number %d, which is a text" % n


def _bare(kind: str, data_type: pa.DataType) -> RecordSpec:
    return _spec(pa.schema([pa.field("value", data_type)]), kind)


def _named() -> RecordSpec:
    names = {name: (name,) for name in NESTED.names}
    columns = pa.schema([*NESTED, pa.field("whole", pa.string())])
    return _spec(columns, "json", sources=names | {"whole": ()})


def _document() -> RecordSpec:
    return _spec(pa.schema([pa.field("whole", pa.string())]), sources={"whole": ()})


HEAD = b"\0\0\0\0"
SUBJECTS = (
    Subject("json", _spec(NESTED), in_json, JSON_FAULTS, JSON_TOKENS, structure=structures.json_object),
    Subject(
        "json-once",
        _spec(NESTED, duplicate_keys="dead_letter", field_names="case_insensitive"),
        in_json,
        {**JSON_FAULTS, **ONCE},
        JSON_TOKENS,
        structure=structures.json_object,
    ),
    Subject("json-whole", _named(), in_json, JSON_FAULTS, JSON_TOKENS, structure=structures.json_object),
    Subject("json-document", _document(), in_json, DOCUMENT_FAULTS, JSON_TOKENS, structure=structures.json_object),
    Subject(
        "json-envelope",
        _spec(NESTED, "json-envelope"),
        in_envelope,
        {"cut off": cut, **NO_TEXT, "wrong type": _put(b'"id": ', b'"id": "x", "_": ')},
        (*JSON_TOKENS, *ENVELOPE_TOKENS),
        b'{"schema":',
        structures.envelope,
    ),
    Subject(
        "avro",
        _spec(NESTED, "avro", source=WRITERS),
        in_avro,
        {**FRAMED, **NO_TEXT},
        (*BINARY_TOKENS, b"\2" * 70, b"\2" * 2000),
        HEAD + bytes([AVRO]),
        structures.avro,
    ),
    Subject(
        "protobuf",
        _spec(NESTED, "protobuf", source=WRITERS),
        in_protobuf,
        {**FRAMED, **NO_TEXT},
        (*BINARY_TOKENS, *PROTO_TOKENS, *(deep(b"\x5a", times) for times in (3, 30, 48, 300))),
        HEAD + bytes([PROTOBUF, 0]),
        structures.protobuf,
    ),
    Subject(
        "json-schema",
        _spec(NESTED, "json-schema", source=WRITERS),
        lambda n: framed(JSON_SCHEMA, in_json(n)),
        {**FRAMED, "violation": _put(b'"id": ', b'"id": "x", "_": ')},
        JSON_TOKENS,
        HEAD + bytes([JSON_SCHEMA]),
        structures.json_schema_object,
    ),
    Subject(
        "delimited",
        _spec(LINE, "delimited", fields=tuple(LINE.names)),
        partial(in_line, quoting=csv.QUOTE_MINIMAL),
        LINE_FAULTS,
        LINE_TOKENS,
        structure=structures.line,
    ),
    Subject(
        "delimited-quoted",
        _spec(LINE, "delimited", fields=tuple(LINE.names)),
        partial(in_line, quoting=csv.QUOTE_ALL),
        QUOTED_FAULTS,
        LINE_TOKENS,
        structure=structures.line,
    ),
    Subject(
        "delimited-escape",
        _spec(LINE, "delimited", fields=tuple(LINE.names), escape="\\", null_text="\\N"),
        partial(in_line, quoting=csv.QUOTE_MINIMAL),
        LINE_FAULTS,
        LINE_TOKENS,
        structure=structures.line,
    ),
    Subject("string", _bare("string", pa.string()), _text, NO_TEXT, TEXT_TOKENS),
    Subject("bytes", _bare("bytes", pa.binary()), _text, {}, TEXT_TOKENS),
    Subject(
        "boolean",
        _bare("boolean", pa.bool_()),
        lambda n: bytes([n & 1]),
        {"longer": lambda v: v * 2},
        BINARY_TOKENS,
        structure=structures.fixed(1),
    ),
    Subject(
        "int",
        _bare("int", pa.int32()),
        lambda n: pack(">i", n),
        {"longer": lambda v: v * 2},
        BINARY_TOKENS,
        structure=structures.fixed(4),
    ),
    Subject(
        "long",
        _bare("long", pa.int64()),
        lambda n: pack(">q", n),
        {"cut off": cut},
        BINARY_TOKENS,
        structure=structures.fixed(8),
    ),
    Subject(
        "double",
        _bare("double", pa.float64()),
        lambda n: pack(">d", n),
        {"cut off": cut},
        BINARY_TOKENS,
        structure=structures.fixed(8),
    ),
    Subject(
        "float-in-decimal",
        _bare("double", pa.decimal128(9, 3)),
        lambda n: pack(">d", n / 8),
        {},
        BINARY_TOKENS,
        structure=structures.fixed(8),
    ),
)
