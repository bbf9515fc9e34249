"""The dead-letter topic: every letter of a batch once, with its record and its reasons, whoever is killed or late."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from frazil.batch.letter_topic import producer_name
from frazil.crash_points import CrashPoint
from frazil.errors import Terminal
from frazil.kafka.topics import delete_topic
from frazil.run import letter_topic
from frazil.run.settled import settled
from tests.letter_topic import limit, sending
from tests.letters import bring
from tests.operations import (
    LETTERS,
    ORDERS,
    Killed,
    assert_clean,
    bad,
    drop,
    lake,
    landed,
    ledger,
    order,
    position,
    replay,
    scope,
    send,
    settle,
)
from tests.topic_reader import committed, values

MakeShop = Callable[..., Any]
At = Callable[..., Any]
P = CrashPoint

SENT = [bad(1), bad(3)]
"""The letters of the batch that `waiting` has before it."""


def producer_of(orders: Any) -> str:
    return producer_name("orders", str(lake(orders).load_table(ORDERS).metadata.table_uuid))


def forget(orders: Any) -> None:
    """The brokers forget what the group noted, as they do after offsets.retention.minutes."""
    admin, name = AdminClient(dict(orders.cluster.properties)), producer_of(orders)
    admin.delete_consumer_groups([name])[name].result()


@pytest.fixture
def waiting(shop: MakeShop) -> tuple[Any, str]:
    """A shop with a dead-letter topic, two good and two bad orders waiting, and the topic's name."""
    orders, topic = sending(shop(partitions=1))
    send(orders, {0: [order(0), bad(1), order(2), bad(3)]})
    return orders, topic


def test_letter_loses_its_record_or_its_reason(shop: MakeShop) -> None:
    """Bytes, headers and timestamp as they came, then Kafka Connect's headers and Frazil's own, as texts."""
    orders, topic = sending(shop(partitions=1))
    producer = Producer(dict(orders.cluster.properties))
    own = [("trace", b"\x00\xff"), ("trace", None), ("__connect.errors.topic", b"elsewhere")]
    producer.produce(orders.topic, b"{broken", b"\x00key", headers=own, timestamp=1_700_000_000_123)
    assert producer.flush(10) == 0

    orders.run()

    (letter,) = committed(orders.cluster, topic)
    assert (letter.key(), letter.value(), letter.timestamp()[1]) == (b"\x00key", b"{broken", 1_700_000_000_123)
    assert letter.headers()[:3] == own
    said = dict(letter.headers()[3:])
    (row,) = orders.rows(LETTERS)
    assert said == {
        "__connect.errors.topic": orders.topic.encode(),
        "__connect.errors.partition": b"0",
        "__connect.errors.offset": b"0",
        "__connect.errors.connector.name": b"orders",
        "__connect.errors.task.id": b"0",
        "__connect.errors.stage": b"VALUE_CONVERTER",
        "__connect.errors.class.name": b"frazil.records.decode.Decoder",
        "__connect.errors.exception.class.name": b"frazil.INVALID_JSON",
        "__connect.errors.exception.message": row["message"].encode(),
        "frazil.code": b"INVALID_JSON",
        "frazil.batch": b"1",
    }


def test_letters_are_sent_twice_or_not_at_all(waiting: tuple[Any, str]) -> None:
    """Each batch's letters are there once; a batch without any, and a run with nothing new, send nothing."""
    orders, topic = waiting
    orders.run()
    send(orders, {0: [order(4)]})
    orders.run()
    orders.run()
    send(orders, {0: [bad(5)]})
    orders.run()

    assert values(orders.cluster, topic) == [*SENT, bad(5)]
    assert [dict(of.headers())["frazil.batch"] for of in committed(orders.cluster, topic)] == [b"1", b"1", b"3"]
    assert_clean(orders)


@pytest.mark.short("send.committed")
@pytest.mark.parametrize("point", [P.READY_COMMITTING, P.DECIDE_COMMITTED, P.SEND_COMMITTING, P.SEND_COMMITTED])
def test_killed_around_sending(waiting: tuple[Any, str], at: At, point: CrashPoint) -> None:
    """Whatever step it was, the next run sees to it that each letter is there once, and nothing is left open."""
    orders, topic = waiting
    at(point)
    with pytest.raises(Killed):
        orders.run()

    orders.run()

    assert values(orders.cluster, topic) == SENT
    assert_clean(orders)


