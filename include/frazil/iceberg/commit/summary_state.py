"""A pipeline's state in a table: a mark in the snapshot summaries of main, repeated in a table property.

The ancestry of main decides, and the property must agree with it: one commit sets both. The property decides only if
the snapshot that it names is expired: that snapshot is gone from the metadata, or only a tag keeps it, and the parent of
the oldest snapshot in main's ancestry is gone, too. A rollback looks different: the named snapshot is still listed, but
main does not descend from it; or main carries an older mark; or the oldest snapshot of main has no parent; or main lacks
the snapshot of an hourly tag.

Values that grow with partitions and tables are in no summary, or metadata would grow with their size times the table's
age. They are in properties that name the snapshot which set them. The whole position is in the manifest of its batch,
too, which is read if the property names another snapshot, for example after a rollback.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import NotRequired, TypedDict, TypeVar

import msgspec
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from frazil.batch.manifest import Manifest
from frazil.batch.position import MALFORMED, BatchMark, is_whole_position
from frazil.error_codes import BAD_STATE, MANIFEST_FOREIGN, TABLE_ROLLED_BACK
from frazil.errors import Terminal
from frazil.iceberg.catalog.table import HOURLY_TAG, Table, metadata_path, read_text
from frazil.iceberg.patches.metadata import FORMAT_VERSION

T = TypeVar("T")

POSITION_KEY = "kafka.offsets.{}"
"""Property of the whole position, and summary key of the offsets that a batch moved, by pipeline. Lower-case, as Spark lower-cases
write options."""

BATCH_KEY = "frazil.batch.{}"
"""Summary key and property of the mark that says which batch a table holds last, by pipeline."""

DONE_KEY = "frazil.done.{}"
"""Summary key and property of the ledger: the last finished batch, by pipeline."""

TABLES_KEY = "frazil.tables.{}"
"""Property of the ledger: the UUID and the last batch of every table, by pipeline."""

MADE_KEY = "frazil.made.{}"
"""Property of a ledger that closes: names of the auto-created tables, as JSON, by pipeline."""

BEGUN_KEY = "frazil.begun.{}"
"""Property of a ledger that closes: names of the tables that a pipeline began to create, as JSON, by pipeline. It is written before they
are created, so that tables of a run that decides nothing count, too."""

MADE_BY_KEY = "frazil.made-by.{}"
"""Property of an auto-created table: UUID of the ledger that lists it, or will list it, by pipeline."""

TOPICS_KEY = "frazil.topics.{}"
"""Property of a follower: the topics that a pipeline landed there, as JSON, by pipeline."""

LETTERS_KEY = "frazil.dead-letters"
"""Property of a dead-letter table: the pipeline that created it."""

MANIFEST_KEY = "frazil.manifest"
"""Summary key: path of the manifest of a snapshot's batch."""

KIND_KEY = "frazil.kind"
"""Summary key: kind of a snapshot's batch."""

BRANCH_KEY = "frazil.branch.{}"
"""Property of a destination: the branch on which a pipeline lands, by pipeline; not set for main."""

IDENTIFIER_KEY = "frazil.identifier.{}"
"""Property of a follower: the columns by which a pipeline merges rows, as JSON, by pipeline; an empty list if it appends rows."""

CLOSING_KEY = "frazil.closing.{}"
"""Property of the ledger: the pipeline's closing table, by pipeline. Written with batch 0, never changed."""

CHANGES_KEY = "frazil.schema-changes.{}"
"""Property of a destination: the last schema changes of a pipeline, and their batch, by pipeline."""


@dataclass(frozen=True, slots=True)
class SummaryValue:
    """A value that a table holds, the snapshot that brought it, and the summary of that snapshot (empty if it is expired)."""

    value: str
    snapshot_id: int
    summary: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class RolledBack:
    """A table that held more than main's ancestry shows: main was rolled back, or the table was replaced.

    Attributes:
        remaining: The newest value that the ancestry of main still carries, or None.
        newest: The value that the table held last, from its property.
        listed: Whether its snapshot is still in the metadata, so that main can be set to it again.
        is_past_known: Whether the ancestry shows all batches in main. Without `remaining` it may not: main may have rows of
            batches whose snapshots are expired, or that REPLACE TABLE copied.
    """

    remaining: SummaryValue | None
    newest: str
    snapshot_id: int
    listed: bool
    is_past_known: bool = field(default=True, compare=False)


def mirror(value: str, snapshot_id: int) -> str:
    """The property that mirrors a summary value."""
    return json.dumps({"snapshot": snapshot_id, "value": value}, separators=(",", ":"))


