"""A follower or the ledger loses what it was given: the pipeline stops by name, and one command mends it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from frazil.errors import Terminal
from frazil.report.history import history
from tests.operations import (
    ALL_LETTERS,
    LETTERS,
    ORDERS,
    Killed,
    assert_clean,
    bad,
    drop,
    lake,
    landed,
    ledger,
    letters,
    offsets,
    order,
    position,
    replay,
    reset,
    roll_back,
    send,
    settle,
)

MakeShop = Callable[..., Any]
At = Callable[..., Any]

STRICT = ("name: string", "name: {type: string, required: true}")
NAMELESS = b'{"id": 1}'


@pytest.mark.parametrize("damage", [lambda shop: roll_back(shop, LETTERS), lambda shop: drop(shop, LETTERS)])
def test_lost_letters_go_unnoticed_or_stay_lost(shop: MakeShop, damage: Callable[[Any], None]) -> None:
    """Rolled back or dropped between two batches: refused with the command, which lands exactly those letters again."""
    orders = landed(shop)
    before = orders.rows(LETTERS)
    damage(orders)
    send(orders, {0: [order(12)]})

    with pytest.raises(Terminal) as refused:
        orders.run()
    assert f"frazil settle orders --table {LETTERS} --restage --reason" in str(refused.value)
    done = settle(orders, LETTERS)

    assert done is not None
    assert (done.n, done.abandoned, done.remarks) == (4, 0, ())
    assert orders.rows(LETTERS) == before
    assert letters(orders) == ALL_LETTERS
    assert orders.run().read == 1
    assert_clean(orders)
    assert settle(orders, LETTERS) is None


def test_settle_leaves_no_trace(shop: MakeShop) -> None:
    """Who settled what and why is in the ledger; the position stays and n grows."""
    orders = landed(shop)
    was = position(orders)
    drop(orders, LETTERS)
    settle(orders, LETTERS)

    rows = ledger(orders, "settle")
    assert {(row["n"], row["reason"], row["started_by"], row["abandoned"]) for row in rows} == {
        (4, "a test", "cli:tester@here", 0)
    }
    assert [row["rows"] for row in rows if row["table"] == LETTERS] == [6]
    assert position(orders).n == 4
    assert {name: at.next for name, at in position(orders).topics.items()} == {
        name: at.next for name, at in was.topics.items()
    }
    assert [batch.kind for batch in history(orders.project, orders.pipeline)] == [
        "start", "ingest", "ingest", "ingest", "settle",
    ]  # fmt: skip


def test_unfinished_batch_is_lost_with_the_letters(shop: MakeShop, at: At) -> None:
    """Killed between decision and letters, then the letters are dropped: the settle lands that batch's letters too."""
    orders = landed(shop, 2)
    send(orders, {0: [order(8), bad(9), order(10), bad(11)]})
    at("follow.committing")
    with pytest.raises(Killed):
        orders.run()
    drop(orders, LETTERS)

    with pytest.raises(Terminal, match="frazil settle"):
        orders.run()
    settle(orders, LETTERS)

    assert letters(orders) == ALL_LETTERS
    assert [row["n"] for row in ledger(orders, "ingest") if row["table"] == LETTERS] == [1, 2, 3]
    assert_clean(orders)


def test_letter_that_is_good_now_loses_its_record(shop: MakeShop) -> None:
    """An edited pipeline calls lost letters good: they become letters all the same, or the records were nowhere."""
    lenient = shop(partitions=1)
    file = lenient.project.pipelines_folder / "orders.yaml"
    text = file.read_text() + "value: {null_value: dead_letter}\n"
    strict = lenient.with_pipeline(text.replace(*STRICT))
    strict.produce([order(0), NAMELESS, bad(2), None, order(4)])
    strict.run()
    assert len(letters(strict)) == 3
    with strict.project.lake("lake").load_table(ORDERS).update_schema() as change:
        change.make_column_optional("name")
    edited = strict.with_pipeline(text.replace("dead_letter}", "filter}"))
    drop(edited, LETTERS)

    settle(edited, LETTERS)

    codes = {row["offset"]: row["code"] for row in edited.rows(LETTERS)}
    assert codes == {1: "DEAD_BEFORE", 2: "WRONG_TYPE", 3: "NULL_VALUE"}
    assert [row["value"] for row in edited.rows(LETTERS) if row["offset"] == 1] == [NAMELESS]
    assert_clean(edited)
    assert replay(edited, "earliest").dead == 1
    assert letters(edited) == [(0, 2, 3)]
    assert_clean(edited)


