"""The dead-letter topic: every letter of a batch at least once, with its record and its reasons, whoever is killed or late."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from frazil.errors import Terminal
from frazil.failpoints import Failpoint
from frazil.run.commit.commit_batch import recover
from tests.letter_topic import sending
from tests.letters import run_dead_letter_replay
from tests.operations import (
    LETTERS,
    Killed,
    assert_clean,
    bad,
    drop,
    lake,
    landed,
    ledger,
    order,
    position,
    repair,
    replay,
    scope,
    send,
)
from tests.servers import delete_topic
from tests.topic_reader import committed, values

MakeShop = Callable[..., Any]
AtFailpoint = Callable[..., Any]
P = Failpoint

LETTERS_SENT = [bad(1), bad(3)]
"""The letters of the batch that `waiting` has before it."""


@pytest.fixture
def waiting(shop: MakeShop) -> tuple[Any, str]:
    """A shop with a dead-letter topic, two good and two bad orders waiting, and the topic's name."""
    orders, topic = sending(shop(partitions=1))
    send(orders, {0: [order(0), bad(1), order(2), bad(3)]})
    return orders, topic


def once_each(orders: Any, topic: str) -> list[bytes]:
    """Values of the letters as a consumer has them that drops repeats, by the headers that tell a letter."""
    header_names = (
        "__connect.errors.topic",
        "__connect.errors.partition",
        "__connect.errors.offset",
        "frazil.batch.id",
    )
    letters = {
        tuple(dict(letter.headers())[name] for name in header_names): letter.value()
        for letter in committed(orders.cluster, topic)
    }
    return sorted(letters.values())


def test_dead_letter_has_its_record_and_its_reason(shop: MakeShop) -> None:
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
    headers = dict(letter.headers()[3:])
    (row,) = orders.rows(LETTERS)
    assert headers == {
        "__connect.errors.topic": orders.topic.encode(),
        "__connect.errors.partition": b"0",
        "__connect.errors.offset": b"0",
        "__connect.errors.connector.name": b"orders",
        "__connect.errors.task.id": b"0",
        "__connect.errors.stage": b"VALUE_CONVERTER",
        "__connect.errors.class.name": b"frazil.records.decoder.decode.Decoder",
        "__connect.errors.exception.class.name": b"frazil.INVALID_JSON",
        "__connect.errors.exception.message": row["message"].encode(),
        "frazil.code": b"INVALID_JSON",
        "frazil.batch": b"1",
        "frazil.batch.id": ledger(orders, "ingest")[0]["batch"].encode(),
    }


def test_finished_batch_sends_nothing_again(waiting: tuple[Any, str]) -> None:
    """Undisturbed, each batch's letters are there once; a batch without any, and a run with nothing new, send nothing."""
    orders, topic = waiting
    orders.run()
    send(orders, {0: [order(4)]})
    orders.run()
    orders.run()
    send(orders, {0: [bad(5)]})
    orders.run()

    assert values(orders.cluster, topic) == [*LETTERS_SENT, bad(5)]
    assert [dict(record.headers())["frazil.batch"] for record in committed(orders.cluster, topic)] == [b"1", b"1", b"3"]
    assert_clean(orders)


@pytest.mark.short("letters.sent")
@pytest.mark.parametrize("point", [P.DECIDE_COMMITTED, P.FOLLOW_COMMITTED, P.LETTERS_SENDING, P.LETTERS_SENT])
def test_run_after_kill_sends_all_dead_letters_of_batch(
    waiting: tuple[Any, str], at_failpoint: AtFailpoint, point: Failpoint
) -> None:
    """Whatever step it was, the next run sends the whole batch, and repeats are told by their headers."""
    orders, topic = waiting
    at_failpoint(point)
    with pytest.raises(Killed):
        orders.run()

    orders.run()

    assert once_each(orders, topic) == LETTERS_SENT
    assert_clean(orders)


@pytest.mark.short("letters.sending")
@pytest.mark.parametrize("point", [P.DECIDE_COMMITTED, P.LETTERS_SENDING, P.LETTERS_SENT])
def test_dead_letters_are_sent_beside_rival(
    waiting: tuple[Any, str], at_failpoint: AtFailpoint, point: Failpoint
) -> None:
    """While one run stands at a step, another one does all of it, and lands more."""
    orders, topic = waiting

    def rival() -> None:
        orders.run()
        send(orders, {0: [bad(5)]})
        orders.run()

    at_failpoint(point, rival)

    orders.run()
    orders.run()

    assert once_each(orders, topic) == [*LETTERS_SENT, bad(5)]
    assert_clean(orders)


