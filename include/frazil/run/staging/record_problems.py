"""Checks of a pipeline file without records: errors, and likely mistakes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from difflib import get_close_matches
from functools import partial
from uuid import UUID

import pyarrow as pa

from frazil.error_codes import PROGRAM_MISSING
from frazil.errors import Terminal
from frazil.iceberg.schema.schema import declared_columns
from frazil.pipeline.models.pipeline_file import Destination, Pipeline
from frazil.pipeline.models.route import Route
from frazil.pipeline.models.value import Column, Decoding
from frazil.pipeline.syntax.patterns import refused_because
from frazil.records.casting.source import plain_type
from frazil.records.decoder.route import Router
from frazil.records.decoder.value_decoder import ValueDecoder
from frazil.records.evolution.types import names_in_files
from frazil.records.formats.catalogue import open_format
from frazil.records.json.record import ExactDecoder
from frazil.records.model.changes import FACTS, ChangeFormat
from frazil.records.model.column import type_name
from frazil.records.model.format import JSON, Framing, WriterSchema
from frazil.records.model.spec import RecordSpec
from frazil.records.transforms.kinds.change_events import cdc_struct
from frazil.records.transforms.missing_fields import certain_outputs, missing_fields
from frazil.run.staging.change_spec import routing_field
from frazil.run.staging.record_spec import (
    TEMPLATE,
    Schemas,
    format_of,
    record_spec,
    record_specs,
    route_of,
    template_spec,
    transform_of,
)


class _UnusedRegistry:
    """A registry without schemas, for checks of a pipeline file."""

    framing: Framing = "confluent"

    def schema(self, schema_id: int | UUID) -> WriterSchema | None:  # noqa: ARG002 - what the port has
        return None


def record_problems(pipeline: Pipeline) -> tuple[str, ...]:
    """Errors of a pipeline file that can be found without records, one line each, with the key path."""
    patterns = tuple(
        f"{key}: {why}" for key, pattern in _patterns(pipeline) if (why := refused_because(pattern)) is not None
    )
    problems = (tuple(_problems(key, check)) for key, check in _checks(pipeline))
    return patterns or next(filter(None, problems), ())


def _patterns(pipeline: Pipeline) -> Iterator[tuple[str, str]]:
    """Every regular expression of a pipeline file, with its key path."""
    if pipeline.source.topics_pattern is not None:
        yield "source.topics_pattern", pipeline.source.topics_pattern
    for number, step in enumerate(pipeline.transforms):
        yield from ((f"transforms.{number}.{step.key_of(name)}", text) for name, text in step.expressions.items())
        if step.when is not None:
            yield from ((f"transforms.{number}.when.{name}", text) for name, text in step.when.expressions.items())
    route = pipeline.route
    if route is not None and route.static is not None:
        yield from ((f"route.static.tables.{table}", pattern) for table, pattern in route.static.tables.items())
    if route is not None and route.field is not None:
        yield from ((f"route.field.allow.{number}", pattern) for number, pattern in enumerate(route.field.allow))
        yield from ((f"route.field.deny.{number}", pattern) for number, pattern in enumerate(route.field.deny))
    if route is not None and route.topic is not None:
        yield from ((f"route.topic.rename.{pattern}", pattern) for pattern in route.topic.rename)
        yield from ((f"route.topic.deny.{number}", pattern) for number, pattern in enumerate(route.topic.deny))


_Check = tuple[str, Callable[[], Iterable[str]]]
"""The key path that a check is about, empty if its problems name their own; and the check, which returns problems."""


def _checks(pipeline: Pipeline) -> Iterator[_Check]:
    """The checks of a pipeline file, in the order in which they run."""
    destinations = pipeline.with_template(TEMPLATE).destinations
    columns = {destination.table: declared_columns(destination) for destination in destinations}
    decodings = {"value": pipeline.value, "key": pipeline.key}
    schemas = {
        decoding.registry: _UnusedRegistry()
        for decoding in decodings.values()
        if decoding is not None and decoding.registry is not None
    }
    for name, decoding in decodings.items():
        if decoding is not None and decoding.format != JSON:
            yield name, partial(_check_format, decoding, schemas)
    if pipeline.transforms:
        yield "transforms", lambda: _no_problems([transform_of(step) for step in pipeline.transforms])
    for key_path, destination in zip(pipeline.declared, destinations, strict=True):
        for name, column in destination.columns.items():
            if column.has_default:
                data_type = columns[destination.table].field(name).type
                yield f"{key_path}.columns.{name}.default", partial(unfit_default, name, column, data_type)
        yield f"{key_path}.columns.", partial(_file_name_clashes, columns[destination.table])
        yield f"{key_path}.columns", partial(_check_decoder, pipeline, columns[destination.table], schemas, destination)
    yield "destinations", lambda: _no_problems(record_specs(pipeline, columns, schemas))
    template = template_spec(pipeline, columns, schemas)
    specs = (*record_specs(pipeline, columns, schemas).values(), *([] if template is None else [template]))
    for key_path, spec in zip(pipeline.declared, specs, strict=True):
        yield from _field_checks(pipeline, key_path, spec)


def _field_checks(pipeline: Pipeline, key: str, spec: RecordSpec) -> Iterator[_Check]:
    """The checks of one destination against the declared fields of values and keys."""
    decoder, columns_path = ValueDecoder([spec]), f"{key}.columns."
    value_shape = spec.format.declared_fields(None if spec.infers else spec.fields)
    key_shape = None if spec.key is None else spec.key.declared_fields(spec.key_fields)
    if value_shape is not None:
        yield "", partial(_missing_field_problems, pipeline, spec, value_shape, key_shape)
    yield "transforms", lambda: _no_problems(decoder.problems(value_shape, key_shape))
    after = [] if value_shape is None else certain_outputs(spec.transforms, value_shape, key_shape) or []
    values = [frame.value.schema for frame in after]
    keys = [frame.key.schema for frame in after if frame.key is not None]
    if value_shape is None and key_shape is not None and not spec.transforms:
        keys = [key_shape]
    if values and not spec.tells_changes:  # else columns read the rows in change events
        yield "", partial(undecided_route, pipeline.route, values, any_case=spec.field_names == "case_insensitive")
        yield columns_path, partial(unfilled_columns, spec, "value", values)
    if keys and len(keys) >= len(values):  # else some records have no key, or one with unknown fields
        yield columns_path, partial(unfilled_columns, spec, "key", keys)
    yield columns_path, partial(decoder.problems, value_shape, key_shape)
    # A table whose spec has a shape reads the fields of rows by its columns.
    changes = None if spec.merge is None or spec.merge.shape is not None else spec.merge.changes
    if values and changes is not None:
        yield columns_path, lambda: unfilled_columns(spec, "row", [_row_schema(changes, each.value) for each in after])


def _row_schema(changes: ChangeFormat, value: pa.RecordBatch) -> pa.Schema:
    """The fields of the rows in change events, with the facts about their changes."""
    images = changes.images(value)
    facts = pa.field(FACTS, cdc_struct(images.facts).type)
    return pa.schema([*(field for field, _ in images.row.values()), facts])


def _file_name_clashes(fields: Iterable[pa.Field], path: str = "") -> Iterator[str]:
    """Columns whose names become the same name in Iceberg's data files."""
    names: dict[str, str] = {}
    for field in fields:
        written = names_in_files(field.name)
        owners = {names.setdefault(each, field.name) for each in written} - {field.name}
        if owners:
            yield f"{path}{field.name}: Iceberg's files name it {written[0]}, as they name {min(owners)}; give one another name"
        yield from _file_name_clashes(
            (field.type.field(index) for index in range(field.type.num_fields)), f"{path}{field.name}."
        )


