"""Deciding a batch and rolling it forward: one commit decides, the others follow from the manifest.

Whoever comes next finishes what a crash left: every step asks first whether it is done already.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from frazil.batch.manifest import Manifest, TablePart
from frazil.batch.position import BatchMark, Position
from frazil.errors import Terminal
from frazil.iceberg.catalog import Lake
from frazil.iceberg.commit import Append, Refused, commit, fit_of, snapshot_time
from frazil.iceberg.data_files import write_rows
from frazil.iceberg.holdings import BATCH_KEY, CLOSING_KEY, DONE_KEY, POSITION_KEY, held, landed
from frazil.iceberg.ledger import ledger_rows
from frazil.iceberg.table import TableMetadata, staging_table
from frazil.run.tables import MANIFEST_KEY

Clock = Callable[[], datetime]


def utc_now() -> datetime:
    """The clock of production."""
    return datetime.now(UTC)


def decide(lake: Lake, manifest: Manifest, path: str, before: Position | None) -> int:
    """The one commit that makes a batch happen: rows and position in the same snapshot.

    Args:
        lake: The catalog.
        manifest: The batch, already written to `path`.
        path: Where its manifest lies.
        before: The position it was planned on; None for the first commit of a pipeline.

    Returns:
        Id of the snapshot.

    Raises:
        Refused: The position is another one by now, or the table no longer takes the files.
        OutcomeUnknown: The catalog can't be read to find out whether the commit landed.
    """
    position_key, batch_key = POSITION_KEY.format(manifest.pipeline), BATCH_KEY.format(manifest.pipeline)
    summary = _summary(manifest, path) | {position_key: manifest.position.to_json(), batch_key: manifest.mark.to_json()}
    table = manifest.closing.table

    def check(metadata: TableMetadata) -> None:
        found = held(metadata, position_key, table)
        now = Position.from_json(found.value) if found else None
        mark = held(metadata, batch_key, table)
        last = BatchMark.from_json(mark.value) if mark else None
        if now != before or last != manifest.closing.after:
            raise Refused(
                f"table {table}: batch {manifest.position.n} was planned on {_described(before)}, found {_described(now)}"
            )

    return commit(
        lake,
        Append(
            table=table,
            files=manifest.closing.files,
            summary=summary,
            mirrored=(position_key, batch_key),
            fit=manifest.closing.fit,
            landed=lambda metadata: landed(metadata, batch_key, manifest.mark, table),
            check=check,
        ),
    )


def _described(position: Position | None) -> str:
    return "no position" if position is None else f"position n={position.n}, epoch={position.epoch}"


def roll_forward(lake: Lake, manifest: Manifest, path: str, clock: Clock = utc_now) -> None:
    """Give every follower its part, then the ledger its rows. Safe to repeat, and when two do it at once.

    Raises:
        Terminal: A follower can't take its part: dropped, rolled back, changed.
    """
    key = BATCH_KEY.format(manifest.pipeline)
    snapshots = {manifest.closing.table: _landed_in(lake, manifest, manifest.closing, key)}
    for part in manifest.followers:
        snapshots[part.table] = _follow(lake, manifest, part, path, key)
    _record(lake, manifest, snapshots, path, clock)


def _landed_in(lake: Lake, manifest: Manifest, part: TablePart, key: str) -> int | None:
    return landed(lake.load_table(part.table).metadata, key, manifest.mark, part.table)


def _follow(lake: Lake, manifest: Manifest, part: TablePart, path: str, key: str) -> int:
    append = Append(
        table=part.table,
        files=part.files,
        summary=_summary(manifest, path) | {key: manifest.mark.to_json()},
        mirrored=(key,),
        fit=part.fit,
        landed=lambda metadata: landed(metadata, key, manifest.mark, part.table),
        check=_holds(key, part.after, part.table),
    )
    return _committed(lake, append, manifest)


def _holds(key: str, after: BatchMark | None, table: str) -> Callable[[TableMetadata], None]:
    def check(metadata: TableMetadata) -> None:
        found = held(metadata, key, table)
        last = BatchMark.from_json(found.value) if found else None
        if last != after:
            raise Refused(f"table {table} holds {last} last, expected {after}")

    return check


def _committed(lake: Lake, append: Append, manifest: Manifest) -> int:
    try:
        return commit(lake, append)
    except Refused as refusal:
        raise Terminal(
            f"batch {manifest.position.n} of pipeline {manifest.pipeline} is decided, but {refusal.message}; the pipeline waits",
            next_step=f"undo the change of {append.table}, then run again: frazil run {manifest.pipeline}",
        ) from refusal


def _record(lake: Lake, manifest: Manifest, snapshots: Mapping[str, int | None], path: str, clock: Clock) -> None:
    """The ledger's rows and its mark, in one commit. From then on the batch is finished."""
    key = DONE_KEY.format(manifest.pipeline)
    ledger = lake.load_table(manifest.ledger)
    if landed(ledger.metadata, key, manifest.mark, manifest.ledger) is not None:
        return
    decided_at = snapshot_time(lake.load_table(manifest.closing.table), snapshots[manifest.closing.table])
    rows = _ledger_rows(manifest, snapshots, decided_at, clock())
    append = Append(
        table=manifest.ledger,
        files=write_rows(staging_table(manifest.ledger, ledger), ledger_rows(rows)),
        summary=_summary(manifest, path) | {key: manifest.mark.to_json()},
        mirrored=(key,),
        fit=fit_of(ledger.metadata),
        landed=lambda metadata: landed(metadata, key, manifest.mark, manifest.ledger),
        check=_holds(key, manifest.ledger_after, manifest.ledger),
        properties={CLOSING_KEY.format(manifest.pipeline): manifest.closing.table},
    )
    _committed(lake, append, manifest)


