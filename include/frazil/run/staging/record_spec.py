"""The decoding rules of a pipeline file in the form of `frazil.records`: plain data that travels to executors."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa

from frazil.batch.changes import OP, PLACE
from frazil.error_codes import BAD_SCHEMA
from frazil.iceberg.schema.schema import IDENTIFIES, arrow_type, declared_columns, partition_names
from frazil.pipeline.models.layout import DELETED, ENGINE_COLUMNS
from frazil.pipeline.models.pipeline_file import Destination, Pipeline
from frazil.pipeline.models.value import Decoding
from frazil.pipeline.syntax.types import parse_type
from frazil.pipeline.transforms import Step
from frazil.records.decoder.route import FieldRoute, NewTables, Route, RoutePart, StaticRoute, TopicRoute
from frazil.records.model.column import type_name
from frazil.records.model.format import JSON, FormatSpec, SchemaSource, Transform, decoded_type
from frazil.records.model.spec import Evolution, KafkaColumns, RecordSpec
from frazil.records.transforms.catalogue import predicate, transform
from frazil.records.transforms.definition import options_of
from frazil.records.transforms.kinds.conditions import WithKey
from frazil.run.staging.change_spec import change_specs, merge_columns, merge_spec

Schemas = Mapping[str, SchemaSource]
"""Schema Registries by their names in pipeline files."""

TEMPLATE: Final = "new.*"
"""Stands for tables that are not created yet. No record can name it."""


def record_specs(
    pipeline: Pipeline, columns: Mapping[str, pa.Schema], schemas: Schemas | None = None
) -> dict[str, RecordSpec]:
    """How values become rows of each destination.

    `columns`: destination -> its declared columns with the Arrow types of the table.

    Raises:
        Terminal: A transform can't be built, or options don't fit together.
    """
    return {table: spec for table, spec in _with_template(pipeline, columns, schemas).items() if table != TEMPLATE}


def template_spec(
    pipeline: Pipeline, columns: Mapping[str, pa.Schema], schemas: Schemas | None = None
) -> RecordSpec | None:
    """How values become rows of an auto-created table; None if the pipeline creates none.

    Raises:
        Terminal: As `record_specs`, whose arguments it takes.
    """
    return None if pipeline.create is None else _with_template(pipeline, columns, schemas)[TEMPLATE]


def _with_template(
    pipeline: Pipeline, columns: Mapping[str, pa.Schema], schemas: Schemas | None
) -> dict[str, RecordSpec]:
    """The specs of all destinations, and of a template for tables that records create: all share one decoding of values."""
    if pipeline.create is not None:
        pipeline = pipeline.with_template(TEMPLATE)
        columns = {**columns, TEMPLATE: declared_columns(pipeline.destination(TEMPLATE))}
    specs = {
        destination.table: record_spec(pipeline, columns[destination.table], schemas, destination)
        for destination in pipeline.destinations
    }
    if (specs_of_changes := change_specs(pipeline, specs)) is not None:
        return specs_of_changes
    if any(spec.infers for spec in specs.values()):
        merged_fields = widest_columns(spec.of_value.columns for spec in specs.values())
        return {table: replace(spec, fields=merged_fields) for table, spec in specs.items()}
    is_fitted = any(spec.fields is not None for spec in specs.values())
    is_shared = len(specs) > 1 or pipeline.route is not None
    if is_fitted or (is_shared and pipeline.key is not None and pipeline.value.format == JSON):
        fields = _fields(pipeline.value, _all_columns({table: spec.of_value.columns for table, spec in specs.items()}))
        _refuse_paths(pipeline, specs)
        return {table: replace(spec, fields=fields) for table, spec in specs.items()}
    return specs


def _refuse_paths(pipeline: Pipeline, specs: Mapping[str, RecordSpec]) -> None:
    """Refuse columns with a path if several tables share the decoded values and the fields are not declared."""
    is_shared = len(specs) > 1 or pipeline.route is not None
    if is_shared and not isinstance(pipeline.value.fields, dict):
        path_columns = [
            f"{table}: {', '.join(spec.of_value.sources)}" for table, spec in specs.items() if spec.of_value.sources
        ]
        route = pipeline.route
        if path_columns or (route is not None and route.topic is None and route.part == "value"):
            raise BAD_SCHEMA.terminal(
                "the pipeline has several destinations, transforms or keys, and a column or the route reads a path in the value: the"
                " fields of the value must be declared",
                next_step="declare the fields of the value: value.fields",
            )


def _all_columns(columns: Mapping[str, pa.Schema]) -> pa.Schema:
    """The columns of all destinations: the fields of a value whose fields are not declared."""
    by_name: dict[str, pa.Field] = {}
    for table, schema in columns.items():
        for column in schema:
            first = by_name.setdefault(column.name, column)
            if first.type != column.type:
                raise BAD_SCHEMA.terminal(
                    f"column {column.name} of {table} is {type_name(column.type)}, another destination has it as"
                    f" {type_name(first.type)}: the type of the field before transforms is unclear",
                    next_step="declare the fields of the value: value.fields",
                )
    return pa.schema(list(by_name.values()))


def record_spec(
    pipeline: Pipeline, columns: pa.Schema, schemas: Schemas | None = None, destination: Destination | None = None
) -> RecordSpec:
    """How records become rows of one destination; by default of the first.

    Raises:
        Terminal: A transform can't be built, or options don't fit together.
    """
    destination = destination or pipeline.destinations[0]
    value, key, declared = pipeline.value, pipeline.key, destination.columns
    columns = merge_columns(destination, columns)
    of_key = frozenset(name for name, column in declared.items() if column.part == "key")
    of_header = frozenset(name for name, column in declared.items() if column.part == "header")
    of_value = pa.schema([column for column in columns if column.name not in of_key | of_header])
    names = destination.kafka_columns
    is_shaped = bool(pipeline.transforms) or destination.changes is not None
    truncates = value.sub_micros == "truncate"
    return RecordSpec(
        columns=columns,
        format=format_of(value, schemas or {}, truncates=truncates),
        fields=_fields(value, of_value) if is_shaped and value.format == JSON else None,
        key=None if key is None else format_of(key, schemas or {}, truncates=truncates),
        key_fields=_fields(key, of_value) if key is not None and key.format == JSON else None,
        of_key=of_key,
        of_header=of_header,
        infers=infers_fields(pipeline),
        transforms=tuple(transform_of(step) for step in pipeline.transforms),
        defaults={name: column.default for name, column in declared.items() if column.has_default},
        sources={name: column.source for name, column in declared.items() if column.source is not None},
        variants=frozenset(destination.variants),
        units={name: column.unit for name, column in declared.items() if column.unit is not None},
        local_times={name: column.local_time for name, column in declared.items() if column.local_time != "keep"},
        unknown_fields=value.unknown_fields,
        rescued_column=value.rescued_column,
        duplicate_keys=value.duplicate_keys,
        field_names=value.field_names,
        casts=value.casts,
        tombstone="filter" if value.null_value == "delete" and not destination.takes_tombstones else value.null_value,
        empty_value=value.empty_value,
        kafka_columns=KafkaColumns(**names.model_dump()) if names else None,
        merge=merge_spec(pipeline, destination),
        file_format=destination.file_format,
        evolution=evolution(destination, of_key | of_header, columns, pipeline.limits.max_name_length),
        declared=None if destination.evolves == "none" else frozenset(declared),
    )


def format_of(decoding: Decoding, schemas: Schemas, *, truncates: bool = False) -> FormatSpec:
    """How values, or keys, are encoded, and whether times are truncated to microseconds."""
    return decoding.spec(None if decoding.registry is None else schemas.get(decoding.registry), truncates=truncates)


def _fields(decoding: Decoding, columns: pa.Schema) -> pa.Schema:
    """Fields of a JSON object before transforms: all optional, since the columns decide what is required."""
    if not isinstance(decoding.fields, dict):
        return pa.schema(
            [column.with_type(decoded_type(column.type)).with_nullable(nullable=True) for column in columns]
        )
    return pa.schema([pa.field(name, _arrow(type_text)) for name, type_text in decoding.fields.items()])


def _arrow(text: str) -> pa.DataType:
    return decoded_type(arrow_type(parse_type(text)))


def transform_of(step: Step) -> Transform:
    """The transform of one step in a pipeline file.

    Raises:
        Terminal: It can't be built.
    """
    when = None if step.when is None else predicate(step.when.predicate, step.when.options)
    built = transform(step.name, _options(step), when=when, negate=step.when is not None and step.when.negate)
    return WithKey(built) if getattr(step, "target", "value") == "key" else built


def _options(step: Step) -> Mapping[str, Any]:
    """Options of a step, with Arrow types in place of the names of types."""
    structs = {name for name, declared in options_of(step.definition).items() if declared["form"] == "struct"} or {
        "types"
    }
    options = step.options
    return options | {name: _arrow(options[name]) for name in structs if isinstance(options.get(name), str)}


NO_TABLES_CREATED: Final = "no table is made here"
"""The refusal of records that name a missing table, where no tables are created."""


def route_of(
    pipeline: Pipeline,
    columns: Mapping[str, pa.Schema],
    schemas: Schemas | None = None,
    *,
    refused: Mapping[str, str] | None = None,
    rest: str | None = NO_TABLES_CREATED,
) -> Route | None:
    """How records find their tables; None if each goes to all.

    `refused`: tables that can't be created, each with the reason. `rest`: why no others are created either; None if records may
    name further ones.
    """
    route, histories = pipeline.route, pipeline.histories
    if route is None:
        return None
    part = route.part
    if route.static is not None:
        static = StaticRoute(_path(route.static.field, part), route.static.tables, part)
        return Route(static, route.otherwise, histories=histories)
    spec = template_spec(pipeline, columns, schemas)
    new = None if spec is None else NewTables(spec, refused or {}, rest)
    if route.field is not None:
        by_field = route.field
        field_route = FieldRoute(
            _path(by_field.name, part), by_field.allow, by_field.deny, by_field.lower_case, by_field.table, part
        )
        return Route(field_route, route.otherwise, new, histories)
    topic = route.topic
    topic_route = TopicRoute({}) if topic is None else TopicRoute(topic.rename, topic.deny)
    return Route(topic_route, route.otherwise, new, histories)


def _path(text: str, part: RoutePart) -> tuple[str, ...]:
    return (text,) if part == "header" else tuple(text.split("."))


def infers_fields(pipeline: Pipeline) -> bool:
    """Whether the fields of JSON values are inferred: the file says so, or it does not declare them and a table evolves."""
    evolves = any(destination.evolves != "none" for destination in pipeline.destinations)
    # Rows in change events are compared with the columns one by one; the fields around them are known.
    has_changes = any(destination.changes is not None for destination in pipeline.destinations)
    is_open = pipeline.value.format == JSON and pipeline.value.fields is None
    return pipeline.value.fields == "inferred" or (evolves and is_open and not has_changes)


def evolution(
    destination: Destination, filled: Collection[str], columns: pa.Schema, max_name_length: int
) -> Evolution | None:
    """The schema changes that records may cause in a destination; None if none.

    `columns` are those of its rows, with the table's types; `filled` names those that take fields of the key, or headers.
    """
    if destination.evolves == "none":
        return None
    # Engines refuse a table if a column has the name of another column's partition field.
    declared = (field.name for field in destination.partition_fields if field.name != field.column)
    partitions = (*declared, *partition_names(columns))
    merging = (OP, PLACE, DELETED) if destination.is_merged else (OP,)  # columns that the decoder adds
    reserved = ENGINE_COLUMNS.union(filled, destination.added_columns, partitions, merging)
    keys = (field.name for field in columns if IDENTIFIES in (field.metadata or {}))
    never_null = frozenset(filter(None, (*destination.identifier, *keys, destination.order_by)))
    return Evolution(
        destination.evolves,
        destination.on_incompatible,
        destination.max_columns,
        destination.max_depth,
        max_name_length,
        reserved,
        never_null,
        as_text=destination.absent_types,
    )


def without_fail(specs: Mapping[str, RecordSpec]) -> dict[str, RecordSpec]:
    """Specs for a replay of dead letters: a letter that still does not fit stays one and does not fail the batch."""
    return {
        table: replace(spec, evolution=replace(spec.evolution, on_incompatible="dead_letter"))
        if spec.evolution is not None and spec.evolution.on_incompatible == "fail"
        else spec
        for table, spec in specs.items()
    }


def without_new_columns(specs: Mapping[str, RecordSpec]) -> dict[str, RecordSpec]:
    """Specs that add no columns: fields without a column are treated as those beyond `max_columns`."""
    return {
        table: spec if spec.evolution is None else replace(spec, evolution=replace(spec.evolution, max_columns=0))
        for table, spec in specs.items()
    }


def widest_columns(columns: Iterable[pa.Schema]) -> pa.Schema:
    """The columns of all destinations by their names; of one name the decimal with most digits after the point."""
    by_name: dict[str, pa.Field] = {}
    for schema in columns:
        for column in schema:
            widest = by_name.setdefault(column.name, column)
            if _scale(column.type) > _scale(widest.type):
                by_name[column.name] = column
    return pa.schema(list(by_name.values()))


def _scale(data_type: pa.DataType) -> int:
    return data_type.scale if pa.types.is_decimal(data_type) else -1
