"""What a pipeline file asks of its records, as the room of records takes it: plain data, ready for executors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any
from uuid import UUID

import pyarrow as pa

from frazil.errors import Terminal
from frazil.iceberg.schema import arrow_type, declared_columns
from frazil.pipeline.model import Pipeline
from frazil.pipeline.transform_step import Step
from frazil.pipeline.types import parse_type
from frazil.pipeline.value import Value
from frazil.records.decode import Decoder
from frazil.records.formats.catalogue import JSON, SCALARS, FormatSpec, open_format
from frazil.records.formats.port import BARE, SchemaSource, WriterSchema
from frazil.records.formats.scalar import scalar_type
from frazil.records.frame import Transform
from frazil.records.spec import KafkaColumns, RecordSpec
from frazil.records.transforms.catalogue import predicate, transform


def record_spec(pipeline: Pipeline, columns: pa.Schema, schemas: SchemaSource | None = None) -> RecordSpec:
    """How values become rows.

    Args:
        pipeline: The pipeline file.
        columns: The declared columns, with the Arrow types of the table.
        schemas: The Schema Registry that the pipeline names, if it does.

    Raises:
        Terminal: Transforms that can't be made, or options that don't fit together.
    """
    value, declared = pipeline.value, pipeline.destinations[0].columns
    names = pipeline.destinations[0].kafka_columns
    return RecordSpec(
        columns=columns,
        format=_format(value, schemas),
        fields=_fields(value, columns) if pipeline.transforms and value.format == JSON else None,
        transforms=tuple(_transform(step) for step in pipeline.transforms),
        defaults={name: column.default for name, column in declared.items() if column.has_default},
        sources={name: column.source for name, column in declared.items() if column.source is not None},
        units={name: column.unit for name, column in declared.items() if column.unit is not None},
        local_times={name: column.local_time for name, column in declared.items() if column.local_time != "keep"},
        unknown_fields=value.unknown_fields,
        rescued_column=value.rescued_column,
        duplicate_keys=value.duplicate_keys,
        field_names=value.field_names,
        casts=value.casts,
        tombstone=value.null_value,
        empty_value=value.empty_value,
        kafka_columns=KafkaColumns(**names.model_dump()) if names else None,
    )


def _format(value: Value, schemas: SchemaSource | None) -> FormatSpec:
    return FormatSpec(
        name=value.format,
        source=schemas,
        schema=value.schema_,
        message=value.message,
        validate=value.validate_schema,
        fields=value.fields if isinstance(value.fields, tuple) else (),
        delimiter=value.delimiter,
        quote=value.quote,
        escape=value.escape,
        null_text=value.null_text,
        header=value.header,
    )


def _fields(value: Value, columns: pa.Schema) -> pa.Schema:
    """What a JSON value holds before transforms: all of it optional, since the columns decide what must be there."""
    if not isinstance(value.fields, dict):
        return pa.schema([column.with_nullable(nullable=True) for column in columns])
    return pa.schema([pa.field(name, _arrow(of)) for name, of in value.fields.items()])


def _arrow(text: str) -> pa.DataType:
    return arrow_type(parse_type(text))


def _transform(step: Step) -> Transform:
    when = None if step.when is None else predicate(step.when.predicate, step.when.options)
    return transform(step.name, _options(step), when=when, negate=step.when is not None and step.when.negate)


def _options(step: Step) -> Mapping[str, Any]:
    """Options with types as Arrow has them."""
    options = step.options
    return options | {"types": _arrow(options["types"])} if isinstance(options.get("types"), str) else options


class _Unasked:
    """Stands for a registry while a pipeline file is only checked."""

    def schema(self, schema_id: int | UUID) -> WriterSchema | None:  # noqa: ARG002 - what the port has
        return None


def record_problems(pipeline: Pipeline) -> tuple[str, ...]:
    """What of a pipeline file can't work, as far as it shows without records: one line each, with the key path."""
    return next(filter(None, (tuple(_refused(key, attempt)) for key, attempt in _attempts(pipeline))), ())


def _attempts(pipeline: Pipeline) -> Iterator[tuple[str, Callable[[], Iterable[str]]]]:
    """What is tried, in this order, and the part of the file that it is about."""
    columns = declared_columns(pipeline.destinations[0])
    schemas = _Unasked() if pipeline.value.registry is not None else None
    if pipeline.value.format != JSON:
        yield "value", lambda: _nothing(open_format(_format(pipeline.value, schemas)))
    if pipeline.transforms:
        yield "transforms", lambda: _nothing([_transform(step) for step in pipeline.transforms])
    yield "destinations.0.columns", lambda: _nothing(Decoder(record_spec(pipeline, columns, schemas), 0))
    spec = record_spec(pipeline, columns, schemas)
    shape = _shape(spec)
    if shape is not None:
        decoder = Decoder(spec, 0)
        yield "transforms", lambda: _nothing(decoder.problems(shape))
        yield "destinations.0.columns", lambda: decoder.problems(shape)


def _nothing(_made: object) -> Iterable[str]:
    return ()


def _refused(key: str, attempt: Callable[[], Iterable[str]]) -> Iterator[str]:
    try:
        yield from (f"{key}: {problem}" for problem in attempt())
    except Terminal as error:
        yield f"{key}: {error.message}"


def _shape(spec: RecordSpec) -> pa.Schema | None:
    """The fields of every value before transforms; None if each value says its own."""
    if not spec.is_shaped:
        return None
    if spec.format.name == JSON:
        return spec.fields
    if spec.format.name == "delimited":
        return pa.schema([pa.field(name, pa.string()) for name in spec.format.fields])
    if spec.format.name in SCALARS:
        return pa.schema([pa.field(BARE, scalar_type(spec.format.name))])
    return None
