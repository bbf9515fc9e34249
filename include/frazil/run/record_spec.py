"""What a pipeline file asks of its records, as the room of records takes it: plain data, ready for executors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any
from uuid import UUID

import pyarrow as pa

from frazil.errors import Terminal
from frazil.iceberg.schema import arrow_type, declared_columns
from frazil.pipeline.model import Destination, Pipeline
from frazil.pipeline.transform_step import Step
from frazil.pipeline.types import parse_type
from frazil.pipeline.value import Decoding
from frazil.records.decode import Decoder
from frazil.records.formats.catalogue import JSON, FormatSpec, open_format
from frazil.records.formats.port import SchemaSource, WriterSchema, port_type
from frazil.records.formats.shapes import shape
from frazil.records.frame import Transform
from frazil.records.route import FieldRoute, Route, StaticRoute, TopicRoute
from frazil.records.spec import KafkaColumns, RecordSpec
from frazil.records.transforms.catalogue import predicate, transform
from frazil.records.transforms.conditions import WithKey
from frazil.records.transforms.lacks import lacks, left
from frazil.records.type_names import spelled
from frazil.run.change_spec import change_specs, merge_columns, merge_spec
from frazil.run.found_fields import deciding, near, undecided, unfilled, unfit_default
from frazil.run.record_evolution import evolution, infers, known_fields

Schemas = Mapping[str, SchemaSource]
"""Schema Registries by the names that pipeline files call them."""


def record_specs(
    pipeline: Pipeline, columns: Mapping[str, pa.Schema], schemas: Schemas | None = None
) -> dict[str, RecordSpec]:
    """How values become rows of each destination.

    Args:
        pipeline: The pipeline file.
        columns: Destination -> its declared columns, with the Arrow types of the table.
        schemas: The Schema Registry that the pipeline names, if it does.

    Raises:
        Terminal: Transforms that can't be made, or options that don't fit together.
    """
    specs = {of.table: record_spec(pipeline, columns[of.table], schemas, of) for of in pipeline.destinations}
    if (of_changes := change_specs(pipeline, specs)) is not None:
        return of_changes
    if any(spec.infers for spec in specs.values()):
        known = known_fields(spec.of_value.columns for spec in specs.values())
        return {table: replace(spec, fields=known) for table, spec in specs.items()}
    is_fitted = any(spec.fields is not None for spec in specs.values())
    is_shared = len(specs) > 1 or pipeline.route is not None
    if is_fitted or (is_shared and pipeline.key is not None and pipeline.value.format == JSON):
        fields = _fields(pipeline.value, _all_columns({of: spec.of_value.columns for of, spec in specs.items()}))
        _refuse_paths(pipeline, specs)
        return {table: replace(spec, fields=fields) for table, spec in specs.items()}
    return specs


def _refuse_paths(pipeline: Pipeline, specs: Mapping[str, RecordSpec]) -> None:
    """Columns that say where their field is need the fields declared, if several tables share what is decoded."""
    is_shared = len(specs) > 1 or pipeline.route is not None
    if is_shared and not isinstance(pipeline.value.fields, dict):
        taken = [
            f"{table}: {', '.join(spec.of_value.sources)}" for table, spec in specs.items() if spec.of_value.sources
        ]
        route = pipeline.route
        if taken or (route is not None and route.topic is None):
            raise Terminal(
                "several destinations, transforms or keys, and paths into the value: what the value holds must be declared",
                next_step="declare the fields of the value: value.fields",
            )


def _all_columns(columns: Mapping[str, pa.Schema]) -> pa.Schema:
    """The columns of all destinations: what a value holds whose fields are not declared."""
    found: dict[str, pa.Field] = {}
    for table, schema in columns.items():
        for column in schema:
            known = found.setdefault(column.name, column)
            if known.type != column.type:
                raise Terminal(
                    f"column {column.name} of {table} is {spelled(column.type)}, another destination has it as"
                    f" {spelled(known.type)}: what the field is before transforms can't be told",
                    next_step="declare the fields of the value: value.fields",
                )
    return pa.schema(list(found.values()))


def route_of(pipeline: Pipeline) -> Route | None:
    """How records find their tables; None: each goes to all."""
    route = pipeline.route
    if route is None:
        return None
    if route.static is not None:
        return Route(StaticRoute(_path(route.static.field), route.static.tables), route.otherwise)
    if route.field is not None:
        return Route(FieldRoute(_path(route.field.name), route.field.allow, route.field.deny), route.otherwise)
    return Route(TopicRoute(route.topic.rename if route.topic is not None else {}), route.otherwise)


def _path(text: str) -> tuple[str, ...]:
    return tuple(text.split("."))


def record_spec(
    pipeline: Pipeline,
    columns: pa.Schema,
    schemas: Schemas | None = None,
    destination: Destination | None = None,
) -> RecordSpec:
    """How records become rows of one destination.

    Args:
        pipeline: The pipeline file.
        columns: The declared columns, with the Arrow types of the table.
        schemas: The Schema Registries that the pipeline names, if it does.
        destination: Which one; the first if it is left out.

    Raises:
        Terminal: Transforms that can't be made, or options that don't fit together.
    """
    to = destination or pipeline.destinations[0]
    value, key, declared = pipeline.value, pipeline.key, to.columns
    columns = merge_columns(to, columns)
    of_key = frozenset(name for name, column in declared.items() if column.of == "key")
    of_value = pa.schema([column for column in columns if column.name not in of_key])
    names = to.kafka_columns
    is_shaped = bool(pipeline.transforms) or to.changes is not None
    return RecordSpec(
        columns=columns,
        format=_format(value, schemas or {}),
        fields=_fields(value, of_value) if is_shaped and value.format == JSON else None,
        key=None if key is None else _format(key, schemas or {}),
        key_fields=_fields(key, of_value) if key is not None and key.format == JSON else None,
        of_key=of_key,
        infers=infers(pipeline),
        transforms=tuple(_transform(step) for step in pipeline.transforms),
        defaults={name: column.default for name, column in declared.items() if column.has_default},
        sources={name: column.source for name, column in declared.items() if column.source is not None},
        variants=frozenset(to.variants),
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
        merge=merge_spec(pipeline, to),
        evolution=evolution(to, of_key),
    )


def _format(half: Decoding, schemas: Schemas) -> FormatSpec:
    return FormatSpec(
        name=half.format,
        source=None if half.registry is None else schemas.get(half.registry),
        schema=half.schema_,
        message=half.message,
        validate=half.validate_schema,
        fields=half.fields if isinstance(half.fields, tuple) else (),
        delimiter=half.delimiter,
        quote=half.quote,
        escape=half.escape,
        null_text=half.null_text,
        header=half.header,
    )


def _fields(half: Decoding, columns: pa.Schema) -> pa.Schema:
    """What a JSON object holds before transforms: all of it optional, since the columns decide what must be there."""
    if not isinstance(half.fields, dict):
        return pa.schema([column.with_type(port_type(column.type)).with_nullable(nullable=True) for column in columns])
    return pa.schema([pa.field(name, _arrow(of)) for name, of in half.fields.items()])


def _arrow(text: str) -> pa.DataType:
    return port_type(arrow_type(parse_type(text)))


def _transform(step: Step) -> Transform:
    when = None if step.when is None else predicate(step.when.predicate, step.when.options)
    made = transform(step.name, _options(step), when=when, negate=step.when is not None and step.when.negate)
    return WithKey(made) if getattr(step, "target", "value") == "key" else made


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
    """What is tried, in this order, and the part of the file that it is about; empty if its problems say theirs."""
    columns = {of.table: declared_columns(of) for of in pipeline.destinations}
    halves = {"value": pipeline.value, "key": pipeline.key}
    schemas = {of.registry: _Unasked() for of in halves.values() if of is not None and of.registry is not None}
    for name, half in halves.items():
        if half is not None and half.format != JSON:
            yield name, partial(_opened, half, schemas)
    if pipeline.transforms:
        yield "transforms", lambda: _nothing([_transform(step) for step in pipeline.transforms])
    for number, to in enumerate(pipeline.destinations):
        for name, column in to.columns.items():
            if column.has_default:
                of = columns[to.table].field(name).type
                yield f"destinations.{number}.columns.{name}.default", partial(unfit_default, name, column, of)
        yield f"destinations.{number}.columns", partial(_decodes, pipeline, columns[to.table], schemas, to)
    yield "destinations", lambda: _nothing(record_specs(pipeline, columns, schemas))
    for number, spec in enumerate(record_specs(pipeline, columns, schemas).values()):
        yield from _found(pipeline, number, spec)


def _found(pipeline: Pipeline, number: int, spec: RecordSpec) -> Iterator[tuple[str, Callable[[], Iterable[str]]]]:
    """What is tried on the fields that all values, or keys, have."""
    decoder, at = Decoder(spec, 0), f"destinations.{number}.columns."
    value = shape(spec.format, None if spec.infers else spec.fields)
    key = None if spec.key is None else shape(spec.key, spec.key_fields)
    if value is not None:
        yield "", partial(_lacks, pipeline, spec, value, key)
    yield "transforms", partial(_transforms, decoder, value, key)
    if value is not None:
        after = left(spec.transforms, value, key) or []
        values, keys = [of.value.schema for of in after], [of.key.schema for of in after if of.key is not None]
    else:
        values, keys = [], [] if key is None or spec.transforms else [key]
    if values and not spec.tells_changes:  # else the columns are about what a change holds
        yield "", partial(undecided, pipeline.route, values, any_case=spec.field_names == "case_insensitive")
        yield at, partial(unfilled, spec, "value", values)
    if keys and len(keys) >= len(values):  # else some records have none, or one of any shape
        yield at, partial(unfilled, spec, "key", keys)
    yield at, partial(decoder.problems, value, key)


def _decodes(pipeline: Pipeline, columns: pa.Schema, schemas: Schemas, to: Destination) -> Iterable[str]:
    return _nothing(Decoder(record_spec(pipeline, columns, schemas, to), 0))


def _transforms(decoder: Decoder, fields: pa.Schema | None, key_fields: pa.Schema | None) -> Iterable[str]:
    return _nothing(decoder.problems(fields, key_fields))


def _lacks(pipeline: Pipeline, spec: RecordSpec, fields: pa.Schema, key_fields: pa.Schema | None) -> Iterator[str]:
    number = None
    for number, lack in lacks(spec.transforms, fields, key_fields):
        step = pipeline.transforms[number]
        option = f".{step.key_of(lack.option)}" if lack.option else ""
        yield f"transforms.{number}{option}: {step.name}: {lack.message.removeprefix(f'{step.name}: ')}"
    if number is not None and pipeline.value.format == JSON and not isinstance(pipeline.value.fields, dict):
        yield "value.fields: not declared, so a JSON value has the fields of the columns before transforms, and no others"


def remarks(pipeline: Pipeline) -> tuple[str, ...]:
    """What a person may not have meant by a pipeline file, though it can be used: one line each."""
    if pipeline.route is None and len(pipeline.destinations) > 1:
        return (f"route: without it every record goes to each of {len(pipeline.destinations)} destinations",)
    decides = deciding(pipeline.route)
    if decides is not None and isinstance(pipeline.value.fields, dict) and not (pipeline.transforms or pipeline.key):
        key, (name, *_) = decides[0], decides[1].split(".")
        if name not in pipeline.value.fields:
            return (f"{key}: value.fields does not have {name!r}, {near(name, list(pipeline.value.fields))}",)
    return ()


def _opened(half: Decoding, schemas: Schemas) -> Iterable[str]:
    return _nothing(open_format(_format(half, schemas)))


def _nothing(_made: object) -> Iterable[str]:
    return ()


def _refused(key: str, attempt: Callable[[], Iterable[str]]) -> Iterator[str]:
    try:
        joint = "" if not key or key.endswith(".") else ": "
        yield from (f"{key}{joint}{problem}" for problem in attempt())
    except Terminal as error:
        yield f"{key.rstrip('.')}: {error.message.removeprefix('record shape: ')}"
