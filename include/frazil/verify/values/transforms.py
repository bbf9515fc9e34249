"""A second, simple implementation of built-in transforms (docs/transforms.md), of columns that take headers, and of `route`,
which treats one record at a time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from decimal import Decimal
from json import JSONDecoder
from math import isfinite
from struct import Struct
from typing import Any, Final, Literal

from confluent_kafka import Message

from frazil.pipeline.models.pipeline_file import Pipeline
from frazil.pipeline.models.route import Route, TopicRoute
from frazil.pipeline.models.value import Column, Value
from frazil.pipeline.syntax.patterns import cache_short, expanded_name, matches
from frazil.pipeline.transforms import Step
from frazil.verify.values.cdc_expectation import RowChange
from frazil.verify.values.column_readers import Bad, column_default, count_unjudged, options_of
from frazil.verify.values.json_document import EACH_ONCE, EPOCH, LAST_COUNTS, NumberText, Unfit, object_of
from frazil.verify.values.native import BARE, UNKNOWN, Fields, Json, LineText, UnjudgedError, native_reader
from frazil.verify.values.readers import NUMBER

Headers = Mapping[str, bytes | UnjudgedError | None]
"""Header name -> content of the last header with that name; an error for a header that a transform made of an unread field."""

_NOT_SENT: Final = object()


def headers_of(message: Message) -> Headers:
    """The headers of a record."""
    pairs = message.headers() or []
    listed = pairs.items() if isinstance(pairs, dict) else pairs
    return {name: content.encode() if isinstance(content, str) else content for name, content in listed}


def header_text(message: Message, name: str) -> str | None:
    """The text of a header; None if it is missing or not UTF-8."""
    content = headers_of(message).get(name)
    try:
        return content.decode() if isinstance(content, bytes) else None
    except UnicodeDecodeError:
        return None


class HeaderCells:
    """Reads the columns of a table that take headers.

    Attributes:
        unjudged: Column -> cells that were not compared, and the first reason.

    Args:
        columns: Name -> column, for all compared columns, in the order of the rows.
        value: The part of the pipeline file about values.
        order_by: The column that orders changes, if there is one.
        in_orc: Whether the table has ORC files.

    Raises:
        Terminal: A default is no value of its column.
    """

    def __init__(
        self, columns: Mapping[str, Column], value: Value, order_by: str | None = None, *, in_orc: bool = False
    ) -> None:
        names = list(columns)
        self.unjudged: Final[dict[str, tuple[int, str]]] = {}
        own = {name: column for name, column in columns.items() if column.part == "header"}
        self._readers: Final[dict[int, Callable[[Headers], Any]]] = {
            names.index(name): self._reader(name, column, value, in_orc=in_orc) for name, column in own.items()
        }
        self._order: Final = names.index(order_by) if order_by in own else None

    def join(self, row: tuple[Any, ...] | Bad, headers: Headers) -> tuple[Any, ...] | Bad:
        """The row, or the row changes, with the cells of headers filled in; `Bad` if a header makes the record a dead letter."""
        if isinstance(row, Bad):
            return row
        try:
            cells = {index: read(headers) for index, read in self._readers.items()}
        except Unfit as unfit:
            return Bad(str(unfit))
        if not row or not isinstance(row[0], RowChange):
            return _with_cells(row, cells)
        order = None if self._order is None else cells[self._order]
        if self._order is not None and order is None:
            return Bad("a change without order")
        changes = (replace(change, row=_with_cells(change.row, cells)) for change in row)
        return tuple(change if self._order is None else replace(change, order=order) for change in changes)

    def join_known(self, row: tuple[Any, ...] | Bad, headers: Headers) -> tuple[Any, ...] | Bad:
        """Like `join`, for a batch under another pipeline file: a header that does not fit only makes its own cell `Bad`."""
        if isinstance(row, Bad):
            return row
        cells: dict[int, Any] = {}
        for index, read in self._readers.items():
            try:
                cells[index] = read(headers)
            except Unfit as unfit:
                cells[index] = Bad(str(unfit))
        return _with_cells(row, cells)

    def _reader(self, name: str, column: Column, value: Value, *, in_orc: bool) -> Callable[[Headers], Any]:
        header = name if column.source is None else column.source[0]
        read_text = native_reader(column.parsed, options_of(column, value, in_orc=in_orc))
        default = column_default(name, column, value, in_orc=in_orc)

        def read(headers: Headers) -> Any:
            content = headers.get(header, _NOT_SENT)
            if content is _NOT_SENT and column.has_default:
                return default
            if content is None or content is _NOT_SENT:
                if not column.required:
                    return None
                if column.has_default:
                    return default
                raise Unfit(f"no header {header}")
            try:
                return _cell(content, column.type, read_text)
            except UnjudgedError as error:
                return count_unjudged(self.unjudged, name, str(error))

        return read


def _with_cells(row: tuple[Any, ...], cells: Mapping[int, Any]) -> tuple[Any, ...]:
    return tuple(cells.get(index, cell) for index, cell in enumerate(row))


def _cell(content: Any, kind: str, read_text: Callable[[Any], Any]) -> Any:
    if isinstance(content, UnjudgedError):
        raise content
    if kind == "binary":
        return content
    if kind.startswith("fixed"):
        if f"fixed[{len(content)}]" != kind:
            raise Unfit(f"a header of {len(content)} bytes")
        return content
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise Unfit("a header that is not UTF-8") from error
    return text if kind == "string" else read_text(LineText(text))


RouteTarget = Literal["here", "elsewhere", "nowhere"]
"""Whether a record is routed to this table, only to other tables, or to no table."""

RouteToTable = Callable[[str, bytes, Message], RouteTarget]
"""Returns the target of a record by its topic, its value, or a header of the message. A value that can't be read is a dead letter
for every table: "here".
"""

TablesOf = Callable[[str, bytes, Message], frozenset[str] | None]
"""Returns the destinations of a record by its topic, its value, or a header of the message; None if the value can't be read."""