def test_dead_letters_are_sent_after_catalog_was_restored_from_backup(shop: MakeShop, tmp_path: Path) -> None:
    """Batch numbers come again with other batches: their letters are new ones."""
    orders, topic = sending(shop(partitions=1))
    send(orders, {0: [order(0)]})
    orders.run()
    catalog = Path(lake(orders).uri.removeprefix("sqlite:///"))
    shutil.copy(catalog, tmp_path / "backup.db")
    for number in (1, 2, 3):
        send(orders, {0: [bad(number)]})
        orders.run()
    shutil.copy(tmp_path / "backup.db", catalog)

    send(orders, {0: [bad(4), bad(5)]})
    orders.run()

    assert set(values(orders.cluster, topic)) == {bad(number) for number in range(1, 6)}
    assert_clean(orders)


def test_recreated_topic_gets_dead_letters_of_waiting_batch(
    waiting: tuple[Any, str], at_failpoint: AtFailpoint
) -> None:
    """Deleted while a batch waits, it gets that batch; the batch is in no other one."""
    orders, topic = waiting
    at_failpoint(P.LETTERS_SENT)
    with pytest.raises(Killed):
        orders.run()
    delete_topic(orders.cluster, topic)

    orders.run()

    assert values(orders.cluster, topic) == LETTERS_SENT
    assert_clean(orders)


def test_file_without_the_topic_lets_a_waiting_batch_go_on(waiting: tuple[Any, str], at_failpoint: AtFailpoint) -> None:
    """What was not sent is reported; with the key back, the next batch is sent."""
    orders, topic = waiting
    at_failpoint(P.FOLLOW_COMMITTED)
    with pytest.raises(Killed):
        orders.run()

    text = (orders.project.pipelines_folder / "orders.yaml").read_text()
    lines: list[str] = []
    without_topic = orders.with_pipeline(text.replace(f"topic: {{name: {topic}, partitions: 1}}, ", ""))
    recover(scope(without_topic, lines.append))

    assert f"batch 1: its 2 dead letters are NOT sent to topic {topic}" in "\n".join(lines)
    back = orders.with_pipeline(text)
    send(back, {0: [bad(5)]})
    back.run()
    assert values(orders.cluster, topic) == [bad(5)]
    assert_clean(back)


def test_dead_letters_of_waiting_batch_go_to_topic_of_file_only(
    waiting: tuple[Any, str], at_failpoint: AtFailpoint
) -> None:
    """Its manifest names a topic, and whoever may commit to the closing table may name any manifest: that topic gets nothing
    unless the file names it.
    """
    orders, topic = waiting
    at_failpoint(P.FOLLOW_COMMITTED)
    with pytest.raises(Killed):
        orders.run()
    text = (orders.project.pipelines_folder / "orders.yaml").read_text()

    second_pipeline = orders.with_pipeline(text.replace(topic, f"{topic}-other"))
    second_pipeline.run()

    assert values(orders.cluster, topic) == []
    assert values(orders.cluster, f"{topic}-other") == LETTERS_SENT
    assert_clean(second_pipeline)


def test_topic_that_can_not_be_created_is_reported_before_decision(waiting: tuple[Any, str]) -> None:
    """Nothing is published."""
    orders, topic = waiting
    text = (orders.project.pipelines_folder / "orders.yaml").read_text()
    refused = orders.with_pipeline(text.replace(f"name: {topic}", "name: .."))

    with pytest.raises(Terminal):
        refused.run()

    assert [row["kind"] for row in ledger(orders)] == ["start"]
    orders.with_pipeline(text).run()
    assert values(orders.cluster, topic) == LETTERS_SENT


def test_replayed_dead_letters_are_not_sent_again(shop: MakeShop) -> None:
    """Still dead, they were sent before; a replay's letters are of a new batch, and are sent as such."""
    orders, topic = sending(landed(shop))

    run_dead_letter_replay(orders)
    replay(orders, "earliest")

    n = str(position(orders).n).encode()
    assert [dict(record.headers())["frazil.batch"] for record in committed(orders.cluster, topic)] == [n] * 6
    assert_clean(orders)


@pytest.mark.parametrize("table", [LETTERS, "shop.orders__ledger"])
def test_repaired_batch_has_its_dead_letters_in_topic(
    waiting: tuple[Any, str], at_failpoint: AtFailpoint, table: str
) -> None:
    """A batch that waits for a table that is gone is given up there: its letters are in the topic all the same.

    Those of a replay are of a new batch, and are sent as such.
    """
    orders, topic = waiting
    orders.run()
    send(orders, {0: [bad(5)]})
    at_failpoint(P.DECIDE_COMMITTED)
    with pytest.raises(Killed):
        orders.run()
    drop(orders, table)

    repair(orders, table)
    orders.run()

    again = [] if table != LETTERS else [*LETTERS_SENT, bad(5)]
    assert sorted(once_each(orders, topic)) == sorted([*LETTERS_SENT, bad(5), *again])
    assert_clean(orders)
