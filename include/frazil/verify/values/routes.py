"""Derives the destinations of a record from `route`, independently of the code that writes."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from json import JSONDecoder
from typing import Any, Literal

from confluent_kafka import Message

from frazil.pipeline.models.pipeline_file import Pipeline
from frazil.pipeline.models.route import Route
from frazil.pipeline.syntax.patterns import matches, taken_up
from frazil.verify.values.header_cells import header_text
from frazil.verify.values.json_document import EACH_ONCE, LAST_COUNTS, NumberText, Unfit, object_of

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
