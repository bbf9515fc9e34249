"""Formats by the names that users write. Own formats join by the entry-point group `frazil.formats`.

An entry point is named as the format is in the pipeline file and leads to a class; called without arguments it gives a
`frazil.records.model.format.Format`. ::

    [project.entry-points."frazil.formats"]
    "acme.Tlv" = "acme.frazil:TlvFormat"
"""

from __future__ import annotations

from difflib import get_close_matches
from importlib.metadata import entry_points
from typing import Final

from frazil.error_codes import BAD_SCHEMA, BAD_TRANSFORM
from frazil.extras import require
from frazil.records.formats import FORMATS, SCALARS
from frazil.records.formats.scalar import ScalarFormat
from frazil.records.model.format import Format, FormatSpec, NamedSchema, SchemaSource

GROUP: Final = "frazil.formats"
"""Entry points of own formats."""


def open_format(spec: FormatSpec, *, blocks: bool = True) -> Format:
    """Make a format other than `JSON`. Its libraries are loaded only now.

    Args:
        spec: The format and its options.
        blocks: Whether values may be parsed as blocks where that is exact. Without, the outcome is the same, later.

    Raises:
        Terminal: no format of this name, one that can't be loaded, or what it needs to be told is missing or wrong.
    """
    if spec.name in SCALARS:
        return ScalarFormat(spec.name)
    if spec.name in ("avro", "protobuf", "json-schema"):
        return _with_schema(spec, blocks=blocks)
    if spec.name == "json-envelope":
        from frazil.records.formats.connect_json.envelope import EnvelopeFormat

        return EnvelopeFormat(blocks=blocks)
    if spec.name == "delimited":
        from frazil.records.formats.delimited.delimited import DelimitedFormat

        marks = (spec.delimiter, spec.quote, spec.escape, spec.null_text)
        return DelimitedFormat(spec.fields, *marks, spec.header, blocks)
    return _open_own(spec.name)


def _with_schema(spec: FormatSpec, *, blocks: bool) -> Format:
    require(spec.name, f"format {spec.name}")
    if spec.source is not None:
        return _with_registry(spec, spec.source, blocks=blocks)
    if spec.schema is None or spec.name == "json-schema":
        raise BAD_SCHEMA.terminal(
            f"format {spec.name}: nothing says which schema the values have", next_step="name a registry"
        )
    if spec.name == "avro":
        from frazil.records.formats.avro.avro import AvroFormat

        return AvroFormat.of_schema(spec.schema, truncates=spec.truncates)
    if spec.message is None:
        raise BAD_SCHEMA.terminal(
            "format protobuf: the schema does not say which message", next_step="name it in value.message"
        )
    from frazil.records.formats.protobuf.protobuf import ProtobufFormat

    imports = tuple(NamedSchema(*named) for named in spec.schema_imports)
    return ProtobufFormat.of_schema(spec.schema, spec.message, imports, truncates=spec.truncates)


def _with_registry(spec: FormatSpec, source: SchemaSource, *, blocks: bool) -> Format:
    if spec.name == "json-schema":
        from frazil.records.formats.json_schema.json_schema import JsonSchemaFormat

        return JsonSchemaFormat(source, validate=spec.validate, blocks=blocks)
    if spec.name == "avro":
        from frazil.records.formats.avro.avro import AvroFormat

        return AvroFormat(source, truncates=spec.truncates)
    from frazil.records.formats.protobuf.protobuf import ProtobufFormat

    return ProtobufFormat(source, truncates=spec.truncates)


def _open_own(name: str) -> Format:
    own = {entry_point.name: entry_point for entry_point in entry_points(group=GROUP)}
    if name in FORMATS:
        raise ValueError(f"format {name} is named in FORMATS, and nothing opens it")
    if name not in own:
        known_names = [*FORMATS, *own]
        suggestions = get_close_matches(name, known_names, 1)
        hint = f", did you mean {suggestions[0]!r}?" if suggestions else ""
        raise BAD_TRANSFORM.terminal(f"no format is named {name!r}{hint}", next_step=f"known: {', '.join(known_names)}")
    try:
        own_format: Format = own[name].load()()
    except (ImportError, AttributeError, TypeError) as e:
        raise BAD_TRANSFORM.terminal(
            f"the format {name} can't be made from {own[name].value}: {e}",
            next_step="install what its entry point names, where the pipeline runs and where its executors run",
        ) from e
    return own_format
