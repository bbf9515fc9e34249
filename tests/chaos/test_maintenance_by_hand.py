"""Named schedules: expiry, orphan removal and compaction beside runs, as PyIceberg and the file system do them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest

from frazil.batch.position import EARLIEST
from frazil.errors import Terminal
from frazil.failpoints import Failpoint
from frazil.run.commit.commit_batch import ORPHAN_WINDOW
from tests.chaos.lab import LETTERS, ORDERS, Lab, good
from tests.chaos.scenes import INGEST, READ, REPLAY, Scene, one_now
from tests.transactions import transactions

MakeLab = Callable[..., Lab]
P = Failpoint


def data_files(orders: Lab) -> set[Path]:
    """Data files of all tables, whether a snapshot names them or not."""
    return set(orders.project.home.warehouse.rglob("*.parquet"))


@pytest.mark.short("ingest-shop.orders__dead_letters", "replay-shop.orders")
@pytest.mark.parametrize("table", [ORDERS, LETTERS])
@pytest.mark.parametrize("scene", [INGEST, REPLAY], ids=["ingest", "replay"])
def test_run_stages_again_files_taken_by_orphan_removal(lab: MakeLab, scene: Scene, table: str) -> None:
    """However fresh the files are: a table never names one that is gone."""
    orders = lab()
    deed = scene.prepare(orders)
    before = data_files(orders)
    running = orders.pause(P.AUDITED, 1, deed)
    for orphan in data_files(orders) - before:
        if f"/{table.rpartition('.')[2]}/" in str(orphan):
            orphan.unlink()

    running.resume()

    assert "staged are gone" in running.succeed()
    orders.assert_clean()


def test_run_stages_again_files_older_than_half_orphan_window(lab: MakeLab, tmp_path: Path) -> None:
    """Its files are there, and may be taken between the decision and the commits of the followers."""
    orders = lab()
    clock = tmp_path / "clock"
    clock.write_text("0")
    running = orders.pause(P.AUDITED, 1, partial(INGEST.prepare(orders), clock_file=clock))
    clock.write_text(str(ORPHAN_WINDOW / timedelta(hours=1) / 2 + 1))

    running.resume()

    assert "an orphan removal may delete its files" in running.succeed()
    orders.assert_clean()


@pytest.mark.embedded  # deletes files
@pytest.mark.short("overtaken")
@pytest.mark.parametrize("is_overtaken", [False, True], ids=["alone", "overtaken"])
def test_paused_replay_ends_safely_when_its_files_are_gone(lab: MakeLab, *, is_overtaken: bool) -> None:
    """A gap makes it count what it would lose: in the tables as they are, or it comes too late; never a call for a person."""
    orders = lab()
    orders.fill(0)
    with transactions(orders.cluster, orders.topic) as written:
        written.commit([good(50)])  # its marker is the gap
    orders.values.append(good(50))
    orders.run()
    sleeping = orders.pause(P.AUDITED, 1, orders.replay(EARLIEST))
    if is_overtaken:
        orders.fill(100)
        orders.run()
    keep_the_newest_files(orders)

    sleeping.resume()
    ended = sleeping.wait()

    assert ended.code == 0, ended.output
    orders.run()
    orders.assert_clean()


def test_commit_lands_after_its_base_snapshot_expired(lab: MakeLab) -> None:
    """The head that a commit was built on is gone when it is tried again: it lands on what is there now."""
    orders = lab()
    running = orders.pause(P.DECIDE_COMMITTING, 1, INGEST.prepare(orders))
    base = orders.load().metadata.current_snapshot_id
    orders.foreign_commit(ORDERS, rows=2)
    orders.load().maintenance.expire_snapshots().by_id(base).commit()

    running.resume()
    ended = running.wait()

    orders.run()
    orders.assert_clean()
    assert ended.code == 0


@pytest.mark.parametrize("point", one_now(P.DECIDE_COMMITTING, *READ[1:], P.FOLLOW_COMMITTING, P.RECORD_COMMITTING))
def test_rewrite_of_all_files_between_steps_disturbs_no_run(lab: MakeLab, point: Failpoint) -> None:
    """All rows move to other files under a run: neither in its way nor a reason to do anything again."""
    orders = lab()
    running = orders.pause(point, 1, INGEST.prepare(orders))
    for name in (ORDERS, LETTERS):
        table = orders.load(name)
        table.overwrite(table.scan().to_arrow())

    running.resume()

    assert "refused" not in running.succeed()
    orders.assert_clean()


def test_expiry_by_pyiceberg_is_not_taken_for_rollback(lab: MakeLab) -> None:
    """PyIceberg's expiry takes the parents' ids along; the position must still be found, and nothing comes again."""
    orders = lab()
    orders.fill(0)
    orders.run()
    expire_all_but_the_head(orders, rows=2)

    orders.assert_at_rest()
    orders.fill(100)
    orders.run()

    orders.assert_clean()


def test_rollback_to_snapshot_without_history_is_refused_until_reset(lab: MakeLab) -> None:
    """Rows of batches are there, the snapshots that said of which are expired: refused, and a reset lands all anew."""
    orders = lab()
    orders.fill(0)
    orders.run()
    head = expire_all_but_the_head(orders, rows=0)
    orders.fill(100)
    orders.run()
    orders.load().manage_snapshots().rollback_to_snapshot(head).commit()

    ended = orders.refused()
    orders.run(orders.reset(EARLIEST))
    orders.run()

    assert (ended.code, "frazil reset orders --to earliest" in ended.output) == (Terminal.exit_code, True), ended.output
    orders.assert_clean()


def keep_the_newest_files(orders: Lab) -> None:
    """All rows move to other files, and the old ones are deleted, as expiry does."""
    for name in (ORDERS, LETTERS):
        table = orders.load(name)
        old = [Path(task.file.file_path.removeprefix("file://")) for task in table.scan().plan_files()]
        table.overwrite(table.scan().to_arrow())
        for file in old:
            file.unlink()


def expire_all_but_the_head(orders: Lab, rows: int) -> int:
    """Somebody appends, and everything older is expired."""
    orders.foreign_commit(ORDERS, rows=rows)
    table = orders.load()
    head = table.metadata.current_snapshot_id
    assert head is not None
    old = [snapshot.snapshot_id for snapshot in table.metadata.snapshots if snapshot.snapshot_id != head]
    table.maintenance.expire_snapshots().by_ids(old).commit()
    return head