def tables_of(pipeline: Pipeline) -> TablesOf | None:
    """Returns the function that routes records; None if all records go to every destination."""
    route = pipeline.route
    if route is None:
        return None
    tables, histories = set(pipeline.tables), pipeline.histories
    decoder = EACH_ONCE if pipeline.value.duplicate_keys == "dead_letter" else LAST_COUNTS
    folds = pipeline.value.field_names == "case_insensitive"
    path = route.static.field if route.static is not None else route.field.name if route.field is not None else ""
    steps = path.split(".")

    by_field = route.topic is None and route.part == "value"
    # A record that can't be decoded is one dead letter for all tables. A column for the whole value takes any JSON.
    is_json = pipeline.value.format == "json" and len(tables) > 1
    is_json &= all(column.source != () for table in pipeline.destinations for column in table.columns.values())

    @cache_short
    def tables_of_name(text: str) -> frozenset[str]:
        names = _by_topic(route.topic, text) if route.topic is not None else _by_field(route, text)
        if route.static is None:
            names -= histories.keys()  # a history table gets the records of its destination, none by its own name
        names |= {history for history, table in histories.items() if table in names}
        return frozenset(names & tables)

    def route_record(topic: str, raw: bytes, message: Message) -> frozenset[str] | None:
        if by_field:
            try:
                text = _text(object_of(raw, decoder), steps, folds=folds)
            except Unfit:
                return None
        else:
            text = topic if route.topic is not None else header_text(message, path)
        names = frozenset[str]() if text is None else tables_of_name(text)
        return None if names and not by_field and is_json and _is_broken(raw, decoder) else names

    return route_record


def route_to_table(pipeline: Pipeline, table: str) -> RouteToTable | None:
    """Returns the function that says whether a record is routed to this table; None if every record is."""
    route_record = tables_of(pipeline)
    if route_record is None:
        return None

    def route(topic: str, raw: bytes, message: Message) -> RouteTarget:
        tables = route_record(topic, raw, message)
        return "here" if tables is None or table in tables else "elsewhere" if tables else "nowhere"

    return route


def _is_broken(raw: bytes, decoder: JSONDecoder) -> bool:
    try:
        object_of(raw, decoder)
    except Unfit:
        return True
    return False


def _by_topic(route: TopicRoute, topic: str) -> set[str]:
    renamed = (expanded_name(pattern, topic, table) for pattern, table in route.rename.items())
    name = next((table for table in renamed if table is not None), topic)
    return set() if any(matches(pattern, name) for pattern in route.deny) else {name}


