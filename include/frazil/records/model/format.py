"""Formats, which decode bytes to typed columns or reasons, and the source of their writer schemas. And `Frame`: decoded records,
as transforms take and return them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, Protocol, runtime_checkable
from uuid import UUID

from frazil.error_codes import BAD_SCHEMA
from frazil.extras import require
from frazil.records import pa, pc
from frazil.records.model.dead_letter import Reason

if TYPE_CHECKING:
    from frazil.records.model.rows import UnknownFieldPairs


Dead = Mapping[int, Reason]
"""Reasons by the position of the value."""

SchemaKind = Literal["AVRO", "PROTOBUF", "JSON"]
"""Languages of schemas, as Schema Registries name them."""

Framing = Literal["confluent", "glue", "apicurio-content-id", "apicurio-global-id"]
"""How a record names its schema: by Confluent's 5 or 17 bytes, by the 18 bytes of AWS Glue, or by Apicurio's own 9 bytes or
headers, whose ids are those of contents or of versions."""


@dataclass(frozen=True, slots=True)
class NamedSchema:
    """A schema that another schema refers to by this name."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class WriterSchema:
    """The schema that values were written with.

    Attributes:
        kind: Language of the schema.
        text: The schema.
        references: Schemas that it refers to, also indirectly. Each comes after those that it refers to.
        earlier: In a language that identifies fields by number: earlier versions of the subject, the latest first. They have the
            former names of fields.
        refusal: Why the schema can't be used, if that is known already; else empty.
    """

    kind: SchemaKind
    text: str
    references: tuple[NamedSchema, ...] = ()
    earlier: tuple[WriterSchema, ...] = ()
    refusal: str = ""


class TooManyUnknownIds(Exception):
    """Too many unknown ids were requested lately, so no further id is requested now."""


class SchemaSource(Protocol):
    """Returns writer schemas by id. They are immutable, so they may be cached.

    Attributes:
        framing: How the records of its producers name a schema.
    """

    framing: Framing

    def schema(self, schema_id: int | UUID) -> WriterSchema | None:
        """Return a schema, or None if surely no schema has this id.

        Raises:
            TooManyUnknownIds: A flood of unknown ids must not become a flood of requests.
            Retryable: The registry does not answer now.
            Terminal: The registry refuses to answer.
        """


JSON: Final = "json"
"""The one format whose values are decoded straight into the columns of the table."""


@dataclass(frozen=True, slots=True)
class FormatSpec:
    """A format with its options: plain data, because it is sent to executors. An instance of this base class is `JSON`.

    Each other format is a subclass in the `__init__` of its package below `frazil.records.formats`. From it come keys of pipeline
    files with their checks, docs and JSON Schema, while a DAG is parsed and without Arrow.

    Attributes:
        name: Its name in pipeline files.
        source: Source of writer schemas, if values name theirs.
        truncates: The option `sub_micros`: whether times are truncated to microseconds; else more digits make the value a dead letter.
        framing: How values name their schema, if there is a `source`.
    """

    name: str = JSON
    source: SchemaSource | None = None
    truncates: bool = False
    framing: Framing = "confluent"

    names: ClassVar[tuple[str, ...]] = (JSON,)
    """Its names in pipeline files."""
    remark: ClassVar[str] = "an object of the declared columns"
    """Text after its name in the docs."""
    shared_keys: ClassVar[tuple[str, ...]] = ("fields", "duplicate_keys", "sub_micros")
    """Keys of pipeline files that several formats have. The file's check refuses such a key for a format that does not list it here."""
    converters: ClassVar[tuple[str, ...]] = ()
    """The converter class of Kafka Connect for each of its names."""
    is_text: ClassVar[bool] = False
    """Whether every field is text, so that numbers are parsed from text."""
    has_path: ClassVar[bool] = False
    """Whether the path of a message follows the schema id."""

    def problems(self, *, registered: bool) -> Iterator[tuple[str, str]]:  # noqa: ARG002 - a subclass's
        """Yield options that don't fit together: key and problem. `registered`: the file names a registry."""
        yield from ()

    def open(self, *, blocks: bool) -> Format:
        """Return the format itself, which decodes. Its libraries are loaded only now.

        Args:
            blocks: Whether values may be parsed as blocks where that is exact. Without, the outcome is the same, but slower.

        Raises:
            Terminal: A library or an option is missing.
        """
        raise NotImplementedError

    def declared_fields(self, fields: pa.Schema | None) -> pa.Schema | None:
        """Return the fields that every value has; None if they differ from value to value. `fields`: those declared for JSON.

        Raises:
            Terminal: The format can't be opened.
        """
        return fields if self.name == JSON else None


