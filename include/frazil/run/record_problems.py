"""What of a pipeline file can't work, or may not be meant, as far as it shows without records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from difflib import get_close_matches
from functools import partial
from uuid import UUID

import pyarrow as pa

from frazil.errors import Terminal
from frazil.iceberg.schema import declared_columns
from frazil.pipeline.model import Destination, Pipeline
from frazil.pipeline.patterns import refused_because
from frazil.pipeline.route import Route
from frazil.pipeline.transform_step import TopicNameMatches
from frazil.pipeline.transforms_connect import RegexRouter
from frazil.pipeline.value import Column, Decoding
from frazil.records.decode import Decoder
from frazil.records.evolve.types import file_names
from frazil.records.fit.source import plain_type
from frazil.records.formats.catalogue import JSON, open_format
from frazil.records.formats.port import WriterSchema
from frazil.records.formats.shapes import shape
from frazil.records.json.record import ExactDecoder
from frazil.records.route import Router
from frazil.records.spec import RecordSpec
from frazil.records.transforms.lacks import lacks, left
from frazil.records.type_names import spelled
from frazil.run.change_spec import deciding
from frazil.run.record_spec import (
    TEMPLATE,
    Schemas,
    format_of,
    record_spec,
    record_specs,
    route_of,
    template_spec,
    transform_of,
)


class _Unasked:
    """Stands for a registry while a pipeline file is only checked."""

    def schema(self, schema_id: int | UUID) -> WriterSchema | None:  # noqa: ARG002 - what the port has
        return None


def record_problems(pipeline: Pipeline) -> tuple[str, ...]:
    """What of a pipeline file can't work, as far as it shows without records: one line each, with the key path."""
    patterns = tuple(f"{key}: {why}" for key, of in _patterns(pipeline) if (why := refused_because(of)) is not None)
    attempts = (tuple(_refused(key, attempt)) for key, attempt in _attempts(pipeline))
    return patterns or next(filter(None, attempts), ())


def _patterns(pipeline: Pipeline) -> Iterator[tuple[str, str]]:
    """Every regular expression of a pipeline file, with its key path."""
    if pipeline.source.topics_pattern is not None:
        yield "source.topics_pattern", pipeline.source.topics_pattern
    for number, step in enumerate(pipeline.transforms):
        if isinstance(step, RegexRouter):
            yield f"transforms.{number}.regex", step.regex
        if isinstance(step.when, TopicNameMatches):
            yield f"transforms.{number}.when.pattern", step.when.pattern
    route = pipeline.route
    if route is not None and route.static is not None:
        yield from ((f"route.static.tables.{table}", of) for table, of in route.static.tables.items())
    if route is not None and route.field is not None:
        yield from ((f"route.field.allow.{number}", of) for number, of in enumerate(route.field.allow))
        yield from ((f"route.field.deny.{number}", of) for number, of in enumerate(route.field.deny))
    if route is not None and route.topic is not None:
        yield from ((f"route.topic.rename.{of}", of) for of in route.topic.rename)
        yield from ((f"route.topic.deny.{number}", of) for number, of in enumerate(route.topic.deny))


def _attempts(pipeline: Pipeline) -> Iterator[tuple[str, Callable[[], Iterable[str]]]]:
    """What is tried, in this order, and the part of the file that it is about; empty if its problems say theirs."""
    destinations = pipeline.with_template(TEMPLATE).destinations
    columns = {of.table: declared_columns(of) for of in destinations}
    halves = {"value": pipeline.value, "key": pipeline.key}
    schemas = {of.registry: _Unasked() for of in halves.values() if of is not None and of.registry is not None}
    for name, half in halves.items():
        if half is not None and half.format != JSON:
            yield name, partial(_opened, half, schemas)
    if pipeline.transforms:
        yield "transforms", lambda: _nothing([transform_of(step) for step in pipeline.transforms])
    for at, to in zip(pipeline.declared, destinations, strict=True):
        for name, column in to.columns.items():
            if column.has_default:
                of = columns[to.table].field(name).type
                yield f"{at}.columns.{name}.default", partial(unfit_default, name, column, of)
        yield f"{at}.columns.", partial(_written_alike, columns[to.table])
        yield f"{at}.columns", partial(_decodes, pipeline, columns[to.table], schemas, to)
    yield "destinations", lambda: _nothing(record_specs(pipeline, columns, schemas))
    template = template_spec(pipeline, columns, schemas)
    specs = (*record_specs(pipeline, columns, schemas).values(), *([] if template is None else [template]))
    for at, spec in zip(pipeline.declared, specs, strict=True):
        yield from _found(pipeline, at, spec)