def _check_decoder(pipeline: Pipeline, columns: pa.Schema, schemas: Schemas, destination: Destination) -> Iterable[str]:
    spec = record_spec(pipeline, columns, schemas, destination)
    if spec.tells_changes and spec.evolution is not None and not spec.of_value.columns.names:
        return ()  # the fields of its values follow from all destinations: a later check has them
    return _no_problems(ValueDecoder([spec]))


def _missing_field_problems(
    pipeline: Pipeline, spec: RecordSpec, fields: pa.Schema, key_fields: pa.Schema | None
) -> Iterator[str]:
    number = None
    for number, lack in missing_fields(spec.transforms, fields, key_fields):
        step = pipeline.transforms[number]
        option = f".{step.key_of(lack.option)}" if lack.option else ""
        yield f"transforms.{number}{option}: {step.name}: {lack.message.removeprefix(f'{step.name}: ')}"
    if number is not None and pipeline.value.format == JSON and not isinstance(pipeline.value.fields, dict):
        yield "value.fields: not declared, so a JSON value has the fields of the columns before transforms, and no others"


def remarks(pipeline: Pipeline) -> tuple[str, ...]:
    """Likely mistakes in a valid pipeline file, one line each."""
    tables = [table for table in pipeline.tables if table not in pipeline.histories]
    if pipeline.route is None and len(tables) > 1:
        return (f"route: without it every record goes to each of {len(tables)} destinations",)
    decides = routing_field(pipeline.route)
    if decides is not None and isinstance(pipeline.value.fields, dict) and not (pipeline.transforms or pipeline.key):
        key, (name, *_) = decides[0], decides[1].split(".")
        if name not in pipeline.value.fields:
            return (f"{key}: value.fields does not have {name!r}, {suggest(name, list(pipeline.value.fields))}",)
    return tuple(_new_table_remarks(pipeline))


