"""The history of one table from its metadata: snapshots and schema changes. Opens no manifest."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Literal

from frazil.iceberg.commit.summary_state import BATCH_KEY
from frazil.pipeline.models.pipeline_file import Pipeline
from frazil.project import Project

if TYPE_CHECKING:
    from pyiceberg.schema import Schema
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot


@dataclass(frozen=True, slots=True)
class SnapshotFacts:
    """One snapshot.

    Attributes:
        committed_at: When it was made, UTC.
        operation: As Iceberg names it.
        batch: Number of the batch that it shows; None if it is not a pipeline's.
        pipeline: Pipeline of that batch.
        rows, files, bytes: What it added; None if it does not say.
        removed_rows: Rows that it removed.
        total_rows: Rows of the table as it stood then.
        refs: Branches and tags that name it.
    """

    id: int
    committed_at: datetime
    operation: str
    batch: int | None
    pipeline: str | None
    rows: int | None
    files: int | None
    bytes: int | None
    removed_rows: int | None
    total_rows: int | None
    refs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Snapshots:
    """Some of the snapshots of a table, the newest first.

    Attributes:
        total: How many the table has.
        next: Where the next page begins; None if this is the last.
    """

    snapshots: tuple[SnapshotFacts, ...]
    total: int
    next: int | None


@dataclass(frozen=True, slots=True)
class FieldChange:
    """A change of one column: added, removed or altered."""

    kind: Literal["added", "removed", "changed"]
    path: str
    before: str | None
    after: str | None


@dataclass(frozen=True, slots=True)
class SchemaVersion:
    """One schema of a table, against the one before it.

    Attributes:
        since: When the first snapshot that is still listed was written with it; None if there is none.
        columns: How many columns it has, nested ones included.
        changes: Differences from the version before; empty for the first.
        is_current: Whether it is the table's current schema.
    """

    id: int
    since: datetime | None
    columns: int
    changes: tuple[FieldChange, ...]
    is_current: bool


def snapshots(project: Project, pipeline: Pipeline, table: str, start: int, limit: int) -> Snapshots | None:
    """Snapshots of a table, the newest first; None if the table does not exist. `start` of the newest are left out.

    Raises:
        Retryable: The catalog can't be reached.
    """
    iceberg_table = project.lake_of(pipeline).find_table(table)
    if iceberg_table is None:
        return None
    metadata = iceberg_table.metadata
    refs: dict[int, list[str]] = {}
    for name, ref in metadata.refs.items():
        refs.setdefault(ref.snapshot_id, []).append(name)
    newest = sorted(
        metadata.snapshots, key=lambda snapshot: (snapshot.timestamp_ms, snapshot.sequence_number or 0), reverse=True
    )
    shown = tuple(
        _facts(snapshot, tuple(sorted(refs.get(snapshot.snapshot_id, ()))))
        for snapshot in newest[start : start + limit]
    )
    return Snapshots(shown, len(newest), start + limit if start + limit < len(newest) else None)


def schema_versions(project: Project, pipeline: Pipeline, table: str, limit: int) -> tuple[SchemaVersion, ...] | None:
    """Schemas of a table, the newest first, each against the one before it; None if the table does not exist.

    Raises:
        Retryable: The catalog can't be reached.
    """
    iceberg_table = project.lake_of(pipeline).find_table(table)
    return None if iceberg_table is None else tuple(islice(_versions(iceberg_table.metadata), limit))


def _versions(metadata: TableMetadata) -> Iterator[SchemaVersion]:
    since: dict[int, datetime] = {}
    for snapshot in sorted(metadata.snapshots, key=lambda snapshot: snapshot.timestamp_ms):
        if snapshot.schema_id is not None:
            since.setdefault(snapshot.schema_id, _instant(snapshot.timestamp_ms))
    schemas = sorted(metadata.schemas, key=lambda schema: schema.schema_id)
    fields = [_fields(schema) for schema in schemas]
    changes = [(), *(tuple(_changes(before, after)) for before, after in pairwise(fields))]
    for schema, columns, what in reversed(list(zip(schemas, fields, changes, strict=True))):
        current = schema.schema_id == metadata.current_schema_id
        yield SchemaVersion(schema.schema_id, since.get(schema.schema_id), len(columns), what, current)


def _fields(schema: Schema) -> Mapping[int, tuple[str, str]]:
    """Field id -> path and type."""
    columns = {}
    for path in schema.column_names:
        field = schema.find_field(path)
        columns[field.field_id] = (path, f"{field.field_type}" + (" required" if field.required else ""))
    return columns


def _changes(before: Mapping[int, tuple[str, str]], after: Mapping[int, tuple[str, str]]) -> Iterable[FieldChange]:
    for field_id in sorted(before.keys() | after.keys()):
        old, new = before.get(field_id), after.get(field_id)
        if old == new:
            continue
        if old is None and new is not None:
            yield FieldChange("added", new[0], None, new[1])
        elif new is None and old is not None:
            yield FieldChange("removed", old[0], old[1], None)
        elif old is not None and new is not None:
            moved = (f"{old[0]}: ", f"{new[0]}: ") if old[0] != new[0] else ("", "")
            yield FieldChange("changed", new[0], moved[0] + old[1], moved[1] + new[1])


def _facts(snapshot: Snapshot, refs: tuple[str, ...]) -> SnapshotFacts:
    summary = snapshot.summary
    properties: Mapping[str, str] = summary.additional_properties if summary is not None else {}
    pipeline = properties.get("frazil.pipeline")
    return SnapshotFacts(
        id=snapshot.snapshot_id,
        committed_at=_instant(snapshot.timestamp_ms),
        operation=summary.operation.value if summary is not None else "",
        batch=_batch(properties, pipeline),
        pipeline=pipeline,
        rows=_number(properties, "added-records"),
        files=_number(properties, "added-data-files"),
        bytes=_number(properties, "added-files-size"),
        removed_rows=_number(properties, "deleted-records"),
        total_rows=_number(properties, "total-records"),
        refs=refs,
    )


def _batch(properties: Mapping[str, str], pipeline: str | None) -> int | None:
    """Number of the batch, by the mark."""
    number = json.loads(properties.get(BATCH_KEY.format(pipeline), "{}")).get("n")
    return int(number) if isinstance(number, int) else None


def _number(properties: Mapping[str, str], key: str) -> int | None:
    text = properties.get(key, "")
    return int(text) if text.isdecimal() else None


def _instant(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)
