"""SIGKILL at every crash point, then somebody carries on: every record has its outcome, once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pytest

from frazil.failpoints import Failpoint
from tests.chaos import child
from tests.chaos.child import Deed
from tests.chaos.lab import LEDGER, LENIENT, LETTERS, ORDERS, STRICT, Catalog, Lab
from tests.chaos.processes import kill_at
from tests.chaos.scenes import (
    BATCH,
    DEAD_LETTERS,
    DECIDE,
    EVOLVE,
    FAN_OUT,
    FIRST,
    FOLLOW,
    INGEST,
    LETTER_TOPIC,
    NEW_TABLE,
    RECORD,
    REPLAY,
    RESET,
    REWIND,
    SCENES,
    SEND,
    Scene,
)

MakeLab = Callable[..., Lab]
P = Failpoint

ONCE = [
    *map(INGEST.kill, INGEST.points),
    *map(REPLAY.kill, DECIDE),
    *map(FAN_OUT.kill, (P.DECIDE_COMMITTED, *FOLLOW, *RECORD)),
    *(FAN_OUT.kill(point, time) for point in FOLLOW for time in (2, 3)),
    *map(DEAD_LETTERS.kill, (P.STAGED, P.DECIDE_COMMITTED, P.FOLLOW_COMMITTED)),
    *map(EVOLVE.kill, (P.STAGED, P.EVOLVING, P.EVOLVED, P.AUDITED, P.DECIDE_COMMITTED)),
    EVOLVE.kill(P.STAGED, 2),
    *map(
        NEW_TABLE.kill, (P.STAGED, P.CREATING, P.CREATED, P.MANIFEST_WRITTEN, P.DECIDE_COMMITTED, P.FOLLOW_COMMITTING)
    ),
    *map(NEW_TABLE.kill, (P.FOLLOW_COMMITTED, P.RECORD_COMMITTING)),
    *map(LETTER_TOPIC.kill, SEND),
]
"""Every crash point once; those of a retry need a rival and have their own test."""

ON_REST = [
    *map(INGEST.kill, (P.DECIDE_COMMITTED, P.FOLLOW_COMMITTING, P.RECORD_COMMITTING)),
    REPLAY.kill(P.DECIDE_COMMITTING),
    *map(EVOLVE.kill, (P.EVOLVING, P.EVOLVED)),
    *map(NEW_TABLE.kill, (P.CREATING, P.CREATED)),
]
"""A kill around each commit; the full form has all of them."""

RETRIES: Final = {P.DECIDE_RETRYING: ORDERS, P.FOLLOW_RETRYING: LETTERS, P.RECORD_RETRYING: LEDGER}
"""Between two attempts of a commit: the table on which a rival committed."""


@pytest.mark.parametrize(("scene", "point", "time"), ONCE)
def test_kill_neither_loses_nor_doubles_records(lab: MakeLab, scene: Scene, point: Failpoint, time: int) -> None:
    """Killed at any step of a batch in the middle of a run, the next run carries on by itself."""
    orders = lab(max_records=BATCH)
    orders.crash(point, time, scene.prepare(orders))

    orders.run()

    orders.assert_clean()
    orders.assert_at_rest()


@pytest.mark.embedded
@pytest.mark.short("ingest-decide.committed-1")
@pytest.mark.parametrize(("scene", "point", "time"), ON_REST)
def test_kill_on_rest_catalog_neither_loses_nor_doubles_records(
    lab: MakeLab, scene: Scene, point: Failpoint, time: int
) -> None:
    """What a killed run left is in a server's hands instead of a database's: the next run carries on by itself."""
    orders = lab(catalog="rest", max_records=BATCH)
    orders.crash(point, time, scene.prepare(orders))

    orders.run()

    orders.assert_clean()
    orders.assert_at_rest()


@pytest.mark.parametrize("point", RETRIES)
def test_kill_between_two_attempts_neither_loses_nor_doubles_records(lab: MakeLab, point: Failpoint) -> None:
    """Killed after a rival's commit was met and before the next attempt, the next run carries on by itself."""
    orders = lab(max_records=BATCH)
    deed = INGEST.prepare(orders)
    running = orders.pause(P(point.replace("retrying", "committing")), 1, deed, deed_after=kill_at(point))
    orders.foreign_commit(RETRIES[point])
    running.resume()
    running.die()

    orders.run()

    orders.assert_clean()
    orders.assert_at_rest()


