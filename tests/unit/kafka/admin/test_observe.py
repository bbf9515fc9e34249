"""Facts of brokers that know no topic ids."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from confluent_kafka import Uuid

from frazil.batch.facts import PartitionFacts, TopicFacts
from frazil.kafka.admin.observe import _topic_facts, topic_id


def description(uuid: Uuid, numbers: list[int]) -> Any:
    """What describing topic `t` answers, as far as facts need it."""
    return SimpleNamespace(name="t", topic_id=uuid, partitions=[SimpleNamespace(id=number) for number in numbers])


def test_zero_uuid_is_no_topic_id() -> None:
    """Brokers before topic ids answer the zero UUID: two such topics must not look like the same one."""
    assert topic_id(Uuid(0, 0)) is None
    assert topic_id(Uuid(0, 1)) is not None


def test_topic_ids_have_the_spelling_of_kafka_tools() -> None:
    """Kafka's tools write the alphabet for URLs; an id in two spellings would look recreated."""
    assert topic_id(Uuid(-1, -1)) == "_" * 21 + "w"


def test_topic_without_id_keeps_its_partitions() -> None:
    """Everything but the id is there, at the index of its partition."""
    offsets = {("t", number): PartitionFacts(number, 10, 10) for number in range(3)}

    facts = _topic_facts(cast("Any", description(Uuid(0, 0), [2, 0, 1])), offsets)

    assert facts == TopicFacts(None, tuple(PartitionFacts(number, 10, 10) for number in range(3)))
