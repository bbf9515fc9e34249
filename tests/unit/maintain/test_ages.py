"""Snapshots that may go: never one that a branch or a tag keeps."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from frazil.iceberg.inspection import BranchRules, Inspection, SnapshotAge
from frazil.maintain.ages import expirable
from frazil.pipeline.maintenance import Expiry
from tests.unit.maintain.tables import NOW, line, with_snapshots

HOUR = 3_600_000


def gone(found: Inspection, **rules: Any) -> set[int]:
    """Ids of those that would go."""
    return set(expirable(found, Expiry.model_validate({"older_than": "24h", **rules}), NOW))


def test_head_goes_because_it_is_old() -> None:
    """The head stays, however old; its past goes from the age on."""
    assert gone(with_snapshots(90, 80, 70)) == {1, 2}
    assert gone(with_snapshots(90, 23, 1)) == {1}


@pytest.mark.parametrize(("keep", "expected"), [(1, {1, 2}), (2, {1}), (5, set())])
def test_fewer_stay_than_asked_for(keep: int, expected: set[int]) -> None:
    """So many stay whatever their age."""
    assert gone(with_snapshots(90, 80, 70), keep=keep) == expected


def test_property_of_the_table_is_not_heard() -> None:
    """A table that says how much it keeps is believed, unless the pipeline file says otherwise."""
    found = with_snapshots(
        90, 80, 70, properties={"history.expire.min-snapshots-to-keep": "3", "history.expire.max-snapshot-age-ms": "1"}
    )
    assert expirable(found, Expiry(), NOW) == frozenset()
    assert expirable(found, Expiry(keep=2), NOW) == {1}


def test_branch_and_tag_lose_their_snapshots() -> None:
    """A tagged snapshot stays, and so does what a branch says of itself."""
    found = with_snapshots(90, 80, 70, 60)
    assert gone(replace(found, tags=frozenset({2}))) == {1, 3}
    branches = {"main": BranchRules(4), "audit": BranchRules(3, keep=2)}
    assert gone(replace(found, branches=branches)) == {1}
    assert gone(replace(found, branches={"main": BranchRules(4, max_age_ms=75 * HOUR)})) == {1, 2}


def test_snapshot_that_no_branch_has_goes_at_once() -> None:
    """What was prepared and dropped goes by its age alone."""
    found = with_snapshots(90, 1)
    dropped = (*line(80, first=7), *line(1, first=8))
    assert gone(replace(found, snapshots=(*found.snapshots, *dropped))) == {1, 7}


def test_chain_that_ends_in_an_expired_parent_is_followed_for_ever() -> None:
    """The oldest snapshot names a parent that is gone."""
    found = with_snapshots(90, 80)
    cut = SnapshotAge(1, found.snapshots[0].made_ms, 99)
    assert gone(replace(found, snapshots=(cut, found.snapshots[1]))) == {1}
