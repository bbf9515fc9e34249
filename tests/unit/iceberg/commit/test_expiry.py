"""Batches take old snapshots out of the metadata: what is listed stays bounded, hours can be read, no mark is lost."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from pyiceberg.table.metadata import TableMetadata

from frazil.iceberg.catalog.catalog import Lake
from frazil.iceberg.catalog.table import TABLE_PROPERTIES
from frazil.iceberg.commit import expiry
from frazil.iceberg.commit.commit import commit
from frazil.iceberg.commit.expiry import (
    BranchRules,
    History,
    Retention,
    SnapshotAge,
    Tag,
    expire_snapshots,
    plan_expiry,
)
from frazil.iceberg.commit.summary_state import BATCH_KEY, RolledBack, SummaryValue, landed_snapshot, read_summary
from tests.unit.iceberg.orders import (
    KEY,
    TABLE,
    batch,
    elsewhere,
    follow,
    foreign_append,
    ids,
    mark,
    on_branch,
    overtaken,
    rows,
)
from tests.unit.iceberg.prepared import decide
from tests.unit.iceberg.snapshots import roll_back, set_property

HOURS = 6
RETENTION = Retention(timedelta(hours=HOURS), keep=1)
RECENT = 5
BUSY = BATCH_KEY.format("busy")
"""The mark of another pipeline that lands in the table."""


@pytest.fixture
def wait(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Wait so many minutes, at the beginning of an hour at first. Only the last few snapshots stay one by one."""
    really = time.time
    ahead = [3600 - really() % 3600]
    monkeypatch.setattr(time, "time", lambda: really() + ahead[0])
    monkeypatch.setattr(expiry, "RECENT", RECENT)

    def wait(minutes: float) -> None:
        ahead[0] += 60 * minutes

    return wait


def metadata(lake: Lake) -> TableMetadata:
    return lake.load_table(TABLE).metadata


def land(lake: Lake, n: int, retention: Retention | None = RETENTION) -> int:
    """Land a batch of the pipeline `orders`."""
    return commit(lake, replace(batch(lake, mark(n), mark(n - 1) if n > 1 else None, rows(n)), retention=retention))


def land_busy(lake: Lake, n: int) -> int:
    """Land a batch of the other pipeline."""
    change = batch(lake, mark(n), None, rows(1000 + n))
    return commit(
        lake,
        replace(
            change,
            summary={BUSY: mark(n).to_json()},
            mirrored=(BUSY,),
            landed=lambda metadata: landed_snapshot(metadata, BUSY, mark(n), TABLE),
            check=lambda _: None,
            retention=RETENTION,
        ),
    )


def looked_up(lake: Lake, key: str = KEY) -> SummaryValue | RolledBack | None:
    return read_summary(metadata(lake), key, TABLE)


def hours(lake: Lake) -> list[str]:
    """Names of the tags, the oldest first."""
    return sorted(name for name in metadata(lake).refs if name.startswith("frazil-hourly-"))


def test_metadata_lists_recent_snapshots_and_one_per_hour(orders: Lake, wait: Callable[[float], None]) -> None:
    """B1: the recent ones and one per hour are listed, from a day of batches on as many as after days; no row is lost."""
    listed = []
    for n in range(1, 91):
        land(orders, n)
        listed.append(len(metadata(orders).snapshots))
        wait(20)

    assert max(listed[30:60]) == max(listed[60:]) <= RECENT + 1 + HOURS + 1
    loaded = metadata(orders)
    assert len(loaded.refs) <= 1 + HOURS + 1
    assert len(loaded.snapshot_log) <= RECENT + 2
    assert loaded.snapshot_log[-1].snapshot_id == loaded.current_snapshot_id
    assert looked_up(orders) == SummaryValue(
        mark(90).to_json(), loaded.current_snapshot_id or 0, loaded.snapshots[-1].summary.additional_properties
    )
    assert ids(orders) == list(range(1, 91))


def test_hours_of_the_age_are_read_by_their_tags(orders: Lake, wait: Callable[[float], None]) -> None:
    """Each tag is of the last snapshot of its hour, and goes with the age of expiry."""
    for n in range(1, 61):
        land(orders, n)
        wait(20)

    table = orders.load_table(TABLE)
    assert HOURS - 2 <= len(hours(orders)) <= HOURS + 1
    for name in hours(orders):
        ref = table.metadata.refs[name]
        last = table.scan(snapshot_id=ref.snapshot_id).to_arrow()["id"].to_pylist()
        assert max(last) % 3 == 0
        assert sorted(last) == list(range(1, max(last) + 1))
        assert (
            ref.max_ref_age_ms == (HOURS * 60 + 20) * 60_000
            or abs(ref.max_ref_age_ms - HOURS * 3_600_000 - 1_200_000) < 9_000
        )


