"""Dead letters are replayed: what decodes after a change of the pipeline file is a row, exactly once, whatever happens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from frazil.batch.changes import LetterChoice, Place
from frazil.errors import Terminal
from frazil.failpoints import Failpoint
from frazil.run.repair import dead_letter_replay
from frazil.run.repair.dead_letter_replay import ReplayResult
from frazil.run.state.pipeline_state import pipeline_state
from frazil.run.state.tables import open_tables
from tests.letters import EVERY, good_letters, run_dead_letter_replay, still_open
from tests.operations import (
    LETTERS,
    Killed,
    assert_clean,
    lake,
    landed,
    ledger,
    letters,
    places,
    position,
    send,
    without_kafka_columns,
)

MakeShop = Callable[..., Any]
AtFailpoint = Callable[..., Any]
P = Failpoint


@pytest.fixture
def good_now(shop: MakeShop) -> Any:
    return good_letters(shop)


def test_dead_letters_land_without_moving_position(good_now: Any) -> None:
    """Rows with their own coordinates, letters marked, the position where it was; a second time does nothing."""
    before = position(good_now)

    first, second = run_dead_letter_replay(good_now), run_dead_letter_replay(good_now)

    assert (first.tried, first.landed, first.batches) == (6, 6, (before.n + 1,))
    assert second == ReplayResult(dead_codes={})
    assert places(good_now) == EVERY
    assert still_open(good_now) == []
    after = position(good_now)
    assert {name: topic.next for name, topic in after.topics.items()} == {
        name: topic.next for name, topic in before.topics.items()
    }
    assert after.n == before.n + 1
    assert_clean(good_now)


def test_record_that_is_still_bad_stays_dead_letter(shop: MakeShop) -> None:
    """It stays a letter of its batch, with one more attempt; the ledger has a batch that landed nothing."""
    orders = landed(shop)

    result = run_dead_letter_replay(orders)

    assert (result.landed, result.dead_codes) == (0, {"WRONG_TYPE": 6})
    assert [(row["attempts"], row["landed_batch"]) for row in orders.rows(LETTERS)] == [(2, None)] * 6
    assert letters(orders) == [(0, 1, 1), (0, 3, 1), (0, 5, 2), (0, 7, 2), (0, 9, 3), (0, 11, 3)]
    assert [row["records_written"] for row in ledger(orders, "dead_letters")] == [0, 0]
    assert_clean(orders)


def test_only_chosen_dead_letters_are_replayed(good_now: Any) -> None:
    """Only the named one lands; its neighbours in the same files stay open and unchanged."""
    chosen = Place(good_now.topic, 0, 5)

    result = run_dead_letter_replay(good_now, LetterChoice(places=frozenset([chosen])))

    assert result.landed == 1
    assert still_open(good_now) == [(0, o) for o in (1, 3, 7, 9, 11)]
    assert sorted(row["attempts"] for row in good_now.rows(LETTERS)) == [1, 1, 1, 1, 1, 2]
    assert_clean(good_now)
    assert run_dead_letter_replay(good_now, LetterChoice(codes=frozenset(["INVALID_JSON"]))).tried == 0


def test_dry_run_of_dead_letter_replay_lands_nothing(good_now: Any) -> None:
    """With dry_run the counts are the same and no table changes."""
    before = good_now.snapshots(), good_now.snapshots(LETTERS)

    result = run_dead_letter_replay(good_now, dry_run=True)

    assert (result.tried, result.landed) == (6, 6)
    assert (good_now.snapshots(), good_now.snapshots(LETTERS)) == before


@pytest.mark.short("follow.committing")
@pytest.mark.parametrize(
    "point",
    [
        *(P.STAGING, P.STAGED, P.MANIFEST_WRITTEN, P.DECIDE_COMMITTING, P.DECIDE_COMMITTED),
        *(P.FOLLOW_COMMITTING, P.FOLLOW_COMMITTED, P.RECORD_COMMITTING, P.RECORD_COMMITTED),
    ],
)
def test_killed_dead_letter_replay_lands_each_record_once(
    good_now: Any, at_failpoint: AtFailpoint, point: Failpoint
) -> None:
    """Killed at any step, then tried again, with a run in between: each letter is one row."""
    at_failpoint(point)
    with pytest.raises(Killed):
        run_dead_letter_replay(good_now)

    good_now.run()
    run_dead_letter_replay(good_now)

    assert places(good_now) == EVERY
    assert still_open(good_now) == []
    assert_clean(good_now)


@pytest.mark.short("decide.committing")
@pytest.mark.parametrize("point", [P.STAGED, P.DECIDE_COMMITTING, P.FOLLOW_COMMITTING, P.RECORD_COMMITTING])
def test_two_replays_of_same_dead_letters_land_them_once(
    good_now: Any, at_failpoint: AtFailpoint, point: Failpoint
) -> None:
    """A rival does all of it while the first stands at a step: nothing lands twice."""
    at_failpoint(point, lambda: run_dead_letter_replay(good_now))

    run_dead_letter_replay(good_now)

    assert places(good_now) == EVERY
    assert still_open(good_now) == []
    assert_clean(good_now)


def test_new_records_during_replay_make_it_stage_again(good_now: Any, at_failpoint: AtFailpoint) -> None:
    """A run decides a batch in between: the letters are staged again, with the next number."""

    def rival() -> None:
        send(good_now, {0: [b'{"name": "new"}', b"broken"]})
        good_now.run()

    at_failpoint(P.STAGED, rival)

    result = run_dead_letter_replay(good_now)

    assert result.landed == 6
    assert places(good_now) == [*EVERY, (0, 12)]
    assert still_open(good_now) == [(0, 13)]
    assert_clean(good_now)


def test_dead_letters_of_table_without_coordinates_are_refused(shop: MakeShop) -> None:
    """Nobody could tell later which rows they became: refused, and nothing changes."""
    orders = without_kafka_columns(shop)
    send(orders, {0: [b"broken"]})
    orders.run()

    with pytest.raises(Terminal, match="no Kafka columns"):
        run_dead_letter_replay(orders)


def test_dead_letters_of_many_offsets_take_several_batches(good_now: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each batch is bounded; together they land every letter once, and the next run keeps its bound in bytes."""
    monkeypatch.setattr(dead_letter_replay, "RANGES_PER_BATCH", 4)

    result = run_dead_letter_replay(good_now)

    assert (result.landed, len(result.batches)) == (6, 2)
    assert places(good_now) == EVERY
    assert pipeline_state(good_now.pipeline, open_tables(lake(good_now), good_now.pipeline)).record_bytes
    assert_clean(good_now)
