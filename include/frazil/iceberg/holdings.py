"""What a table holds of a pipeline: a value in the snapshot summaries of main, mirrored in a table property.

The ancestry of main decides, and the property must agree with it: both move in one commit. The property decides only
where expiry took our snapshot: it is gone from the metadata, and the oldest snapshot that can be reached names a parent
that is gone too. A rollback is told apart from expiry: there the property names a snapshot that main does not descend
from although it is still listed, or main carries an older one, or main has a head without a past.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from frazil.batch.position import BatchMark
from frazil.errors import Terminal

POSITION_KEY = "kafka.offsets.{}"
"""Summary key and property of the position, by pipeline. Lower-case: Spark lower-cases write options."""

BATCH_KEY = "frazil.batch.{}"
"""Summary key and property of the mark that says which batch a table holds last, by pipeline."""

DONE_KEY = "frazil.done.{}"
"""Summary key and property of the ledger: the last finished batch, by pipeline."""

CLOSING_KEY = "frazil.closing.{}"
"""Property of the ledger: the pipeline's closing table, by pipeline. Written with batch 0, never changed."""


@dataclass(frozen=True, slots=True)
class Held:
    """A value a table holds, the snapshot that brought it and that snapshot's whole summary (empty once expired)."""

    value: str
    snapshot_id: int
    summary: Mapping[str, str]


def mirror(value: str, snapshot_id: int) -> str:
    """The property that mirrors a summary value."""
    return json.dumps({"snapshot": snapshot_id, "value": value}, separators=(",", ":"))


def held(metadata: TableMetadata, key: str, table: str) -> Held | None:
    """What `table` holds under `key`, or None if it never held anything.

    Raises:
        Terminal: The table was rolled back or replaced, so what it holds can't be told.
    """
    by_id = {snapshot.snapshot_id: snapshot for snapshot in metadata.snapshots}
    head = metadata.current_snapshot()
    oldest = head
    while head is not None:
        summary = _summary(head)
        if key in summary:
            _refuse_rolled_back(metadata, key, table, head.snapshot_id)
            return Held(summary[key], head.snapshot_id, summary)
        oldest = head
        head = by_id.get(head.parent_snapshot_id) if head.parent_snapshot_id is not None else None
    return _mirrored(metadata, key, table, by_id, oldest)


def landed(metadata: TableMetadata, key: str, mark: BatchMark, table: str) -> int | None:
    """Snapshot that brought exactly this batch, or None. Looks past younger batches, stops at older ones."""
    by_id = {snapshot.snapshot_id: snapshot for snapshot in metadata.snapshots}
    head = metadata.current_snapshot()
    while head is not None:
        if (text := _summary(head).get(key)) is not None:
            found = BatchMark.from_json(text)
            if found == mark:
                return head.snapshot_id
            if found.n < mark.n:
                return None
        head = by_id.get(head.parent_snapshot_id) if head.parent_snapshot_id is not None else None
    last = held(metadata, key, table)
    return last.snapshot_id if last is not None and BatchMark.from_json(last.value) == mark else None


def _summary(snapshot: Snapshot) -> Mapping[str, str]:
    return snapshot.summary.additional_properties if snapshot.summary is not None else {}


def _refuse_rolled_back(metadata: TableMetadata, key: str, table: str, newest: int) -> None:
    text = metadata.properties.get(key)
    if text is None:
        return
    _, snapshot_id = _read_mirror(text, key, table)
    if snapshot_id != newest:
        raise Terminal(
            f"table {table} was rolled back: its property {key} names snapshot {snapshot_id},"
            f" the newest snapshot of main that carries the key is {newest}",
            next_step=f"restore main to a snapshot that descends from {snapshot_id}",
        )


def _read_mirror(text: str, key: str, table: str) -> tuple[str, int]:
    try:
        body = json.loads(text)
        return str(body["value"]), int(body["snapshot"])
    except (ValueError, KeyError, TypeError) as error:
        raise Terminal(
            f"table {table}: property {key} is not readable: {text[:200]!r}", next_step="was it edited by hand?"
        ) from error


def _mirrored(
    metadata: TableMetadata, key: str, table: str, by_id: Mapping[int, Snapshot], oldest: Snapshot | None
) -> Held | None:
    text = metadata.properties.get(key)
    if text is None:
        return None
    value, snapshot_id = _read_mirror(text, key, table)
    expired = snapshot_id not in by_id and oldest is not None and oldest.parent_snapshot_id is not None
    if expired:
        return Held(value, snapshot_id, {})
    raise Terminal(
        f"table {table} was rolled back or replaced: its property {key} names snapshot {snapshot_id},"
        " which main does not descend from, and no snapshot of main carries the key",
        next_step=f"restore main to a snapshot that carries {key}, for example {snapshot_id}",
    )
