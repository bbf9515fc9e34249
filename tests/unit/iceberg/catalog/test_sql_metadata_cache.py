"""Metadata that are kept by their location: read once per version, never behind the table, never what is not in the file."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import Table

from frazil.iceberg.catalog import sql
from frazil.iceberg.catalog.catalog import Lake
from frazil.iceberg.patches.metadata import HistoryCache, with_shared_history
from tests.unit.iceberg.orders import TABLE, commit_batches, foreign_append


def in_file(table: Table) -> Any:
    """What the table's file of metadata says."""
    return FromInputFile.table_metadata(table.io.new_input(table.metadata_location))


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Files of metadata that were read."""
    names: list[str] = []
    really = FromInputFile.table_metadata

    def counted(file: Any, *rest: Any) -> Any:
        names.append(file.location)
        return really(file, *rest)

    monkeypatch.setattr(FromInputFile, "table_metadata", staticmethod(counted))
    return names


def test_cached_metadata_equals_the_file(orders: Lake) -> None:
    """After each commit, our own and another writer's: a batch that is planned on something else lands twice or never."""
    for n in range(1, 4):
        commit_batches(orders, n)
        table = orders.load_table(TABLE)
        assert table.metadata == in_file(table)
        assert table.metadata.model_dump_json() == in_file(table).model_dump_json()


def test_commit_of_another_process_is_noticed(orders: Lake) -> None:
    """Another process moved the table: its location is another one."""
    commit_batches(orders, 1)
    before = orders.load_table(TABLE)
    rival = Lake(orders.name, orders.uri, orders.warehouse, orders.properties)
    foreign_append(rival, 7)()
    rival.close()

    after = orders.load_table(TABLE)

    assert after.metadata_location != before.metadata_location
    assert after.metadata == in_file(after)
    assert len(before.metadata.snapshots) + 1 == len(after.metadata.snapshots)


def test_each_metadata_version_is_read_once(orders: Lake, reads: list[str]) -> None:
    """Each reading parses every snapshot that the table still has: a version is read once, our own not at all."""
    commit_batches(orders, 1, 2)
    orders.load_table(TABLE)

    assert len(reads) == len(set(reads))
    assert len(reads) <= 1


def test_metadata_cache_is_bounded(orders: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a table the newest version stays, and of all tables no more snapshots than there is room for."""
    catalog: Any = orders._opened
    commit_batches(orders, 1, 2, 3)
    assert list(catalog._cached) == [orders.load_table(TABLE).metadata_location]

    monkeypatch.setattr(sql, "MOST_SNAPSHOTS", 4)
    metadata = orders.load_table(TABLE).metadata.model_copy(update={"metadata_log": []})
    for name in "abc":
        catalog._cache(name, metadata)

    assert list(catalog._cached) == ["c"]


def test_copy_of_metadata_shares_its_snapshots(orders: Lake) -> None:
    """Snapshots don't change, so that copies have the same ones, also after another was added."""
    commit_batches(orders, 1, 2)
    metadata = with_shared_history(orders.load_table(TABLE).metadata)

    once = copy.deepcopy(metadata.model_copy(update={"snapshots": metadata.snapshots + metadata.snapshots[:1]}))
    twice = copy.deepcopy(once)

    assert len(twice.snapshots) == 3
    assert all(snapshot is again for snapshot, again in zip(once.snapshots, twice.snapshots, strict=True))
    assert twice.snapshots is not once.snapshots
    assert twice.properties is not once.properties


def body_of(table: str, *snapshots: int, summary: str = "append") -> dict[str, Any]:
    """Metadata as a server writes them."""
    common = {"timestamp-ms": 1, "manifest-list": "s3://lake/a.avro", "summary": {"operation": summary}}
    refs = {"main": {"snapshot-id": snapshots[-1], "type": "branch"}, "kept": {"snapshot-id": 2, "type": "tag"}}
    return {
        "table-uuid": table,
        "snapshots": [{"snapshot-id": snapshot, **common} for snapshot in snapshots],
        "refs": refs,
    }


def test_known_snapshot_is_the_same_object() -> None:
    """Of the same table, and only if the server still says the same of it."""
    cache, first, second = HistoryCache(), body_of("a", 1, 2), body_of("a", 2, 3)
    edited, second_body = body_of("a", 2, summary="replace"), body_of("b", 2)
    for body in (first, second, edited, second_body):
        cache.fill_in(body)

    assert [snapshot.snapshot_id for snapshot in second["snapshots"]] == [2, 3]
    assert second["snapshots"][0] is first["snapshots"][1]
    assert second["refs"]["kept"] is first["refs"]["kept"]
    assert (second["refs"]["main"].snapshot_id, edited["refs"]["main"].snapshot_id) == (3, 2)
    assert edited["snapshots"][0].summary.operation.value == "replace"
    assert second_body["snapshots"][0] == first["snapshots"][1]
    assert second_body["snapshots"][0] is not first["snapshots"][1]


def test_known_snapshots_are_bounded() -> None:
    """What was read longest ago goes first; the last table stays whatever it holds."""
    cache = HistoryCache(most=3)
    first, long, again, anew, last = (
        body_of(name, *range(n)) for name, n in (("a", 2), ("b", 9), ("a", 2), ("b", 9), ("b", 9))
    )
    for body in (first, long, again, anew, last):
        cache.fill_in(body)

    assert again["snapshots"][0] is not first["snapshots"][0]
    assert anew["snapshots"][0] is not long["snapshots"][0]
    assert last["snapshots"][0] is anew["snapshots"][0]
