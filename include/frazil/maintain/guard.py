"""What must hold before anything is removed: the pipeline stands soundly, with nothing unfinished, and keeps its position."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Final

from frazil.errors import Retryable, Terminal
from frazil.iceberg.catalog import Lake
from frazil.iceberg.kept import Kept, kept
from frazil.run.scope import Scope
from frazil.run.standing import standing
from frazil.run.tables import find_tables

Sound = Callable[[str], Kept]
"""Looks again, and tells what a table holds of pipelines; raises `Unsound`."""

_PAUSES: Final = (1.0, 2.0, 4.0)
"""Seconds between looks at a pipeline with a batch under way: from the decision to the end it takes a second or two."""


class Unsound(Retryable):
    """Nothing may be removed now: what a pipeline holds, or a batch that is not finished, might be lost by it."""


def sound(scope: Scope) -> Sound:
    """The guard of a pipeline's tables."""

    def look(table: str) -> Kept:
        _stands(scope)
        table_state = hold(scope.lake, table)
        if table_state.refusal is not None:
            raise Unsound(f"table {table} was rolled back: {table_state.refusal}")
        return table_state

    return look


def hold(lake: Lake, table: str) -> Kept:
    """What a table holds of pipelines, read anew."""
    return kept(lake.catalog_of(table).load_table(table).metadata, table)


def lost(before: Kept, after: Kept) -> tuple[str, ...]:
    """Keys that a table lost, or of which it says less. Those that moved on meanwhile are there."""
    if after.refusal is not None:
        return (after.refusal,)
    return tuple(_lost(before, after))


def _lost(before: Kept, after: Kept) -> Iterator[str]:
    for key, value in before.values.items():
        current = after.values.get(key)
        if current is None or _number(current) < _number(value):
            yield key


def _number(value: str) -> int:
    """The batch number of a position or a mark; 0 of what has none."""
    body = json.loads(value)
    n = body.get("n", 0) if isinstance(body, dict) else 0
    return n if isinstance(n, int) else 0


def _stands(scope: Scope) -> None:
    """The check of each plan: followers hold what they were given, and no batch is half done.

    Raises:
        Unsound: They don't, or one is.
    """
    why = _unsound(scope)
    for seconds in _PAUSES:
        if why is None:
            return
        time.sleep(seconds)
        why = _unsound(scope)
    if why is not None:
        raise Unsound(f"pipeline {scope.pipeline.name}: {why}")


def _unsound(scope: Scope) -> str | None:
    """Why nothing may be removed now."""
    try:
        scope = scope.grown(scope.project.made_tables(scope.pipeline))  # a batch may have made tables meanwhile
        tables = find_tables(scope.lake, scope.pipeline)
        if tables is None:
            return "it never ran"
        state = standing(scope.pipeline, tables)
    except Terminal as refusal:  # a plan refuses likewise
        return refusal.message
    if state.loss is not None:
        return state.loss.message
    return f"batch {state.mark.n} is not finished" if state.unfinished and state.mark is not None else None
