"""Reads how a pipeline is doing, from its tables, its ledger and its topics. Nothing is made, nothing is committed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final, TypeVar

from frazil.batch.facts import ClusterFacts
from frazil.batch.position import Position
from frazil.batch.refusal import check_position, check_vanished
from frazil.errors import FrazilError, Terminal
from frazil.kafka.failure import unknown_topic
from frazil.kafka.observe import observe
from frazil.monitor.batches import Ledgers
from frazil.monitor.condition import Condition, Runs
from frazil.monitor.tables import Told, told
from frazil.monitor.unread import with_unread
from frazil.monitor.window import with_batches
from frazil.pipeline.model import Pipeline
from frazil.project import Project
from frazil.report.lag import Lag, lag_in, topics_of
from frazil.run.scope import Clock, Scope, utc_now
from frazil.run.source import vanished

T = TypeVar("T")

DAY: Final = timedelta(days=1)

_NO_RUNS: Final = Runs()


def read(
    project: Project,
    pipeline: Pipeline,
    *,
    clock: Clock = utc_now,
    runs: Runs = _NO_RUNS,
    window: timedelta = DAY,
    ledgers: Ledgers | None = None,
) -> Condition:
    """Read how a pipeline is doing. What can't be read is said, and left out; the rest is there.

    Args:
        project: Its settings.
        pipeline: As its file says.
        clock: Tells the time.
        runs: What Airflow knows of its DAG.
        window: Of the batches that are counted, and whose freshness is told.
        ledgers: Keeps what was read of ledgers, for whoever looks again.
    """
    at = clock()
    blank = Condition(pipeline.name, pipeline.owner, at, runs=runs, window_seconds=window.total_seconds())
    said = _Said()
    condition = said.tried(
        lambda: _read(blank, Scope.of(project, pipeline, clock=clock), said, ledgers or Ledgers()), blank
    )
    return replace(condition, refusal=said.refusal, unreadable=said.unreadable)


def _read(blank: Condition, scope: Scope, said: _Said, ledgers: Ledgers) -> Condition:
    blank = replace(blank, made=scope.pipeline.made)
    # Tables before topics: offsets only grow, so what lands meanwhile can't look like a position beyond the log.
    tables = said.tried(lambda: told(scope), None)
    known = blank if tables is None else _with_tables(blank, tables)
    counted = said.tried(lambda: with_batches(known, ledgers.of(scope.project, scope.pipeline)), known)
    if tables is None:  # where it stands is not known, so neither is what waits: not the whole topic
        return counted
    said.add(tables.refusal)
    return said.tried(lambda: _with_topics(counted, scope, said, tables), counted)


def _with_topics(condition: Condition, scope: Scope, said: _Said, tables: Told) -> Condition:
    position = _position(tables)
    facts = observe(scope.cluster, topics_of(scope.cluster, scope.pipeline, position), absent_ok=True)
    said.tried(lambda: _check(scope, position, facts), None)
    lag = lag_in(scope.pipeline, tables.position, facts, condition.at)
    known = _with_lag(condition, lag)
    return said.tried(lambda: with_unread(known, scope.cluster, lag), known)


@dataclass
class _Said:
    """Why something could not be read: refusals, and what may pass by itself."""

    refusals: list[FrazilError] = field(default_factory=list)
    passing: list[FrazilError] = field(default_factory=list)

    def add(self, refusal: Terminal | None) -> None:
        """Note why a plan would refuse, if it would."""
        if refusal is not None:
            self.refusals.append(refusal)

    def tried(self, read: Callable[[], T], otherwise: T) -> T:
        """What was read; if that is not possible, the reason is noted, and something else stands for it."""
        try:
            return read()
        except Terminal as refusal:  # a plan reads the same, and refuses
            self.refusals.append(refusal)
        except FrazilError as problem:
            self.passing.append(problem)
        return otherwise

    @property
    def refusal(self) -> str | None:
        """The first refusal."""
        return str(self.refusals[0]) if self.refusals else None

    @property
    def unreadable(self) -> str | None:
        """The first reason that may pass."""
        return str(self.passing[0]) if self.passing else None


def _position(tables: Told) -> Position | None:
    return Position.from_json(tables.position.value) if tables.position is not None else None


def _with_tables(condition: Condition, tables: Told) -> Condition:
    position = _position(tables)
    return replace(
        condition,
        n=position.n if position is not None else None,
        unfinished=tables.unfinished,
        unfinished_since=tables.unfinished_since,
    )


def _with_lag(condition: Condition, lag: Lag) -> Condition:
    through = datetime.fromisoformat(lag.complete_through) if lag.complete_through is not None else None
    return replace(condition, lag=lag.total, held_back=lag.held_back, complete_through=through)


def _check(scope: Scope, position: Position | None, facts: ClusterFacts) -> None:
    """What a plan holds against position and topics.

    Raises:
        Terminal: It would refuse.
    """
    pipeline = scope.pipeline
    for topic in pipeline.source.topics:
        if topic not in facts.topics:
            raise unknown_topic(scope.cluster, topic)
    if position is not None:
        check_position(position, facts, pipeline.name, pipeline.source.on_data_loss, pipeline.source.topics)
        gone = vanished(pipeline, position, facts)
        check_vanished(position, gone, pipeline.source.on_data_loss)
