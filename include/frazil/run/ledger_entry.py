"""What the ledger says of one batch: a row per table, and what every table of the pipeline holds from then on."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from frazil.batch.facts import Range, TableCounts, ages_json
from frazil.batch.manifest import Manifest, TablePart
from frazil.run.standing import TableMark

_REPAIRS = ("repair", "settle")
"""Kinds of batches that mend a follower; `settle` is that of an older Frazil."""


def entry_rows(
    manifest: Manifest, snapshots: Mapping[str, int | None], decided_at: datetime | None, now: datetime
) -> list[dict[str, Any]]:
    """The ledger's rows of a batch, in the columns of `frazil.iceberg.ledger.LEDGER_SCHEMA`.

    Args:
        manifest: The batch.
        snapshots: Table -> snapshot in which its part became visible.
        decided_at: When the position moved; None if that snapshot is expired by now.
        now: The time.
    """
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
        "records_unknown": manifest.unknown_fields.records,
        "unknown_fields": json.dumps(dict(manifest.unknown_fields.names)),
        "dead_codes": json.dumps(dict(manifest.dead_codes), sort_keys=True),
        "position": manifest.position.to_json(),
        "planned_at": datetime.fromisoformat(manifest.planned_at),
        "started_at": datetime.fromisoformat(manifest.started_at),
        "decided_at": decided,
        "recorded_at": now,
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
    there = {part.table for part in manifest.parts}
    meant = {table for table, of in manifest.tables.items() if of.routed}
    bare = sorted({*meant, *manifest.table_ranges, *manifest.unmarked, *manifest.schema_changes} - there)
    nothing = TableCounts() if manifest.tables else None  # no count would say that it is the only destination
    rows += [
        batch | _bare_row(table, "destination") | _counted(manifest, table, manifest.tables.get(table, nothing))
        for table in bare
    ]
    rows += [batch | _bare_row(table, "left") for table in manifest.left]
    return [row | {"schema_changes": _changes_json(manifest, str(row["table"]))} for row in rows]


def _part_row(manifest: Manifest, part: TablePart, snapshot_id: int | None) -> dict[str, Any]:
    return {
        "table": part.table,
        "role": part.role,
        "snapshot_id": snapshot_id,
        "rows": manifest.rows_brought(part),
        "files": len(part.files),
        "bytes": part.size,
        "table_uuid": part.fit.uuid,
        "removed": _removed_json(manifest, part),
        "table_upserts": None if part.changes is None else part.changes.upserts,
        "table_deletes": None if part.changes is None else part.changes.deletes,
        "lost_from": _lost_from(manifest, part),
    } | _counted(manifest, part.table, manifest.tables.get(part.table))


def _lost_from(manifest: Manifest, part: TablePart) -> int | None:
    """The first batch whose part a repaired table may have lost; the last one is that before the repair."""
    if manifest.kind != "repair" or part.table != manifest.repairs:
        return None
    return 0 if part.after is None else part.after.n + 1


_COUNTED = ("table_written", "table_dead", "table_unknown", "table_unknown_fields", "table_ranges")


def _counted(manifest: Manifest, table: str, counts: TableCounts | None) -> dict[str, Any]:
    """What the batch made of its records in one of several destinations."""
    ranges = manifest.table_ranges.get(table)
    repaired = {part.table for part in manifest.parts if part.role == "destination"} & {manifest.repairs}
    if repaired and table not in repaired:
        ranges = ()  # what a repair gives up is about one destination
    return {
        "table_written": None if counts is None else counts.written,
        "table_dead": None if counts is None else counts.dead,
        "table_unknown": None if counts is None else counts.unknown.records,
        "table_unknown_fields": None if counts is None else json.dumps(dict(counts.unknown.names)),
        "table_ranges": None if ranges is None else ranges_json(ranges),
    }


def _bare_row(table: str, role: str) -> dict[str, Any]:
    """A destination that got nothing; `left` is one that the pipeline file names no more: its part ends, on record."""
    nothing = dict.fromkeys(
        ("snapshot_id", "table_uuid", "removed", "table_upserts", "table_deletes", "lost_from", *_COUNTED)
    )
    return nothing | {"table": table, "role": role, "rows": 0, "files": 0, "bytes": 0}


def _changes_json(manifest: Manifest, table: str) -> str | None:
    changes = manifest.schema_changes.get(table, ())
    told = [{"path": of.path, "kind": of.kind, "type": of.type} for of in changes]
    return json.dumps(told) if told else None


def _removed_json(manifest: Manifest, part: TablePart) -> str | None:
    gone = manifest.taken_out(part)
    return json.dumps([dataclasses.astuple(r) for r in gone]) if gone else None


def ranges_json(ranges: tuple[Range, ...]) -> str:
    """Ranges as the ledger and summaries show them: [[topic, partition, start, end], ...]."""
    return json.dumps([dataclasses.astuple(r) for r in ranges], separators=(",", ":"))


def told_after(told: Mapping[str, TableMark], *manifests: Manifest) -> dict[str, TableMark]:
    """What every table of the pipeline holds after further batches, given in their order."""
    after = dict(told)
    for manifest in manifests:
        given = (part for part in manifest.parts if part.role != "ledger")
        after |= {
            part.table: TableMark(part.fit.uuid, manifest.mark, part.role, _since(after, manifest, part))
            for part in given
        }
        after = {table: of for table, of in after.items() if table not in manifest.left}
    return after


def _since(told: Mapping[str, TableMark], manifest: Manifest, part: TablePart) -> str | None:
    if part.table in told:
        return told[part.table].since
    is_added = bool(told) and part.role == "destination" and part.table not in manifest.made
    return manifest.written_at if is_added else None


def told_json(after: Mapping[str, TableMark]) -> str:
    """What every table holds, as the ledger's mark says it."""
    body = {table: _told(of) for table, of in sorted(after.items())}
    return json.dumps(body, separators=(",", ":"))


def _told(of: TableMark) -> dict[str, Any]:
    since = {} if of.since is None else {"since": of.since}
    return {"uuid": of.uuid} | dataclasses.asdict(of.mark) | {"role": of.role} | since
