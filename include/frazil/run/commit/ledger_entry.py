"""The ledger's entry for one batch: a row per table, and the marks of all tables after it."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from frazil.batch.facts import Range, TableCounts, ages_json
from frazil.batch.manifest import Manifest, TablePart
from frazil.run.state.pipeline_state import TableMark

_REPAIRS = ("repair", "settle")
"""Kinds of batches that mend a follower; `settle` is that of an older Frazil."""


def entry_rows(
    manifest: Manifest, snapshots: Mapping[str, int | None], decided_at: datetime | None, recorded_at: datetime
) -> list[dict[str, Any]]:
    """The ledger's rows of a batch, in the columns of `frazil.iceberg.ledger.ledger.LEDGER_SCHEMA`.

    `snapshots` has the one in which each table's part became visible. `decided_at` is None if that snapshot is expired
    by now.
    """
    written_at = datetime.fromisoformat(manifest.written_at)
    decided = decided_at or written_at
    phases = dict(manifest.phases) | {
        "decide": round(max(0.0, (decided - written_at).total_seconds()), 3),
        "forward": round(max(0.0, (recorded_at - decided).total_seconds()), 3),
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
        "records_unknown": manifest.unknown_fields.records,
        "unknown_fields": json.dumps(dict(manifest.unknown_fields.names)),
        "dead_codes": json.dumps(dict(manifest.dead_codes), sort_keys=True),
        "position": manifest.position.to_json(),
        "planned_at": datetime.fromisoformat(manifest.planned_at),
        "started_at": datetime.fromisoformat(manifest.started_at),
        "decided_at": decided,
        "recorded_at": recorded_at,
        "phases": json.dumps(phases),
        "version": manifest.version,
        "config": manifest.config,
        "ranges": ranges_json(manifest.ranges),
        "skipped": ranges_json(manifest.skipped),
        "bytes_read": manifest.bytes_read,
        "record_ages": ages_json(manifest.record_ages),
        "started_by": manifest.started_by,
        "reason": manifest.reason,
        "abandoned": manifest.abandoned if manifest.kind in _REPAIRS else None,
    }
    rows = [batch | _part_row(manifest, part, snapshots[part.table]) for part in manifest.parts]
    part_tables = {part.table for part in manifest.parts}
    routed_tables = {table for table, counts in manifest.tables.items() if counts.routed}
    tables_without_part = sorted(
        {*routed_tables, *manifest.table_ranges, *manifest.unmarked, *manifest.schema_changes} - part_tables
    )
    nothing = TableCounts() if manifest.tables else None  # no count would say that it is the only destination
    rows += [
        batch | _empty_row(table, "destination") | _table_counts(manifest, table, manifest.tables.get(table, nothing))
        for table in tables_without_part
    ]
    rows += [batch | _empty_row(table, "left") for table in manifest.dropped]
    return [row | {"schema_changes": _changes_json(manifest, str(row["table"]))} for row in rows]


def _part_row(manifest: Manifest, part: TablePart, snapshot_id: int | None) -> dict[str, Any]:
    return {
        "table": part.table,
        "role": part.role,
        "snapshot_id": snapshot_id,
        "rows": manifest.rows_added(part),
        "files": len(part.files),
        "bytes": part.size,
        "table_uuid": part.fit.uuid,
        "removed": _removed_json(manifest, part),
        "table_upserts": None if part.changes is None else part.changes.upserts,
        "table_deletes": None if part.changes is None else part.changes.deletes,
        "lost_from": _lost_from(manifest, part),
    } | _table_counts(manifest, part.table, manifest.tables.get(part.table))


def _lost_from(manifest: Manifest, part: TablePart) -> int | None:
    """The first batch whose part a repaired table may have lost; the last one is that before the repair."""
    if manifest.kind != "repair" or part.table != manifest.repairs:
        return None
    return 0 if part.after is None else part.after.n + 1


_COUNT_COLUMNS = ("table_written", "table_dead", "table_unknown", "table_unknown_fields", "table_ranges")


def _table_counts(manifest: Manifest, table: str, counts: TableCounts | None) -> dict[str, Any]:
    """Counts of a batch's records in one of several destinations."""
    ranges = manifest.table_ranges.get(table)
    repaired = {part.table for part in manifest.parts if part.role == "destination"} & {manifest.repairs}
    if repaired and table not in repaired:
        ranges = ()  # what a repair gives up is about one destination
    return {
        "table_written": None if counts is None else counts.written,
        "table_dead": None if counts is None else counts.dead,
        "table_unknown": None if counts is None else counts.unknown_fields.records,
        "table_unknown_fields": None if counts is None else json.dumps(dict(counts.unknown_fields.names)),
        "table_ranges": None if ranges is None else ranges_json(ranges),
    }


def _empty_row(table: str, role: str) -> dict[str, Any]:
    """The row of a destination that got nothing. Role `left`: the pipeline file no longer names the table, which this row
    records.
    """
    nothing = dict.fromkeys(
        ("snapshot_id", "table_uuid", "removed", "table_upserts", "table_deletes", "lost_from", *_COUNT_COLUMNS)
    )
    return nothing | {"table": table, "role": role, "rows": 0, "files": 0, "bytes": 0}


def _changes_json(manifest: Manifest, table: str) -> str | None:
    changes = manifest.schema_changes.get(table, ())
    body = [{"path": change.path, "kind": change.kind, "type": change.type} for change in changes]
    return json.dumps(body) if body else None


def _removed_json(manifest: Manifest, part: TablePart) -> str | None:
    removed = manifest.removed_for_good(part)
    return json.dumps([dataclasses.astuple(r) for r in removed]) if removed else None


def ranges_json(ranges: tuple[Range, ...]) -> str:
    """Ranges as the ledger and summaries show them: [[topic, partition, start, end], ...]."""
    return json.dumps([dataclasses.astuple(r) for r in ranges], separators=(",", ":"))


def marks_after(marks: Mapping[str, TableMark], *manifests: Manifest) -> dict[str, TableMark]:
    """The mark of every table after further batches, which are in their order."""
    after = dict(marks)
    for manifest in manifests:
        table_parts = (part for part in manifest.parts if part.role != "ledger")
        after |= {
            part.table: TableMark(part.fit.uuid, manifest.mark, part.role, _added_at(after, manifest, part))
            for part in table_parts
        }
        after = {table: mark for table, mark in after.items() if table not in manifest.dropped}
    return after


def _added_at(marks: Mapping[str, TableMark], manifest: Manifest, part: TablePart) -> str | None:
    if part.table in marks:
        return marks[part.table].since
    is_added = bool(marks) and part.role == "destination" and part.table not in manifest.created
    return manifest.written_at if is_added else None


def marks_json(marks: Mapping[str, TableMark]) -> str:
    """The marks of all tables as JSON, as a property of the ledger keeps them."""
    body = {table: _mark_fields(mark) for table, mark in sorted(marks.items())}
    return json.dumps(body, separators=(",", ":"))


def _mark_fields(mark: TableMark) -> dict[str, Any]:
    since = {} if mark.since is None else {"since": mark.since}
    return {"uuid": mark.uuid} | dataclasses.asdict(mark.mark) | {"role": mark.role} | since
