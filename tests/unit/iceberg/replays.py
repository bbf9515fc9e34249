"""Replays that are decided on a branch, and what is left of their branches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from pyiceberg.exceptions import (
    CommitFailedException,
    CommitStateUnknownException,
    ServiceUnavailableError,
)
from pyiceberg.table.refs import MAIN_BRANCH

from frazil.iceberg.catalog.catalog import Lake
from frazil.iceberg.commit.branch import Stage, branch_name, decide_on_branch, replacement_stage
from frazil.iceberg.commit.commit import Change
from tests.unit.iceberg.coordinates import (
    Row,
    change,
    everything,
    removing,
)
from tests.unit.iceberg.orders import (
    TABLE,
    elsewhere,
    mark,
)

NEW = [Row(100 + n, offset=n, batch=2) for n in range(3, 6)]
"""What a replay brings."""

REPLACED = [0, 1, 2, 6, 7, 8, 9, 103, 104, 105]
"""Orders after the replay."""

NOW = 1_800_000_000_000
"""The present, milliseconds since 1970."""

ERRORS = [
    CommitFailedException("conflict"),
    CommitStateUnknownException("no answer"),
    ServiceUnavailableError("503"),
    TimeoutError("socket"),
    ValueError("unexpected"),
]
"""What a writer may hear, whether its commit landed or not."""


def passed(really: Callable[[], Any]) -> Any:
    """A commit that goes as ever."""
    return really()


def replay(lake: Lake) -> Change:
    """The batch that lands three of the orders again."""
    return replace(change(lake, mark(2), mark(1), NEW, removing(3, 6)), step="decide")


def decide(lake: Lake, ours: Change | None = None, stage: Stage | None = None) -> int:
    """Decide it, or another change, by way of a branch."""
    return decide_on_branch(lake, ours or replay(lake), branch_name("orders", 2), stage or replacement_stage())


def ids(lake: Lake) -> list[int]:
    """Every order of main."""
    return [row.id for row in everything(lake)]


def branches(lake: Lake) -> list[str]:
    """Names of all branches but main."""
    return sorted(name for name in lake.load_table(TABLE).metadata.refs if name != MAIN_BRANCH)


def make_branch(lake: Lake, name: str) -> None:
    """Somebody makes a branch at the head of main."""
    table = elsewhere(lake).load_table(TABLE)
    head = table.metadata.current_snapshot_id
    assert head is not None
    table.manage_snapshots().create_branch(head, name).commit()


def drop_branch(lake: Lake, name: str | None = None) -> None:
    """Somebody drops a branch, or all of them."""
    for found in [name] if name else branches(lake):
        elsewhere(lake).load_table(TABLE).manage_snapshots().remove_branch(found).commit()
