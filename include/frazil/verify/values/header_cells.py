"""Derives the cells of columns that take headers, and the destinations by `route`, independently of the code that
writes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from json import JSONDecoder
from typing import Any, Final, Literal

from confluent_kafka import Message

from frazil.pipeline.models.pipeline_file import Pipeline
from frazil.pipeline.models.route import Route
from frazil.pipeline.models.value import Column, Value
from frazil.pipeline.syntax.patterns import matches, taken_up
from frazil.verify.values.cdc_expectation import RowChange
from frazil.verify.values.column_readers import Bad, column_default, options_of
from frazil.verify.values.json_document import EACH_ONCE, LAST_COUNTS, NumberText, Unfit, object_of
from frazil.verify.values.native import LineText, UnjudgedError, native_reader

Headers = Mapping[str, bytes | UnjudgedError | None]
"""Headers by name, of several the last one; an error where a transform made one that is not read here."""

_NOT_SENT: Final = object()


def headers_of(message: Message) -> Headers:
    """The headers of a record."""
    pairs = message.headers() or []
    listed = pairs.items() if isinstance(pairs, dict) else pairs
    return {name: content.encode() if isinstance(content, str) else content for name, content in listed}


def header_text(message: Message, name: str) -> str | None:
    """The text of a header; None if there is none, or none that is UTF-8."""
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
        columns: Name -> column, of the whole table, in the order of its rows.
        value: What the pipeline file says of values.
        order_by: The column that orders changes, if there is one.
        in_orc: Whether the columns are in ORC files.

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
        """The row, or the changes of rows, with the cells of headers; `Bad` if one of them makes it a dead letter."""
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
        return tuple(
            replace(
                change,
                row=_with_cells(change.row, cells),
                order=change.order if self._order is None else order,
            )
            for change in row
        )

    def join_known(self, row: tuple[Any, ...] | Bad, headers: Headers) -> tuple[Any, ...] | Bad:
        """The same for a batch of another version of the pipeline file: a header that doesn't fit makes only its cell `Bad`."""
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
                count, first = self.unjudged.get(name, (0, str(error)))
                self.unjudged[name] = count + 1, first
                return Bad(str(error))

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
"""Returns the target of a record by topic and value, or by a header of the message. A value that can't be read goes to every
table, as a dead letter."""

TablesOf = Callable[[str, bytes, Message], frozenset[str] | None]
"""Returns the destinations of a record, likewise; None if the value can't be read."""

_REMEMBERED = 10_000
"""Size of the cache of routed names: a field with ever new values must not fill the memory."""


def tables_of(pipeline: Pipeline) -> TablesOf | None:
    """The router of a pipeline; None: all records go to every destination."""
    route = pipeline.route
    if route is None:
        return None
    tables, histories = set(pipeline.tables), pipeline.histories
    decoder = EACH_ONCE if pipeline.value.duplicate_keys == "dead_letter" else LAST_COUNTS
    folds = pipeline.value.field_names == "case_insensitive"
    path = route.static.field if route.static is not None else route.field.name if route.field is not None else ""
    steps = path.split(".")

    by_field = route.topic is None and route.part == "value"
    # Of a record that can't be decoded there is one letter for all tables. A column of the whole value takes any JSON.
    is_json = pipeline.value.format == "json" and len(tables) > 1
    is_json &= all(column.source != () for table in pipeline.destinations for column in table.columns.values())

    @lru_cache(_REMEMBERED)
    def tables_of_name(text: str) -> frozenset[str]:
        names = _by_topic(route, text) if route.topic is not None else _by_field(route, text)
        if route.static is None:
            names -= histories.keys()  # a change log gets the records of its table, none by its own name
        names |= {log for log, table in histories.items() if table in names}
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
    """Returns a function that says whether a record is routed to this table; None if every record is."""
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


def _by_topic(route: Route, topic: str) -> set[str]:
    if route.topic is None:
        return set()
    renamed = (taken_up(pattern, topic, table) for pattern, table in route.topic.rename.items())
    name = next((table for table in renamed if table is not None), topic)
    return set() if any(matches(pattern, name) for pattern in route.topic.deny) else {name}


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
