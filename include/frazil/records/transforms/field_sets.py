"""Transforms that add, keep, rename, extract or wrap whole fields."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc

from frazil.error_codes import BAD_TRANSFORM
from frazil.records.model.dead_letter import Reason
from frazil.records.model.format import BARE
from frazil.records.model.frame import Frame, MissingField, Transformed
from frazil.records.transforms.fields import (
    Target,
    bare_column,
    batch_of,
    columns_of,
    failure,
    fields_of,
    find,
    first_duplicate,
    lacking,
    no_field_message,
    put_column,
    reject_all,
    select,
    tombstones,
    with_fields,
)


@dataclass(frozen=True, slots=True)
class InsertField:
    """Adds facts about the record, or a fixed text, as fields. A field of that name is replaced.

    A name may end in `!` (the field is required: a record without the fact fails) or `?` (optional, as without a mark).
    Values that Kafka has none of (tombstones) get no fields.

    Attributes:
        topic_field: Where the topic goes, as routed so far: string.
        partition_field: Where the partition goes: int32.
        offset_field: Where the offset goes: int64.
        timestamp_field: Where Kafka's timestamp goes: timestamp[us, UTC].
        static_field: Where `static_value` goes: string.
        static_value: The text.
        target: Values or keys.

    Raises:
        Terminal: nothing to insert, or only one of `static_field` and `static_value`.
    """

    topic_field: str | None = None
    partition_field: str | None = None
    offset_field: str | None = None
    timestamp_field: str | None = None
    static_field: str | None = None
    static_value: str | None = None
    target: Target = "value"

    def __post_init__(self) -> None:
        if (self.static_field is None) != (self.static_value is None):
            raise BAD_TRANSFORM.terminal(
                "InsertField: static.field and static.value need each other", next_step="name both"
            )
        named = (self.topic_field, self.partition_field, self.offset_field, self.timestamp_field, self.static_field)
        if not any(name and name.rstrip("!?") for name in named):
            raise BAD_TRANSFORM.terminal(
                "InsertField: no field is named", next_step="name topic.field, static.field, or another one"
            )

    def apply(self, frame: Frame) -> Transformed:
        """Add the fields."""
        fields = fields_of(frame, self.target)
        failed: dict[int, Reason] = {}
        empty = tombstones(frame)
        skips = self.target == "value" and pc.any(empty).as_py()
        for marked_name, values in self._facts(frame):
            name = marked_name.rstrip("!?")
            if marked_name.endswith("!") and values.null_count:
                reason = failure(f"InsertField: expected a value for {name}, found none", name)
                failed |= dict.fromkeys(pc.indices_nonzero(values.is_null()).to_pylist(), reason)
            fields = put_column(
                fields, name, pc.if_else(empty, pa.scalar(None, values.type), values) if skips else values
            )
        return select(with_fields(frame, self.target, fields), failed=failed)

    def _facts(self, frame: Frame) -> list[tuple[str, pa.Array]]:
        records = frame.records
        facts = [
            (self.topic_field, frame.topic),
            (self.partition_field, records.column("partition")),
            (self.offset_field, records.column("offset")),
            (self.timestamp_field, records.column("timestamp")),
            (self.static_field, pa.repeat(pa.scalar(self.static_value, pa.string()), len(frame))),
        ]
        return [(name, values) for name, values in facts if name is not None]


@dataclass(frozen=True, slots=True)
class ReplaceField:
    """Keeps, leaves out and renames fields, in the order in which they came. Names that no field has do nothing.

    Attributes:
        include: Names of the fields to keep; empty means all.
        exclude: Names of the fields to leave out, also of those in `include`.
        renames: New names by the names as they came.
        target: Values or keys.

    Raises:
        Terminal: nothing to do, or two fields get one name.
    """

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    renames: Mapping[str, str] = field(default_factory=dict)
    target: Target = "value"

    def __post_init__(self) -> None:
        if not (self.include or self.exclude or self.renames):
            raise BAD_TRANSFORM.terminal(
                "ReplaceField: nothing to do", next_step="name fields under include, exclude or renames"
            )
        if duplicate := first_duplicate(list(self.renames.values())):
            raise BAD_TRANSFORM.terminal(
                f"ReplaceField: two fields are renamed to {duplicate}", next_step="give them different names"
            )

    def lacks(self, frame: Frame) -> Iterator[MissingField]:
        """Yield the configured fields that do not exist."""
        fields = fields_of(frame, self.target)
        yield from lacking(fields, "include", self.include)
        yield from lacking(fields, "renames", self.renames)

    def apply(self, frame: Frame) -> Transformed:
        """Keep and rename."""
        fields = fields_of(frame, self.target)
        columns = [
            (column.with_name(self.renames.get(column.name, column.name)), values)
            for column, values in columns_of(fields)
            if column.name not in self.exclude and (not self.include or column.name in self.include)
        ]
        if duplicate := first_duplicate([column.name for column, _ in columns]):
            return reject_all(
                frame, f"ReplaceField: expected different names, found two fields named {duplicate}", duplicate
            )
        return Transformed(with_fields(frame, self.target, batch_of(columns, len(frame), like=fields)))


@dataclass(frozen=True, slots=True)
class ExtractField:
    """Takes one field out of the values: its fields become the fields of the record, all optional.

    A field that is no struct becomes the only column, `value`. Records of a shape without the field fail.

    Attributes:
        field: A name, or a path such as `` before.`order.id` ``; a field of exactly this name comes first.
        field_syntax_version: `V1` takes the name as it is and never as a path.
        target: Values or keys.
    """

    field: str
    field_syntax_version: Literal["V1", "V2"] = "V2"
    target: Target = "value"

    def lacks(self, frame: Frame) -> Iterator[MissingField]:
        """Yield the configured fields that do not exist."""
        nested = self.field_syntax_version == "V2"
        yield from lacking(fields_of(frame, self.target), "field", [self.field], nested=nested)

    def apply(self, frame: Frame) -> Transformed:
        """Take the field out."""
        fields = fields_of(frame, self.target)
        values = find(fields, self.field, nested=self.field_syntax_version == "V2")
        if values is None:
            return reject_all(frame, no_field_message("ExtractField", self.field, fields), self.field)
        return Transformed(with_fields(frame, self.target, _unwrapped(values)))


@dataclass(frozen=True, slots=True)
class HoistField:
    """Wraps the fields of the values into one struct, or gives the value of a record without fields a name.

    Values whose only field is called `value` count as without fields: as columns they look the same.

    Attributes:
        field: Name of the struct.
        target: Values or keys.
    """

    field: str
    target: Target = "value"

    def apply(self, frame: Frame) -> Transformed:
        """Wrap the fields."""
        fields = fields_of(frame, self.target)
        inner = bare_column(fields)
        wrapped = fields.to_struct_array() if inner is None else inner
        column = (pa.field(self.field, wrapped.type), wrapped)
        return Transformed(with_fields(frame, self.target, batch_of([column], len(frame), like=fields)))


@dataclass(frozen=True, slots=True)
class ValueToKey:
    """Makes the key of some fields of the values, which keep them. Records of a shape without one of them fail.

    Attributes:
        fields: Names, in the order of the key.

    Raises:
        Terminal: no field, or one twice.
    """

    fields: tuple[str, ...]

    def __post_init__(self) -> None:
        if not self.fields or (duplicate := first_duplicate(self.fields)):
            wrong = f"the field {duplicate} is named twice" if self.fields else "no field is named"
            raise BAD_TRANSFORM.terminal(f"ValueToKey: {wrong}", next_step="name each field of the key once")

    def lacks(self, frame: Frame) -> Iterator[MissingField]:
        """Yield the configured fields that do not exist."""
        yield from lacking(frame.value, "fields", self.fields)

    def apply(self, frame: Frame) -> Transformed:
        """Make the key."""
        names = frame.value.schema.names
        for name in self.fields:
            if name not in names:
                return reject_all(frame, no_field_message("ValueToKey", name, frame.value), name)
        return Transformed(replace(frame, key=frame.value.select(list(self.fields))))


@dataclass(frozen=True, slots=True)
class SetSchemaMetadata:
    """Names the schema of the values. Tables have no use for it: rows and columns stay as they are.

    It is here so that a configuration of Kafka Connect can be carried over. Name and version become metadata of the Arrow
    schema, `schema.name` and `schema.version`, where own transforms find them.

    Attributes:
        schema_name: The name, or None to leave it.
        schema_version: The version, or None to leave it.
        target: Values or keys.
    """

    schema_name: str | None = None
    schema_version: int | None = None
    target: Target = "value"

    def apply(self, frame: Frame) -> Transformed:
        """Name the schema."""
        fields = fields_of(frame, self.target)
        metadata: dict[bytes | str, bytes | str] = dict(fields.schema.metadata or {})
        if self.schema_name is not None:
            metadata[b"schema.name"] = self.schema_name
        if self.schema_version is not None:
            metadata[b"schema.version"] = str(self.schema_version)
        named = fields.replace_schema_metadata(metadata) if metadata else fields
        return Transformed(with_fields(frame, self.target, named))


def _unwrapped(values: pa.Array) -> pa.RecordBatch:
    """Return a struct's fields, null where it is null; anything else as the one column `BARE`."""
    if not pa.types.is_struct(values.type):
        return batch_of([(pa.field(BARE, values.type), values)], len(values))
    columns = [
        (pa.field(inner.name, inner.type), pc.struct_field(values, index)) for index, inner in enumerate(values.type)
    ]
    return batch_of(columns, len(values))


@dataclass(frozen=True, slots=True)
class CopyValue:
    """Copies a top-level field of the values, with its type. A field of the target's name is replaced.

    Records of a shape without the source field fail.

    Attributes:
        source_field: The name of the field to copy, exactly.
        target_field: The name of the copy.
    """

    source_field: str
    target_field: str

    def lacks(self, frame: Frame) -> Iterator[MissingField]:
        """Yield the configured fields that do not exist."""
        yield from lacking(frame.value, "source_field", [self.source_field])

    def apply(self, frame: Frame) -> Transformed:
        """Copy the field."""
        columns = columns_of(frame.value)
        names = [column.name for column, _ in columns]
        if self.source_field not in names:
            return reject_all(frame, no_field_message("CopyValue", self.source_field, frame.value), self.source_field)
        declared, values = columns[names.index(self.source_field)]
        copy: tuple[pa.Field, pa.Array] = (declared.with_name(self.target_field), values)
        if self.target_field in names:
            columns[names.index(self.target_field)] = copy
        else:
            columns.append(copy)
        return Transformed(frame.with_value(batch_of(columns, len(frame), like=frame.value)))