def _found(pipeline: Pipeline, key: str, spec: RecordSpec) -> Iterator[tuple[str, Callable[[], Iterable[str]]]]:
    """What is tried on the fields that all values, or keys, have."""
    decoder, at = Decoder(spec, 0), f"{key}.columns."
    value = shape(spec.format, None if spec.infers else spec.fields)
    of_key = None if spec.key is None else shape(spec.key, spec.key_fields)
    if value is not None:
        yield "", partial(_lacks, pipeline, spec, value, of_key)
    yield "transforms", partial(_transforms, decoder, value, of_key)
    if value is not None:
        after = left(spec.transforms, value, of_key) or []
        values, keys = [of.value.schema for of in after], [of.key.schema for of in after if of.key is not None]
    else:
        values, keys = [], [] if of_key is None or spec.transforms else [of_key]
    if values and not spec.tells_changes:  # else the columns are about what a change holds
        yield "", partial(undecided, pipeline.route, values, any_case=spec.field_names == "case_insensitive")
        yield at, partial(unfilled, spec, "value", values)
    if keys and len(keys) >= len(values):  # else some records have none, or one of any shape
        yield at, partial(unfilled, spec, "key", keys)
    yield at, partial(decoder.problems, value, of_key)


def _written_alike(fields: Iterable[pa.Field], path: str = "") -> Iterator[str]:
    """Say which names are one name in data files, where each column needs its own."""
    names: dict[str, str] = {}
    for of in fields:
        written = file_names(of.name)
        others = {names.setdefault(each, of.name) for each in written} - {of.name}
        if others:
            yield f"{path}{of.name}: Iceberg's files name it {written[0]}, as they name {min(others)}; give one another name"
        yield from _written_alike((of.type.field(at) for at in range(of.type.num_fields)), f"{path}{of.name}.")


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
    meant = [of for of in pipeline.tables if of not in pipeline.histories]
    if pipeline.route is None and len(meant) > 1:
        return (f"route: without it every record goes to each of {len(meant)} destinations",)
    decides = deciding(pipeline.route)
    if decides is not None and isinstance(pipeline.value.fields, dict) and not (pipeline.transforms or pipeline.key):
        key, (name, *_) = decides[0], decides[1].split(".")
        if name not in pipeline.value.fields:
            return (f"{key}: value.fields does not have {name!r}, {near(name, list(pipeline.value.fields))}",)
    return tuple(_about_new_tables(pipeline))


_ANYWHERE = ("frazil_one.a", "frazil_two.b")
"""Names in namespaces that nobody has: a file that lets both through lets any through."""


def _about_new_tables(pipeline: Pipeline) -> Iterator[str]:
    """Say where records may make tables, if that is anywhere, and which topics name none."""
    route = pipeline.route
    if route is None or route.create is None:
        return
    if route.field is not None and all(map(route.lets, _ANYWHERE)):
        yield "route.field.allow: lets records make tables in any namespace"
    if route.topic is not None and not pipeline.transforms:
        to = route_of(pipeline, {of.table: declared_columns(of) for of in pipeline.destinations})
        router = Router(to, pipeline.tables)
        topics = [topic for topic in pipeline.source.topics if not router.finds(topic)]
        if topics:
            yield f"route.topic: {', '.join(topics)} names no table: write namespace.table under rename"


def _opened(half: Decoding, schemas: Schemas) -> Iterable[str]:
    return _nothing(open_format(format_of(half, schemas)))


def _nothing(_made: object) -> Iterable[str]:
    return ()


