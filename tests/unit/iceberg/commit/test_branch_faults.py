"""Lost answers, late commits and kills on the way of a branch decision: rows are replaced once, or not at all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyiceberg.exceptions import (
    CommitFailedException,
    CommitStateUnknownException,
)

from frazil import failpoints
from frazil.errors import OutcomeUnknown
from frazil.failpoints import Failpoint
from frazil.iceberg.catalog.catalog import Lake
from frazil.iceberg.commit.branch import remove_stale_branches
from frazil.iceberg.commit.summary_state import landed_snapshot
from tests.unit.iceberg.coordinates import (
    Row,
    every_snapshot_is_readable,
    foreign,
)
from tests.unit.iceberg.orders import (
    KEY,
    TABLE,
    Step,
    UnreliableCatalog,
    answer_lost,
    follow,
    mark,
    never_arrived,
)
from tests.unit.iceberg.replays import (
    ERRORS,
    NOW,
    REPLACED,
    branches,
    decide,
    ids,
    passed,
    replay,
)


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("step", [answer_lost, never_arrived], ids=["landed", "did not land"])
@pytest.mark.parametrize("at", [0, 1, 2], ids=["making the branch", "staging", "deciding"])
def test_lost_answer_replaces_rows_once(
    filled: Lake, error: Exception, step: Callable[[Exception], Step], at: int
) -> None:
    """Each of the three commits may land behind an error or not: the rows are replaced once."""
    follow(filled, *[passed] * at, step(error))

    snapshot_id = decide(filled)

    metadata = filled.load_table(TABLE).metadata
    assert ids(filled) == REPLACED
    assert metadata.current_snapshot_id == snapshot_id
    remove_stale_branches(filled, TABLE, "orders", 2, NOW)
    assert branches(filled) == []
    every_snapshot_is_readable(filled)


def test_lost_answer_below_a_foreign_commit_is_recognised(filled: Lake) -> None:
    """The decision landed, a stranger came on top, and only then the table is read again: decided, once."""
    follow(filled, passed, passed, answer_lost(TimeoutError("socket"), lambda: foreign(filled, [Row(200)])))

    snapshot_id = decide(filled)

    metadata = filled.load_table(TABLE).metadata
    assert ids(filled) == [*REPLACED, 200]
    assert metadata.current_snapshot_id != snapshot_id
    assert landed_snapshot(metadata, KEY, mark(2), TABLE) == snapshot_id


def test_late_decision_on_another_head_is_refused(filled: Lake) -> None:
    """A decision is applied long after it was sent, when main has moved: the catalog refuses it."""
    late: list[Callable[[], Any]] = []

    def delayed(really: Callable[[], Any]) -> Any:
        late.append(really)
        foreign(filled, [Row(200)])
        raise CommitStateUnknownException("504")

    follow(filled, passed, passed, delayed)
    decide(filled)

    with pytest.raises(CommitFailedException):
        late[0]()
    assert ids(filled) == [*REPLACED, 200]


def test_unreadable_table_after_a_lost_answer_is_an_unknown_outcome(filled: Lake) -> None:
    """Nobody knows whether the decision landed, and the error says so."""
    catalog = filled._catalog
    assert isinstance(catalog, UnreliableCatalog)
    follow(filled, passed, passed, answer_lost(CommitStateUnknownException("no answer"), catalog.destroy_tables))

    with pytest.raises(OutcomeUnknown, match="was sent and the table can't be read again"):
        decide(filled)


class Killed(BaseException):
    """The process ends here."""


POINTS = [Failpoint.BRANCH_MADE, Failpoint.BRANCH_STAGED, Failpoint.DECIDE_COMMITTING, Failpoint.DECIDE_COMMITTED]


@pytest.mark.parametrize("point", POINTS)
def test_killed_replay_leaves_all_or_nothing(filled: Lake, monkeypatch: pytest.MonkeyPatch, point: Failpoint) -> None:
    """Whoever comes after a kill finds all or nothing, sweeps the branch away, and carries on."""

    def reached(place: Failpoint) -> None:
        if place is point:
            raise Killed

    ours = replay(filled)
    monkeypatch.setattr(failpoints, "hit", reached)
    with pytest.raises(Killed):
        decide(filled, ours)
    monkeypatch.undo()

    decided = point is Failpoint.DECIDE_COMMITTED
    assert ids(filled) == (REPLACED if decided else list(range(10)))
    assert len(branches(filled)) == (0 if decided else 1)
    decide(filled, ours)
    assert ids(filled) == REPLACED
    remove_stale_branches(filled, TABLE, "orders", 2, NOW)
    assert branches(filled) == []
    every_snapshot_is_readable(filled)


def test_failpoints_of_a_branch_are_passed_in_order(filled: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """The places where a test may end the process, as one attempt that is answered by an error passes them."""
    seen: list[Failpoint] = []
    monkeypatch.setattr(failpoints, "hit", seen.append)
    follow(filled, passed, passed, never_arrived(TimeoutError("socket")))

    decide(filled)

    committing = Failpoint.DECIDE_COMMITTING
    assert seen == [
        Failpoint.BRANCH_MADE,
        Failpoint.BRANCH_STAGED,
        committing,
        Failpoint.DECIDE_RETRYING,
        committing,
        Failpoint.DECIDE_COMMITTED,
    ]
