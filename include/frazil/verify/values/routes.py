"""Which destinations a record is meant for: an own reading of `route`, by its promises in the pipeline reference."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Literal

from frazil.pipeline.models.pipeline_file import Pipeline
from frazil.pipeline.models.route import Route
from frazil.pipeline.syntax.patterns import matches, taken_up
from frazil.verify.values.json_document import EACH_ONCE, LAST_COUNTS, Figure, Unfit, object_of

Meant = Literal["here", "elsewhere", "nowhere"]
"""Whether a record is meant for a table, for others only, or for none."""

WhereTo = Callable[[str, bytes], Meant]
"""Tells it of a record, by topic and value. What can't be read is meant for every table: it is a letter of all."""

TablesOf = Callable[[str, bytes], frozenset[str] | None]
"""The destinations that a record is meant for, by topic and value; None if it can't be read."""

_REMEMBERED = 10_000
"""Values whose tables are remembered: a field with ever new ones must not fill the memory."""


def tables_of(pipeline: Pipeline) -> TablesOf | None:
    """How records are routed; None: all are meant for every destination."""
    route = pipeline.route
    if route is None:
        return None
    tables, beside = set(pipeline.tables), pipeline.histories
    decoder = EACH_ONCE if pipeline.value.duplicate_keys == "dead_letter" else LAST_COUNTS
    folds = pipeline.value.field_names == "case_insensitive"
    path = route.static.field if route.static is not None else route.field.name if route.field is not None else ""
    steps = path.split(".")

    @lru_cache(_REMEMBERED)
    def named(text: str) -> frozenset[str]:
        found = _by_topic(route, text) if route.topic is not None else _by_field(route, text)
        if route.static is None:
            found -= beside.keys()  # a log gets what its table gets, and nothing by its own name
        found |= {log for log, of in beside.items() if of in found}
        return frozenset(found & tables)

    def tell(topic: str, raw: bytes) -> frozenset[str] | None:
        if route.topic is not None:
            return named(topic)
        try:
            text = _text(object_of(raw, decoder), steps, folds=folds)
        except Unfit:
            return None
        return frozenset() if text is None else named(text)

    return tell


def where_to(pipeline: Pipeline, table: str) -> WhereTo | None:
    """How records are routed, seen from one destination; None: all are meant for it."""
    tell = tables_of(pipeline)
    if tell is None:
        return None

    def seen(topic: str, raw: bytes) -> Meant:
        found = tell(topic, raw)
        return "here" if found is None or table in found else "elsewhere" if found else "nowhere"

    return seen


def _by_topic(route: Route, topic: str) -> set[str]:
    if route.topic is None:
        return set()
    renamed = (taken_up(pattern, topic, table) for pattern, table in route.topic.rename.items())
    name = next((found for found in renamed if found is not None), topic)
    return set() if any(matches(of, name) for of in route.topic.deny) else {name}


def _by_field(route: Route, text: str) -> set[str]:
    if route.static is not None:
        return {of for of, pattern in route.static.tables.items() if matches(pattern, text)}
    if route.field is None:
        return set()
    text = text.lower() if route.field.lower_case else text
    allowed = not route.field.allow or any(matches(of, text) for of in route.field.allow)
    denied = any(matches(of, text) for of in route.field.deny)
    return {text} if allowed and not denied else set()


def _text(document: Any, path: list[str], *, folds: bool) -> str | None:
    found = document
    for name in path:
        if not isinstance(found, dict):
            return None
        key = name
        if folds and name not in found:
            key = next((of for of in found if of.casefold() == name.casefold()), name)
        found = found.get(key)
    if isinstance(found, bool):
        return "true" if found else "false"
    return str(found) if isinstance(found, str | Figure) else None
