"""What a pipeline file asks of its records, as the room of records takes it: plain data, ready for executors."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa

from frazil.batch.changes import OP, PLACE
from frazil.errors import Terminal
from frazil.iceberg.schema import IDENTIFIES, arrow_type, declared_columns, partition_names
from frazil.pipeline.changes import DELETED, ENGINE_COLUMNS
from frazil.pipeline.model import Destination, Pipeline
from frazil.pipeline.transform_step import Step
from frazil.pipeline.types import parse_type
from frazil.pipeline.value import Decoding
from frazil.records.evolve.policy import Evolution
from frazil.records.formats.catalogue import JSON, FormatSpec
from frazil.records.formats.port import SchemaSource, port_type
from frazil.records.frame import Transform
from frazil.records.route import FieldRoute, NewTables, Route, StaticRoute, TopicRoute
from frazil.records.spec import KafkaColumns, RecordSpec
from frazil.records.transforms.catalogue import predicate, transform
from frazil.records.transforms.conditions import WithKey
from frazil.records.type_names import spelled
from frazil.run.change_spec import change_specs, merge_columns, merge_spec

Schemas = Mapping[str, SchemaSource]
"""Schema Registries by the names that pipeline files call them."""

TEMPLATE: Final = "new.*"
"""Stands for tables that are not made yet; records can't name it."""


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
    return {table: of for table, of in _with_template(pipeline, columns, schemas).items() if table != TEMPLATE}


def template_spec(
    pipeline: Pipeline, columns: Mapping[str, pa.Schema], schemas: Schemas | None = None
) -> RecordSpec | None:
    """How values become rows of a table that is not made yet; None if none are made.

    Raises:
        Terminal: As `record_specs`, whose arguments it takes.
    """
    return None if pipeline.create is None else _with_template(pipeline, columns, schemas)[TEMPLATE]


def _with_template(
    pipeline: Pipeline, columns: Mapping[str, pa.Schema], schemas: Schemas | None
) -> dict[str, RecordSpec]:
    """The specs of all destinations, and of a further one that is still to be made: what they share is told of all."""
    if pipeline.create is not None:
        pipeline = pipeline.with_template(TEMPLATE)
        columns = {**columns, TEMPLATE: declared_columns(pipeline.destination(TEMPLATE))}
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
        format=format_of(value, schemas or {}),
        fields=_fields(value, of_value) if is_shaped and value.format == JSON else None,
        key=None if key is None else format_of(key, schemas or {}),
        key_fields=_fields(key, of_value) if key is not None and key.format == JSON else None,
        of_key=of_key,
        infers=infers(pipeline),
        transforms=tuple(transform_of(step) for step in pipeline.transforms),
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
        tombstone="filter" if value.null_value == "delete" and not to.takes_tombstones else value.null_value,
        empty_value=value.empty_value,
        kafka_columns=KafkaColumns(**names.model_dump()) if names else None,
        merge=merge_spec(pipeline, to),
        file_format=to.file_format,
        evolution=evolution(to, of_key, columns, pipeline.limits.max_name_length),
        declared=None if to.evolves == "none" else frozenset(declared),
    )


