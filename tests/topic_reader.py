"""What is in a topic, for tests: everything that was committed, in order of partition and offset."""

from __future__ import annotations

from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, TopicPartition

from frazil.kafka.client.cluster import Cluster
from frazil.runtime.process import until

_SECONDS = 30


def committed(cluster: Cluster, topic: str) -> list[Message]:
    """All records of committed transactions. Nothing that is open may be in the topic."""
    options = {"group.id": "reader", "isolation.level": "read_committed", "enable.partition.eof": True, "log_level": 0}
    consumer = Consumer({**cluster.properties, **options, "enable.auto.commit": False})
    messages: list[Message] = []
    ended: set[int] = set()

    def read() -> bool:
        message = consumer.poll(0.05)
        if message is not None and message.error() is None:
            messages.append(message)
        elif message is not None:
            ended.add(message.partition() or 0)
        return len(ended) == len(partitions)

    try:
        partitions = consumer.list_topics(topic, timeout=_SECONDS).topics[topic].partitions
        consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in partitions])
        assert until(read, _SECONDS, 0)
    finally:
        consumer.close()
    return sorted(messages, key=lambda message: (message.partition(), message.offset()))


def values(cluster: Cluster, topic: str) -> list[bytes | None]:
    """Values of all committed records, sorted; a null first."""
    return sorted(
        (message.value() for message in committed(cluster, topic)), key=lambda value: (value is not None, value or b"")
    )
