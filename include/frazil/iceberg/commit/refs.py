"""Branches of a table: the parts of their names, and commits that move only references."""

from __future__ import annotations

import re
import secrets
import time
from dataclasses import dataclass

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.update import (
    AssertTableUUID,
    SetSnapshotRefUpdate,
    TableRequirement,
    TableUpdate,
)

HOURLY_TAG = r"frazil-hourly-\d{4}-\d\d-\d\dT\d\d"
"""Tags of Frazil: main as it was at the end of an hour, UTC. They are set on what leaves the past that main's head names."""

_NAME = re.compile(r"frazil-(?P<pipeline>.+)-(?P<n>\d+)-(?P<made>\d+)-[0-9a-f]{8}")


@dataclass(frozen=True, slots=True)
class BranchName:
    """The parts of a branch's name.

    Attributes:
        made_ms: When it was made, milliseconds since 1970.
    """

    pipeline: str
    n: int
    made_ms: int

    @classmethod
    def parse(cls, text: str) -> BranchName | None:
        """Read a name; None if Frazil did not give it."""
        match = _NAME.fullmatch(text)
        return cls(match["pipeline"], int(match["n"]), int(match["made"])) if match else None


def branch_name(pipeline: str, n: int) -> str:
    """A new name for a branch that prepares batch `n`: never given before."""
    return f"frazil-{pipeline}-{n}-{time.time_ns() // 1_000_000}-{secrets.token_hex(4)}"


def head_of(metadata: TableMetadata, branch: str = MAIN_BRANCH) -> int | None:
    """Id of a branch's newest snapshot; None if there is no such branch, or nothing on main yet."""
    ref = metadata.refs.get(branch)
    return ref.snapshot_id if ref is not None else None


def set_branch(name: str, snapshot_id: int) -> SetSnapshotRefUpdate:
    """The update that makes a branch end in a snapshot."""
    return SetSnapshotRefUpdate(
        ref_name=name,
        type=SnapshotRefType.BRANCH,
        snapshot_id=snapshot_id,
        max_ref_age_ms=None,
        max_snapshot_age_ms=None,
        min_snapshots_to_keep=None,
    )


def send(table: Table, updates: tuple[TableUpdate, ...], requirements: tuple[TableRequirement, ...]) -> None:
    """One commit request. Not by a transaction, which keeps only one requirement of a kind.

    Foreign exceptions pass through; none of them proves that the commit did not land.
    """
    table._do_commit(updates, (AssertTableUUID(uuid=table.metadata.table_uuid), *requirements))
