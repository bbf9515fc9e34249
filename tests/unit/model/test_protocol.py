"""The protocol's model, explored: what holds on every schedule, and what each fence keeps from happening."""

from __future__ import annotations

import pytest

from tests.unit.model.explorer import Limits, begin, explore
from tests.unit.model.protocol import FENCES, Fence

QUIET = Limits(produce=1, crash=0, lost_answer=0)
"""Two runners, two batches of work, and nothing that goes wrong."""

ONE_FAULT = {
    "a crash and a lost answer": Limits(produce=1),
    "a rollback": QUIET._replace(rollback=1),
    "a replay": QUIET._replace(replay=1),
    "a compaction and an expiry": QUIET._replace(foreign=1, expire=1),
}
MORE_FAULTS = {
    "a restored table": QUIET._replace(restore=1),
    "two restored tables": QUIET._replace(restore=2),
    "a rollback and a restored table": QUIET._replace(rollback=1, restore=1),
    "a replay and a rollback": QUIET._replace(replay=1, rollback=1),
    "a crash, a lost answer and a rollback": Limits(produce=1, rollback=1),
    "three batches, a crash and a lost answer": Limits(produce=2),
}
LONG = (pytest.mark.full, pytest.mark.timeout(3600))
"""Up to 1,300,000 worlds: minutes each."""

CASES = [
    *(pytest.param(limits, id=name) for name, limits in ONE_FAULT.items()),
    *(pytest.param(limits, id=name, marks=LONG) for name, limits in MORE_FAULTS.items()),
]


@pytest.mark.parametrize("limits", CASES)
def test_every_schedule_keeps_rows_once_and_can_continue(limits: Limits) -> None:
    explored = explore(begin(limits))
    assert explored.finding is None, explored.finding
    assert explored.depth > 20  # two batches, one behind the other


def test_batches_after_a_deploy_go_to_the_new_destination_on_every_schedule() -> None:
    files = (False, True)
    explored = explore(begin(QUIET._replace(deploy=1), files), files=files)
    assert explored.finding is None, explored.finding


@pytest.mark.parametrize(
    ("fence", "limits", "promise"),
    [
        (Fence.IDS, QUIET._replace(restore=1), "follower has rows (0,), expected 0 to 1"),
        (Fence.IDS, QUIET._replace(replay=1, rollback=1), "has rows (0,)"),
        (Fence.HEAD, QUIET, "closing table shows a row twice"),
        (Fence.POSITION, QUIET, "closing table shows a row twice"),
        (Fence.AFTER, QUIET._replace(rollback=1), "follower shows a row twice"),
        pytest.param(
            Fence.DECIDED, QUIET._replace(rollback=1, restore=1), "follower shows a row twice", marks=pytest.mark.full
        ),
        (Fence.TWICE, QUIET, "a refusal to runner"),
        (Fence.FILE, QUIET._replace(deploy=1), "follower has rows (0,), expected 0 to 1"),
    ],
    ids=[
        "ids, a restored table",
        "ids, a replay that sleeps",
        "head",
        "position",
        "after",
        "decided",
        "two looks",
        "file",
    ],
)
def test_each_fence_prevents_a_schedule_that_breaks_the_protocol(fence: Fence, limits: Limits, promise: str) -> None:
    files = (False, True) if limits.deploy else (True,)
    finding = explore(begin(limits, files), FENCES - {fence}, files=files).finding
    assert finding is not None
    assert promise in finding.partition("\n")[0], finding