# --- the full form: every point, every way to carry on ----------------------------------------------------------------
def again(orders: Lab, deed: Deed) -> None:
    """The same is asked for again."""
    orders.run(deed)


def under_other_rules(orders: Lab, deed: Deed) -> None:
    """The same again, but what was dead is good now, or the other way round."""
    orders.configure(**(STRICT if orders.options["strict"] == "false" else LENIENT))
    orders.run(deed)


def after_more_records(orders: Lab, deed: Deed) -> None:
    """Nobody repeats what was killed: the next run of the schedule comes, and there is more to read."""
    orders.fill(5000)


def two_at_once(orders: Lab, deed: Deed) -> None:
    """A retry and the next run of the schedule at the same moment. One of them may have to try again later."""
    ended = [child_.wait() for child_ in (orders.start(deed), orders.start())]
    assert {run.code for run in ended} <= {0, 75}, [run.output for run in ended]
    assert 0 in {run.code for run in ended}, [run.output for run in ended]


CARRIED_ON = [
    (LENIENT, again),
    (LENIENT, under_other_rules),
    (STRICT, under_other_rules),
    (LENIENT, after_more_records),
    (LENIENT, two_at_once),
]


@pytest.mark.full
@pytest.mark.parametrize("catalog", ["jdbc", "rest"])
@pytest.mark.parametrize(("rules", "carry_on"), CARRIED_ON)
@pytest.mark.parametrize(("scene", "point", "time"), [kill for scene in SCENES for kill in scene.kills()])
def test_any_kill_under_any_circumstance_leaves_each_record_one_outcome(  # noqa: PLR0913 - what is combined
    lab: MakeLab,
    scene: Scene,
    point: Failpoint,
    time: int,
    rules: dict[str, str],
    carry_on: Callable[[Lab, Deed], None],
    *,
    catalog: Catalog,
) -> None:
    """Wherever a deed is killed, whoever carries on, on either catalog: every record has its outcome, once."""
    orders = lab(catalog=catalog, max_records=BATCH, **rules)
    deed = scene.prepare(orders)
    orders.crash(point, time, deed)

    carry_on(orders, deed)
    orders.run()

    orders.assert_clean()
    orders.assert_at_rest()


@pytest.mark.full
@pytest.mark.parametrize("second", [*FOLLOW, *RECORD])
@pytest.mark.parametrize(
    ("scene", "first", "time"),
    [scene.kill(point) for scene in (INGEST, REPLAY, REWIND, LETTER_TOPIC) for point in scene.points],
)
def test_killed_recovery_is_finished_by_third_run(
    lab: MakeLab, scene: Scene, first: Failpoint, time: int, second: Failpoint
) -> None:
    """The run that carries on is killed on its way, rolling forward or landing; the third one ends it."""
    orders = lab(max_records=BATCH)
    orders.crash(first, time, scene.prepare(orders))
    orders.fill(5000)
    orders.crash(second)

    orders.run()

    orders.assert_clean()
    orders.assert_at_rest()


@pytest.mark.full
@pytest.mark.parametrize("second", [P.RECORD_COMMITTING, P.RECORD_COMMITTED])
@pytest.mark.parametrize(
    ("scene", "first", "time"), [scene.kill(point) for scene in (FIRST, RESET) for point in scene.points]
)
def test_killed_recovery_without_dead_letters_is_finished_by_third_run(
    lab: MakeLab, scene: Scene, first: Failpoint, time: int, second: Failpoint
) -> None:
    """The same where the first thing to be rolled forward may be the ledger's row alone."""
    orders = lab(max_records=BATCH)
    orders.crash(first, time, scene.prepare(orders))
    orders.fill(5000)
    orders.crash(second, 1, child.run)

    orders.run()

    orders.assert_clean()
    orders.assert_at_rest()
