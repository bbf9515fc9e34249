"""Transforms that add, keep, drop, rename, extract, wrap or copy whole fields."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar, Final, Literal

from frazil.records import pa, pc
from frazil.records.model.dead_letter import Reason
from frazil.records.model.format import BARE, Frame, MissingField, Transformed
from frazil.records.transforms.definition import (
    KAFKA,
    SINK,
    ConnectClass,
    Names,
    TransformDefinition,
    option,
    target_option,
)
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
    split_path,
    tombstones,
    with_fields,
)


@dataclass(frozen=True, slots=True)
class InsertField(TransformDefinition):
    """Adds the record's topic, partition, offset or timestamp, or a fixed text. If a name ends in `!`, a record without that value is a dead letter.

    A field of that name is replaced. Topic (as routed so far) and text are string, partition int32, offset int64, Kafka's
    timestamp is timestamp[us, UTC]. A name may also end in `?`, which changes nothing: the field is optional. In records without
    value (tombstones) the fields are null.
    """

    connect_class: ClassVar = ConnectClass(f"{KAFKA}InsertField")

    topic_field: str | None = option("Field for the topic, as routed so far.", None, key="topic.field")
    partition_field: str | None = option("Field for the partition.", None, key="partition.field")
    offset_field: str | None = option("Field for the offset.", None, key="offset.field")
    timestamp_field: str | None = option("Field for Kafka's timestamp.", None, key="timestamp.field")
    static_field: str | None = option("Field for a fixed text.", None, key="static.field")
    static_value: str | None = option("The fixed text.", None, key="static.value")
    target: Target = target_option()

    def __post_init__(self) -> None:
        if (self.static_field is None) != (self.static_value is None):
            raise ValueError("static.field and static.value need each other")
        names = [name.rstrip("!?") for name in self._fields if name]
        if not names or "" in names:
            raise ValueError(
                "name at least one field: topic.field, partition.field, offset.field, timestamp.field, static.field"
            )
        if len(set(names)) < len(names):
            raise ValueError("two options name the same field")

    @property
    def _fields(self) -> tuple[str | None, ...]:
        return (self.topic_field, self.partition_field, self.offset_field, self.timestamp_field, self.static_field)

    def apply(self, frame: Frame) -> Transformed:
        """Add the fields."""
        fields = fields_of(frame, self.target)
        failed: dict[int, Reason] = {}
        empty = tombstones(frame)
        has_empty = self.target == "value" and pc.any(empty).as_py()
        for marked_name, column in zip(self._fields, self._columns(frame), strict=True):
            if marked_name is None:
                continue
            name = marked_name.rstrip("!?")
            if marked_name.endswith("!") and column.null_count:
                reason = failure(f"InsertField: expected a value for {name}, found none", name)
                failed |= dict.fromkeys(pc.indices_nonzero(column.is_null()).to_pylist(), reason)
            values = pc.if_else(empty, pa.scalar(None, column.type), column) if has_empty else column
            fields = put_column(fields, name, values)
        return select(with_fields(frame, self.target, fields), failed=failed)

    def _columns(self, frame: Frame) -> tuple[pa.Array, ...]:
        """Return the values of `_fields`, in their order."""
        text = pa.repeat(pa.scalar(self.static_value, pa.string()), len(frame))
        return (frame.topic, *(frame.records.column(name) for name in ("partition", "offset", "timestamp")), text)

    def referenced_names(self) -> Names:
        """Return the fields that the options name."""
        return [name and name.rstrip("!?") for name in self._fields]


@dataclass(frozen=True, slots=True)
class ReplaceField(TransformDefinition):
    """Keeps, leaves out and renames fields.

    They keep their order. Names that no field has are ignored.
    """

    connect_class: ClassVar = ConnectClass(f"{KAFKA}ReplaceField", {"whitelist": "include", "blacklist": "exclude"})
    reads: ClassVar = ("include", "renames")

    include: tuple[str, ...] = option("Fields to keep; by default all.", (), form="names")
    exclude: tuple[str, ...] = option("Fields to leave out, even if `include` names them.", (), form="names")
    renames: dict[str, str] = option("New name of each old one: a mapping, or pairs `old:new`.", dict, form="pairs")
    target: Target = target_option()

    def __post_init__(self) -> None:
        if not (self.include or self.exclude or self.renames):
            raise ValueError("nothing to do: name fields under include, exclude or renames")
        if len(set(self.renames.values())) < len(self.renames):
            raise ValueError("renames: two fields get one name")
        if lost := sorted(set(self.renames) & set(self.exclude)):
            raise ValueError(f"{lost[0]!r} is renamed and excluded")

    def apply(self, frame: Frame) -> Transformed:
        """Keep and rename the fields."""
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

    def referenced_names(self) -> Names:
        """Return the fields that the options name."""
        return [*self.include, *self.exclude, *self.renames, *self.renames.values()]


@dataclass(frozen=True, slots=True)
class ExtractField(TransformDefinition):
    """Replaces the value by one of its fields: the fields of that struct, or else the one field `value`.

    All of them are optional. Records fail if their fields don't include it.
    """

    connect_class: ClassVar = ConnectClass(f"{KAFKA}ExtractField", defaults={"field.syntax.version": "V1"})

    field: str = option("Name or path, such as `before.id`. A field of exactly this name comes first.", min_length=1)
    field_syntax_version: Literal["V1", "V2"] = option(
        "`V1`: `field` is a name; `V2`: it may be a path.", "V2", key="field.syntax.version"
    )
    target: Target = target_option()

    def lacks(self, frame: Frame) -> Iterator[MissingField]:
        """Yield the configured fields that do not exist."""
        nested = self.field_syntax_version == "V2"
        yield from lacking(fields_of(frame, self.target), "field", [self.field], nested=nested)

    def apply(self, frame: Frame) -> Transformed:
        """Put the field in place of the value or key."""
        fields = fields_of(frame, self.target)
        values = find(fields, self.field, nested=self.field_syntax_version == "V2")
        if values is None:
            return reject_all(frame, no_field_message("ExtractField", self.field, fields), self.field)
        return Transformed(with_fields(frame, self.target, _unwrapped(values)))

    def referenced_names(self) -> Names:
        """Return the fields that the options name."""
        return [self.field, split_path(self.field)[0]]


@dataclass(frozen=True, slots=True)
class HoistField(TransformDefinition):
    """Wraps the fields into one struct.

    A value without fields (a text, a number, a list) becomes a field of that name. A value whose only field is called `value` counts
    as one without fields: as columns they look the same.
    """

    connect_class: ClassVar = ConnectClass(f"{KAFKA}HoistField")

    field: str = option("Name of the struct.", min_length=1)
    target: Target = target_option()

    def apply(self, frame: Frame) -> Transformed:
        """Wrap the fields."""
        fields = fields_of(frame, self.target)
        inner = bare_column(fields)
        wrapped = fields.to_struct_array() if inner is None else inner
        column = (pa.field(self.field, wrapped.type), wrapped)
        return Transformed(with_fields(frame, self.target, batch_of([column], len(frame), like=fields)))


@dataclass(frozen=True, slots=True)
class ValueToKey(TransformDefinition):
    """Makes a key from fields of the value.

    The value keeps them. Records without one of these fields fail.
    """

    connect_class: ClassVar = ConnectClass(f"{KAFKA}ValueToKey")
    reads: ClassVar = ("fields",)

    fields: tuple[str, ...] = option("The fields, in the order of the key.", form="names", min_length=1)

    def apply(self, frame: Frame) -> Transformed:
        """Make the key."""
        names = frame.value.schema.names
        for name in self.fields:
            if name not in names:
                return reject_all(frame, no_field_message("ValueToKey", name, frame.value), name)
        return Transformed(replace(frame, key=frame.value.select(list(self.fields))))


@dataclass(frozen=True, slots=True)
class SetSchemaMetadata(TransformDefinition):
    """Sets name and version of the schema. Tables don't use them: rows and columns stay unchanged.

    It exists so that a configuration of Kafka Connect can be carried over. Name and version become metadata of the Arrow
    schema, `schema.name` and `schema.version`, for own transforms.
    """

    connect_class: ClassVar = ConnectClass(f"{KAFKA}SetSchemaMetadata")
    uses_fields: ClassVar = False

    schema_name: str | None = option("The name.", None, key="schema.name")
    schema_version: int | None = option("The version.", None, key="schema.version")
    target: Target = target_option()

    def apply(self, frame: Frame) -> Transformed:
        """Set the metadata of the schema."""
        fields = fields_of(frame, self.target)
        metadata: dict[bytes | str, bytes | str] = dict(fields.schema.metadata or {})
        if self.schema_name is not None:
            metadata[b"schema.name"] = self.schema_name
        if self.schema_version is not None:
            metadata[b"schema.version"] = str(self.schema_version)
        named = fields.replace_schema_metadata(metadata) if metadata else fields
        return Transformed(with_fields(frame, self.target, named))


def _unwrapped(values: pa.Array) -> pa.RecordBatch:
    """Return a struct's fields, null in rows where the struct is null; other values as the one column `BARE`."""
    if not pa.types.is_struct(values.type):
        return batch_of([(pa.field(BARE, values.type), values)], len(values))
    columns = [
        (pa.field(inner.name, inner.type), pc.struct_field(values, index)) for index, inner in enumerate(values.type)
    ]
    return batch_of(columns, len(values))


