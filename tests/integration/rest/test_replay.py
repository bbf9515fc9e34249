"""Replays on a REST catalog whose answers are lost or late: the range is replaced once, as a whole."""

from __future__ import annotations

import pytest

from frazil.errors import OutcomeUnknown, Retryable
from tests.fault_proxy import HeldRequest, Step, after, lost, passed, refused
from tests.integration.rest.conftest import LEDGER, LETTERS, ORDERS, RestShop, path_of, then_silence
from tests.operations import replay

RUN = "11111111-1111-4111-8111-111111111111"

COMMITS = {
    "branch": (ORDERS, 0),
    "rows on the branch": (ORDERS, 1),
    "decision": (ORDERS, 2),
    "letters": (LETTERS, 0),
    "ledger": (LEDGER, 0),
}
"""Commits of a replay: the table, and how many commits on that table come before."""

FAULTS: dict[str, Step] = {
    "landed, 504": lost(504),
    "landed, 409": lost(409),
    "landed, connection breaks": lost(None),
    "never arrived, 409": refused(409),
    "never arrived, 503": refused(503),
}

PREPARING = ("branch", "rows on the branch")
"""What nobody sees: a failure here leaves nothing undecided."""

commits = pytest.mark.parametrize("commit", COMMITS)


@pytest.fixture
def landed(begun: RestShop) -> RestShop:
    """A shop with two landed batches."""
    for number in range(2):
        begun.produce(10 * number, 10 * number + 10)
        begun.run()
    return begun


def strike(shop: RestShop, commit: str, *steps: Step) -> None:
    """Let a commit of the replay, and those on that table after it, go through these steps."""
    table, before = COMMITS[commit]
    shop.proxy.script("POST", path_of(table), *[passed] * before, *steps)


def assert_replaced_once(shop: RestShop) -> None:
    """One replay is in the ledger, every row is of its batch, and every record landed once."""
    assert shop.proxy.unused == 0
    [n] = {row["n"] for row in shop.rows(LEDGER) if row["kind"] == "replay"}
    assert {row["_frazil_batch"] for row in shop.rows(ORDERS)} == {n}
    shop.assert_exactly_once(orders=20, rounds=2)


@pytest.mark.short("landed, 504-decision", "landed, 504-rows on the branch")
@commits
@pytest.mark.parametrize(
    "fault", [pytest.param(fault, marks=[pytest.mark.full] * (fault != "landed, 504")) for fault in FAULTS]
)
def test_lost_answer_neither_doubles_nor_loses_replayed_rows(landed: RestShop, commit: str, fault: str) -> None:
    """Whichever commit of a replay is struck, the replay itself finds out what became of it."""
    strike(landed, commit, FAULTS[fault])

    replay(landed.shop, "earliest")

    assert_replaced_once(landed)


@pytest.mark.short("decision")
@commits
def test_late_commit_does_not_bring_replaced_rows_back(landed: RestShop, held: HeldRequest, commit: str) -> None:
    """A commit of a replay that is carried out just before its repetition, or after: only one of them counts."""
    strike(landed, commit, held, after(held.release))

    replay(landed.shop, "earliest")

    assert_replaced_once(landed)


@commits
@pytest.mark.full
@pytest.mark.parametrize("late", ["before", "after"])
def test_late_commit_and_repeated_replay_land_once(landed: RestShop, held: HeldRequest, commit: str, late: str) -> None:
    """The replay ends without knowing; asked for again it lands once, whether the held commit comes before or after."""
    table, _ = COMMITS[commit]
    strike(landed, commit, then_silence(landed.proxy, table, held))
    with pytest.raises(Retryable if commit in PREPARING else OutcomeUnknown):
        replay(landed.shop, "earliest", run=RUN)
    if late == "before":
        held.release()

    replay(landed.shop, "earliest", run=RUN)

    if late == "after":
        held.release()
    assert_replaced_once(landed)