def _by_field(route: Route, text: str) -> set[str]:
    if route.static is not None:
        return {table for table, pattern in route.static.tables.items() if matches(pattern, text)}
    if route.field is None:
        return set()
    text = text.lower() if route.field.lower_case else text
    if route.field.table is not None:
        if not text.replace("_", "a").replace("-", "a").isalnum():
            return set()
        text = route.field.table.replace("{value}", text)
    allowed = not route.field.allow or any(matches(pattern, text) for pattern in route.field.allow)
    denied = any(matches(pattern, text) for pattern in route.field.deny)
    return {text} if allowed and not denied else set()


def _text(document: Any, path: list[str], *, folds: bool) -> str | None:
    value = document
    for name in path:
        if not isinstance(value, dict):
            return None
        key = name
        if folds and name not in value:
            key = next((field_name for field_name in value if field_name.casefold() == name.casefold()), name)
        value = value.get(key)
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, str | NumberText) else None


@dataclass(frozen=True)
class Record:
    """A record between transforms.

    Attributes:
        value: Fields of the value.
        key: Fields of the key; None if there is none, or if keys are not decoded.
        micros: Kafka's timestamp in microseconds.
        headers: The headers.
    """

    value: Fields
    key: Fields | None
    topic: str
    partition: int
    offset: int
    micros: int | None
    headers: Headers = field(default_factory=dict)


Apply = Callable[[Any, Record], Record | None]
"""Applies a step to a record and returns the new one; None if the step filters it. Raises Unfit if it is a dead letter."""


def transform(record: Record, steps: Sequence[Step]) -> Record | None:
    """The record after all steps; None if one filters it."""
    current: Record | None = record
    for step in steps:
        if current is not None and _applies(step, current):
            current = APPLIED[step.name](step, current)
    return current


def unsupported_steps(steps: Sequence[Step]) -> tuple[str, ...]:
    """Names of the steps that are not implemented here."""
    return tuple(step.name for step in steps if step.name not in APPLIED)


def _applies(step: Step, record: Record) -> bool:
    when: Any = step.when
    match when and when.predicate:
        case "TopicNameMatches":
            return matches(when.pattern, record.topic) != bool(when.negate)
        case "HasHeaderKey":
            return (when.name in record.headers) != bool(when.negate)
        case "HeaderMatches":
            return _header_matches(when, record) != bool(when.negate)
    return True  # RecordIsTombstone is only allowed negated, and none gets here


def _on_target(change: Callable[[Any, Fields, Record], Fields]) -> Apply:
    """A step that changes fields of its `target`, value or key. A record without key stays as it is."""

    def apply(step: Any, record: Record) -> Record:
        fields = record.key if step.target == "key" else record.value
        if fields is None:
            return record
        changed = change(step, fields, record)
        return replace(record, key=changed) if step.target == "key" else replace(record, value=changed)

    return apply


def _header_matches(when: Any, record: Record) -> bool:
    content = record.headers.get(when.name)
    if isinstance(content, UnjudgedError):
        raise content
    try:
        return content is not None and matches(when.pattern, content.decode())
    except UnicodeDecodeError:
        return False


def _insert_field(step: Any, fields: Fields, record: Record) -> Fields:
    instant = None if record.micros is None else EPOCH + timedelta(microseconds=record.micros)
    facts = (
        (step.topic_field, record.topic),
        (step.partition_field, record.partition),
        (step.offset_field, record.offset),
        (step.timestamp_field, instant),
        (step.static_field, step.static_value),
    )
    extended = dict(fields)
    for name, fact in facts:
        if name is not None:
            if fact is None and name.endswith("!"):
                raise Unfit("no value for a required field")
            extended[name.rstrip("!?")] = fact
    return extended


def _replace_field(step: Any, fields: Fields, _: Record) -> Fields:
    names = [name for name in fields if name not in step.exclude and (not step.include or name in step.include)]
    return {step.renames.get(name, name): fields[name] for name in names}


def _cast(step: Any, fields: Fields, _: Record) -> Fields:
    spec = {BARE: step.spec} if isinstance(step.spec, str) else step.spec
    cast = {name: _cast_to(kind, fields[name]) for name, kind in spec.items() if fields.get(name) is not None}
    return {**fields, **cast}


_WHOLE: Final = re.compile(r"-?[0-9]{1,18}")
_SINGLE: Final = Struct("<f")