def _ledger_rows(
    manifest: Manifest, snapshots: Mapping[str, int | None], decided_at: datetime | None, now: datetime
) -> list[dict[str, Any]]:
    written_at = datetime.fromisoformat(manifest.written_at)
    decided = decided_at or written_at
    phases = dict(manifest.phases) | {
        "decide": round(max(0.0, (decided - written_at).total_seconds()), 3),
        "forward": round(max(0.0, (now - decided).total_seconds()), 3),
    }
    batch = {
        "pipeline": manifest.pipeline,
        "n": manifest.position.n,
        "epoch": manifest.position.epoch,
        "batch": manifest.batch,
        "run": manifest.run,
        "kind": manifest.kind,
        "records_read": manifest.counts.read,
        "records_written": manifest.counts.written,
        "records_dead": manifest.counts.dead,
        "records_filtered": manifest.counts.filtered,
        "dead_codes": json.dumps(dict(manifest.dead_codes), sort_keys=True),
        "position": manifest.position.to_json(),
        "planned_at": datetime.fromisoformat(manifest.planned_at),
        "started_at": datetime.fromisoformat(manifest.started_at),
        "decided_at": decided,
        "recorded_at": now,
        "phases": json.dumps(phases),
        "version": manifest.version,
        "config": manifest.config,
    }
    return [
        batch
        | {
            "table": part.table,
            "role": part.role,
            "snapshot_id": snapshots[part.table],
            "rows": part.rows,
            "files": len(part.files),
            "bytes": part.size,
        }
        for part in manifest.parts
    ]


def _summary(manifest: Manifest, path: str) -> dict[str, str]:
    counts = manifest.counts
    summary = {
        "frazil.pipeline": manifest.pipeline,
        "frazil.batch": manifest.batch,
        "frazil.run": manifest.run,
        "frazil.kind": manifest.kind,
        "frazil.version": manifest.version,
        "frazil.config": manifest.config,
        "frazil.rows.read": str(counts.read),
        "frazil.rows.written": str(counts.written),
        "frazil.rows.dead": str(counts.dead),
        "frazil.rows.filtered": str(counts.filtered),
        MANIFEST_KEY: path,
    }
    if manifest.complete_through is not None:
        summary["frazil.complete-through"] = manifest.complete_through
    return summary