def test_replaced_letters_come_back(shop: MakeShop) -> None:
    """Letters that a replay replaced are landed as the replay left them."""
    orders = landed(shop)
    replay(orders, offsets(orders, 4), offsets(orders, 8))
    before = letters(orders)
    assert before == [(0, 1, 1), (0, 3, 1), (0, 5, 4), (0, 7, 4), (0, 9, 3), (0, 11, 3)]
    drop(orders, LETTERS)

    settle(orders, LETTERS)

    assert letters(orders) == before
    assert_clean(orders)


def test_rolled_back_letters_before_a_replay(shop: MakeShop) -> None:
    """Rolled back behind a replay: what the replay took out goes again, what it landed comes again."""
    orders = landed(shop)
    replay(orders, offsets(orders, 0), offsets(orders, 8))
    before = letters(orders)
    roll_back(orders, LETTERS)

    settle(orders, LETTERS)

    assert letters(orders) == before
    assert_clean(orders)


def test_letters_gone_from_kafka_are_given_up_in_silence(shop: MakeShop) -> None:
    """What Kafka holds no more is named and refused; given up on demand, it is counted."""
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient

    orders = landed(shop)
    drop(orders, LETTERS)
    admin = AdminClient(dict(orders.cluster.properties))
    (future,) = admin.delete_records([TopicPartition(orders.topic, 0, 6)]).values()
    future.result()

    with pytest.raises(Terminal, match=r"(?s)batch 1 left 2 dead letters.*partition 0: 0 to 3.*partition 0: 4 to 5"):
        settle(orders, LETTERS)
    done = settle(orders, LETTERS, abandon=True)

    assert done is not None
    assert done.abandoned == 3
    assert letters(orders) == ALL_LETTERS[3:]
    assert {row["abandoned"] for row in ledger(orders, "settle")} == {3}
    assert orders.run().batches == 0


def test_abandoned_letters_block_the_pipeline(shop: MakeShop) -> None:
    """Given up, counted, and the pipeline goes on."""
    orders = landed(shop)
    drop(orders, LETTERS)

    done = settle(orders, LETTERS, restage=False, abandon=True)

    assert done is not None
    assert (done.restaged, done.abandoned) == (0, 6)
    assert letters(orders) == []
    assert_clean(orders)
    send(orders, {0: [bad(12)]})
    assert orders.run().dead == 1
    assert letters(orders) == [(0, 12, 5)]


def test_rows_that_somebody_deleted_come_back_as_letters(shop: MakeShop) -> None:
    """Deleted rows are nobody's dead letters, although they have no row."""
    from pyiceberg.expressions import EqualTo

    orders = landed(shop)
    orders.project.lake("lake").load_table(ORDERS).delete(EqualTo("id", 4))
    drop(orders, LETTERS)

    settle(orders, LETTERS)

    assert letters(orders) == ALL_LETTERS


def test_letters_that_were_partitioned_block_for_good(shop: MakeShop, at: At) -> None:
    """Their spec changed between decision and follow-up: files don't fit any more, a settle writes them anew."""
    orders = landed(shop, 2)
    send(orders, {0: [order(8), bad(9), order(10), bad(11)]})

    def partition() -> None:
        with lake(orders).load_table(LETTERS).update_spec() as change:
            change.add_identity("code")

    at("decide.committed", partition)
    with pytest.raises(Terminal, match=r"partition spec changed") as refused:
        orders.run()
    assert f"frazil settle orders --table {LETTERS} --restage" in str(refused.value)

    settle(orders, LETTERS)

    assert letters(orders) == ALL_LETTERS
    assert orders.run().batches == 0
    assert_clean(orders)


def test_reset_undoes_a_settle(shop: MakeShop) -> None:
    """Letters that a settle put back belong to their batches: a backward reset takes those out that come again."""
    orders = landed(shop)
    roll_back(orders, LETTERS)
    settle(orders, LETTERS)

    reset(orders, offsets(orders, 6))
    orders.run()

    assert [(p, o) for p, o, _ in letters(orders)] == [(p, o) for p, o, _ in ALL_LETTERS]
    assert_clean(orders)
