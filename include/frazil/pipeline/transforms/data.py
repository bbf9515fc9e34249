"""Transforms of nested data, of change events and of the Iceberg sink for Kafka Connect, and SQL."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, field_validator, model_validator

from frazil.pipeline.syntax.types import parse_type
from frazil.pipeline.transforms.transform_step import Half, Step

_TYPE = "Name of the transform."
_CDC_FIELD = "Name of the struct about the change."


def _struct(value: str) -> str:
    text = str(parse_type(value))
    if not text.startswith("struct<"):
        raise ValueError(f"{text!r} is no struct")
    return text


StructText = Annotated[str, AfterValidator(_struct)]
"""A struct type in Iceberg's spelling."""


class Flatten(Step):
    """Turns struct fields into fields of their own, named by their path."""

    type: Literal["Flatten"] = Field(description=_TYPE)
    delimiter: str = Field(".", description="Between the names of a path.")
    depth: int | None = Field(None, ge=1, description="So many levels are opened; all without.")
    lists: Literal["keep", "json"] = Field("keep", description="Lists are kept, or become JSON text.")
    target: Half = Field("value", description="Fields of the value or of the key.")


class Explode(Step):
    """Makes one row per element of a list."""

    type: Literal["Explode"] = Field(description=_TYPE)
    field: str = Field(min_length=1, description="The list.")
    outer: bool = Field(
        True, description="A record whose list is null or empty keeps one row; otherwise it is filtered."
    )
    position_field: str | None = Field(
        None, alias="position.field", description="Field for the element's place in the list, from 0."
    )
    spread: bool = Field(False, description="The fields of struct elements take the list's place.")


class CopyValue(Step):
    """Copies a field."""

    type: Literal["CopyValue"] = Field(description=_TYPE)
    source_field: str = Field(alias="source.field", min_length=1, description="The field.")
    target_field: str = Field(alias="target.field", min_length=1, description="Name of the copy.")


class KafkaMetadata(Step):
    """Adds topic, partition, offset and timestamp as fields."""

    type: Literal["KafkaMetadata"] = Field(description=_TYPE)
    field_name: str = Field(
        "_kafka_metadata", min_length=1, description="Prefix of the fields; name of the struct if nested."
    )
    nested: bool = Field(False, description="They become one struct.")
    external_field: str | None = Field(None, description="`name,text`: one more field with this text.")

    @field_validator("external_field")
    @classmethod
    def _two(cls, value: str | None) -> str | None:
        if value is not None and [bool(part) for part in value.split(",")] != [True, True]:
            raise ValueError("expected name,text")
        return value


class JsonToMap(Step):
    """Reads JSON objects from a text field: as a map, or as declared fields."""

    type: Literal["JsonToMap"] = Field(description=_TYPE)
    json_root: bool = Field(False, alias="json.root", description="All fields of the object as one map of texts.")
    types: StructText | None = Field(None, description="Or the fields to take: `struct<id: long, name: string>`.")
    field: str = Field(
        "value", min_length=1, description="The text field; `value` for values that are nothing but text."
    )

    @model_validator(mode="after")
    def _either(self) -> JsonToMap:
        if self.json_root == (self.types is not None):
            raise ValueError("either json.root: true, or types")
        return self


class DebeziumTransform(Step):
    """Takes the row out of Debezium's envelope and adds a struct about the change."""

    type: Literal["DebeziumTransform"] = Field(description=_TYPE)
    target_pattern: str = Field(
        "{db}.{table}",
        alias="cdc.target.pattern",
        description="Text of the struct's `target`, with `{db}` and `{table}`.",
    )
    delete_handling: Literal["none", "drop", "rewrite"] = Field(
        "none",
        alias="delete.handling",
        description="Deleted rows are kept, filtered, or kept with `__deleted` on all rows.",
    )
    cdc_field: str = Field("_cdc", alias="cdc.field", min_length=1, description=_CDC_FIELD)


class DmsTransform(Step):
    """Takes the row out of the envelope of AWS DMS and adds a struct about the change."""

    type: Literal["DmsTransform"] = Field(description=_TYPE)
    cdc_field: str = Field("_cdc", alias="cdc.field", min_length=1, description=_CDC_FIELD)


class MongoDebezium(Step):
    """Reads the documents in envelopes of Debezium's MongoDB connector; `DebeziumTransform` takes them out."""

    type: Literal["MongoDebezium"] = Field(description=_TYPE)
    array_handling_mode: Literal["array", "document"] = Field(
        "array", description="`document`: arrays become objects with the fields `_0`, `_1` …."
    )
    types: StructText | None = Field(
        None, description="Fields of a document: `struct<_id: string>`; JSON text without."
    )
    decimals: Literal["text", "number"] = Field("text", description="What Decimal128 becomes.")


class Sql(Step):
    """Makes the fields of each record by expressions of DuckDB's SQL."""

    type: Literal["Sql"] = Field(description=_TYPE)
    select: str = Field("*", min_length=1, description="What stands between SELECT and FROM: one row in, one row out.")
    where: str | None = Field(
        None, min_length=1, description="Rows where it is not true are filtered; asked from left to right."
    )
    memory_bytes: int = Field(
        512 * 2**20,
        ge=64 * 2**20,
        description="Memory that DuckDB may take in each task. It spills nothing to disk; a record that needs more is a dead"
        " letter.",
    )

    @model_validator(mode="after")
    def _does_something(self) -> Sql:
        if self.select.strip() == "*" and self.where is None:
            raise ValueError("nothing to do: write select or where")
        return self
