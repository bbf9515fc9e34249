"""Checks before and after snapshot expiry that no table loses the positions and marks of a pipeline."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from pyiceberg.table.metadata import TableMetadata

from frazil.iceberg.commit.branch_table import on_branch
from frazil.iceberg.commit.summary_state import (
    BATCH_KEY,
    BRANCH_KEY,
    DONE_KEY,
    MADE_KEY,
    MANIFEST_KEY,
    POSITION_KEY,
    TABLES_KEY,
    TOPICS_KEY,
    RolledBack,
    SummaryValue,
    mirror,
    mirrored_property,
    read_summary,
    summary_of,
)

MARKS: Final = {BATCH_KEY: (POSITION_KEY, MADE_KEY, TOPICS_KEY), DONE_KEY: (TABLES_KEY,)}
"""Marks that are kept in summaries of snapshots and mirrored in properties -> further properties that move with each."""

_KINDS: Final = {kind: kind.format("") for kind in MARKS}
_PREFIXES: Final = tuple(_KINDS.values())
_BRANCH: Final = BRANCH_KEY.format("")


@dataclass(frozen=True)
class RetainedState:
    """The state in a table of all pipelines that ever wrote to it.

    Attributes:
        hold_ms: Snapshots made at this time or later must stay, as they alone carry a value; None if properties carry all.
        refusal: Why no snapshot may expire: a pipeline's state in the table can't be read. Usually None.
    """

    values: dict[str, str]
    hold_ms: int | None
    refusal: str | None


def retained_state(metadata: TableMetadata, table: str) -> RetainedState:
    """Read the state of pipelines in a table, on main and on branches."""
    values: dict[str, str] = {}
    held_since: list[int] = []
    for kind, pipeline in sorted(set(_keys(metadata))):
        key = kind.format(pipeline)
        branch_view = on_branch(metadata, metadata.properties.get(f"{_BRANCH}{pipeline}", "main"))
        mark = read_summary(branch_view, key, table)
        if isinstance(mark, RolledBack):
            return RetainedState(
                {}, None, f"{key}: main does not descend from snapshot {mark.snapshot_id}, which brought it last"
            )
        if mark is None:
            continue
        values[key] = mark.value
        attached = [
            name for attached_key in MARKS[kind] if (name := attached_key.format(pipeline)) in metadata.properties
        ]
        moved = {name: mirrored_property(metadata, name, table) for name in attached}
        values |= {name: value for name, (value, _) in moved.items()}
        is_mirrored = _is_mirrored(metadata, key, mark) and all(
            mover == mark.snapshot_id for _, mover in moved.values()
        )
        carrier = metadata.snapshot_by_id(mark.snapshot_id)
        if carrier is not None and not (is_mirrored and _has_position(metadata, pipeline, mark)):
            held_since.append(carrier.timestamp_ms)
    return RetainedState(values, min(held_since, default=None), None)


def named_manifests(metadata: TableMetadata) -> frozenset[str]:
    """Batch manifests that snapshots name: a lost ledger is rewritten from them."""
    summaries = map(summary_of, metadata.snapshots)
    return frozenset(path for summary in summaries if (path := summary.get(MANIFEST_KEY)) is not None)


def _keys(metadata: TableMetadata) -> Iterator[tuple[str, str]]:
    """Marks that properties or snapshots carry: which one, and of which pipeline."""
    yield from _marks(metadata.properties)
    for snapshot in metadata.snapshots:
        yield from _marks(summary_of(snapshot))


def _marks(names: Iterable[str]) -> Iterator[tuple[str, str]]:
    for name in names:
        if name.startswith(_PREFIXES):
            yield from ((kind, name.removeprefix(prefix)) for kind, prefix in _KINDS.items() if name.startswith(prefix))


def _has_position(metadata: TableMetadata, pipeline: str, mark: SummaryValue) -> bool:
    """Whether the position survives the snapshot's expiry: a property has it, or the snapshot carries none."""
    key = POSITION_KEY.format(pipeline)
    return key in metadata.properties or key not in mark.summary


def _is_mirrored(metadata: TableMetadata, key: str, mark: SummaryValue) -> bool:
    """Whether the property mirrors this very value. Where Spark writes, it may lag behind, from an earlier batch."""
    return metadata.properties.get(key) == mirror(mark.value, mark.snapshot_id)