def _refused(key: str, attempt: Callable[[], Iterable[str]]) -> Iterator[str]:
    try:
        joint = "" if not key or key.endswith(".") else ": "
        yield from (f"{key}{joint}{problem}" for problem in attempt())
    except Terminal as error:
        yield f"{key.rstrip('.')}: {error.message.removeprefix('record shape: ')}"


_NAMED = 20
"""Fields that a message lists."""


def unfilled(spec: RecordSpec, half: str, shapes: Sequence[pa.Schema]) -> Iterator[str]:
    """Columns that would be null in every row, since no value, or key, of these shapes has their field: one line each."""
    for column in spec.column_specs:
        if (column.name in spec.of_key) == (half == "key") and not column.has_default:
            absent = [_absent(column.steps, of, any_case=spec.field_names == "case_insensitive") for of in shapes]
            if all(absent):
                # One of the shapes may know what is meant.
                nearest = next((each for each in absent if each and "did you mean" in each), absent[0])
                yield f"{column.name}: no {half} has the field {nearest}"


def unfit_default(name: str, column: Column, of: pa.DataType) -> Iterator[str]:
    """Why the default of a column can't be read as a JSON record would carry it."""
    units = {} if column.unit is None else {name: column.unit}
    schema = pa.schema([pa.field(name, of, nullable=not column.required)])
    try:
        ExactDecoder(RecordSpec(schema, defaults={name: column.default}, units=units, kafka_columns=None))
    except Terminal as error:
        yield error.message.removeprefix(f"column {name}: the default ")


def undecided(route: Route | None, shapes: Sequence[pa.Schema], *, any_case: bool) -> Iterator[str]:
    """Why no record of these shapes ever finds its table by a field: one line, with the key path."""
    if (found := deciding(route)) is not None:
        told = [_undecided(found[1], fields, any_case=any_case) for fields in shapes]
        if all(told):
            yield f"{found[0]}: {told[0]}"


def _undecided(path: str, fields: pa.Schema, *, any_case: bool) -> str | None:
    steps = path.split(".")
    if (absent := _absent(steps, fields, any_case=any_case)) is not None:
        return f"no value has the field {absent}"
    kind = _kind(steps, fields, any_case=any_case)
    if kind is not None and _decides(kind):
        return None
    return f"a text, number or boolean decides; {path!r} is {'not in an object' if kind is None else spelled(kind)}"


def near(name: str, known: Sequence[str]) -> str:
    """What may have been meant by a name that is not known."""
    if found := get_close_matches(name, known, 1):
        return f"did you mean {found[0]!r}?"
    more = f" and {len(known) - _NAMED} more" if len(known) > _NAMED else ""
    return f"there are {', '.join(known[:_NAMED]) or 'none'}{more}"


def _absent(steps: Sequence[str], fields: Iterable[pa.Field], *, any_case: bool) -> str | None:
    """The first of the steps that no field has, and what may be meant; None if there may be one."""
    for depth, step in enumerate(steps):
        found, names = _field(step, fields, any_case=any_case)
        if found is None:
            outer = ".".join(steps[:depth])
            known = [f"{outer}.{name}" if outer else name for name in names]
            path = ".".join(steps[: depth + 1])
            return f"{path!r}, {near(path, known)}"
        kind = plain_type(found.type)
        if not pa.types.is_struct(kind):
            return None
        fields = kind
    return None


def _kind(steps: Sequence[str], fields: Iterable[pa.Field], *, any_case: bool) -> pa.DataType | None:
    """The type of the field at the end of steps; None if the way there ends at one without fields."""
    kind: pa.DataType = pa.struct(list(fields))
    for step in steps:
        found = _field(step, kind, any_case=any_case)[0] if pa.types.is_struct(kind) else None
        if found is None:
            return None
        kind = plain_type(found.type)
    return kind


def _field(name: str, fields: Iterable[pa.Field], *, any_case: bool) -> tuple[pa.Field | None, list[str]]:
    fold = str.casefold if any_case else str
    listed = list(fields)
    return next((each for each in listed if fold(each.name) == fold(name)), None), [each.name for each in listed]


def _decides(kind: pa.DataType) -> bool:
    of = pa.types
    tests = (of.is_string, of.is_large_string, of.is_integer, of.is_boolean, of.is_decimal)
    return any(test(kind) for test in tests)
