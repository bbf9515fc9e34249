"""Kafka Connect's own transforms, with its keys."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, field_validator, model_validator

from frazil.pipeline.syntax.patterns import Expression
from frazil.pipeline.transforms.transform_step import Half, Names, Step, pairs

CAST_TYPES = ("int8", "int16", "int32", "int64", "float32", "float64", "boolean", "string")
"""Types that fields can be cast to, in Kafka Connect's names."""

_TYPE = "Name of the transform."
_TARGET = "Fields of the value or of the key."


class InsertField(Step):
    """Adds facts about the record, or a fixed text. A name may end in `!`: a record without the fact is a dead letter."""

    type: Literal["InsertField"] = Field(description=_TYPE)
    topic_field: str | None = Field(None, alias="topic.field", description="Field for the topic, as routed so far.")
    partition_field: str | None = Field(None, alias="partition.field", description="Field for the partition.")
    offset_field: str | None = Field(None, alias="offset.field", description="Field for the offset.")
    timestamp_field: str | None = Field(None, alias="timestamp.field", description="Field for Kafka's timestamp.")
    static_field: str | None = Field(None, alias="static.field", description="Field for a fixed text.")
    static_value: str | None = Field(None, alias="static.value", description="The fixed text.")
    target: Half = Field("value", description=_TARGET)

    @model_validator(mode="after")
    def _inserts(self) -> InsertField:
        if (self.static_field is None) != (self.static_value is None):
            raise ValueError("static.field and static.value need each other")
        names = [value.rstrip("!?") for key, value in self.options.items() if value and key.endswith("_field")]
        if not names or "" in names:
            raise ValueError(
                "name at least one field: topic.field, partition.field, offset.field, timestamp.field, static.field"
            )
        if len(set(names)) < len(names):
            raise ValueError("two facts have the same field")
        return self


class ReplaceField(Step):
    """Keeps, leaves out and renames fields."""

    type: Literal["ReplaceField"] = Field(description=_TYPE)
    include: Names = Field((), description="Fields to keep; all without.")
    exclude: Names = Field((), description="Fields to leave out, also of those included.")
    renames: Annotated[
        dict[str, str], BeforeValidator(pairs, json_schema_input_type=dict[str, str] | tuple[str, ...] | str)
    ] = Field(default_factory=dict, description="New names by old ones: a mapping, or pairs `old:new`.")
    target: Half = Field("value", description=_TARGET)

    @model_validator(mode="after")
    def _replaces(self) -> ReplaceField:
        if not (self.include or self.exclude or self.renames):
            raise ValueError("nothing to do: name fields under include, exclude or renames")
        if len(set(self.renames.values())) < len(self.renames):
            raise ValueError("renames: two fields get one name")
        if lost := sorted(set(self.renames) & set(self.exclude)):
            raise ValueError(f"{lost[0]!r} is renamed and excluded")
        return self


class MaskField(Step):
    """Puts another value in place of each value of some fields."""

    type: Literal["MaskField"] = Field(description=_TYPE)
    fields: Names = Field(min_length=1, description="The fields.")
    replacement: str | None = Field(
        None, min_length=1, description="Text or digits to put there; without, what is empty in the field's type."
    )
    target: Half = Field("value", description=_TARGET)

    @field_validator("replacement", mode="before", json_schema_input_type=str | float | None)
    @classmethod
    def _digits(cls, value: object) -> object:
        return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


class Cast(Step):
    """Gives fields another type, also where that loses digits; what is out of range is a dead letter."""

    type: Literal["Cast"] = Field(description=_TYPE)
    spec: dict[str, str] | str = Field(
        description="Types by fields: a mapping, or pairs `field:type`; or one type, for values without fields."
    )
    target: Half = Field("value", description=_TARGET)

    @field_validator("spec", mode="before", json_schema_input_type=dict[str, str] | tuple[str, ...] | str)
    @classmethod
    def _pairs(cls, spec: Any) -> Any:
        return spec if isinstance(spec, str) and ":" not in spec else pairs(spec)

    @field_validator("spec")
    @classmethod
    def _casts(cls, spec: dict[str, str] | str) -> dict[str, str] | str:
        types = [spec] if isinstance(spec, str) else list(spec.values())
        if not types:
            raise ValueError("nothing to cast")
        if unknown_types := sorted(set(types) - set(CAST_TYPES)):
            raise ValueError(f"{unknown_types[0]!r} is not a type to cast to; known: {', '.join(CAST_TYPES)}")
        return spec


