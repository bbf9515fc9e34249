"""Protocol Buffers messages of registered schemas, or of one message type."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from frazil.error_codes import BAD_SCHEMA
from frazil.records import option
from frazil.records.model.format import Format, NamedSchema, SchemaFormatSpec, SchemaSource


@dataclass(frozen=True, slots=True)
class ProtobufSpec(SchemaFormatSpec):
    """Messages of a registry, or of one message type."""

    schema_imports: dict[str, str] = option(
        "`protobuf` with `schema`: imported file name -> its text. With `schema_file`, imports are read from the folder"
        " `schemas`, or from the folder of that file.",
        dict,
    )
    message: str | None = option("`protobuf` with a schema: name of the message.", None)

    names = ("protobuf",)
    shared_keys = (*SchemaFormatSpec.shared_keys, "sub_micros")
    converters = ("io.confluent.connect.protobuf.ProtobufConverter",)
    has_path = True

    def problems(self, *, registered: bool) -> Iterator[tuple[str, str]]:
        """Yield a problem if the file must name the message and does not, or must not and does."""
        if (self.message is None) != registered:
            yield "message", "is needed with a schema; with a registry each value names its own"

    def _of_registry(self, source: SchemaSource, *, blocks: bool) -> Format:  # noqa: ARG002 - it has one way
        from frazil.records.formats.protobuf.protobuf import ProtobufFormat

        return ProtobufFormat(source, truncates=self.truncates)

    def _of_schema(self, schema: str) -> Format:
        if self.message is None:
            raise BAD_SCHEMA.terminal(
                "format protobuf: a schema may have several messages, and none is named",
                next_step="name one in value.message",
            )
        from frazil.records.formats.protobuf.protobuf import ProtobufFormat

        imports = tuple(NamedSchema(*named) for named in self.schema_imports.items())
        return ProtobufFormat.of_schema(schema, self.message, imports, truncates=self.truncates)