def format_of(half: Decoding, schemas: Schemas) -> FormatSpec:
    """How values, or keys, are encoded."""
    return FormatSpec(
        name=half.format,
        source=None if half.registry is None else schemas.get(half.registry),
        schema=half.schema_,
        schema_imports=tuple(half.schema_imports.items()),
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


def transform_of(step: Step) -> Transform:
    """One transform of a pipeline file.

    Raises:
        Terminal: It can't be made.
    """
    when = None if step.when is None else predicate(step.when.predicate, step.when.options)
    made = transform(step.name, _options(step), when=when, negate=step.when is not None and step.when.negate)
    return WithKey(made) if getattr(step, "target", "value") == "key" else made


def _options(step: Step) -> Mapping[str, Any]:
    """Options with types as Arrow has them."""
    options = step.options
    return options | {"types": _arrow(options["types"])} if isinstance(options.get("types"), str) else options


NONE_NOW: Final = "no table is made here"
"""Why records that name a table which is not there find none, where none are made."""


def route_of(
    pipeline: Pipeline,
    columns: Mapping[str, pa.Schema],
    schemas: Schemas | None = None,
    *,
    refused: Mapping[str, str] | None = None,
    rest: str | None = NONE_NOW,
) -> Route | None:
    """How records find their tables; None: each goes to all.

    Args:
        pipeline: The pipeline.
        columns: Destination -> columns of its rows.
        schemas: The Schema Registries that the pipeline names, if it does.
        refused: Names of tables that can't be made -> why.
        rest: Why no others are made either; None: records may ask for them.
    """
    route, beside = pipeline.route, pipeline.histories
    if route is None:
        return None
    if route.static is not None:
        static = StaticRoute(_path(route.static.field), route.static.tables)
        return Route(static, route.otherwise, beside=beside)
    spec = template_spec(pipeline, columns, schemas)
    new = None if spec is None else NewTables(spec, refused or {}, rest)
    if route.field is not None:
        by = FieldRoute(_path(route.field.name), route.field.allow, route.field.deny, route.field.lower_case)
        return Route(by, route.otherwise, new, beside)
    topic = route.topic
    by_topic = TopicRoute({}) if topic is None else TopicRoute(topic.rename, topic.deny)
    return Route(by_topic, route.otherwise, new, beside)


def _path(text: str) -> tuple[str, ...]:
    return tuple(text.split("."))


def infers(pipeline: Pipeline) -> bool:
    """Whether nothing says which fields a JSON value holds, and a table wants whichever they are."""
    follows = any(of.evolves != "none" for of in pipeline.destinations)
    # Rows of changes are looked at one by one: what is around them is known.
    tells_changes = any(of.changes is not None for of in pipeline.destinations)
    is_open = pipeline.value.format == JSON and not isinstance(pipeline.value.fields, dict)
    return follows and is_open and not tells_changes


def evolution(to: Destination, of_key: Collection[str], columns: pa.Schema, max_name_length: int) -> Evolution | None:
    """Which changes records may ask for of a destination; None: none.

    Args:
        to: The destination.
        of_key: Names of the columns that take fields of the key.
        columns: The columns of its rows, as the table has them.
        max_name_length: Characters that the name of a column made for records may have.
    """
    if to.evolves == "none":
        return None
    # Engines refuse a table with a column that is named as a partition field of another one.
    declared = (field.name for field in to.partition_fields if field.name != field.column)
    partitions = (*declared, *partition_names(columns))
    merging = (OP, PLACE, DELETED) if to.is_merged else (OP,)  # the decoder's own, in every table
    reserved = ENGINE_COLUMNS.union(of_key, to.added_columns, partitions, merging)
    keys = (of.name for of in columns if IDENTIFIES in (of.metadata or {}))
    never_null = frozenset(filter(None, (*to.identifier, *keys, to.order_by)))
    return Evolution(
        to.evolves,
        to.on_incompatible,
        to.max_columns,
        to.max_depth,
        max_name_length,
        reserved,
        never_null,
        as_text=to.absent_types,
    )


def without_fail(specs: Mapping[str, RecordSpec]) -> dict[str, RecordSpec]:
    """How letters become rows: one whose value still does not fit stays a letter, whatever the policy, and others go on."""
    return {
        table: replace(of, evolution=replace(of.evolution, on_incompatible="dead_letter"))
        if of.evolution is not None and of.evolution.on_incompatible == "fail"
        else of
        for table, of in specs.items()
    }


def without_new_columns(specs: Mapping[str, RecordSpec]) -> dict[str, RecordSpec]:
    """How records become rows of tables that get no other columns: their fields go where those beyond the last one go."""
    return {
        table: of if of.evolution is None else replace(of, evolution=replace(of.evolution, max_columns=0))
        for table, of in specs.items()
    }


def known_fields(columns: Iterable[pa.Schema]) -> pa.Schema:
    """The columns of all destinations by their names; of one name the decimal with most digits after the point."""
    found: dict[str, pa.Field] = {}
    for schema in columns:
        for column in schema:
            known = found.setdefault(column.name, column)
            if _scale(column.type) > _scale(known.type):
                found[column.name] = column
    return pa.schema(list(found.values()))


def _scale(of: pa.DataType) -> int:
    return of.scale if pa.types.is_decimal(of) else -1