def _cast_to(kind: str, value: Any) -> Any:
    value = str(value) if isinstance(value, LineText) else value
    if value is UNKNOWN or isinstance(value, Json):
        raise UnjudgedError("Cast of a value that is not read here")
    if kind == "string":
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, str | int):
            return str(value)
    elif kind == "boolean":
        if isinstance(value, bool | int | float | Decimal) and isfinite(value):
            return int(value) != 0
        if value in ("true", "false"):
            return value == "true"
    elif kind.startswith("int"):
        return _cast_to_int(value, int(kind.removeprefix("int")))
    elif isinstance(value, bool | int | float | Decimal) or (isinstance(value, str) and NUMBER.fullmatch(value)):
        number = float(value)
        return number if kind == "float64" else _SINGLE.unpack(_SINGLE.pack(number))[0]
    raise UnjudgedError(f"Cast to {kind}")


def _cast_to_int(value: Any, bits: int) -> int:
    if isinstance(value, str) and not any(map(str.isnumeric, value)):
        raise Unfit("no number")
    if isinstance(value, str) and not _WHOLE.fullmatch(value):
        raise UnjudgedError("Cast of a text that is no whole number")
    if isinstance(value, datetime) and value.tzinfo is not None:
        value = (value - EPOCH) // timedelta(milliseconds=1)
    if not isinstance(value, bool | int | float | Decimal | str):
        raise UnjudgedError("Cast to a whole number")
    if isinstance(value, float | Decimal) and not isfinite(value):
        raise Unfit("no number")
    number = int(value)
    if not -(1 << bits - 1) <= number < 1 << bits - 1:
        raise Unfit("out of range")
    return number


def _extract_field(step: Any, fields: Fields, _: Record) -> Fields:
    value = _nested_field(fields, step.field, is_path=step.field_syntax_version == "V2")
    return value if isinstance(value, dict) else {BARE: value}


def _nested_field(fields: Fields, name: str, *, is_path: bool) -> Any:
    if name in fields:
        return fields[name]
    if not is_path or "`" in name:
        raise UnjudgedError("a field that is not there")
    value: Any = fields
    for part in name.split("."):
        if value is None:
            return None
        if not isinstance(value, dict) or part not in value:
            raise UnjudgedError("a field that is not there")
        value = value[part]
    return value


def _value_to_key(step: Any, record: Record) -> Record:
    if lacking := [name for name in step.fields if name not in record.value]:
        raise Unfit(f"no field {lacking[0]}")
    return replace(record, key={name: record.value[name] for name in step.fields})


def _copy_value(step: Any, record: Record) -> Record:
    if step.source_field not in record.value:
        raise UnjudgedError("a field that is not there")
    return replace(record, value={**record.value, step.target_field: record.value[step.source_field]})


_drop_fields = _on_target(
    lambda step, fields, _: {name: value for name, value in fields.items() if name not in step.fields}
)


def _header_from(step: Any, record: Record) -> Record | None:
    fields = record.key if step.target == "key" else record.value
    if fields is None:
        return record
    names = zip(step.headers, step.fields, strict=True)
    added = {header: _header_content(fields.get(name)) for header, name in names}
    with_headers = replace(record, headers={**record.headers, **added})
    return with_headers if step.operation == "copy" else _drop_fields(step, with_headers)


def _header_content(value: Any) -> bytes | UnjudgedError | None:
    return value.encode() if type(value) is str else None if value is None else UnjudgedError("a header of a field")


APPLIED: Final[Mapping[str, Apply]] = {
    "InsertField": _on_target(_insert_field),
    "ReplaceField": _on_target(_replace_field),
    "Cast": _on_target(_cast),
    "ExtractField": _on_target(_extract_field),
    "HoistField": _on_target(
        lambda step, fields, _: {step.field: fields.get(BARE) if fields.keys() == {BARE} else fields}
    ),
    "ValueToKey": _value_to_key,
    "CopyValue": _copy_value,
    "Filter": lambda _, __: None,
    "HeaderFrom": _header_from,
    "InsertHeader": lambda step, record: replace(
        record, headers={**record.headers, step.header: step.value_literal.encode()}
    ),
    "DropHeaders": lambda step, record: replace(
        record, headers={name: content for name, content in record.headers.items() if name not in step.headers}
    ),
    "SetSchemaMetadata": lambda _, record: record,
}
"""Name -> implementation of the steps that verify can apply."""
