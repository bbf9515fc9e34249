"""Branches of a table: the parts of their names, commits that move only references, and a table as it is on one of
them.
"""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from pyiceberg.table import DataScan, Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.update import (
    AssertRefSnapshotId,
    AssertTableUUID,
    SetSnapshotRefUpdate,
    TableRequirement,
    TableUpdate,
)

from frazil.error_codes import TABLE_LOST

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
    """Send one commit request. PyIceberg's transaction can't be used, because it keeps only one requirement of each kind.

    Foreign exceptions pass through; none of them proves that the commit did not land.
    """
    table._do_commit(updates, (AssertTableUUID(uuid=table.metadata.table_uuid), *requirements))


# Everything that reads or moves main, PyIceberg's own transactions included, is given such a table and reads and moves the
# branch: one place knows of branches, and what holds for main holds for them.

U = TypeVar("U", TableUpdate, TableRequirement)


class BranchTable(Table):
    """A table whose main is one of its branches. A branch that does not exist yet looks like main, and can't be moved."""

    def __init__(self, table: Table, name: str, branch: str) -> None:
        super().__init__(
            table.name(), table.metadata, table.metadata_location, table.io, table.catalog, dict(table.config)
        )
        self._named = name
        self._branch = branch
        self.is_begun = branch in table.metadata.refs
        self.whole = table.metadata
        self.metadata = on_branch(table.metadata, branch)

    def refresh(self) -> Table:
        """Read the table again.

        Raises:
            Terminal: The branch was dropped meanwhile.
        """
        super().refresh()
        if self.is_begun and self._branch not in self.metadata.refs:
            raise TABLE_LOST.terminal(
                f"table {self._named}: branch {self._branch} was dropped while a batch was committed there",
                next_step=f"create it again at its last snapshot: ALTER TABLE {self._named} CREATE BRANCH …; then run again",
            )
        self.whole = self.metadata
        self.metadata = on_branch(self.metadata, self._branch)
        return self

    def scan(self, *args: Any, **options: Any) -> DataScan:
        """Scan the branch. Without the catalog: a server that plans scans would plan one of main."""
        scan = super().scan(*args, **options)
        scan.catalog = None
        return scan

    def _do_commit(self, updates: tuple[TableUpdate, ...], requirements: tuple[TableRequirement, ...]) -> None:
        super()._do_commit(tuple(self._of_branch(updates)), tuple(self._of_branch(requirements)))
        self.whole = self.metadata
        self.metadata = on_branch(self.metadata, self._branch)

    def _of_branch(self, parts: Iterable[U]) -> Iterable[U]:
        for part in parts:
            if isinstance(part, SetSnapshotRefUpdate) and part.ref_name == MAIN_BRANCH:
                yield part.model_copy(update={"ref_name": self._branch})
            elif isinstance(part, AssertRefSnapshotId) and part.ref == MAIN_BRANCH:
                yield part.model_copy(update={"ref": self._branch})
            else:
                yield part


def whole_metadata(table: Table) -> TableMetadata:
    """Metadata of a table with all of its branches, where main is the real main."""
    return table.whole if isinstance(table, BranchTable) else table.metadata


def on_branch(metadata: TableMetadata, branch: str) -> TableMetadata:
    """Metadata in which the branch takes the place of main; unchanged if there is no such branch."""
    ref = metadata.refs.get(branch)
    if ref is None:
        return metadata
    other_refs = {
        name: other_ref
        for name, other_ref in metadata.refs.items()
        if name not in (MAIN_BRANCH, branch)
        and re.fullmatch(HOURLY_TAG, name) is None  # hourly tags belong to the real main
    }
    return metadata.model_copy(
        update={"refs": {**other_refs, MAIN_BRANCH: ref}, "current_snapshot_id": ref.snapshot_id}
    )
