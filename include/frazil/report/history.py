"""The batches of a pipeline, from its ledger."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from frazil.iceberg.ledger import read_ledger
from frazil.pipeline.model import Pipeline
from frazil.project import Project


@dataclass(frozen=True, slots=True)
class BatchHistory:
    """One finished batch.

    Attributes:
        n: Batch number.
        kind: `start` for the first commit, which only writes the start position, else `ingest`.
        batch: Batch id.
        run: Id of the run.
        committed_at: When the position moved, UTC.
        snapshot_id: Snapshot of the destination.
        read, written, dead, filtered: Records by outcome.
        dead_codes: Dead letters per reason code.
        seconds: From the begin of staging to the ledger's row.
        phases: Seconds per phase.
        position: Topic -> {"from": [...], "next": [...]}, one offset per partition.
        files: Data files of the destination.
        bytes: Their size.
    """

    n: int
    kind: str
    batch: str
    run: str
    committed_at: datetime
    snapshot_id: int | None
    read: int
    written: int
    dead: int
    filtered: int
    dead_codes: Mapping[str, int]
    seconds: float
    phases: Mapping[str, float]
    position: Mapping[str, Mapping[str, list[int]]]
    files: int
    bytes: int


def history(project: Project, pipeline: Pipeline) -> list[BatchHistory]:
    """All finished batches, the oldest first. Empty if the pipeline never ran.

    Raises:
        Retryable: The catalog can't be read now.
    """
    rows = read_ledger(project.lake(pipeline.catalog), pipeline.ledger_table, pipeline.name)
    return [_batch(row) for row in rows if row["role"] == "destination"]


def dead_letter_counts(project: Project, pipeline: Pipeline) -> dict[str, int]:
    """Dead letters per reason code over all batches, the most frequent first."""
    counts: dict[str, int] = {}
    for batch in history(project, pipeline):
        for code, count in batch.dead_codes.items():
            counts[code] = counts.get(code, 0) + count
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def _batch(row: Mapping[str, Any]) -> BatchHistory:
    topics = json.loads(row["position"])["topics"]
    return BatchHistory(
        n=row["n"],
        kind=row["kind"],
        batch=row["batch"],
        run=row["run"],
        committed_at=row["decided_at"],
        snapshot_id=row["snapshot_id"],
        read=row["records_read"],
        written=row["records_written"],
        dead=row["records_dead"],
        filtered=row["records_filtered"],
        dead_codes=json.loads(row["dead_codes"]),
        seconds=round((row["recorded_at"] - row["started_at"]).total_seconds(), 3),
        phases=json.loads(row["phases"]),
        position={topic: {"from": body["from"], "next": body["next"]} for topic, body in topics.items()},
        files=row["files"],
        bytes=row["bytes"],
    )
