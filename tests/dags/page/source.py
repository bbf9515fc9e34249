"""What the page reads in tests: made-up conditions, batches and letters, hostile ones among them."""

# ruff: noqa: ARG002, D102 - its methods are those of frazil_airflow.page.project_source.Source

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from frazil.batch.changes import LetterChoice, Place
from frazil.iceberg.ledger.dead_letters import State
from frazil.monitor.batches import BatchPage, Series
from frazil.monitor.condition import Condition, Freshness, Retention
from frazil.pipeline.models.pipeline_file import Pipeline
from frazil.pipeline.settings.capture import Capture
from frazil.report.dead_letters import DeadLetter, LetterMark, Listing, WholeLetter
from frazil.report.history import BatchHistory, FieldChange, SchemaVersion, SnapshotFacts, Snapshots
from frazil.report.letter_reports import KeptReport

NOW = datetime.now(UTC)
HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>{{7*7}}"
"""What a producer may put into a topic, to be run in the browser of whoever looks at it."""


def pipeline(name: str, **options: Any) -> Pipeline:
    """A pipeline as its file says it."""
    body = {
        "name": name,
        "owner": "checkout",
        "engine": "inline",
        "interval": "5m",
        "source": {"topics": [f"{name}-topic"]},
        "destinations": [{"table": f"shop.{name}", "columns": {"id": "long"}}],
    }
    return Pipeline.model_validate(body | options)


def batch(n: int, **facts: Any) -> BatchHistory:
    """A batch that landed a thousand rows."""
    body: dict[str, Any] = {
        "n": n,
        "kind": "ingest",
        "batch": f"b{n}",
        "run": f"scheduled__2026-05-01T10:{n % 60:02d}:00+00:00",
        "committed_at": NOW - timedelta(minutes=5 * (200 - n % 200)),
        "snapshot_id": 5_000 + n,
        "read": 1_000 + n % 7,
        "written": 998,
        "dead": n % 3,
        "filtered": 0,
        "dead_codes": {"INVALID_JSON": n % 3} if n % 3 else {},
        "seconds": 12.5 + n % 5,
        "phases": {"stage": 10.1 + n % 5, "audit": 0.2, "decide": 0.04, "forward": 2.1},
        "position": {},
        "files": 2,
        "bytes": 123_456 + n,
        "ranges": (("shop-topic", 0, 100 * n, 100 * n + 100), ("shop-topic", 1, 90 * n, 90 * n + 90)),
        "started_by": "airflow:scheduled",
    }
    return BatchHistory(**(body | facts))


def letter(offset: int, **facts: Any) -> DeadLetter:
    """A letter of a record that is no JSON."""
    body: dict[str, Any] = {
        "topic": "shop-topic",
        "partition": offset % 2,
        "offset": offset,
        "timestamp": NOW - timedelta(minutes=offset),
        "code": "WRONG_TYPE",
        "path": "order.price",
        "message": f"order.price: expected a number, found {HOSTILE}",
        "batch": 10_000 - offset // 3,
        "attempts": 1,
        "landed_batch": None,
    }
    return DeadLetter(**(body | facts))


def report(pipeline: str, day: int) -> KeptReport:
    """A kept report of a day of May."""
    until = datetime(2026, 5, day, 12, tzinfo=UTC)
    return KeptReport(
        pipeline, f"202605{day:02}T120000000Z", "r", until - timedelta(days=1), until, 1, 2, "b", 42, 40, 0, 0, 0
    )


def condition(name: str, **facts: Any) -> Condition:
    """A pipeline that does well."""
    body: dict[str, Any] = {
        "n": 120,
        "last_commit": NOW - timedelta(minutes=3),
        "complete_through": NOW - timedelta(minutes=3),
        "lag": 1_234,
        "lag_seconds": 65.0,
        "freshness": Freshness(42.0, 121.0, 301.0),
        "rows": 1_234_567,
        "dead": 42,
        "dead_codes": {"INVALID_JSON": 40, "WRONG_TYPE": 2},
        "health": {f"shop.{name}": 91},
        "retention": (Retention(f"{name}-topic", 0, 51_000, 86_400.0 * 5, 7_200.0),),
    }
    return Condition(name, "checkout", NOW, **(body | facts))