@dataclass(frozen=True, slots=True)
class SchemaFormatSpec(FormatSpec):
    """A format whose values are read by a schema: each value names one, or one holds for all values.

    Attributes:
        schema: The schema for all values.
    """

    schema: str | None = None

    remark = ""
    shared_keys: ClassVar[tuple[str, ...]] = ("registry", "schema_", "schema_file")

    def open(self, *, blocks: bool) -> Format:
        """Return the format itself, if it has a schema or a source of schemas."""
        require(self.name, f"format {self.name}")
        if self.source is not None:
            return self._of_registry(self.source, blocks=blocks)
        if self.schema is not None and "schema_" in self.shared_keys:
            return self._of_schema(self.schema)
        raise BAD_SCHEMA.terminal(
            f"format {self.name}: the schema of the values is not known", next_step="name a registry or a schema file"
        )

    def _of_registry(self, source: SchemaSource, *, blocks: bool) -> Format:
        raise NotImplementedError

    def _of_schema(self, schema: str) -> Format:
        raise NotImplementedError

    def declared_fields(self, fields: pa.Schema | None) -> pa.Schema | None:  # noqa: ARG002 - JSON's
        """Return the fields of the schema for all values, if there is one."""
        if self.schema is None or self.source is not None:
            return None
        opened: Any = self.open(blocks=True)
        return pa.schema(list(opened.fields))


@dataclass(frozen=True, slots=True)
class Shaped:
    """Decoded values with the same fields: their columns, and the positions of the values, ascending."""

    columns: pa.RecordBatch
    positions: pa.Int64Array


def _no_unknown_fields() -> UnknownFieldPairs:
    from frazil.records.model.rows import NOTHING_UNKNOWN

    return NOTHING_UNKNOWN


@dataclass(frozen=True, slots=True)
class Decoded:
    """The result of decoding values: each value is in one group, or dead.

    Attributes:
        groups: Decoded values as columns, one group per shape.
        dead: Reasons of the values that are dead letters.
        unknown_fields: Fields of decoded values that their schema does not have, so that no column contains them. A field in a
            struct is named by its path.
    """

    groups: tuple[Shaped, ...]
    dead: Dead = field(default_factory=dict)
    unknown_fields: UnknownFieldPairs = field(default_factory=_no_unknown_fields)


class Format(Protocol):
    """Decodes values. It may cache things that are costly to make, such as parsed writer schemas."""

    def decode(self, values: pa.BinaryArray) -> Decoded:
        """Decode values, none of them null. No value makes this fail.

        Columns have these types, in any nesting: bool, int32, int64, float32, float64, decimal128, decimal256 (unsigned
        64-bit numbers and wider are decimal128(20, 0)), string, binary, fixed-size binary, uuid, date32, time64[us],
        timestamp[us] with zone UTC or without, struct, list, map, and null for a column whose values are all null. A value without
        fields has one column, `BARE`. A format does not know the columns of the table. It returns one group of columns for each set
        of field names and types (a shape), and fitters convert these to the table's columns. It limits depth (`MAX_DEPTH`) and
        cells (`frazil.records.model.cells`).

        Raises:
            Retryable: The registry does not return a writer schema now.
            Terminal: The registry refuses to answer.
        """


def decoded_type(data_type: pa.DataType) -> pa.DataType:
    """Return the type of decoded values for a table's column: texts, bytes and lists are never of Arrow's large types."""
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


BARE = "value"
"""Name of the one column of a value that has no fields: a text, a number, a list."""

Column = tuple["pa.Field", "pa.Array"]
Columns = Mapping[str, Column]
"""Fields of rows by name, with their values."""


