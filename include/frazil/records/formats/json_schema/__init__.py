"""JSON values that a registered JSON Schema describes."""

from __future__ import annotations

from dataclasses import dataclass

from frazil.records import option
from frazil.records.model.format import Format, SchemaFormatSpec, SchemaSource


@dataclass(frozen=True, slots=True)
class JsonSchemaSpec(SchemaFormatSpec):
    """JSON that a registered JSON Schema describes."""

    validate_schema: bool = option("`json-schema`: whether values are validated against their schema.", True)

    names = ("json-schema",)
    shared_keys = ("registry",)
    converters = ("io.confluent.connect.json.JsonSchemaConverter",)

    def _of_registry(self, source: SchemaSource, *, blocks: bool) -> Format:
        from frazil.records.formats.json_schema.types import JsonSchemaFormat

        return JsonSchemaFormat(source, validate=self.validate_schema, blocks=blocks)