class ExtractField(Step):
    """Takes one field out of the value: its fields become those of the record, or the one field `value`."""

    type: Literal["ExtractField"] = Field(description=_TYPE)
    field: str = Field(
        min_length=1, description="Name, or a path such as `before.id`; a field of exactly this name comes first."
    )
    field_syntax_version: Literal["V1", "V2"] = Field(
        "V2", alias="field.syntax.version", description="`V1`: never a path."
    )
    target: Half = Field("value", description=_TARGET)


class HoistField(Step):
    """Wraps the fields into one struct."""

    type: Literal["HoistField"] = Field(description=_TYPE)
    field: str = Field(min_length=1, description="Name of the struct.")
    target: Half = Field("value", description=_TARGET)


class ValueToKey(Step):
    """Makes the key of fields of the value."""

    type: Literal["ValueToKey"] = Field(description=_TYPE)
    fields: Names = Field(min_length=1, description="The fields, in the order of the key.")


class TimestampConverter(Step):
    """Converts a time between text, number, date, time and timestamp, in UTC."""

    type: Literal["TimestampConverter"] = Field(description=_TYPE)
    field: str = Field("", description="The field; none for values without fields.")
    target_type: Literal["string", "unix", "Date", "Time", "Timestamp"] = Field(
        alias="target.type", description="The new form; what it is now, its type says."
    )
    format: str | None = Field(
        None,
        min_length=1,
        description="Pattern of Java's SimpleDateFormat for text read or written, such as `yyyy-MM-dd`.",
    )
    unix_precision: Literal["seconds", "milliseconds", "microseconds", "nanoseconds"] = Field(
        "milliseconds", alias="unix.precision", description="Unit of numbers read or written."
    )
    target: Half = Field("value", description=_TARGET)

    @model_validator(mode="after")
    def _writes(self) -> TimestampConverter:
        if self.target_type == "string" and self.format is None:
            raise ValueError("target.type: string needs a format")
        return self


class RegexRouter(Step):
    """Replaces topics that an expression matches, for routing; Kafka columns and dead letters keep the original."""

    type: Literal["RegexRouter"] = Field(description=_TYPE)
    regex: Expression = Field(
        description="Regular expression of RE2 that matches the whole topic; named groups as Java spells them."
    )
    replacement: str = Field(description="The new topic; `$1` or `${name}` is what a group matched.")


class TimestampRouter(Step):
    """Puts the time of the record into the topic, for routing."""

    type: Literal["TimestampRouter"] = Field(description=_TYPE)
    topic_format: str = Field(
        "${topic}-${timestamp}", alias="topic.format", description="The new topic, with `${topic}` and `${timestamp}`."
    )
    timestamp_format: str = Field(
        "yyyyMMdd", alias="timestamp.format", min_length=1, description="Pattern of Java's SimpleDateFormat, in UTC."
    )

    @field_validator("topic_format")
    @classmethod
    def _varies(cls, text: str) -> str:
        if "${topic}" not in text and "${timestamp}" not in text:
            raise ValueError("has neither ${topic} nor ${timestamp}")
        return text


class Filter(Step):
    """Leaves out the records that `when` tells; they are counted as filtered."""

    type: Literal["Filter"] = Field(description=_TYPE)

    @model_validator(mode="after")
    def _some(self) -> Filter:
        if self.when is None:
            raise ValueError("without `when` it would leave out every record")
        return self


class HeaderFrom(Step):
    """Copies or moves fields into headers."""

    type: Literal["HeaderFrom"] = Field(description=_TYPE)
    fields: Names = Field(min_length=1, description="The fields.")
    headers: Names = Field(min_length=1, description="Names of their headers, in the same order.")
    operation: Literal["move", "copy"] = Field(description="Whether the fields go or stay.")
    target: Half = Field("value", description=_TARGET)

    @model_validator(mode="after")
    def _matches(self) -> HeaderFrom:
        if len(self.fields) != len(self.headers):
            raise ValueError(f"{len(self.fields)} fields can't become {len(self.headers)} headers")
        return self


class InsertHeader(Step):
    """Adds a header with a fixed text."""

    type: Literal["InsertHeader"] = Field(description=_TYPE)
    header: str = Field(min_length=1, description="Its name.")
    value_literal: str = Field(alias="value.literal", description="Its text.")


class DropHeaders(Step):
    """Leaves out headers."""

    type: Literal["DropHeaders"] = Field(description=_TYPE)
    headers: Names = Field(min_length=1, description="Their names.")


class SetSchemaMetadata(Step):
    """Names the schema. Tables have no use for it: rows and columns stay as they are."""

    type: Literal["SetSchemaMetadata"] = Field(description=_TYPE)
    schema_name: str | None = Field(None, alias="schema.name", description="The name.")
    schema_version: int | None = Field(None, alias="schema.version", description="The version.")
    target: Half = Field("value", description=_TARGET)
