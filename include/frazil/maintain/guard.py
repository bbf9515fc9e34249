"""Checks before anything is removed: the pipeline's state is sound, no batch is unfinished, and its position is kept."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Final

from frazil.error_codes import MAINTENANCE_FAILED
from frazil.errors import Retryable, Terminal
from frazil.iceberg.catalog.catalog import Lake
from frazil.iceberg.commit.retention_guard import RetainedState, retained_state
from frazil.run.state.context import RunContext
from frazil.run.state.pipeline_state import pipeline_state
from frazil.run.state.tables import find_tables

TableGuard = Callable[[str], RetainedState]
"""Reads a table's state of pipelines anew and returns it; raises `UnsafeToRemove` if that is not intact."""

_PAUSES: Final = (1.0, 2.0, 4.0)
"""Seconds between looks at a pipeline with a batch under way: from the decision to the end it takes a second or two."""


class UnsafeToRemove(Retryable):
    """Nothing may be removed now: a pipeline's state or an unfinished batch might be lost."""


def table_guard(context: RunContext) -> TableGuard:
    """A function that checks a table's state before files are removed, and returns it."""

    def check_table(table: str) -> RetainedState:
        _require_settled(context)
        table_state = read_state(context.lake, table)
        if table_state.refusal is not None:
            raise UnsafeToRemove(f"table {table} was rolled back: {table_state.refusal}", code=MAINTENANCE_FAILED)
        return table_state

    return check_table


def read_state(lake: Lake, table: str) -> RetainedState:
    """The positions and marks of pipelines in a freshly loaded table."""
    return retained_state(lake.catalog_of(table).load_table(table).metadata, table)


def lost_keys(before: RetainedState, after: RetainedState) -> tuple[str, ...]:
    """Keys that a table no longer has, or has with an older batch than before. A newer batch is no loss."""
    if after.refusal is not None:
        return (after.refusal,)
    return tuple(_lost(before, after))


def _lost(before: RetainedState, after: RetainedState) -> Iterator[str]:
    for key, value in before.values.items():
        current = after.values.get(key)
        if current is None or _number(current) < _number(value):
            yield key


def _number(value: str) -> int:
    """The batch number of a position or a mark; 0 without one."""
    body = json.loads(value)
    n = body.get("n", 0) if isinstance(body, dict) else 0
    return n if isinstance(n, int) else 0


def _require_settled(context: RunContext) -> None:
    """Require the same as a plan: followers hold their parts, and no batch is unfinished.

    Raises:
        UnsafeToRemove: They don't, or one is.
    """
    why = _unsound(context)
    for seconds in _PAUSES:
        if why is None:
            return
        time.sleep(seconds)
        why = _unsound(context)
    if why is not None:
        raise UnsafeToRemove(f"pipeline {context.pipeline.name}: {why}", code=MAINTENANCE_FAILED)


def _unsound(context: RunContext) -> str | None:
    """Why nothing may be removed now."""
    try:
        context = context.with_created_tables(
            context.project.made_tables(context.pipeline)
        )  # a batch may have made tables meanwhile
        tables = find_tables(context.lake, context.pipeline)
        if tables is None:
            return "it never ran"
        state = pipeline_state(context.pipeline, tables)
    except Terminal as refusal:  # a plan refuses likewise
        return refusal.message
    if state.loss is not None:
        return state.loss.message
    return f"batch {state.mark.n} is not finished" if state.unfinished and state.mark is not None else None
