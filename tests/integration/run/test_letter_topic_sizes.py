"""The dead-letter topic and large letters: what fits alone is sent, what does not holds the pipeline, and is named."""

from __future__ import annotations

import json
import os
from base64 import b64encode
from collections.abc import Callable
from typing import Any

import pytest

from frazil.errors import Terminal
from frazil.kafka.topics import ready_topic
from tests.letter_topic import limit, sending
from tests.operations import (
    assert_clean,
    bad,
    order,
    position,
    send,
)
from tests.topic_reader import values

MakeShop = Callable[..., Any]


def noise(number: int, size: int) -> bytes:
    """A bad order that no compression makes smaller."""
    return json.dumps({"id": f"x{number}", "name": b64encode(os.urandom(size)).decode()}).encode()


def test_letters_that_fit_one_by_one_are_sent(shop: MakeShop) -> None:
    """A topic's limit is one of batches, which producers fill up to a limit of their own."""
    orders, topic = sending(shop(partitions=1))
    ready_topic(orders.cluster, topic, 1)
    limit(orders, topic, 20_000)
    sent = [noise(number, 6_000) for number in range(8)]
    send(orders, {0: [order(0), *sent]})

    orders.run()

    assert values(orders.cluster, topic) == sent
    assert_clean(orders)


def test_a_letter_of_900_kb_is_sent_with_its_headers(shop: MakeShop) -> None:
    """It came through a topic of Kafka's own limit, and goes through one, beside others."""
    orders, topic = sending(shop(partitions=1))
    sent = [bad(1), noise(2, 670_000), noise(3, 670_000), bad(4)]
    assert len(sent[1]) > 890_000
    send(orders, {0: sent})

    orders.run()

    assert values(orders.cluster, topic) == sent


def test_too_large_a_letter_is_named_and_sent_once_the_topic_takes_it(shop: MakeShop) -> None:
    """The rows are there, the pipeline waits, and the message says which record it is and what to raise."""
    orders, topic = sending(shop(partitions=1))
    ready_topic(orders.cluster, topic, 1)
    limit(orders, topic, 20_000)
    flat = json.dumps({"id": "x1", "name": "a" * 90_000}).encode()  # small once it is compressed
    large = noise(2, 90_000)
    send(orders, {0: [order(0), flat, large]})

    with pytest.raises(Terminal) as caught:
        orders.run()

    assert f"topic {orders.topic}, partition 0, offset 2 has 12" in str(caught.value)
    assert f"raise max.message.bytes of topic {topic}" in str(caught.value)
    assert "is decided, but its dead letters can't be sent" in str(caught.value)
    assert position(orders).n == 1
    assert len(orders.rows()) == 1

    limit(orders, topic, 200_000)
    orders.run()

    assert set(values(orders.cluster, topic)) == {flat, large}
    assert_clean(orders)
