"""A run that was paused for long comes back after another run did its work."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from frazil.crash_points import CrashPoint
from frazil.errors import Retryable
from tests.chaos.lab import Lab
from tests.chaos.scenes import BATCH, INGEST, REPLAY, RESET, SCENES, Scene

MakeLab = Callable[..., Lab]
P = CrashPoint

QUICK = [
    *map(INGEST.kill, (P.PLANNED, P.MANIFEST_WRITTEN, P.DECIDE_COMMITTING, P.FOLLOW_COMMITTING, P.RECORD_COMMITTING)),
    *map(REPLAY.kill, (P.BRANCH_STAGED, P.DECIDE_COMMITTING)),
    RESET.kill(P.DECIDE_COMMITTING),
]


def _comes_back(orders: Lab, scene: Scene, point: CrashPoint, time: int) -> None:
    zombie = orders.pause(point, time, scene.prepare(orders))
    orders.fill(5000)
    orders.run()

    zombie.resume()
    ended = zombie.wait()

    assert ended.code == 0 or (ended.code == Retryable.exit_code and "\n  next: " in ended.said), ended.said
    orders.run()
    orders.assert_clean()
    orders.assert_at_rest()


@pytest.mark.parametrize(("scene", "point", "time"), QUICK)
def test_zombie_repeats_or_undoes_what_was_done_meanwhile(
    lab: MakeLab, scene: Scene, point: CrashPoint, time: int
) -> None:
    """What a paused run still wants to commit is refused or done already; it says which, and nothing lands twice."""
    _comes_back(lab(max_records=BATCH), scene, point, time)


@pytest.mark.full
@pytest.mark.parametrize(("scene", "point", "time"), [kill for scene in SCENES for kill in scene.kills()])
def test_any_zombie_repeats_or_undoes_what_was_done_meanwhile(
    lab: MakeLab, scene: Scene, point: CrashPoint, time: int
) -> None:
    """The same, paused at every point of every deed."""
    _comes_back(lab(max_records=BATCH), scene, point, time)


@pytest.mark.full
@pytest.mark.parametrize("second", [P.DECIDE_COMMITTING, P.FOLLOW_COMMITTING, P.RECORD_COMMITTING])
@pytest.mark.parametrize("first", INGEST.points)
def test_two_zombies_of_one_batch_meet(lab: MakeLab, first: CrashPoint, second: CrashPoint) -> None:
    """Two runs paused in the same batch come back in the order they went, after a third did the work."""
    orders = lab(max_records=BATCH)
    deed = INGEST.prepare(orders)
    zombies = [orders.pause(first, 1, deed), orders.pause(second, 1, deed)]
    orders.fill(5000)
    orders.run()

    for zombie in zombies:
        zombie.resume()
    ended = [zombie.wait() for zombie in zombies]

    assert {of.code for of in ended} <= {0, Retryable.exit_code}, [of.said for of in ended]
    orders.run()
    orders.assert_clean()
