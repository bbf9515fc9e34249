"""Transforms that add, keep, rename, extract or wrap whole fields."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

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
    """Adds facts about the record, or a fixed text. A name may end in `!`: a record without the fact is a dead letter.

    A field of that name is replaced. Topic (as routed so far) and text are string, partition int32, offset int64, Kafka's
    timestamp is timestamp[us, UTC]. A name may end in `?` as well: optional, as without a mark. Values that Kafka has none of
    (tombstones) get no fields.
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
            raise ValueError("two facts have the same field")

    @property
    def _fields(self) -> tuple[str | None, ...]:
        return (self.topic_field, self.partition_field, self.offset_field, self.timestamp_field, self.static_field)

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

    def referenced_names(self) -> Names:
        """Return the fields that the options name."""
        return [name and name.rstrip("!?") for name in self._fields]


@dataclass(frozen=True, slots=True)
class ReplaceField(TransformDefinition):
    """Keeps, leaves out and renames fields.

    They stay in the order in which they came. Names that no field has do nothing.
    """

    connect_class: ClassVar = ConnectClass(f"{KAFKA}ReplaceField", {"whitelist": "include", "blacklist": "exclude"})
    reads: ClassVar = ("include", "renames")

    include: tuple[str, ...] = option("Fields to keep; all without.", (), form="names")
    exclude: tuple[str, ...] = option("Fields to leave out, also of those included.", (), form="names")
    renames: dict[str, str] = option("New names by old ones: a mapping, or pairs `old:new`.", dict, form="pairs")
    target: Target = target_option()

    def __post_init__(self) -> None:
        if not (self.include or self.exclude or self.renames):
            raise ValueError("nothing to do: name fields under include, exclude or renames")
        if len(set(self.renames.values())) < len(self.renames):
            raise ValueError("renames: two fields get one name")
        if lost := sorted(set(self.renames) & set(self.exclude)):
            raise ValueError(f"{lost[0]!r} is renamed and excluded")

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

    def referenced_names(self) -> Names:
        """Return the fields that the options name."""
        return [*self.include, *self.exclude, *self.renames, *self.renames.values()]


@dataclass(frozen=True, slots=True)
class ExtractField(TransformDefinition):
    """Takes one field out of the value: its fields become those of the record, or the one field `value`.

    All of them are optional. Records of a shape without the field fail.
    """

    connect_class: ClassVar = ConnectClass(f"{KAFKA}ExtractField", defaults={"field.syntax.version": "V1"})

    field: str = option("Name, or a path such as `before.id`; a field of exactly this name comes first.", min_length=1)
    field_syntax_version: Literal["V1", "V2"] = option("`V1`: never a path.", "V2", key="field.syntax.version")
    target: Target = target_option()

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

    def referenced_names(self) -> Names:
        """Return the fields that the options name."""
        return [self.field, split_path(self.field)[0]]


@dataclass(frozen=True, slots=True)
class HoistField(TransformDefinition):
    """Wraps the fields into one struct.

    A record without fields gets its value under that name. Values whose only field is called `value` count as without fields:
    as columns they look the same.
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
    """Makes the key of fields of the value.

    The values keep them. Records of a shape without one of them fail.
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
    """Names the schema. Tables have no use for it: rows and columns stay as they are.

    It is here so that a configuration of Kafka Connect can be carried over. Name and version become metadata of the Arrow
    schema, `schema.name` and `schema.version`, where own transforms find them.
    """

    connect_class: ClassVar = ConnectClass(f"{KAFKA}SetSchemaMetadata")
    uses_fields: ClassVar = False

    schema_name: str | None = option("The name.", None, key="schema.name")
    schema_version: int | None = option("The version.", None, key="schema.version")
    target: Target = target_option()

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
class CopyValue(TransformDefinition):
    """Copies a field.

    The copy has its type. A field of its name is replaced. Records of a shape without the source field fail.
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


@dataclass(frozen=True, slots=True)
class KafkaMetadata(TransformDefinition):
    """Adds topic, partition, offset and timestamp as fields.

    The topic is string, as consumed, the partition int32, the offset int64, the timestamp int64, milliseconds, optional. Fields
    of the same names are replaced.
    """

    connect_class: ClassVar = ConnectClass(f"{SINK}KafkaMetadataTransform")

    field_name: str = option("Prefix of the fields; name of the struct if nested.", "_kafka_metadata", min_length=1)
    nested: bool = option("They become one struct.", False)
    external_field: str | None = option("`name,text`: one more field with this text.", None, check=_name_and_text)

    @property
    def _external(self) -> list[str]:
        return [] if self.external_field is None else self.external_field.split(",")

    def apply(self, frame: Frame) -> Transformed:
        """Add the fields."""
        facts = self._facts(frame)
        value = frame.value
        if self.nested:
            struct = pa.StructArray.from_arrays(list(facts.values()), names=list(facts))
            return Transformed(frame.with_value(put_column(value, self.field_name, struct)))
        for name, values in facts.items():
            value = put_column(value, f"{self.field_name}_{name}", values)
        return Transformed(frame.with_value(value))

    @property
    def facts(self) -> tuple[str, ...]:
        """Names of the facts."""
        return ("topic", "partition", "offset", "timestamp", *self._external[:1])

    def _facts(self, frame: Frame) -> dict[str, pa.Array]:
        records = frame.records
        facts = {name: records.column(name) for name in self.facts[:3]}
        # Kafka counts milliseconds, so the microseconds of Arrow are whole ones.
        facts["timestamp"] = records.column("timestamp").cast(pa.timestamp("ms", "UTC"), safe=False).cast(pa.int64())
        if self._external:
            name, text = self._external
            facts[name] = pa.repeat(pa.scalar(text), len(frame))
        return facts

    def referenced_names(self) -> Names:
        """Return the fields that the options name."""
        return [self.field_name, *(f"{self.field_name}_{name}" for name in self.facts)]
