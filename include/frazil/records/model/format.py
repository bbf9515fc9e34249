"""What a format is: bytes to typed columns, or reasons. And where it gets writer schemas from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, Protocol, get_args
from uuid import UUID

import pyarrow as pa

from frazil.records.model.dead_letter import Reason
from frazil.records.model.unknown_fields import NOTHING_UNKNOWN, UnknownAt

Dead = Mapping[int, Reason]
"""Reasons by the position of the value."""

SchemaKind = Literal["AVRO", "PROTOBUF", "JSON"]
"""As Schema Registries name them."""

BARE = "value"
"""Name of the one column of a value that has no fields: a text, a number, a list."""


@dataclass(frozen=True, slots=True)
class NamedSchema:
    """A schema that another one refers to, under the name that it is referred to by."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class WriterSchema:
    """The schema that values were written with.

    Attributes:
        kind: Language of the text.
        text: The schema.
        references: What it refers to, also indirectly; each comes after those that it refers to.
        earlier: Of a language that knows fields by number: versions of the subject before it, the last one first. They tell
            how fields were called.
        refusal: Why it can't be used, if that is known already; else empty.
    """

    kind: SchemaKind
    text: str
    references: tuple[NamedSchema, ...] = ()
    earlier: tuple[WriterSchema, ...] = ()
    refusal: str = ""


class TooManyUnknownIds(Exception):
    """So many ids have no schema that no other one is asked for now."""


class SchemaSource(Protocol):
    """Knows writer schemas by id. They are immutable, so what was found once may be kept."""

    def schema(self, schema_id: int | UUID) -> WriterSchema | None:
        """Return a schema, or None if there surely is none of this id.

        Raises:
            TooManyUnknownIds: a flood of unknown ids must not become one of requests.
            Retryable: it can't be asked now.
            Terminal: it refuses to answer.
        """


ScalarKind = Literal["string", "bytes", "boolean", "short", "int", "long", "float", "double"]
"""Values that are one text, one run of bytes or one number."""

SCALARS: Final[tuple[ScalarKind, ...]] = get_args(ScalarKind)

JSON: Final = "json"
"""The one format that reads its values straight into the columns that are wanted."""

FORMATS: Final = (JSON, "json-envelope", "avro", "protobuf", "json-schema", "delimited", *SCALARS)
"""Formats that come with Frazil."""


@dataclass(frozen=True, slots=True)
class FormatSpec:
    """Which format, and what it is told: plain data, since it travels to executors.

    Attributes:
        name: Name of the format.
        source: Where writer schemas come from, for values that name theirs.
        schema: The one schema of all values, for values that name none: Avro or the source of a .proto file.
        schema_imports: Name and text of each .proto file that it imports.
        message: Name of the Protobuf message in it.
        validate: Whether JSON is held against its registered schema.
        fields: Names of the fields of delimited values.
        delimiter, quote, escape, null_text, header: See `frazil.records.formats.delimited.delimited.DelimitedFormat`.
    """

    name: str = JSON
    source: SchemaSource | None = None
    schema: str | None = None
    schema_imports: tuple[tuple[str, str], ...] = ()
    message: str | None = None
    validate: bool = True
    fields: tuple[str, ...] = ()
    delimiter: str = ","
    quote: str | None = '"'
    escape: str | None = None
    null_text: str | None = ""
    header: bool = False

    @property
    def is_text(self) -> bool:
        """Whether every field is text, so that numbers have to be read from it."""
        return self.name == "delimited"


@dataclass(frozen=True, slots=True)
class Shaped:
    """Values of one shape: columns, and the positions of the values they came from, ascending."""

    columns: pa.RecordBatch
    positions: pa.Int64Array


@dataclass(frozen=True, slots=True)
class Decoded:
    """What became of some values: each is in one group, or dead.

    Attributes:
        groups: Values that are columns now.
        dead: Reasons of the others.
        unknown: Fields that values of the groups have and no column of theirs: the format or the schema knows no place for
            them. Those in structs by their path.
    """

    groups: tuple[Shaped, ...]
    dead: Dead = field(default_factory=dict)
    unknown: UnknownAt = field(default=NOTHING_UNKNOWN)


class Format(Protocol):
    """Decodes values. May keep what is costly to make: parsed writer schemas."""

    def decode(self, values: pa.BinaryArray) -> Decoded:
        """Decode values, none of them null. No value makes this fail.

        Columns have these types, nested at will: bool, int32, int64, float32, float64, decimal128, decimal256 (unsigned
        64-bit numbers and wider are decimal128(20, 0)), string, binary, fixed-size binary, uuid, date32, time64[us],
        timestamp[us] with zone UTC or without, struct, list, map. A value without fields has one column, `BARE`.

        Raises:
            Retryable: a writer schema can't be had now.
            Terminal: the registry refuses to answer.
        """


def port_type(of: pa.DataType) -> pa.DataType:
    """Return a type of a table's column as formats give it: texts, bytes and lists are never of the large kinds."""
    if pa.types.is_large_string(of):
        return pa.string()
    if pa.types.is_large_binary(of):
        return pa.binary()
    if pa.types.is_struct(of):
        return pa.struct([_ported(field) for field in of])
    if pa.types.is_list(of) or pa.types.is_large_list(of):
        return pa.list_(_ported(of.value_field))
    return pa.map_(_ported(of.key_field), _ported(of.item_field)) if pa.types.is_map(of) else of


def _ported(field: pa.Field) -> pa.Field:
    return field.with_type(port_type(field.type))