def read_summary(metadata: TableMetadata, key: str, table: str) -> SummaryValue | RolledBack | None:
    """The value of `table` under `key`, or the remains after a rollback; None if it never had one.

    A rollback, followed by commits of others and by an expiry of everything before them, looks like an expiry.
    """
    newest, oldest = _in_ancestry(metadata, key)
    text = metadata.properties.get(key)
    if text is None:
        return newest
    value, snapshot_id = _read_mirror(text, key, table)
    if newest is not None and (
        newest.snapshot_id == snapshot_id or _property_lags(metadata, newest, value, snapshot_id)
    ):
        return newest
    ours = metadata.snapshot_by_id(snapshot_id)
    cut_off = oldest is not None and _has_past(oldest)
    if newest is None and oldest is not None and cut_off and _is_expired(metadata, ours, oldest):
        return SummaryValue(value, snapshot_id, {})
    is_past_known = newest is not None or not (cut_off or _may_replace(oldest, ours))
    return RolledBack(newest, value, snapshot_id, ours is not None, is_past_known)


def _is_expired(metadata: TableMetadata, ours: Snapshot | None, oldest: Snapshot) -> bool:
    """Whether Frazil's snapshot `ours` expired from main's history, even if a tag still keeps it.

    A snapshot gets its hourly tag when it leaves main's history. So tagged snapshots are older than that history, or in it. If one
    is not, main was set back to an earlier hour.
    """
    hours = [
        snapshot
        for name, ref in metadata.refs.items()
        if re.fullmatch(HOURLY_TAG, name) and (snapshot := metadata.snapshot_by_id(ref.snapshot_id))
    ]
    after = {snapshot.snapshot_id for snapshot in hours if _commit_order(snapshot) > _commit_order(oldest)}
    if after - {snapshot.snapshot_id for snapshot in ancestry(metadata, metadata.current_snapshot_id)}:
        return False
    if ours is None:
        return True
    return _commit_order(ours) < _commit_order(oldest) and any(
        _commit_order(ours) <= _commit_order(snapshot) for snapshot in hours
    )


def _commit_order(snapshot: Snapshot) -> tuple[int, int]:
    """Sort key for the order in which snapshots were committed."""
    return snapshot.sequence_number or 0, snapshot.timestamp_ms


def _property_lags(metadata: TableMetadata, newest: SummaryValue, value: str, snapshot_id: int) -> bool:
    """Whether the property is older than the mark on main: an engine moves main first, then the property.

    A commit of PyIceberg moves both at once. After a rollback the property is newer.
    """
    if metadata.format_version < FORMAT_VERSION:
        return False
    if metadata.snapshot_by_id(snapshot_id) is not None:
        return any(snapshot.snapshot_id == snapshot_id for snapshot in ancestry(metadata, newest.snapshot_id))
    return BatchMark.from_json(value).n < BatchMark.from_json(newest.value).n


def _may_replace(oldest: Snapshot | None, ours: Snapshot | None) -> bool:
    """Whether REPLACE TABLE … AS SELECT may have replaced main after our snapshot: the new main may hold our rows."""
    if oldest is None:
        return False
    return ours is None or _commit_order(oldest) > _commit_order(ours)


def _has_past(snapshot: Snapshot) -> bool:
    """Whether a snapshot has a parent, maybe an expired one: it names it, or removed or kept files of it.

    Iceberg's Java library leaves the ids of expired parents in their children, PyIceberg removes them.
    """
    if snapshot.parent_snapshot_id is not None:
        return True
    added, total, deleted = (
        int(summary_of(snapshot).get(f"{which}-data-files", 0)) for which in ("added", "total", "deleted")
    )
    return deleted > 0 or total > added


def summaries(metadata: TableMetadata) -> Iterator[Mapping[str, str]]:
    """Summaries of the snapshots of main, newest first, as far as they are not expired."""
    return map(summary_of, ancestry(metadata, metadata.current_snapshot_id))


def mirrored_values(metadata: TableMetadata, key: str, table: str) -> dict[str, str]:
    """Pipeline -> its value in a table under a key such as `POSITION_KEY`, for all pipelines."""
    prefix = key.format("")
    properties = {name: text for name, text in metadata.properties.items() if name.startswith(prefix)}
    return {name.removeprefix(prefix): _read_mirror(text, name, table)[0] for name, text in properties.items()}