_ANYWHERE = ("frazil_one.a", "frazil_two.b")
"""Names in namespaces that do not exist: a pattern that allows both allows every name."""


def _new_table_remarks(pipeline: Pipeline) -> Iterator[str]:
    """Remarks on where records may create tables, and on topics whose names are no table names."""
    route = pipeline.route
    if route is None or route.create is None:
        return
    if route.field is not None and route.field.table is None and all(map(route.allows, _ANYWHERE)):
        yield "route.field.allow: lets records make tables in any namespace"
    columns = {destination.table: declared_columns(destination) for destination in pipeline.destinations}
    by_topic = route.topic is not None and not pipeline.transforms
    if by_topic and (record_route := route_of(pipeline, columns)) is not None:
        router = Router(record_route, pipeline.tables)
        topics = [topic for topic in pipeline.source.topics if not router.has_table(topic)]
        if topics:
            yield f"route.topic: {', '.join(topics)} names no table: write namespace.table under rename"


def _check_format(decoding: Decoding, schemas: Schemas) -> Iterable[str]:
    return _no_problems(open_format(format_of(decoding, schemas)))


def _no_problems(_built: object) -> Iterable[str]:
    """The problems of something that was built without an error."""
    return ()


def _problems(key: str, check: Callable[[], Iterable[str]]) -> Iterator[str]:
    try:
        joint = "" if not key or key.endswith(".") else ": "
        yield from (f"{key}{joint}{problem}" for problem in check())
    except Terminal as error:
        install = f": {error.next_step}" if error.code is PROGRAM_MISSING else ""
        yield f"{key.rstrip('.')}: {error.message.removeprefix('record shape: ')}{install}"


_NAMED = 20
"""Fields that a message lists."""