@dataclass(frozen=True, slots=True)
class CopyValue(TransformDefinition):
    """Copies a field.

    A field with the name of the copy is replaced. Records without the source field fail.
    """

    connect_class: ClassVar = ConnectClass(f"{SINK}CopyValue")
    reads: ClassVar = ("source_field",)

    source_field: str = option("The field.", key="source.field", min_length=1)
    target_field: str = option("Name of the copy.", key="target.field", min_length=1)

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

    def referenced_names(self) -> Names:
        """Return the fields that the options name."""
        return [self.source_field, self.target_field]


def _name_and_text(value: str | None) -> str | None:
    if value is not None and [bool(part) for part in value.split(",")] != [True, True]:
        raise ValueError("expected name,text")
    return value


_METADATA: Final = ("topic", "partition", "offset", "timestamp")


@dataclass(frozen=True, slots=True)
class KafkaMetadata(TransformDefinition):
    """Adds topic, partition, offset and timestamp as fields.

    The topic is the consumed one, a string; the partition is int32, the offset int64, the timestamp int64 in milliseconds, or null.
    Fields of the same names are replaced.
    """

    connect_class: ClassVar = ConnectClass(f"{SINK}KafkaMetadataTransform")

    field_name: str = option("Prefix of the fields; name of the struct if nested.", "_kafka_metadata", min_length=1)
    nested: bool = option("Whether the fields become one struct.", False)
    external_field: str | None = option("`name,text`: one more field with this text.", None, check=_name_and_text)

    @property
    def _external(self) -> list[str]:
        return [] if self.external_field is None else self.external_field.split(",")

    def apply(self, frame: Frame) -> Transformed:
        """Add the fields."""
        columns = self._columns(frame)
        value = frame.value
        if self.nested:
            struct = pa.StructArray.from_arrays(list(columns.values()), names=list(columns))
            return Transformed(frame.with_value(put_column(value, self.field_name, struct)))
        for name, values in columns.items():
            value = put_column(value, f"{self.field_name}_{name}", values)
        return Transformed(frame.with_value(value))

    def _columns(self, frame: Frame) -> dict[str, pa.Array]:
        columns = {name: frame.records.column(name) for name in _METADATA}
        # Kafka counts milliseconds, so that the cast loses nothing.
        columns["timestamp"] = columns["timestamp"].cast(pa.timestamp("ms", "UTC"), safe=False).cast(pa.int64())
        if self._external:
            name, text = self._external
            columns[name] = pa.repeat(pa.scalar(text), len(frame))
        return columns

    def referenced_names(self) -> Names:
        """Return the fields that the options name."""
        return [self.field_name, *(f"{self.field_name}_{name}" for name in (*_METADATA, *self._external[:1]))]
