"""Formats by the names that users write. Own formats join by the entry-point group `frazil.formats`.

An entry point is named as the format is in the pipeline file and leads to a class; called without arguments it gives a
`frazil.records.formats.port.Format`. ::

    [project.entry-points."frazil.formats"]
    "acme.Tlv" = "acme.frazil:TlvFormat"
"""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from importlib.metadata import entry_points
from typing import Final, get_args

from frazil.errors import Terminal
from frazil.records.formats.port import Format, NamedSchema, SchemaSource
from frazil.records.formats.scalar import ScalarFormat, ScalarKind

GROUP: Final = "frazil.formats"
"""Entry points of own formats."""

SCALARS: Final[tuple[ScalarKind, ...]] = get_args(ScalarKind)

JSON: Final = "json"
"""The one format that reads its values straight into the columns that are wanted."""

FORMATS: Final = (JSON, "json-envelope", "avro", "protobuf", "json-schema", "delimited", *SCALARS)
"""Formats that come with Frazil."""


@dataclass(frozen=True, slots=True)
class FormatSpec:
    """Which format, and what it is told: plain data, since it travels to executors.

    Attributes:
        name: Name of the format.
        source: Where writer schemas come from, for values that name theirs.
        schema: The one schema of all values, for values that name none: Avro or the source of a .proto file.
        schema_imports: Name and text of each .proto file that it imports.
        message: Name of the Protobuf message in it.
        validate: Whether JSON is held against its registered schema.
        fields: Names of the fields of delimited values.
        delimiter, quote, escape, null_text, header: See `frazil.records.formats.delimited.DelimitedFormat`.
    """

    name: str = JSON
    source: SchemaSource | None = None
    schema: str | None = None
    schema_imports: tuple[tuple[str, str], ...] = ()
    message: str | None = None
    validate: bool = True
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


def open_format(spec: FormatSpec) -> Format:
    """Make a format other than `JSON`. Its libraries are loaded only now.

    Raises:
        Terminal: no format of this name, one that can't be loaded, or what it needs to be told is missing or wrong.
    """
    if spec.name in SCALARS:
        return ScalarFormat(spec.name)
    if spec.name in ("avro", "protobuf", "json-schema"):
        return _with_schema(spec)
    if spec.name == "json-envelope":
        from frazil.records.formats.envelope import EnvelopeFormat

        return EnvelopeFormat()
    if spec.name == "delimited":
        from frazil.records.formats.delimited import DelimitedFormat

        return DelimitedFormat(spec.fields, spec.delimiter, spec.quote, spec.escape, spec.null_text, spec.header)
    return _own(spec.name)


def _with_schema(spec: FormatSpec) -> Format:
    from frazil.records.formats.avro import AvroFormat
    from frazil.records.formats.json_schema import JsonSchemaFormat
    from frazil.records.formats.protobuf import ProtobufFormat

    if spec.source is not None:
        if spec.name == "json-schema":
            return JsonSchemaFormat(spec.source, validate=spec.validate)
        return AvroFormat(spec.source) if spec.name == "avro" else ProtobufFormat(spec.source)
    if spec.schema is None or spec.name == "json-schema":
        raise Terminal(f"format {spec.name}: nothing says which schema the values have", next_step="name a registry")
    if spec.name == "avro":
        return AvroFormat.of_schema(spec.schema)
    if spec.message is None:
        raise Terminal("format protobuf: the schema does not say which message", next_step="name it in value.message")
    imports = tuple(NamedSchema(*named) for named in spec.schema_imports)
    return ProtobufFormat.of_schema(spec.schema, spec.message, imports)


def _own(name: str) -> Format:
    own = {found.name: found for found in entry_points(group=GROUP)}
    if name not in own:
        known = [*FORMATS, *own]
        near = get_close_matches(name, known, 1)
        hint = f", did you mean {near[0]!r}?" if near else ""
        raise Terminal(f"no format is named {name!r}{hint}", next_step=f"known: {', '.join(known)}")
    try:
        made: Format = own[name].load()()
    except (ImportError, AttributeError, TypeError) as e:
        raise Terminal(
            f"the format {name} can't be made from {own[name].value}: {e}",
            next_step="install what its entry point names, where the pipeline runs and where its executors run",
        ) from e
    return made
