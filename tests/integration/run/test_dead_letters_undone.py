"""Operators and others act on dead letters that were replayed: each record keeps its one outcome."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.update import SetSnapshotRefUpdate

from frazil.batch.changes import LetterChoice, Place
from frazil.failpoints import Failpoint
from frazil.iceberg.commit.removal import file_rows
from frazil.iceberg.ledger import dead_letters
from frazil.monitor import reading
from frazil.monitor.reading import with_open_letters
from frazil.report.dead_letters import list_letters
from frazil.run.repair.dead_letter_replay import replay_dead_letters
from tests.letters import EVERY, good_letters, run_dead_letter_replay
from tests.operations import (
    LETTERS,
    ORDERS,
    Killed,
    assert_clean,
    drop,
    lake,
    letters,
    places,
    recreate_topic,
    repair,
    replay,
    request,
    reset,
    roll_back,
    scope,
    send,
    to_table,
)

MakeShop = Callable[..., Any]
At = Callable[..., Any]
P = Failpoint


def set_main(orders: Any, snapshot_id: int) -> None:
    """Make main any snapshot, as Spark's set_current_snapshot does."""
    table = lake(orders).load_table(ORDERS)
    update = SetSnapshotRefUpdate(ref_name=MAIN_BRANCH, type="branch", snapshot_id=snapshot_id)
    table.catalog.commit_table(table, (), (update,))


@pytest.fixture
def good_now(shop: MakeShop) -> Any:
    return good_letters(shop)


def test_rollback_past_replay_opens_dead_letters_again(good_now: Any) -> None:
    """The rows go with the rollback, so the letters are open again, and land again."""
    run_dead_letter_replay(good_now)
    roll_back(good_now, ORDERS)

    to_table(good_now)
    good_now.run()
    places_before = places(good_now)
    result = run_dead_letter_replay(good_now)

    assert places_before == [(0, o) for o in range(0, 12, 2)]
    assert result.landed == 6
    assert places(good_now) == EVERY
    assert_clean(good_now)