def lookup_position(table: Table, pipeline: str, name: str) -> SummaryValue | RolledBack | None:
    """The last mark of the closing table `name`, with the whole position as its value; None if it has no position.

    Raises:
        Terminal: The property is not readable; or it names another snapshot, and the manifest can't be read.
    """
    last_mark = read_summary(table.metadata, BATCH_KEY.format(pipeline), name)
    remaining, key = remaining_value(last_mark), POSITION_KEY.format(pipeline)
    if remaining is None or not (key in table.metadata.properties or key in remaining.summary):
        return last_mark if isinstance(last_mark, RolledBack) else None
    whole = replace(remaining, value=_whole_position(table, pipeline, name, remaining))
    return replace(last_mark, remaining=whole) if isinstance(last_mark, RolledBack) else whole


def _whole_position(table: Table, pipeline: str, name: str, last: SummaryValue) -> str:
    key, properties = POSITION_KEY.format(pipeline), table.metadata.properties
    if is_whole_position(carried := last.summary.get(key, "")):
        return carried
    if key in properties:
        value, snapshot_id = _read_mirror(properties[key], key, name)
        if snapshot_id == last.snapshot_id:
            return value
    mark = BatchMark.from_json(last.value)
    path = last.summary.get(MANIFEST_KEY) or manifest_path(table, pipeline, mark)
    try:
        return _manifest(table, path, mark).position.to_json()
    except Terminal as error:
        raise BAD_STATE.terminal(
            f"pipeline {pipeline}: the last batch of table {name} is {mark.n}, in snapshot {last.snapshot_id}; property {key} does"
            f" not name that snapshot, and the manifest with its position can't be read: {path}: {error.message}",
            next_step="restore that file; or remove all rows of the pipeline and land what Kafka still has:"
            f" frazil reset {pipeline} --to earliest --reason …",
        ) from error


def _manifest(table: Table, path: str, mark: BatchMark) -> Manifest:
    manifest = Manifest.from_json(read_text(table, path))
    if manifest.mark != mark:
        raise MANIFEST_FOREIGN.terminal(f"it belongs to batch {manifest.mark}")
    return manifest


def manifest_path(table: Table, pipeline: str, mark: BatchMark) -> str:
    """Path of a batch's manifest: in the metadata folder of its closing table."""
    return metadata_path(table, f"frazil-{pipeline}-{mark.n}-{mark.batch}.json")


class LedgerTable(TypedDict):
    """A table in the ledger's property: its UUID, its mark, its role, and when an edit added it."""

    uuid: str
    n: int
    batch: str
    epoch: int
    role: str
    since: NotRequired[str | None]


def ledger_tables(metadata: TableMetadata, pipeline: str, table: str) -> dict[str, LedgerTable]:
    """Table -> its UUID and mark, from the ledger; empty before the first batch.

    A rollback of the ledger removes none: the tables still have their data.
    """
    key = TABLES_KEY.format(pipeline)
    return decode_property(_newest_value(metadata, key, table) or "{}", key, table, dict[str, LedgerTable])


def made_tables(metadata: TableMetadata, pipeline: str, table: str) -> tuple[str, ...]:
    """Names of the tables that decided batches auto-created, from the ledger.

    A rollback of the ledger removes none: a rewind must remove their rows, too.
    """
    key = MADE_KEY.format(pipeline)
    return tuple(decode_property(_newest_value(metadata, key, table) or "[]", key, table, list[str]))


def _newest_value(metadata: TableMetadata, key: str, table: str) -> str | None:
    """The value of a property that is set with each snapshot; if it was removed, that in the newest summary with the key."""
    if (text := metadata.properties.get(key)) is not None:
        return _read_mirror(text, key, table)[0]
    newest, _ = _in_ancestry(metadata, key)
    return None if newest is None else newest.value


def begun_tables(metadata: TableMetadata, pipeline: str, table: str) -> frozenset[str]:
    """Names of tables that a pipeline began to create and that no decided batch lists."""
    key = BEGUN_KEY.format(pipeline)
    begun = decode_property(metadata.properties.get(key, "[]"), key, table, list[str])
    return frozenset(begun) - frozenset(made_tables(metadata, pipeline, table))


def summary_value_or_refuse(metadata: TableMetadata, key: str, table: str) -> SummaryValue | None:
    """The value of `table` under `key`, or None if it never had one.

    Raises:
        Terminal: The table was rolled back or replaced, so its contents can't be determined.
    """
    return refuse_rolled_back(read_summary(metadata, key, table), key, table)


def refuse_rolled_back(summary_value: SummaryValue | RolledBack | None, key: str, table: str) -> SummaryValue | None:
    """The value that `read_summary` read, unless the table was rolled back.

    Raises:
        Terminal: The table was rolled back or replaced, so its contents can't be determined.
    """
    if isinstance(summary_value, RolledBack):
        raise _refusal(summary_value, key, table)
    return summary_value