@dataclass(frozen=True, slots=True)
class Frame:
    """Decoded records of one shape, row by row.

    Attributes:
        records: The consumed records (`KAFKA_SCHEMA`): original topic, offset, bytes. No transform changes them.
        positions: int64, per row the position of its record in the consumed batch, ascending. Rows of one record (exploded lists)
            share it.
        topic: string, the topic that routes use.
        value: The fields of the values.
        key: The fields of the keys; None if keys are not decoded, or none of these records has one.
        headers: list<struct<key: string, value: binary>>, null where a record has none.
    """

    records: pa.RecordBatch
    positions: pa.Int64Array
    topic: pa.StringArray
    value: pa.RecordBatch
    key: pa.RecordBatch | None
    headers: pa.ListArray

    @classmethod
    def from_records(
        cls, records: pa.RecordBatch, positions: pa.Int64Array, value: pa.RecordBatch, key: pa.RecordBatch | None = None
    ) -> Frame:
        """Return the frame of decoded records, one row per record."""
        return cls(records, positions, records.column("topic"), value, key, records.column("headers"))

    def __len__(self) -> int:
        return len(self.positions)

    def take(self, rows: pa.Int64Array) -> Frame:
        """Return the frame of the rows at these indices, which may repeat."""
        return Frame(
            take_repeated_rows(self.records, rows),
            self.positions.take(rows),
            self.topic.take(rows),
            take_repeated_rows(self.value, rows),
            None if self.key is None else take_repeated_rows(self.key, rows),
            take_repeated(self.headers, rows),
        )

    def with_value(self, value: pa.RecordBatch) -> Frame:
        """Return the frame with other fields of the values."""
        return replace(self, value=value)


@dataclass(frozen=True, slots=True)
class Transformed:
    """The result of a transform.

    Rows with different fields are in different frames, so that no record gets a field because its neighbour has one.

    Attributes:
        frame: The rows that continue.
        dead: Reasons by the position of the record in the consumed batch.
        filtered: Positions of the records that were left out on purpose, as `Frame.positions` has them.
        other_frames: Rows that continue with other fields than `frame` has.
    """

    frame: Frame
    dead: Mapping[int, Reason] = field(default_factory=dict)
    filtered: frozenset[int] = frozenset()
    other_frames: tuple[Frame, ...] = ()

    @property
    def frames(self) -> tuple[Frame, ...]:
        """All frames that continue; the rows of a record are in the order of the frames."""
        return (self.frame, *self.other_frames)


class Transform(Protocol):
    """One step between decoding and rows: a pure function on Arrow columns."""

    def apply(self, frame: Frame) -> Transformed:
        """Transform a frame, which has at least one row.

        A row that fails becomes a reason (`DeadCode.TRANSFORM_FAILED`); the other rows continue.

        Raises:
            Terminal: The fields of the frame don't fit the transform, such as a wrong type: a mistake in the pipeline file, not in a
                record.
        """


@dataclass(frozen=True, slots=True)
class MissingField:
    """A field that a transform needs and that no record has.

    Attributes:
        option: Attribute name of the option that names the field; empty if the transform itself needs it.
        message: Which field was expected, and which fields exist.
        name: Name of the field. By it `missing_fields` finds out whether all shapes of the records lack the field.
    """

    option: str
    message: str
    name: str = ""


@runtime_checkable
class Checked(Transform, Protocol):
    """A transform that can find missing fields before any record is read. Its output fields depend on fields, not values."""

    def lacks(self, frame: Frame) -> Iterable[MissingField]:
        """Return the fields that the transform needs and the frame does not have.

        Args:
            frame: One row of nulls, which has the fields that all records have here; only they count.
        """


_TAKEN_BYTES = 128 * 2**20
"""Most bytes that Arrow allocates for one `take`."""


def take_repeated(values: pa.Array, indices: pa.Int64Array) -> pa.Array:
    """Return the values at indices, which may repeat and may be null.

    Arrow allocates a value of mean length for each index, even a null one: with one large value among few, that could be more memory
    than the machine has. So large values are taken in small steps.
    """
    step = max(1, _TAKEN_BYTES * max(len(values), 1) // max(values.nbytes, 1))
    if len(indices) <= max(step, len(values)):
        return values.take(indices)
    return pa.concat_arrays([values.take(indices.slice(start, step)) for start in range(0, len(indices), step)])


def take_repeated_rows(batch: pa.RecordBatch, indices: pa.Int64Array) -> pa.RecordBatch:
    """Return the rows at indices, which may repeat; see `take_repeated`."""
    if not batch.num_columns:
        return batch.take(indices)
    columns = [take_repeated(column, indices) for column in batch.columns]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def values_by_row(values: pa.Array, rows: pa.Int64Array, size: int) -> pa.Array:
    """Return an array of `size` rows with the values of some of them, and null in the others."""
    return take_repeated(values, pc.index_in(pa.arange(0, size), value_set=rows))
