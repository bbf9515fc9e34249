"""Where a reset leads to: files of offsets, topics, the consumer group, and what can't be reset."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from frazil.batch.position import parse_offsets
from frazil.errors import Terminal
from frazil.kafka.admin.consumer_group import group_offsets
from tests.operations import (
    assert_clean,
    bad,
    landed_in_two_partitions,
    offsets,
    order,
    places,
    position,
    reset,
    send,
    without_kafka_columns,
)

MakeShop = Callable[..., Any]
AtFailpoint = Callable[..., Any]


def test_reset_of_one_topic_moves_no_other(shop: MakeShop, topic: Callable[..., str]) -> None:
    """With --topic only that one moves: rows of the other, and records of it that nobody read yet, stay as they are."""
    orders = shop(partitions=1)
    second_topic = topic(partitions=1)
    text = (orders.project.pipelines_folder / "orders.yaml").read_text()
    with_both = orders.with_pipeline(text.replace(f"[{orders.topic}]", f"[{orders.topic}, {second_topic}]"))
    also = type(with_both)(with_both.project, with_both.cluster, second_topic)
    for shop_part in (with_both, also):
        send(shop_part, {0: [order(0), bad(1), order(2)]})
    with_both.run()
    send(also, {0: [order(3)]})

    reset(with_both, "earliest", (with_both.topic,))

    assert {name: t.next for name, t in position(with_both).topics.items()} == {
        with_both.topic: (0,),
        second_topic: (3,),
    }
    assert len(places(with_both)) == 2
    assert with_both.run().read == 4
    assert len(places(with_both)) == 5
    assert_clean(with_both)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "null",
        "{",
        '{"T": 3}',
        '{"T": {"0": -1}}',
        '{"T": {"0": "7"}}',
        '{"T": {"0": 7.5}}',
        '{"T": {"zero": 7}}',
        '{"T": {"0": true}}',
        '{"T": {"0": 99}}',
        '{"T": {"9": 1}}',
        '{"T": [1, 2, 3]}',
        '{"elsewhere": {"0": 1}}',
    ],
)
def test_invalid_offsets_file_moves_nothing(shop: MakeShop, text: str) -> None:
    """A file by hand that does not fit is refused as a whole, in words, and nothing moves."""
    orders = landed_in_two_partitions(shop)
    before = position(orders)

    with pytest.raises(Terminal, match=r"offset|no such partition"):
        reset(orders, parse_offsets(text.replace("T", orders.topic), "offsets.json"))

    assert position(orders) == before


def test_file_that_names_one_partition_moves_no_other(shop: MakeShop) -> None:
    """What a file leaves out stays where it is."""
    orders = landed_in_two_partitions(shop)

    reset(orders, parse_offsets(f'{{"{orders.topic}": {{"1": 4}}}}', "offsets.json"))

    assert position(orders).topics[orders.topic].next == (8, 4)
    assert orders.run().read == 4
    assert_clean(orders)


def test_consumer_group_follows_position(shop: MakeShop) -> None:
    """The consumer group follows runs and resets, forward and back."""
    orders = landed_in_two_partitions(shop)
    group = orders.pipeline.consumer_group

    def seen() -> list[int]:
        offsets = group_offsets(orders.cluster, group)
        return [offsets[orders.topic, partition] for partition in (0, 1)]

    assert seen() == [8, 8]
    reset(orders, offsets(orders, 3, 8))
    assert seen() == [3, 8]
    orders.run()
    assert seen() == [8, 8]


def test_reset_before_first_run_or_of_unknown_topic_is_refused(shop: MakeShop) -> None:
    """Without a position there is nothing to move; a topic of somebody else is named."""
    orders = shop()
    orders.produce_orders(range(3))
    with pytest.raises(Terminal, match="never ran"):
        reset(orders, "earliest")
    orders.run()
    with pytest.raises(Terminal, match="reads no topic elsewhere"):
        reset(orders, "earliest", ("elsewhere",))


def test_backward_reset_without_kafka_columns_is_refused(shop: MakeShop) -> None:
    """Rows that don't say where they came from can't be taken out; duplicates must be allowed."""
    plain = without_kafka_columns(shop)
    plain.produce_orders(range(3))
    plain.run()

    with pytest.raises(Terminal, match="--allow-duplicates"):
        reset(plain, "earliest")
    reset(plain, "earliest", allow_duplicates=True)
    plain.run()

    assert plain.ids() == [0, 0, 1, 1, 2, 2]