def _snapshot(name: str, n: int) -> SnapshotFacts:
    return SnapshotFacts(
        id=8_123_456_789 + n,
        committed_at=NOW - timedelta(minutes=5 * n),
        operation="append",
        batch=120 - n,
        pipeline=name,
        rows=998,
        files=2,
        bytes=123_456,
        removed_rows=0,
        total_rows=99_000 - n,
        refs=("main",) if n == 0 else (),
    )


@dataclass
class MadeUp:
    """A source with what a test put into it."""

    known: Mapping[str, Pipeline]
    conditions: Mapping[str, Condition] = field(default_factory=dict)
    made: tuple[str, ...] = ()
    complaints: Mapping[str, str] = field(default_factory=dict)
    count: int = 120
    found: Sequence[DeadLetter] = ()
    whole: Sequence[WholeLetter] = ()
    kept: Sequence[KeptReport] = ()
    captured: Mapping[str, Capture] = field(default_factory=dict)

    def pipelines(self) -> Mapping[str, Pipeline]:
        return self.known

    def captures(self) -> Mapping[str, Capture]:
        return self.captured

    def broken(self) -> Mapping[str, str]:
        return self.complaints

    def condition(self, name: str) -> Condition | None:
        return self.conditions.get(name)

    def objective(self, name: str) -> float | None:
        return 900.0

    def tables(self, name: str) -> tuple[str, ...]:
        return (*self.known[name].tables, *self.made)

    def series(self, name: str) -> Series:
        if name not in self.conditions:
            return Series()
        starts = tuple(NOW - timedelta(minutes=30 * (48 - slot)) for slot in range(48))
        rows = tuple((len(name) * 7 + slot * 37) % 23 * 1_000 for slot in range(48))
        return Series(starts, rows, tuple(slot % 11 if slot % 5 == 0 else 0 for slot in range(48)))

    def batches(self, name: str, start: int, limit: int) -> BatchPage:
        newest = self.count - start
        batches = tuple(batch(n) for n in range(newest, max(0, newest - limit), -1))
        return BatchPage(batches, start, self.count)

    def letters(
        self, name: str, choice: LetterChoice, state: State, after: LetterMark | None, limit: int
    ) -> Listing | None:
        fits = [
            batch
            for batch in sorted(self.found, key=lambda batch: batch.mark.order)
            if choice.fits(batch.place, batch.code, batch.timestamp)
            and (after is None or batch.mark.order > after.order)
        ]
        return Listing(tuple(fits[:limit]), len(fits) > limit)

    def letter(self, name: str, place: Place) -> tuple[WholeLetter, ...]:
        return tuple(whole_letter for whole_letter in self.whole if whole_letter.letter.place == place)

    def reports(self, name: str, most: int) -> Sequence[KeptReport]:
        return self.kept[:most]

    def snapshots(self, name: str, table: str, start: int, limit: int) -> Snapshots | None:
        snapshots = [_snapshot(name, n) for n in range(60)]
        return Snapshots(tuple(snapshots[start : start + limit]), 60, start + limit if start + limit < 60 else None)

    def schema_changes(self, name: str, table: str) -> Sequence[SchemaVersion] | None:
        added = FieldChange("added", HOSTILE, None, "string")
        return (SchemaVersion(1, NOW, 12, (added,), is_current=True), SchemaVersion(0, None, 11, (), is_current=False))


@dataclass(frozen=True)
class Allowed:
    """A person who may do what a test says."""

    read: frozenset[str]
    start: frozenset[str] = frozenset()
    logs: frozenset[str] | None = None
    """DAGs whose task logs he may read; None for those that he may read."""

    def readable(self) -> frozenset[str]:
        return self.read

    def startable(self, dag_ids: Iterable[str]) -> frozenset[str]:
        return self.start & frozenset(dag_ids)

    def may_read_logs(self, dag_id: str) -> bool:
        return dag_id in (self.read if self.logs is None else self.logs)