def test_idle_table_keeps_its_last_head_for_the_age(orders: Lake, wait: Callable[[float], None]) -> None:
    """B7: a backup from before the rest names that head, so it stays as long after the rest as any other."""
    head = land(orders, 1)
    wait(60 * 24 * 30)
    for n in range(2, 20):
        land(orders, n)
        wait(1)
    assert head in {one.snapshot_id for one in metadata(orders).snapshots}
    wait(60 * HOURS)

    land(orders, 20)
    land(orders, 21)

    assert head not in {one.snapshot_id for one in metadata(orders).snapshots}


def test_clock_that_is_days_ahead_expires_few_snapshots(
    orders: Lake, wait: Callable[[float], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Age is counted from the last change that others made, and goes on slowly from the host's own."""
    for n in range(1, 31):
        land(orders, n)
        wait(20)
    before, listed = hours(orders), len(metadata(orders).snapshots)
    monkeypatch.setattr(expiry, "RECENT", 50)
    wait(60 * 24 * 6)

    land(orders, 31)

    assert hours(orders)[-3:] == before[-3:]
    assert len(metadata(orders).snapshots) >= listed
    land(orders, 32)
    assert len(hours(orders)) >= len(before) - 4
    assert len(metadata(orders).snapshots) >= listed - 4


@pytest.mark.parametrize("is_killed", [False, True], ids=["it says so", "its time is over"])
def test_rewrite_keeps_newer_snapshots_until_it_ends(
    orders: Lake, wait: Callable[[float], None], *, is_killed: bool
) -> None:
    """Its commit needs each snapshot since the head that it read."""
    last = 2 * RECENT
    for n in range(1, last + 1):
        land(orders, n)
    head = metadata(orders).current_snapshot_id
    set_property(orders, expiry.HOLD_KEY, expiry.rewrite_hold(metadata(orders), int(time.time() * 1000)))
    for n in range(last + 1, 2 * last + 1):
        land(orders, n)
        wait(1)
    listed = [one.snapshot_id for one in metadata(orders).snapshots]
    assert len(listed[listed.index(head) :]) == 1 + last
    if is_killed:
        wait(expiry.HOLD / timedelta(minutes=1))
    else:
        set_property(orders, expiry.HOLD_KEY, expiry.NO_HOLD)

    for n in range(2 * last + 1, 2 * last + 4):
        land(orders, n)

    assert len(metadata(orders).snapshots) <= RECENT + 1 + len(hours(orders))


@pytest.mark.parametrize("ends_first", ["first", "second"])
def test_rewrite_that_ends_keeps_the_hold_of_another(
    orders: Lake, wait: Callable[[float], None], ends_first: str
) -> None:
    """Two rewrites overlap: whichever ends first, what the other needs stays until that one ends, too."""
    holds, heads = {}, {}
    for n, name in enumerate(("first", "second"), 1):
        land(orders, n)
        wait(1)
        loaded, now_ms = metadata(orders), int(time.time() * 1000)
        holds[name], heads[name] = expiry.rewrite_hold(loaded, now_ms), loaded.current_snapshot_id
        set_property(orders, expiry.HOLD_KEY, expiry.with_hold(loaded.properties, holds[name], now_ms))
    stays = "second" if ends_first == "first" else "first"

    set_property(orders, expiry.HOLD_KEY, expiry.without_hold(metadata(orders).properties, holds[ends_first]))

    for n in range(3, 3 + 2 * RECENT):
        land(orders, n)
        wait(15)
    assert heads[stays] in {one.snapshot_id for one in metadata(orders).snapshots}
    set_property(orders, expiry.HOLD_KEY, expiry.without_hold(metadata(orders).properties, holds[stays]))
    assert metadata(orders).properties[expiry.HOLD_KEY] == expiry.NO_HOLD


def test_rollback_to_an_hour_is_noticed(orders: Lake, wait: Callable[[float], None]) -> None:
    """Main is what it was hours ago: the batch of that hour is what it holds."""
    for n in range(1, 31):
        last = land(orders, n)
        wait(20)
    hour = hours(orders)[1]
    head = metadata(orders).refs[hour].snapshot_id
    orders.load_table(TABLE).manage_snapshots().set_current_snapshot(head).commit()

    value = looked_up(orders)

    assert isinstance(value, RolledBack)
    assert (value.snapshot_id, value.remaining is not None and value.remaining.snapshot_id) == (last, head)
    foreign_append(orders, 5_000)()
    assert isinstance(looked_up(orders), RolledBack)


@pytest.mark.parametrize("minutes", [1, 61], ids=["between hours", "at an hour"])
def test_idle_pipeline_beside_a_busy_one_holds_its_batch(
    orders: Lake, wait: Callable[[float], None], minutes: float
) -> None:
    """Its snapshot leaves main's past, whether an hour's tag still lists it or not: that is no rollback."""
    land_busy(orders, 1)
    wait(1)
    ours = land(orders, 1)
    wait(minutes)
    for n in range(2, 20):
        land_busy(orders, n)
        wait(10)
    listed = ours in {one.snapshot_id for one in metadata(orders).snapshots}
    assert listed == (minutes > 60)

    assert looked_up(orders) == SummaryValue(mark(1).to_json(), ours, {})
    land(orders, 2)


def test_rollback_before_the_batch_of_an_idle_pipeline_is_noticed(orders: Lake, wait: Callable[[float], None]) -> None:
    """Main goes back to an hour before the batch, whose snapshot is listed no more: it does not hold the batch."""
    for n in range(1, 7):
        land_busy(orders, n)
        wait(20)
    ours = land(orders, 1)
    wait(1)
    for n in range(7, 20):
        land_busy(orders, n)
        wait(20)
    assert ours not in {one.snapshot_id for one in metadata(orders).snapshots}
    head = metadata(orders).refs[hours(orders)[0]].snapshot_id
    orders.load_table(TABLE).manage_snapshots().set_current_snapshot(head).commit()
    foreign_append(orders, 5_000)()

    assert isinstance(looked_up(orders), RolledBack)


def test_rolled_back_table_keeps_every_snapshot(orders: Lake, wait: Callable[[float], None]) -> None:
    """What was rolled back is told by the snapshots that are left, so batches of others take none out."""
    first = land(orders, 1)
    wait(1)
    land(orders, 2)
    roll_back(orders, first)
    before = [one.snapshot_id for one in metadata(orders).snapshots]
    for n in range(1, 20):
        wait(60)
        land_busy(orders, n)

    assert [one.snapshot_id for one in metadata(orders).snapshots][:2] == before
    assert isinstance(looked_up(orders), RolledBack)


def test_snapshot_that_alone_carries_a_mark_stays(orders: Lake, wait: Callable[[float], None]) -> None:
    """A table whose property is gone says by its snapshot what it holds."""
    ours = land(orders, 1)
    set_property(orders, KEY, None)
    for n in range(1, 20):
        wait(60)
        land_busy(orders, n)

    value = looked_up(orders)
    assert isinstance(value, SummaryValue)
    assert value.snapshot_id == ours


@pytest.mark.parametrize(
    "properties",
    [
        {"history.expire.max-snapshot-age-ms": str(2**63 - 1)},
        {"history.expire.max-snapshot-age-ms": "five days"},
        {"history.expire.max-snapshot-age-ms": "9" * 5_000},
        {"history.expire.min-snapshots-to-keep": "-1"},
        {"frazil.snapshots-held": "for ever"},
    ],
)
def test_unlimited_or_invalid_age_of_a_table_stops_no_batch(
    orders: Lake, wait: Callable[[float], None], properties: dict[str, str]
) -> None:
    """Whoever may alter a table stops no batch, and loses no snapshot by it that was to stay."""
    with orders.load_table(TABLE).transaction() as change:
        change.set_properties(properties)
    for n in range(1, 12):
        land(orders, n, Retention())
        wait(60)

    assert len(metadata(orders).snapshots) == 11


def test_unreadable_property_of_another_pipeline_stops_no_batch(orders: Lake, wait: Callable[[float], None]) -> None:
    """Nothing goes while nobody knows what the table holds of it."""
    set_property(orders, KEY, "edited by hand")
    for n in range(1, 12):
        wait(60)
        land_busy(orders, n)

    assert len(metadata(orders).snapshots) == 11


def test_tag_set_meanwhile_keeps_its_snapshot(orders: Lake, wait: Callable[[float], None]) -> None:
    """A tag is set after the batch looked: its snapshot stays, and the batch lands with its second attempt."""
    for n in range(1, RECENT + 1):
        land(orders, n)
        wait(1)
    land(orders, RECENT + 1)
    oldest = metadata(orders).snapshots[0].snapshot_id

    def tag() -> None:
        elsewhere(orders).load_table(TABLE).manage_snapshots().create_tag(oldest, "report").commit()

    again: list[int] = []
    follow(orders, overtaken(tag), *[overtaken(lambda: again.append(1))] * 9)
    land(orders, RECENT + 2)

    assert len(again) == 1
    assert metadata(orders).refs["report"].snapshot_id == oldest
    assert metadata(orders).snapshot_by_id(oldest) is not None
    assert ids(orders) == list(range(1, RECENT + 3))


def test_batches_on_a_branch_keep_main_and_its_hours(orders: Lake, wait: Callable[[float], None]) -> None:
    """A pipeline that lands on a branch takes out what is old there; main's head and hours stay, and are no rollback."""
    for n in range(1, 20):
        land_busy(orders, n)
        wait(20)
    head = metadata(orders).current_snapshot_id
    audit = on_branch(orders, "audit")
    audit.begin_branch(TABLE)
    before = hours(orders)
    assert before
    for n in range(1, 12):
        commit(
            audit,
            replace(
                batch(audit, mark(n), mark(n - 1) if n > 1 else None, rows(n)),
                properties={"frazil.branch.orders": "audit"},
                retention=RETENTION,
            ),
        )
        wait(90)

    loaded = metadata(orders)
    assert loaded.current_snapshot_id == head == loaded.refs["main"].snapshot_id
    assert isinstance(read_summary(audit.load_table(TABLE).metadata, KEY, TABLE), SummaryValue)
    assert isinstance(looked_up(orders, BUSY), SummaryValue)
    assert len(loaded.snapshots) < 19


def test_batches_prepared_on_branches_expire_old_snapshots(orders: Lake, wait: Callable[[float], None]) -> None:
    """Merges show a branch's snapshot: they list no more than appends do."""
    for n in range(1, 31):
        change = replace(batch(orders, mark(n), mark(n - 1) if n > 1 else None, rows(n)), retention=RETENTION)
        if n == 1:
            commit(orders, change)
        else:
            decide(orders, change)
        wait(20)

    assert len(metadata(orders).snapshots) <= RECENT + 1 + HOURS + 1
    assert ids(orders) == list(range(1, 31))


def test_table_without_retention_keeps_every_snapshot(orders: Lake, wait: Callable[[float], None]) -> None:
    """Without retention a batch takes none out."""
    for n in range(1, 12):
        land(orders, n, None)
        wait(60)

    assert len(metadata(orders).snapshots) == 11


def test_maintenance_expires_all_at_once(orders: Lake, wait: Callable[[float], None]) -> None:
    """In a commit of its own, by the same rule; a second one finds nothing."""
    for n in range(1, 31):
        land(orders, n, None)
        wait(20)
    now = int(time.time() * 1000)

    count = expire_snapshots(orders, TABLE, RETENTION, now)

    assert count == 30 - len(metadata(orders).snapshots) > 15
    assert expire_snapshots(orders, TABLE, RETENTION, now) == 0
    assert ids(orders) == list(range(1, 31))


def test_one_batch_expires_a_bounded_number() -> None:
    """On an old table the oldest go first, so that what is left goes on from head to past without a gap."""
    minute = 60_000
    line = tuple(SnapshotAge(n, n * minute, n - 1 if n else None) for n in range(3_000))
    history = History(snapshots=line, branches={"main": BranchRules(2_999)})

    expired = plan_expiry(history, Retention(timedelta(days=1), keep=1), 3_000 * minute, most=100)

    assert (len(expired.ids), expired.ids[0], expired.tagged) == (100, 0, {})
    later = plan_expiry(
        replace(history, snapshots=line[1_560:]), Retention(timedelta(days=1)), 3_000 * minute, most=100
    )
    assert later.ids[-1] - later.ids[0] == 99
    assert [tag.head for tag in later.tagged.values()] == [1_619]
    old = {"frazil-hourly-1970-01-01T00": Tag(59, 10 * minute), "mine": Tag(58, 10 * minute)}
    assert (
        plan_expiry(replace(history, tags=old), Retention(timedelta(days=1)), 3_000 * minute).dropped == tuple(old)[:1]
    )


def test_catalog_restored_from_a_backup_opens_its_tables(orders: Lake, wait: Callable[[float], None]) -> None:
    """B7: the metadata file that a backup names is there 120 batches later, with all of its snapshots' files."""
    for n in range(1, 4):
        land(orders, n)
        wait(20)
    backup = orders.load_table(TABLE).metadata_location
    for n in range(4, 124):
        land(orders, n)
        wait(20)
    assert len(metadata(orders).metadata_log) <= 100

    orders._catalog.drop_table(TABLE)
    orders._catalog.register_table(TABLE, backup)

    assert ids(orders) == [1, 2, 3]


def test_table_of_older_frazil_gets_the_metadata_properties(orders: Lake) -> None:
    """B7: it gets the properties of a new one with its next batch; a table that somebody set otherwise keeps its own."""
    enabled, versions = "write.metadata.delete-after-commit.enabled", "write.metadata.previous-versions-max"
    with orders.load_table(TABLE).transaction() as change:
        change.set_properties({enabled: "true", versions: "50"})
    first = orders.load_table(TABLE).metadata_location
    land(orders, 1)
    assert {key: metadata(orders).properties[key] for key in (enabled, versions)} == {
        key: TABLE_PROPERTIES[key] for key in (enabled, versions)
    }

    with orders.load_table(TABLE).transaction() as change:
        change.set_properties({enabled: "true", versions: "49"})
    land(orders, 2)
    assert metadata(orders).properties[versions] == "49"
    assert json.loads(Path(first.removeprefix("file://")).read_text())["properties"][versions] == "50"
