"""The dead-letter topic and large letters: what fits alone is sent whole, of what does not the topic gets where it is."""

from __future__ import annotations

import json
import os
from base64 import b64encode
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource

from frazil.kafka.admin.topics import ready_topic
from tests.letter_topic import limit, sending
from tests.operations import assert_clean, bad, order, send
from tests.topic_reader import committed, values

MakeShop = Callable[..., Any]


def noise(number: int, size: int) -> bytes:
    """A bad order that no compression makes smaller."""
    return json.dumps({"id": f"x{number}", "name": b64encode(os.urandom(size)).decode()}).encode()


def test_dead_letters_that_fit_one_by_one_are_sent(shop: MakeShop) -> None:
    """A topic's limit is one of batches, which producers fill up to a limit of their own."""
    orders, topic = sending(shop(partitions=1))
    ready_topic(orders.cluster, topic, 1)
    limit(orders, topic, 20_000)
    letters_sent = [noise(number, 6_000) for number in range(8)]
    send(orders, {0: [order(0), *letters_sent]})

    orders.run()

    assert values(orders.cluster, topic) == letters_sent
    assert_clean(orders)


def test_dead_letter_of_900_kb_is_sent_with_its_headers(shop: MakeShop) -> None:
    """It came through a topic of Kafka's own limit, and goes through one, beside others."""
    orders, topic = sending(shop(partitions=1))
    letters_sent = [bad(1), noise(2, 670_000), noise(3, 670_000), bad(4)]
    assert len(letters_sent[1]) > 890_000
    send(orders, {0: letters_sent})

    orders.run()

    assert values(orders.cluster, topic) == letters_sent


def test_topic_is_asked_once_for_its_limit(shop: MakeShop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which letters are sent whole, and how large a batch of them may be, is one question."""
    orders, topic = sending(shop(partitions=1))
    send(orders, {0: [bad(1)]})
    names: list[str] = []
    describe = AdminClient.describe_configs

    def counted(client: AdminClient, resources: list[ConfigResource], **options: Any) -> Any:
        names.extend(resource.name for resource in resources)
        return describe(client, resources, **options)

    monkeypatch.setattr(AdminClient, "describe_configs", counted)

    orders.run()

    assert names.count(topic) == 1


@pytest.mark.parametrize("limit_is_seen", [True, False])
def test_too_large_dead_letter_says_where_its_record_is(
    shop: MakeShop, limit_is_seen: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No producer stops a pipeline by a record that the dead-letter topic does not take: the table has it whole."""
    orders, topic = sending(shop(partitions=1))
    ready_topic(orders.cluster, topic, 1)
    limit(orders, topic, 20_000)
    if not limit_is_seen:
        monkeypatch.setattr("frazil.run.commit.commit_followers.record_limit", lambda *_: None)
    large = noise(2, 90_000)
    send(orders, {0: [order(0), bad(1), large]})

    orders.run()

    by_offset = {
        dict(record.headers())["__connect.errors.offset"]: record for record in committed(orders.cluster, topic)
    }
    assert by_offset[b"1"].value() == bad(1)
    assert (by_offset[b"2"].key(), by_offset[b"2"].value()) == (None, None)
    assert len(large) < int(dict(by_offset[b"2"].headers())["frazil.omitted.bytes"]) < len(large) + 2_000
    assert dict(by_offset[b"2"].headers())["frazil.code"] == b"WRONG_TYPE"
    assert_clean(orders)
