"""Avro values, which are read in blocks, and one by one where they are suspect."""

from __future__ import annotations

from dataclasses import dataclass

from frazil.records.model.format import Format, SchemaFormatSpec, SchemaSource


@dataclass(frozen=True, slots=True)
class AvroSpec(SchemaFormatSpec):
    """Avro of a registry, or of one schema."""

    names = ("avro",)
    shared_keys = (*SchemaFormatSpec.shared_keys, "sub_micros")
    converters = ("io.confluent.connect.avro.AvroConverter",)

    def _of_registry(self, source: SchemaSource, *, blocks: bool) -> Format:  # noqa: ARG002 - it has one way
        from frazil.records.formats.avro.avro import AvroFormat

        return AvroFormat(source, truncates=self.truncates)

    def _of_schema(self, schema: str) -> Format:
        from frazil.records.formats.avro.avro import AvroFormat

        return AvroFormat.of_schema(schema, truncates=self.truncates)