def unfilled_columns(spec: RecordSpec, part: str, shapes: Sequence[pa.Schema]) -> Iterator[str]:
    """Columns that would be null in every row, one line each: no value, key or changed row of these shapes has their field."""
    for column in spec.column_specs:
        is_other = column.name in spec.of_header or (column.name in spec.of_key) != (part == "key")
        is_rescued = spec.evolution is not None and column.name == spec.rescued_column
        if not (is_other or is_rescued or column.has_default):
            absent = [
                _absent_field(column.steps, fields, any_case=spec.field_names == "case_insensitive")
                for fields in shapes
            ]
            if all(absent):
                # One of the shapes may have a field with a similar name.
                nearest = next((each for each in absent if each and "did you mean" in each), absent[0])
                yield f"{column.name}: no {part} has the field {nearest}"


def unfit_default(name: str, column: Column, data_type: pa.DataType) -> Iterator[str]:
    """Why the default of a column can't be decoded, as if a JSON record carried it."""
    units = {} if column.unit is None else {name: column.unit}
    schema = pa.schema([pa.field(name, data_type, nullable=not column.required)])
    try:
        ExactDecoder(RecordSpec(schema, defaults={name: column.default}, units=units, kafka_columns=None))
    except Terminal as error:
        yield error.message.removeprefix(f"column {name}: the default ")


def undecided_route(route: Route | None, shapes: Sequence[pa.Schema], *, any_case: bool) -> Iterator[str]:
    """Why the field that chooses the table can't do so for values of these shapes: one line, with the key path."""
    if (deciding_field := routing_field(route)) is not None:
        reasons = [_undecided_reason(deciding_field[1], fields, any_case=any_case) for fields in shapes]
        if all(reasons):
            yield f"{deciding_field[0]}: {reasons[0]}"


def _undecided_reason(path: str, fields: pa.Schema, *, any_case: bool) -> str | None:
    steps = path.split(".")
    if (absent := _absent_field(steps, fields, any_case=any_case)) is not None:
        return f"no value has the field {absent}"
    kind = _kind(steps, fields, any_case=any_case)
    if kind is not None and _can_route(kind):
        return None
    return f"a text, number or boolean decides; {path!r} is {'not in an object' if kind is None else type_name(kind)}"


def suggest(name: str, known_names: Sequence[str]) -> str:
    """A suggestion for an unknown name."""
    if matches := get_close_matches(name, known_names, 1):
        return f"did you mean {matches[0]!r}?"
    more = f" and {len(known_names) - _NAMED} more" if len(known_names) > _NAMED else ""
    return f"there are {', '.join(known_names[:_NAMED]) or 'none'}{more}"


def _absent_field(steps: Sequence[str], fields: Iterable[pa.Field], *, any_case: bool) -> str | None:
    """The first step of a path that no field has, with a suggestion; None if the path may exist."""
    for depth, step in enumerate(steps):
        field, names = _field(step, fields, any_case=any_case)
        if field is None:
            outer = ".".join(steps[:depth])
            known_names = [f"{outer}.{name}" if outer else name for name in names]
            path = ".".join(steps[: depth + 1])
            return f"{path!r}, {suggest(path, known_names)}"
        kind = plain_type(field.type)
        if not pa.types.is_struct(kind):
            return None
        fields = kind
    return None


def _kind(steps: Sequence[str], fields: Iterable[pa.Field], *, any_case: bool) -> pa.DataType | None:
    """The type of the field at the end of a path; None if a step before has no fields."""
    kind: pa.DataType = pa.struct(list(fields))
    for step in steps:
        field = _field(step, kind, any_case=any_case)[0] if pa.types.is_struct(kind) else None
        if field is None:
            return None
        kind = plain_type(field.type)
    return kind


def _field(name: str, fields: Iterable[pa.Field], *, any_case: bool) -> tuple[pa.Field | None, list[str]]:
    fold = str.casefold if any_case else str
    listed = list(fields)
    return next((each for each in listed if fold(each.name) == fold(name)), None), [each.name for each in listed]


def _can_route(kind: pa.DataType) -> bool:
    types = pa.types
    tests = (types.is_string, types.is_large_string, types.is_integer, types.is_boolean, types.is_decimal)
    return any(test(kind) for test in tests)
