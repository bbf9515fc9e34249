"""The interface of formats: bytes to typed columns, or reasons. And the source of their writer schemas."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, Protocol
from uuid import UUID

import pyarrow as pa

from frazil.records.model.dead_letter import Reason
from frazil.records.model.unknown_fields import NOTHING_UNKNOWN, UnknownFieldPairs

Dead = Mapping[int, Reason]
"""Reasons by the position of the value."""

SchemaKind = Literal["AVRO", "PROTOBUF", "JSON"]
"""As Schema Registries name them."""


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
        refusal: Why the schema can't be used, if that is already known; else empty.
    """

    kind: SchemaKind
    text: str
    references: tuple[NamedSchema, ...] = ()
    earlier: tuple[WriterSchema, ...] = ()
    refusal: str = ""


class TooManyUnknownIds(Exception):
    """Too many unknown ids were asked for lately, so the registry is not asked for another one now."""


class SchemaSource(Protocol):
    """Returns writer schemas by id. They are immutable, so an answer may be cached."""

    def schema(self, schema_id: int | UUID) -> WriterSchema | None:
        """Return a schema, or None if there surely is none of this id.

        Raises:
            TooManyUnknownIds: a flood of unknown ids must not become one of requests.
            Retryable: it can't be asked now.
            Terminal: it refuses to answer.
        """


JSON: Final = "json"
"""The one format that reads its values straight into the columns that are wanted."""


@dataclass(frozen=True, slots=True)
class FormatSpec:
    """A format and its options: plain data, since it travels to executors.

    Attributes:
        name: Name of the format.
        source: Where writer schemas come from, for values that name theirs.
        schema: The one schema of all values, for values that name none: Avro or the source of a .proto file.
        schema_imports: Name and text of each .proto file that it imports.
        message: Name of the Protobuf message in it.
        validate: Whether JSON is held against its registered schema.
        truncates: Whether what is finer than microseconds is cut off times, rather than a reason to refuse the value.
        fields: Names of the fields of delimited values.
        delimiter, quote, escape, null_text, header: See `frazil.records.formats.delimited.delimited.DelimitedFormat`.
    """

    name: str = JSON
    source: SchemaSource | None = None
    schema: str | None = None
    schema_imports: tuple[tuple[str, str], ...] = ()
    message: str | None = None
    validate: bool = True
    truncates: bool = False
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
    """The result of decoding values: each value is in one group, or dead.

    Attributes:
        groups: Decoded values as columns, one group per shape.
        dead: Reasons of the values that are dead letters.
        unknown_fields: Fields of decoded values that their schema does not have, so that no column holds them. Fields in
            structs go by their path.
    """

    groups: tuple[Shaped, ...]
    dead: Dead = field(default_factory=dict)
    unknown_fields: UnknownFieldPairs = field(default=NOTHING_UNKNOWN)


class Format(Protocol):
    """Decodes values. May cache what is costly to make, such as parsed writer schemas."""

    def decode(self, values: pa.BinaryArray) -> Decoded:
        """Decode values, none of them null. No value makes this fail.

        Columns have these types, nested at will: bool, int32, int64, float32, float64, decimal128, decimal256 (unsigned
        64-bit numbers and wider are decimal128(20, 0)), string, binary, fixed-size binary, uuid, date32, time64[us],
        timestamp[us] with zone UTC or without, struct, list, map, and null where no value says more. A value without fields
        has one column, `BARE`. A format knows no columns of the table: values without a schema go one group per shape, and
        the fitter and `evolve` do the rest. It bounds depth (`MAX_DEPTH`) and cells (`frazil.records.model.cells`).

        Raises:
            Retryable: a writer schema can't be had now.
            Terminal: the registry refuses to answer.
        """


def decoded_type(data_type: pa.DataType) -> pa.DataType:
    """Return the type that formats decode a table's column to: texts, bytes and lists are never of the large kinds."""
    if pa.types.is_large_string(data_type):
        return pa.string()
    if pa.types.is_large_binary(data_type):
        return pa.binary()
    if pa.types.is_struct(data_type):
        return pa.struct([_decoded_field(field) for field in data_type])
    if pa.types.is_list(data_type) or pa.types.is_large_list(data_type):
        return pa.list_(_decoded_field(data_type.value_field))
    return (
        pa.map_(_decoded_field(data_type.key_field), _decoded_field(data_type.item_field))
        if pa.types.is_map(data_type)
        else data_type
    )


def _decoded_field(field: pa.Field) -> pa.Field:
    return field.with_type(decoded_type(field.type))
