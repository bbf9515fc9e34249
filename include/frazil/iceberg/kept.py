"""What tables keep of pipelines, looked at before and after snapshots go: none of it may be lost."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from pyiceberg.table.metadata import TableMetadata

from frazil.iceberg.branch_table import on_branch
from frazil.iceberg.holdings import (
    BATCH_KEY,
    BRANCH_KEY,
    DONE_KEY,
    MADE_KEY,
    MANIFEST_KEY,
    POSITION_KEY,
    TABLES_KEY,
    TOPICS_KEY,
    Held,
    RolledBack,
    ancestry,
    lookup,
    mirror,
)

MIRRORED: Final = (POSITION_KEY, BATCH_KEY, DONE_KEY, TABLES_KEY, MADE_KEY, TOPICS_KEY)
"""What is kept in summaries of snapshots, and in properties that mirror them."""

_KINDS: Final = tuple(key.format("") for key in MIRRORED)
_BRANCH: Final = BRANCH_KEY.format("")


@dataclass(frozen=True)
class Kept:
    """What a table holds of all pipelines that ever wrote to it.

    Attributes:
        values: Key -> value.
        hold_ms: Snapshots made at this time or later must stay, as they alone carry a value; None if properties carry all.
        refusal: Why nothing may go: what the table holds of a pipeline can't be told; None mostly.
    """

    values: dict[str, str]
    hold_ms: int | None
    refusal: str | None


def kept(metadata: TableMetadata, table: str) -> Kept:
    """What a table holds of pipelines, main and branches alike.

    Raises:
        Terminal: A property is not readable.
    """
    values: dict[str, str] = {}
    held_since: list[int] = []
    for key in sorted(set(_keys(metadata))):
        seen = on_branch(metadata, metadata.properties.get(f"{_BRANCH}{_pipeline(key)}", "main"))
        found = lookup(seen, key, table)
        if isinstance(found, RolledBack):
            return Kept(
                {}, None, f"{key}: main does not descend from snapshot {found.snapshot_id}, which brought it last"
            )
        if found is None:
            continue
        values[key] = found.value
        carrier = metadata.snapshot_by_id(found.snapshot_id)
        if carrier is not None and not _is_mirrored(metadata, key, found):
            held_since.append(carrier.timestamp_ms)
    return Kept(values, min(held_since, default=None), None)


def named_manifests(metadata: TableMetadata) -> frozenset[str]:
    """Manifests of batches that snapshots name: a ledger that is lost is written anew from them."""
    summaries = (of.summary.additional_properties for of in metadata.snapshots if of.summary is not None)
    return frozenset(path for of in summaries if (path := of.get(MANIFEST_KEY)) is not None)


def _keys(metadata: TableMetadata) -> Iterator[str]:
    """Keys that properties, or snapshots of any branch, carry."""
    yield from (name for name in metadata.properties if name.startswith(_KINDS))
    heads = {metadata.current_snapshot_id, *(ref.snapshot_id for ref in metadata.refs.values())}
    for snapshot in {of.snapshot_id: of for head in heads for of in ancestry(metadata, head)}.values():
        if snapshot.summary is not None:
            yield from (name for name in snapshot.summary.additional_properties if name.startswith(_KINDS))


def _pipeline(key: str) -> str:
    return next(key.removeprefix(kind) for kind in _KINDS if key.startswith(kind))


def _is_mirrored(metadata: TableMetadata, key: str, found: Held) -> bool:
    """Whether the property says the same: a table that Spark writes may have it from an earlier batch."""
    return metadata.properties.get(key) == mirror(found.value, found.snapshot_id)
