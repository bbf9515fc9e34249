"""Snapshots that may go: never one that a branch or a tag keeps. And orphans that stay."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations
from typing import Any

import pytest

from frazil.iceberg.commit.expiry import BranchRules, SnapshotAge, Tag
from frazil.iceberg.ledger.inspection import Inspection
from frazil.maintain.need import expirable
from frazil.maintain.steps import without_newest_metadata
from frazil.pipeline.models.maintenance import Expiry
from tests.unit.maintain.tables import NOW, line, with_snapshots

HOUR = 3_600_000


def expired_ids(inspection: Inspection, **rules: Any) -> set[int]:
    """Ids of those that would go."""
    return set(expirable(inspection, Expiry.model_validate({"older_than": "24h", **rules}), NOW))


def test_head_stays_however_old() -> None:
    """The head stays, however old; its past goes once it was not the head for so long."""
    assert expired_ids(with_snapshots(90, 80, 70)) == {1, 2}
    assert expired_ids(with_snapshots(90, 23, 1)) == set()
    assert expired_ids(with_snapshots(90, 23, 1, format_version=3)) == {1}


@pytest.mark.parametrize(("keep", "expected"), [(1, {1, 2}), (2, {1}), (5, set())])
def test_configured_number_of_snapshots_stays(keep: int, expected: set[int]) -> None:
    """So many stay whatever their age."""
    assert expired_ids(with_snapshots(90, 80, 70), keep=keep) == expected


def test_age_property_of_the_table_is_respected() -> None:
    """A table that says how much it keeps is believed, unless the pipeline file says otherwise."""
    inspection = with_snapshots(
        90, 80, 70, properties={"history.expire.min-snapshots-to-keep": "3", "history.expire.max-snapshot-age-ms": "1"}
    )
    assert expirable(inspection, Expiry(), NOW) == frozenset()
    assert expirable(inspection, Expiry(keep=2), NOW) == {1}


def test_branch_and_tag_keep_their_snapshots() -> None:
    """A tagged snapshot stays, and so does what a branch says of itself."""
    inspection = with_snapshots(90, 80, 70, 60)
    assert expired_ids(replace(inspection, tags={"report": Tag(2)})) == {1, 3}
    branches = {"main": BranchRules(4), "audit": BranchRules(3, keep=2)}
    assert expired_ids(replace(inspection, branches=branches)) == {1}
    assert expired_ids(replace(inspection, branches={"main": BranchRules(4, max_age_ms=75 * HOUR)})) == {1, 2}


def test_snapshot_outside_of_branches_stays_for_its_age() -> None:
    """What was prepared and dropped goes by its age alone."""
    inspection = with_snapshots(90, 80, 1)
    dropped = (*line(80, first=7), *line(1, first=8))
    assert expired_ids(replace(inspection, snapshots=(*inspection.snapshots, *dropped))) == {1, 7}


def test_chain_ends_at_an_expired_parent() -> None:
    """The oldest snapshot names a parent that is gone."""
    inspection = with_snapshots(90, 80)
    cut = SnapshotAge(1, inspection.snapshots[0].made_ms, 99)
    assert expired_ids(replace(inspection, snapshots=(cut, inspection.snapshots[1]))) == {1}


FOLDER = "file:///lake/shop/orders/metadata"


def metadata_file(version: int, name: str = "a") -> str:
    return f"{FOLDER}/{version:05}-{name}.metadata.json"


def test_newest_superseded_metadata_file_stays() -> None:
    """B7: it was the table's until a file came that is too young to go, however old it is itself."""
    old, newest, rival = metadata_file(99_999), metadata_file(100_000), metadata_file(100_000, "b")
    second_list = f"{FOLDER}/snap-1.avro"
    for listed in permutations([old, newest, rival, second_list]):
        assert set(without_newest_metadata(listed)) == {old, second_list}
    assert list(without_newest_metadata([metadata_file(0)])) == []
    short = [f"{FOLDER}/v9.metadata.json", f"{FOLDER}/v10.metadata.json"]
    assert list(without_newest_metadata(short)) == short[:1]
