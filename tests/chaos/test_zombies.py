"""A run that was paused for long comes back after another run did its work."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

import pytest

from frazil.errors import Retryable
from frazil.failpoints import Failpoint
from frazil.iceberg.commit.summary_state import ancestry
from tests.chaos.lab import LEDGER, LETTERS, Catalog, Lab
from tests.chaos.outsiders import catalog_file
from tests.chaos.scenes import BATCH, DEAD_LETTERS, INGEST, LETTER_TOPIC, REPLAY, RESET, SCENES, Scene, one_now

MakeLab = Callable[..., Lab]
P = Failpoint

QUICK = [
    *map(INGEST.kill, (P.PLANNED, P.MANIFEST_WRITTEN, P.DECIDE_COMMITTING, P.FOLLOW_COMMITTING, P.RECORD_COMMITTING)),
    *map(REPLAY.kill, (P.MANIFEST_WRITTEN, P.DECIDE_COMMITTING)),
    RESET.kill(P.DECIDE_COMMITTING),
    *map(DEAD_LETTERS.kill, (P.STAGED, P.FOLLOW_COMMITTING)),
    LETTER_TOPIC.kill(P.LETTERS_SENDING),
]


def _comes_back(orders: Lab, scene: Scene, point: Failpoint, time: int) -> None:
    zombie = orders.pause(point, time, scene.prepare(orders))
    orders.fill(5000)
    orders.run()

    zombie.resume()
    ended = zombie.wait()

    assert ended.code == 0 or (ended.code == Retryable.exit_code and "\n  next: " in ended.output), ended.output
    orders.run()
    orders.assert_clean()
    orders.assert_at_rest()


@pytest.mark.short(
    "ingest-decide.committing-1",
    "replay-decide.committing-1",
    "reset-decide.committing-1",
    "dead_letters-follow.committing-1",
    "letter_topic-letters.sending-1",
)
@pytest.mark.parametrize(("scene", "point", "time"), QUICK)
def test_zombie_neither_repeats_nor_undoes_work_of_others(
    lab: MakeLab, scene: Scene, point: Failpoint, time: int
) -> None:
    """What a paused run still wants to commit is refused or done already; it says which, and nothing lands twice."""
    _comes_back(lab(max_records=BATCH), scene, point, time)


@pytest.mark.embedded
def test_zombie_on_rest_catalog_does_not_commit_beside_its_successor(lab: MakeLab) -> None:
    """The same where a server decides which commit comes first: it refuses the one that the zombie still wants."""
    _comes_back(lab(catalog="rest", max_records=BATCH), INGEST, P.DECIDE_COMMITTING, 1)


def test_zombie_commits_no_part_of_rolled_back_batch(lab: MakeLab) -> None:
    """Between the decision and the parts of the followers the closing table is rolled back."""
    orders = lab(max_records=BATCH)
    orders.fill(0)
    orders.run()
    orders.fill(1000)
    zombie = orders.pause(P.DECIDE_COMMITTED)
    before = {table: orders.load(table).metadata.current_snapshot_id for table in (LETTERS, LEDGER)}
    batch, earlier = islice(ancestry(orders.load().metadata, orders.load().metadata.current_snapshot_id), 2)
    orders.load().manage_snapshots().rollback_to_snapshot(earlier.snapshot_id).commit()

    zombie.resume()
    ended = zombie.wait()

    assert ended.code == Retryable.exit_code, ended.output
    assert {table: orders.load(table).metadata.current_snapshot_id for table in before} == before
    orders.load().manage_snapshots().set_current_snapshot(snapshot_id=batch.snapshot_id).commit()
    orders.run()
    orders.assert_clean()


@pytest.mark.embedded
@pytest.mark.parametrize("point", one_now(P.RECORD_COMMITTING, P.FOLLOW_COMMITTING))
def test_zombie_behind_restored_backup_needs_no_person(lab: MakeLab, point: Failpoint) -> None:
    """Its batch is decided; then the catalog is put back to before that, and other batches land: the ledger says others."""
    orders = lab()
    for first in (0, 100):
        orders.fill(first)
        orders.run()
        if first == 0:
            catalog = catalog_file(orders)
            assert catalog is not None
            catalog.back_up()
    orders.fill(200)
    zombie = orders.pause(point)
    assert catalog.restore_all()
    orders.run()

    zombie.resume()
    ended = zombie.wait()

    assert (ended.code, "was undone" in ended.output) == (Retryable.exit_code, True), ended.output
    orders.run()
    orders.assert_clean()
    orders.assert_at_rest()


@pytest.mark.full
@pytest.mark.parametrize("catalog", ["jdbc", "rest"])
@pytest.mark.parametrize(("scene", "point", "time"), [kill for scene in SCENES for kill in scene.kills()])
def test_zombie_anywhere_neither_repeats_nor_undoes_work_of_others(
    lab: MakeLab, scene: Scene, point: Failpoint, time: int, catalog: Catalog
) -> None:
    """The same, paused at every point of every deed, on either catalog."""
    _comes_back(lab(catalog=catalog, max_records=BATCH), scene, point, time)


@pytest.mark.full
@pytest.mark.parametrize("second", [P.DECIDE_COMMITTING, P.FOLLOW_COMMITTING, P.RECORD_COMMITTING])
@pytest.mark.parametrize("first", INGEST.points)
def test_two_zombies_of_one_batch_land_it_once(lab: MakeLab, first: Failpoint, second: Failpoint) -> None:
    """Two runs paused in one batch, or in that and the next, come back in turn, after a third did the work."""
    orders = lab(max_records=BATCH)
    deed = INGEST.prepare(orders)
    earlier = orders.pause(first, 1, deed)
    orders.fill(3000)  # the first letters of a run may come with its last batch: the other must find a batch, too
    zombies = [earlier, orders.pause(second, 1, deed)]
    orders.fill(5000)
    orders.run()

    for zombie in zombies:
        zombie.resume()
    ended = [zombie.wait() for zombie in zombies]

    assert {run.code for run in ended} <= {0, Retryable.exit_code}, [run.output for run in ended]
    orders.run()
    orders.assert_clean()
    orders.assert_at_rest()
