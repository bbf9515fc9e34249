"""Which destinations a record is meant for: an own reading of `route`, by its promises in the pipeline reference."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Literal

from frazil.pipeline.model import Pipeline
from frazil.pipeline.route import Route
from frazil.verify.documents import EACH_ONCE, LAST_COUNTS, object_of
from frazil.verify.figures import Figure, Unfit

Meant = Literal["here", "elsewhere", "nowhere"]
"""Whether a record is meant for a table, for others only, or for none."""

WhereTo = Callable[[str, bytes], Meant]
"""Tells it of a record, by topic and value. What can't be read is meant for every table: it is a letter of all."""


def where_to(pipeline: Pipeline, table: str) -> WhereTo | None:
    """How records are routed, seen from one destination; None: all are meant for it."""
    route = pipeline.route
    if route is None:
        return None
    tables, beside = set(pipeline.tables), pipeline.histories
    decoder = EACH_ONCE if pipeline.value.duplicate_keys == "dead_letter" else LAST_COUNTS
    folds = pipeline.value.field_names == "case_insensitive"

    def tell(topic: str, raw: bytes) -> Meant:
        if route.topic is not None:
            found = _by_topic(route, topic)
        else:
            path = (
                route.static.field if route.static is not None else route.field.name if route.field is not None else ""
            )
            try:
                text = _text(object_of(raw, decoder), path.split("."), folds=folds)
            except Unfit:
                return "here"
            found = set() if text is None else _by_field(route, text)
        if route.static is None:
            found -= beside.keys()  # a log gets what its table gets, and nothing by its own name
        found |= {log for log, of in beside.items() if of in found}
        found &= tables
        return "here" if table in found else "elsewhere" if found else "nowhere"

    return tell


def _by_topic(route: Route, topic: str) -> set[str]:
    if route.topic is None:
        return set()
    matched = ((re.fullmatch(pattern, topic, re.DOTALL), table) for pattern, table in route.topic.rename.items())
    name = next((_filled(table, found) for found, table in matched if found), topic)
    return set() if any(re.fullmatch(of, name, re.DOTALL) for of in route.topic.deny) else {name}


def _filled(name: str, found: re.Match[str]) -> str:
    """A name with the groups that it takes up; one that took part in no match is empty."""

    def group(of: re.Match[str]) -> str:
        return found[of["name"] or int(of["number"])] or ""

    return re.sub(r"\\(?:g<(?P<name>\w+)>|(?P<number>\d+))", group, name)


def _by_field(route: Route, text: str) -> set[str]:
    if route.static is not None:
        return {of for of, pattern in route.static.tables.items() if re.fullmatch(pattern, text, re.DOTALL)}
    if route.field is None:
        return set()
    text = text.lower() if route.field.lower_case else text
    allowed = not route.field.allow or any(re.fullmatch(of, text, re.DOTALL) for of in route.field.allow)
    denied = any(re.fullmatch(of, text, re.DOTALL) for of in route.field.deny)
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