def remaining_value(summary_value: SummaryValue | RolledBack | None) -> SummaryValue | None:
    """The value that a table holds, also after a rollback."""
    return summary_value.remaining if isinstance(summary_value, RolledBack) else summary_value


def mark_of(summary_value: SummaryValue | RolledBack | None) -> BatchMark | None:
    """The mark of the last batch that a table holds, also after a rollback, from a value under `BATCH_KEY` or `DONE_KEY`."""
    remaining = remaining_value(summary_value)
    return BatchMark.from_json(remaining.value) if remaining else None


def landed_snapshot(metadata: TableMetadata, key: str, mark: BatchMark, table: str) -> int | None:
    """The snapshot of exactly this batch, or None. The search skips newer batches and stops at older ones.

    A batch that a rollback undid did not land.
    """
    for snapshot in ancestry(metadata, metadata.current_snapshot_id):
        if (text := summary_of(snapshot).get(key)) is not None:
            carried_mark = BatchMark.from_json(text)
            if carried_mark == mark:
                return snapshot.snapshot_id
            if carried_mark.n < mark.n:
                return None
    last = read_summary(metadata, key, table)
    return last.snapshot_id if isinstance(last, SummaryValue) and BatchMark.from_json(last.value) == mark else None


def ancestry(metadata: TableMetadata, snapshot_id: int | None) -> Iterator[Snapshot]:
    """A snapshot and its ancestors, newest first, as far as the metadata still lists them."""
    by_id = {snapshot.snapshot_id: snapshot for snapshot in metadata.snapshots}
    snapshot = by_id.get(snapshot_id) if snapshot_id is not None else None
    while snapshot is not None:
        yield snapshot
        snapshot = by_id.get(snapshot.parent_snapshot_id) if snapshot.parent_snapshot_id is not None else None


def summary_of(snapshot: Snapshot | None) -> Mapping[str, str]:
    """The properties of a snapshot's summary; empty without a snapshot."""
    if snapshot is None:
        return {}
    return snapshot.summary.additional_properties if snapshot.summary is not None else {}


def _in_ancestry(metadata: TableMetadata, key: str) -> tuple[SummaryValue | None, Snapshot | None]:
    """The newest value in the ancestry of main, and the snapshot where the search ended."""
    oldest: Snapshot | None = None
    for snapshot in ancestry(metadata, metadata.current_snapshot_id):
        summary = summary_of(snapshot)
        if key in summary:
            return SummaryValue(summary[key], snapshot.snapshot_id, summary), snapshot
        oldest = snapshot
    return None, oldest


def _refusal(rollback: RolledBack, key: str, table: str) -> Terminal:
    if rollback.remaining is not None:
        return TABLE_ROLLED_BACK.terminal(
            f"table {table} was rolled back: its property {key} names snapshot {rollback.snapshot_id},"
            f" the newest snapshot of main that carries the key is {rollback.remaining.snapshot_id}",
            next_step=f"restore main to a snapshot that descends from {rollback.snapshot_id}",
        )
    return TABLE_ROLLED_BACK.terminal(
        f"table {table} was rolled back or replaced: its property {key} names snapshot {rollback.snapshot_id},"
        " which main does not descend from, and no snapshot of main carries the key",
        next_step=f"restore main to a snapshot that carries {key}, for example {rollback.snapshot_id}",
    )


def mirrored_property(metadata: TableMetadata, key: str, table: str) -> tuple[str, int]:
    """The value of a property that is set with snapshots, and the snapshot with which it was set last."""
    return _read_mirror(metadata.properties[key], key, table)


def _read_mirror(text: str, key: str, table: str) -> tuple[str, int]:
    try:
        body = json.loads(text)
        return str(body["value"]), int(body["snapshot"])
    except MALFORMED as error:
        raise _unreadable(text, key, table) from error


def decode_property(text: str, key: str, table: str, form: type[T]) -> T:
    """The value of a property that holds JSON of this form.

    Raises:
        Terminal: It is no such JSON.
    """
    try:
        return msgspec.json.decode(text, type=form)
    except (msgspec.DecodeError, RecursionError) as error:
        raise _unreadable(text, key, table) from error


def _unreadable(text: str, key: str, table: str) -> Terminal:
    return BAD_STATE.terminal(
        f"table {table}: property {key} is not readable: {text[:200]!r}",
        next_step="it was probably edited by hand: copy its text from the newest metadata file of the table that has it readable",
    )