def test_killed_between_the_transactions_of_a_batch(
    waiting: tuple[Any, str], at: At, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch too large for one transaction goes on behind the letters that are there."""
    orders, topic = waiting
    monkeypatch.setattr(letter_topic, "LETTERS_PER_TRANSACTION", 1)
    at(P.SEND_COMMITTED)
    with pytest.raises(Killed):
        orders.run()
    assert values(orders.cluster, topic) == SENT[:1]

    orders.run()

    assert values(orders.cluster, topic) == SENT
    assert_clean(orders)


@pytest.mark.parametrize("point", [P.READY_COMMITTING, P.SEND_COMMITTING, P.SEND_COMMITTED])
def test_rival_sends_them_too(waiting: tuple[Any, str], at: At, point: CrashPoint) -> None:
    """While one run stands at a step, another one does all of it, and lands more: the late one sends nothing again."""
    orders, topic = waiting

    def rival() -> None:
        orders.run()
        send(orders, {0: [bad(5)]})
        orders.run()

    at(point, rival)

    orders.run()
    orders.run()

    assert values(orders.cluster, topic) == [*SENT, bad(5)]
    assert_clean(orders)


def test_topic_that_was_made_anew_gets_nothing_or_old_letters(waiting: tuple[Any, str], at: At) -> None:
    """Deleted while a batch waits, it gets that batch; the batch is in no other one."""
    orders, topic = waiting
    at(P.SEND_COMMITTED)
    with pytest.raises(Killed):
        orders.run()
    delete_topic(orders.cluster, topic)

    orders.run()

    assert values(orders.cluster, topic) == SENT
    assert_clean(orders)


def test_note_that_is_gone_is_taken_for_nothing_sent(waiting: tuple[Any, str], at: At) -> None:
    """Whether the letters are there can't be told: the pipeline waits and says so, and goes on without the topic."""
    orders, topic = waiting
    at(P.SEND_COMMITTED)
    with pytest.raises(Killed):
        orders.run()
    forget(orders)

    with pytest.raises(Terminal, match="nobody can tell") as caught:
        orders.run()
    assert "take dead_letters.topic out of the pipeline file" in str(caught.value)

    text = (orders.project.pipelines_folder / "orders.yaml").read_text()
    said: list[str] = []
    without = orders.with_pipeline(text.replace(f"topic: {{name: {topic}, partitions: 1}}, ", ""))
    settled(scope(without, said.append))
    assert any("NOT sent" in line for line in said)
    back = orders.with_pipeline(text)
    send(back, {0: [bad(5)]})
    back.run()
    assert values(orders.cluster, topic) == [*SENT, bad(5)]
    assert_clean(back)


def test_letters_of_a_waiting_batch_go_to_the_topic_of_the_file_only(waiting: tuple[Any, str], at: At) -> None:
    """Its manifest names a topic, and whoever may commit to the closing table may name any manifest: it gets nothing unless the
    file names it, too. A file that was edited meanwhile is put back.
    """
    orders, topic = waiting
    at(P.SEND_COMMITTING)
    with pytest.raises(Killed):
        orders.run()
    text = (orders.project.pipelines_folder / "orders.yaml").read_text()

    other = orders.with_pipeline(text.replace(topic, f"{topic}-other"))
    with pytest.raises(Terminal, match=f"sent to topic {topic} by .* names topic {topic}-other") as refused:
        other.run()

    assert "somebody else committed to shop.orders: roll that commit back" in str(refused.value)
    assert values(orders.cluster, topic) == []
    back = orders.with_pipeline(text)
    back.run()
    assert values(orders.cluster, topic) == SENT
    assert_clean(back)


def test_late_run_of_a_finished_batch_waits_for_a_person(waiting: tuple[Any, str], at: At) -> None:
    """Its batch was finished by another run, and then the note was forgotten: there is nothing to send, nor to ask."""
    orders, topic = waiting

    def rival() -> None:
        orders.run()
        forget(orders)

    at(P.DECIDE_COMMITTED, rival)

    orders.run()

    assert values(orders.cluster, topic) == SENT
    assert_clean(orders)


def test_refused_topic_is_noticed_after_the_decision(waiting: tuple[Any, str]) -> None:
    """A topic that can't be made is told before anything is decided, and nothing is published."""
    orders, topic = waiting
    text = (orders.project.pipelines_folder / "orders.yaml").read_text()
    refused = orders.with_pipeline(text.replace(f"name: {topic}", "name: .."))

    with pytest.raises(Terminal):
        refused.run()

    assert [row["kind"] for row in ledger(orders)] == ["start"]
    orders.with_pipeline(text).run()
    assert values(orders.cluster, topic) == SENT


def test_too_large_a_letter_lets_the_others_pass(waiting: tuple[Any, str], at: At) -> None:
    """The topic refuses one: none of the batch is there, the message says what to raise, then all are sent once."""
    orders, topic = waiting
    at(P.READY_COMMITTED, lambda: limit(orders, topic, 100))
    with pytest.raises(Terminal, match="is decided, but its dead letters can't be sent") as caught:
        orders.run()
    assert "max.message.bytes" in str(caught.value)
    assert values(orders.cluster, topic) == []

    limit(orders, topic, 1_000_000)
    orders.run()

    assert values(orders.cluster, topic) == SENT
    assert_clean(orders)


def test_letters_that_are_tried_again_are_sent_again(shop: MakeShop) -> None:
    """Still dead, they were sent before; a replay's letters are of a new batch, and are sent as such."""
    orders, topic = sending(landed(shop))

    bring(orders)
    replay(orders, "earliest")

    n = str(position(orders).n).encode()
    assert [dict(of.headers())["frazil.batch"] for of in committed(orders.cluster, topic)] == [n] * 6
    assert_clean(orders)


@pytest.mark.parametrize("table", [LETTERS, "shop.orders__ledger"])
def test_settled_batch_loses_its_letters(waiting: tuple[Any, str], at: At, table: str) -> None:
    """A batch that waits for a table that is gone is settled: its letters are in the topic all the same, once."""
    orders, topic = waiting
    orders.run()
    send(orders, {0: [bad(5)]})
    at(P.DECIDE_COMMITTED)
    with pytest.raises(Killed):
        orders.run()
    drop(orders, table)

    settle(orders, table)
    orders.run()

    assert values(orders.cluster, topic) == [*SENT, bad(5)]
    assert_clean(orders)
