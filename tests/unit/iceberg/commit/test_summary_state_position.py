"""The whole position is in a property and in manifests; a snapshot says what its batch moved, and older ones say it all."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from frazil.batch.manifest import Manifest
from frazil.batch.position import BatchMark, Position, TopicPosition
from frazil.errors import Terminal
from frazil.iceberg.catalog.catalog import Lake
from frazil.iceberg.catalog.table import write_text
from frazil.iceberg.commit.commit import commit
from frazil.iceberg.commit.expiry import retained_state
from frazil.iceberg.commit.summary_state import (
    MANIFEST_KEY,
    POSITION_KEY,
    RolledBack,
    lookup_position,
    manifest_path,
    remaining_value,
)
from tests.unit.iceberg.orders import TABLE, batch, foreign_append, mark, rows
from tests.unit.iceberg.snapshots import expire, roll_back, set_property

MANIFEST = Path(__file__).parents[3] / "fixtures" / "formats" / "manifest-1.json"
KEY = POSITION_KEY.format("orders")


def position(n: int) -> Position:
    """Where batch `n` leads: it read one record of partition 1 of three."""
    return Position(n, 0, "c", {"orders": TopicPosition("u", (9, n - 1, 9), (9, n, 9))})


def decide(lake: Lake, n: int, *, old: bool = False) -> int:
    """The commit that decides batch `n`; `old`: its snapshot carries the whole position."""
    path = manifest_path(lake.load_table(TABLE), "orders", mark(n))
    manifest = replace(Manifest.from_json(MANIFEST.read_text()), batch=mark(n).batch, position=position(n))
    write_text(lake.load_table(TABLE), path, manifest.to_json())
    change = batch(lake, mark(n), mark(n - 1) if n > 1 else None, rows(n))
    carried = position(n).to_json() if old else position(n).moves_json()
    summary = {**change.summary, KEY: carried, MANIFEST_KEY: path}
    return commit(lake, replace(change, summary=summary, attached={KEY: position(n).to_json()}))


def position_in(lake: Lake) -> Position | None:
    position = remaining_value(lookup_position(lake.load_table(TABLE), "orders", TABLE))
    return Position.from_json(position.value) if position else None


def test_length_of_a_summary_follows_the_partitions_of_its_batch() -> None:
    """A thousand partitions of which one moved."""
    wide = TopicPosition("u", (5,) * 1000, (5,) * 7 + (9,) + (5,) * 992)
    assert Position(7, 1, "c", {"idle": wide, "none": replace(wide, next=wide.start)}).moves_json() == (
        '{"v":2,"n":7,"epoch":1,"topics":{"idle":{"7":[5,9]}}}'
    )


def test_partial_position_is_refused_as_a_whole_one() -> None:
    """A Frazil that looks for the whole position in a snapshot refuses it by its version."""
    with pytest.raises(Terminal, match="position of version 2"):
        Position.from_json(position(3).moves_json())


@pytest.mark.parametrize("old", [False, True])
def test_rollback_takes_the_position_of_the_batch_that_is_left(orders: Lake, old: bool) -> None:
    """The property tells of the newest batch; the manifest, or an older snapshot, of the one that is left."""
    first = decide(orders, 1, old=old)
    decide(orders, 2)
    assert position_in(orders) == position(2)

    roll_back(orders, first)

    assert isinstance(lookup_position(orders.load_table(TABLE), "orders", TABLE), RolledBack)
    assert position_in(orders) == position(1)


def test_lost_property_is_replaced_from_the_manifest(orders: Lake) -> None:
    """And snapshots stay until a property says it again."""
    decide(orders, 1)
    snapshot = decide(orders, 2)
    set_property(orders, KEY, None)
    foreign_append(orders, 100)()

    metadata = orders.load_table(TABLE).metadata
    assert position_in(orders) == position(2)
    carrier = metadata.snapshot_by_id(snapshot)
    assert carrier is not None
    assert retained_state(metadata, TABLE).hold_ms == carrier.timestamp_ms


def test_property_keeps_what_expired_snapshots_said(orders: Lake) -> None:
    """The newest whole position outlives its snapshot."""
    first, second = decide(orders, 1), decide(orders, 2)
    foreign_append(orders, 100)()
    before = retained_state(orders.load_table(TABLE).metadata, TABLE)
    assert (before.values[KEY], before.hold_ms) == (position(2).to_json(), None)

    expire(orders, first, second)

    assert position_in(orders) == position(2)
    assert retained_state(orders.load_table(TABLE).metadata, TABLE) == before


@pytest.mark.parametrize("put", ["nothing", "other batch"])
def test_lost_manifest_is_an_error_with_a_remedy(orders: Lake, put: str) -> None:
    """Nobody guesses a position."""
    first = decide(orders, 1)
    decide(orders, 2)
    roll_back(orders, first)
    table = orders.load_table(TABLE)
    path, second_path = (manifest_path(table, "orders", mark_of_batch) for mark_of_batch in (mark(1), mark(2)))
    Path(path.removeprefix("file://")).unlink()
    if put == "other batch":
        Path(second_path.removeprefix("file://")).rename(path.removeprefix("file://"))

    with pytest.raises(Terminal, match=r"the last batch of table .* is 1,") as refused:
        lookup_position(table, "orders", TABLE)

    assert "frazil reset orders --to earliest" in str(refused.value.next_step)


def test_follower_holds_no_position(orders: Lake) -> None:
    """Its mark names a manifest, too, but the position is the closing table's."""
    commit(orders, batch(orders, BatchMark(1, "b", 0), None, rows(1)))

    assert lookup_position(orders.load_table(TABLE), "orders", TABLE) is None
