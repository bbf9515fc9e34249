"""What can be killed: a deed, how the pipeline stood before it, and the crash points on its way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from frazil.batch.position import EARLIEST
from frazil.failpoints import Failpoint
from tests.chaos import child
from tests.chaos.child import Deed
from tests.chaos.lab import COPIES, DEFAULTS, LENIENT, ORDERS, ROUTE, STRICT, Lab, grown

P = Failpoint

DECIDE = (P.MANIFEST_WRITTEN, P.DECIDE_COMMITTING, P.DECIDE_COMMITTED)
FOLLOW = (P.FOLLOW_COMMITTING, P.FOLLOW_COMMITTED)
RECORD = (P.RECORD_COMMITTING, P.RECORD_COMMITTED)
READ = (P.PLANNED, P.STAGING, P.STAGED, P.AUDITED)
SEND = (P.LETTERS_SENDING, P.LETTERS_SENT)


@dataclass(frozen=True)
class Scene:
    """A deed to be killed.

    Attributes:
        name: What it is.
        points: Where it can be hit, in order.
        times: The n-th time that it gets to a point is meant, for each of these.
        prepare: Brings the pipeline to where the deed begins, and returns the deed.
    """

    name: str
    points: tuple[Failpoint, ...]
    prepare: Callable[[Lab], Deed]
    times: tuple[int, ...] = (1,)

    def kills(self) -> list[Any]:
        """Every place where the deed can be hit: this scene, a point, which time. PLANNED comes once only."""
        return [
            self.kill(point, time) for point in self.points for time in self.times if (point, time) != (P.PLANNED, 2)
        ]

    def kill(self, point: Failpoint, time: int = 1) -> Any:
        """One place where the deed can be hit, as a parameter of a test."""
        return pytest.param(self, point, time, id=f"{self.name}-{point}-{time}")


def _first(orders: Lab) -> Deed:
    orders.fill(0)
    return child.run


def _ingest(orders: Lab) -> Deed:
    orders.fill(0)
    orders.run()
    for first in (100, 200):  # as many records as a batch may have, so each batch has its letters
        orders.fill(first)
    return child.run


def _fan_out(orders: Lab) -> Deed:
    orders.configure(more=COPIES)
    return _ingest(orders)


def _replay(orders: Lab) -> Deed:
    _landed(orders)
    return partial(child.replay, start=EARLIEST, run_id="replay")


def _reset(orders: Lab) -> Deed:
    _landed(orders)
    return orders.reset(EARLIEST)


def _rewind(orders: Lab) -> Deed:
    orders.fill(0)
    orders.run()
    snapshot_id = orders.load().metadata.current_snapshot_id
    assert snapshot_id is not None
    orders.fill(100)
    orders.run()
    orders.load(ORDERS).manage_snapshots().rollback_to_snapshot(snapshot_id).commit()
    return child.to_table


def _landed(orders: Lab) -> None:
    orders.fill(0)
    orders.run()
    orders.fill(100)
    orders.run()


def _dead_letters(orders: Lab) -> Deed:
    rules = {name: orders.options.get(name, DEFAULTS[name]) for name in LENIENT}
    orders.configure(**STRICT)
    _landed(orders)
    orders.configure(**(LENIENT if rules == STRICT else rules))
    return child.replay_dead_letters


def _few_letters(orders: Lab) -> Deed:
    _dead_letters(orders)
    return child.replay_few_dead_letters


def _evolve(orders: Lab) -> Deed:
    orders.configure(evolve="widen")
    orders.fill(0)
    orders.run()
    orders.produce(map(grown, range(100, 110)))
    orders.fill(200)
    return child.run


def _auto_create(orders: Lab) -> Deed:
    """Records go to a table that the file does not list: the one that is looked at."""
    orders.configure(table="shop.listed", more=ROUTE)
    orders.run()
    for first in (0, 100):
        orders.fill(first)
    return child.run


def _letter_topic(orders: Lab) -> Deed:
    orders.configure(letter_topic=f"{orders.topic}-letters")
    return _ingest(orders)


FIRST = Scene("first", (*DECIDE, *RECORD), _first)
INGEST = Scene("ingest", (*READ, *DECIDE, *FOLLOW, *RECORD), _ingest, (1, 2))
FAN_OUT = Scene("fan_out", (*DECIDE, *FOLLOW, *RECORD), _fan_out, (1, 2, 3))
REPLAY = Scene("replay", (*READ, *DECIDE, *FOLLOW, *RECORD), _replay)
RESET = Scene("reset", (*DECIDE, *FOLLOW, *RECORD), _reset)
REWIND = Scene("rewind", (P.DECIDE_COMMITTED, *FOLLOW, *RECORD), _rewind)  # before that, nothing but itself goes on
DEAD_LETTERS = Scene("dead_letters", (*READ[1:3], *DECIDE, *FOLLOW, *RECORD), _dead_letters)
FEW_LETTERS = Scene("few_letters", DEAD_LETTERS.points, _few_letters)

EVOLVE = Scene("evolve", (*READ, P.EVOLVING, P.EVOLVED, *DECIDE, *FOLLOW, *RECORD), _evolve)
NEW_TABLE = Scene("new_table", (*READ, P.CREATING, P.CREATED, *DECIDE, *FOLLOW, *RECORD), _auto_create)
LETTER_TOPIC = Scene("letter_topic", (*DECIDE, *FOLLOW, *SEND, *RECORD), _letter_topic, (1, 2))

SCENES = (FIRST, INGEST, REPLAY, RESET, REWIND, DEAD_LETTERS, EVOLVE, LETTER_TOPIC)
BATCH = 24
"""Records of a batch in these scenes: a run has two or three."""


def one_now(*points: Failpoint) -> list[Any]:
    """Parameters of a test: the first point belongs to its short form, the others to the full one."""
    return [points[0], *(pytest.param(point, marks=pytest.mark.full) for point in points[1:])]