def test_only_open_dead_letters_are_counted(good_now: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Manifests tell how many are open; files are read only where a rollback opened letters again."""
    read: list[str] = []
    monkeypatch.setattr(
        dead_letters, "file_rows", lambda *arguments: read.append(arguments[1].file.file_path) or file_rows(*arguments)
    )

    def counted() -> int | None:
        condition = reading.read(good_now.project, good_now.pipeline)
        return with_open_letters(condition, good_now.project, good_now.pipeline).open_letters

    assert (counted(), read) == (6, [])
    run_dead_letter_replay(good_now, LetterChoice(places=frozenset(Place(good_now.topic, 0, o) for o in (1, 3))))
    assert (counted(), read) == (4, [])
    roll_back(good_now, ORDERS)
    to_table(good_now)
    good_now.run()
    assert counted() == len(still_listed(good_now)) == 6
    assert read
    run_dead_letter_replay(good_now)
    assert counted() == len(still_listed(good_now)) == 0


def still_listed(orders: Any) -> Any:
    listed = list_letters(orders.project, orders.pipeline, LetterChoice(), "open", None)
    assert listed is not None
    return listed.letters


@pytest.mark.parametrize("again", ["replay", "reset"])
def test_replay_over_landed_dead_letters_leaves_each_record_one_outcome(good_now: Any, again: str) -> None:
    """Rows and letters of the range go together, so each record has one outcome after it."""
    run_dead_letter_replay(good_now)

    if again == "replay":
        replay(good_now, "earliest")
    else:
        reset(good_now, "earliest")
        good_now.run()

    assert places(good_now) == EVERY
    assert run_dead_letter_replay(good_now).tried == 0
    assert_clean(good_now)


def test_lost_dead_letter_table_lands_no_record_twice(good_now: Any) -> None:
    """A repair reads their records again: all are good now, and none lands twice."""
    run_dead_letter_replay(good_now, LetterChoice(places=frozenset(Place(good_now.topic, 0, o) for o in (1, 5))))
    drop(good_now, LETTERS)

    repair(good_now, LETTERS)

    assert letters(good_now) == []
    assert places(good_now) == EVERY
    assert_clean(good_now)


def test_dead_letters_of_recreated_topic_stay(good_now: Any) -> None:
    """Their rows would be taken for its successor's: they are left as they are, and counted."""
    recreate_topic(good_now, 1)
    reset(good_now, "earliest")
    lines: list[str] = []

    result = replay_dead_letters(scope(good_now, lines.append), LetterChoice(), request())

    assert result.tried == 0
    assert any("6 dead letters of topics that were recreated since" in line for line in lines)


def test_only_dead_letter_of_present_topic_lands_at_shared_offset(good_now: Any) -> None:
    """Only the present topic's letter lands, once; the old one's keeps its reason and stays open."""
    recreate_topic(good_now, 1)
    reset(good_now, "earliest")
    send(good_now, {0: [b"{}", b"broken"]})
    good_now.run()

    first, second = run_dead_letter_replay(good_now), run_dead_letter_replay(good_now)

    assert (first.tried, first.dead_codes, second.tried) == (1, {"INVALID_JSON": 1}, 1)
    facts = {
        row["_frazil_batch"]: (row["code"], row["attempts"]) for row in good_now.rows(LETTERS) if row["offset"] == 1
    }
    assert facts == {1: ("WRONG_TYPE", 1), max(facts): ("INVALID_JSON", 3)}
    assert_clean(good_now)


def test_repair_restores_dead_letters_whose_rows_were_rolled_back(good_now: Any) -> None:
    """They are no rows any more, and their letters are gone: they are read again."""
    run_dead_letter_replay(good_now)
    roll_back(good_now, ORDERS)
    to_table(good_now)
    good_now.run()
    drop(good_now, LETTERS)

    repair(good_now, LETTERS)

    assert (places(good_now), letters(good_now)) == (EVERY, [])
    assert_clean(good_now)


@pytest.mark.parametrize("is_finished", [True, False], ids=["finished", "unfinished"])
def test_rollback_after_repair_reads_landed_dead_letters_again(
    good_now: Any, at_failpoint: At, *, is_finished: bool
) -> None:
    """Rows are gone and so are their letters: the position goes back to them, and Kafka brings them again."""
    if is_finished:
        run_dead_letter_replay(good_now)
    else:
        at_failpoint(P.FOLLOW_COMMITTING)
        with pytest.raises(Killed):
            run_dead_letter_replay(good_now)
    drop(good_now, LETTERS)
    repair(good_now, LETTERS)
    roll_back(good_now, ORDERS, 2)

    to_table(good_now)
    good_now.run()

    assert places(good_now) == EVERY
    assert_clean(good_now)


def test_records_that_came_twice_do_not_land_again(good_now: Any) -> None:
    """After a reset that allowed duplicates nobody can tell whose row a letter would be: they stay, and it is said."""
    reset(good_now, "earliest", allow_duplicates=True)
    good_now.run()
    before = places(good_now)
    lines: list[str] = []

    result = replay_dead_letters(scope(good_now, lines.append), LetterChoice(), request())

    assert result.tried == 0
    assert any("of records that a reset let land twice" in line for line in lines)
    assert places(good_now) == before


def test_undone_rollback_lands_no_dead_letter_again(good_now: Any) -> None:
    """Rows of the first landing are back, whatever the letters were marked with since: none lands again."""
    run_dead_letter_replay(good_now, LetterChoice(places=frozenset(Place(good_now.topic, 0, o) for o in (1, 3))))
    landed_once = lake(good_now).load_table(ORDERS).metadata.current_snapshot_id
    roll_back(good_now, ORDERS)
    to_table(good_now)
    good_now.run()
    run_dead_letter_replay(good_now, LetterChoice(places=frozenset([Place(good_now.topic, 0, 1)])))
    set_main(good_now, landed_once)
    to_table(good_now)
    good_now.run()

    listed = still_listed(good_now)
    run_dead_letter_replay(good_now)

    letter = {letter.offset: letter.row_batch for letter in listed}
    assert letter[1] is not None
    assert {letter[offset] for offset in (5, 7, 9, 11)} == {None}

    assert places(good_now) == EVERY
    assert_clean(good_now)
