"""The result of a run, from the ledger: the same for the command line, for Airflow and for later readers."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any

from frazil.batch.audit import exceeded
from frazil.batch.changes import ChangeCounts
from frazil.batch.facts import Counts, UnknownFields
from frazil.batch.position import Position
from frazil.iceberg.ledger.ledger import first_rows, read_ledger
from frazil.pipeline.models.pipeline_file import Pipeline
from frazil.project import Project
from frazil.run.state.pipeline_state import pipeline_state
from frazil.run.state.source import tolerance_of
from frazil.run.state.tables import open_tables


@dataclass(frozen=True, slots=True)
class RunResult:
    """One run.

    Attributes:
        position: Topic -> next offset per partition, after the run.
        snapshots: Snapshots of the destinations, one per batch and table.
        seconds: From the plan to the last row of the ledger, 0 without a batch.
        rows: Destination -> rows that it got.
        unknown_fields: Fields of written records that no column takes.
        changes: Destination that rows are merged into -> changes that were staged for it.
        files: Destination -> data files that it got.
        bytes: Destination -> their size.
        tolerance_exceeded: Of each batch that was published with more dead letters than tolerated, how many it had.
    """

    pipeline: str
    run: str
    batches: int
    read: int
    written: int
    dead: int
    filtered: int
    dead_codes: Mapping[str, int]
    position: Mapping[str, list[int]]
    snapshots: tuple[int, ...]
    seconds: float
    tolerance_exceeded: tuple[str, ...] = ()
    rows: Mapping[str, int] = field(default_factory=dict)
    unknown_fields: UnknownFields = field(default_factory=UnknownFields)
    changes: Mapping[str, ChangeCounts] = field(default_factory=dict)
    files: Mapping[str, int] = field(default_factory=dict)
    bytes: Mapping[str, int] = field(default_factory=dict)
    phases: tuple[Mapping[str, float], ...] = ()

    def to_json(self) -> str:
        """One line of JSON."""
        return json.dumps(asdict(self), separators=(",", ":"))


def run_result(project: Project, pipeline: Pipeline, run_id: str, planned_at: str | None = None) -> RunResult:
    """The result of a run so far, from the ledger's rows with its id.

    With `planned_at`, an instant of a plan, only batches planned then or later count: a run that is cleared in Airflow
    plans again.
    """
    ledger = read_ledger(project.lake_of(pipeline), pipeline.ledger_table, pipeline.name, run_id)
    if planned_at is not None:
        ledger = [row for row in ledger if row["planned_at"] >= datetime.fromisoformat(planned_at)]
    rows = [row for row in first_rows(ledger) if row["kind"] != "start"]
    landed = (row["snapshot_id"] for row in ledger if row["kind"] != "start" and row["role"] == "destination")
    codes: dict[str, int] = {}
    for row in rows:
        for code, count in json.loads(row["dead_codes"]).items():
            codes[code] = codes.get(code, 0) + count
    return RunResult(
        pipeline=pipeline.name,
        run=run_id,
        batches=len(rows),
        read=_sum(rows, "records_read"),
        written=_sum(rows, "records_written"),
        dead=_sum(rows, "records_dead"),
        filtered=_sum(rows, "records_filtered"),
        dead_codes=codes,
        position=_position(project, pipeline, rows),
        snapshots=tuple(snapshot for snapshot in landed if snapshot is not None),
        seconds=round((rows[-1]["recorded_at"] - rows[0]["planned_at"]).total_seconds(), 3) if rows else 0.0,
        tolerance_exceeded=tuple(_exceeded_tolerance(rows, pipeline)),
        rows=_per_table(ledger, "rows"),
        unknown_fields=sum(
            (row_fields for row in rows if (row_fields := unknown_fields_of(row))), UnknownFields()
        ).shown,
        changes=changes_of(ledger),
        files=_per_table(ledger, "files"),
        bytes=_per_table(ledger, "bytes"),
        phases=tuple(json.loads(row["phases"]) for row in rows),
    )


def unknown_fields_of(row: Mapping[str, Any]) -> UnknownFields | None:
    """Unknown fields in a ledger row; None if an older version did not count them."""
    if row.get("records_unknown") is None:
        return None
    return UnknownFields(row["records_unknown"], json.loads(row.get("unknown_fields") or "{}"))


def changes_of(rows: Iterable[Mapping[str, Any]]) -> dict[str, ChangeCounts]:
    """Change counts per table from ledger rows, without append-only tables."""
    by_table: dict[str, ChangeCounts] = {}
    for row in rows:
        if (upserts := row.get("table_upserts")) is not None:
            deletes = row["table_deletes"]
            counted = ChangeCounts(upserts, deletes, row["rows"] - upserts - deletes)
            by_table[row["table"]] = by_table.get(row["table"], ChangeCounts()) + counted
    return by_table


def _per_table(ledger: list[dict[str, Any]], column: str) -> dict[str, int]:
    """Destination -> sum of a column."""
    counted: Counter[str] = Counter()
    for row in ledger:
        if row["role"] == "destination":
            counted[row["table"]] += row[column]
    return dict(counted)


def _exceeded_tolerance(rows: list[dict[str, Any]], pipeline: Pipeline) -> Iterator[str]:
    tolerance = tolerance_of(pipeline)
    for row in rows:
        counts = Counts(*(row[f"records_{outcome}"] for outcome in ("read", "written", "dead", "filtered")))
        if excess := exceeded(counts, json.loads(row["dead_codes"]), tolerance):
            yield f"batch {row['n']}: {excess}"


def _position(project: Project, pipeline: Pipeline, rows: list[dict[str, Any]]) -> dict[str, list[int]]:
    """The position after the run's last batch; without a batch, the present position."""
    if rows:
        position = Position.from_json(rows[-1]["position"])
    else:
        extended = project.with_auto_created(pipeline)
        stored_position = pipeline_state(extended, open_tables(project.lake_of(extended), extended)).position
        position = stored_position or Position(0, 0, "")
    return {topic: list(topic_position.next) for topic, topic_position in position.topics.items()}


def _sum(rows: list[dict[str, Any]], column: str) -> int:
    return sum(row[column] for row in rows)
