"""Topics filled with a workload, as fast as the client can: 20 million records in a minute or two."""

from __future__ import annotations

from itertools import islice
from typing import Final

from confluent_kafka import Message, Producer

from frazil.kafka.admin.topics import create_topic
from frazil.kafka.client.cluster import Cluster
from tests.bench.side_by_side.workloads import Records

_SERVE_EVERY: Final = 5_000
_FLUSH_SECONDS: Final = 120.0


def fill(cluster: Cluster, topic: str, partitions: int, records: Records, count: int) -> int:
    """Make a topic and send it the first `count` records, evenly into its partitions.

    Returns:
        Bytes of the values.
    """
    create_topic(cluster, topic, partitions)
    return append(cluster, topic, partitions, records, count)


def append(cluster: Cluster, topic: str, partitions: int, records: Records, count: int) -> int:
    """Send a topic that is there so many records, evenly into its partitions.

    Returns:
        Bytes of the values.
    """
    failed: list[str] = []

    def delivered(error: object, _: Message) -> None:
        if error is not None:
            failed.append(str(error))

    producer = Producer(
        {
            **cluster.properties,
            "linger.ms": 20,
            "batch.size": 1_000_000,
            "queue.buffering.max.messages": 1_000_000,
            "queue.buffering.max.kbytes": 512 * 1024,
            "compression.type": "lz4",
            "acks": "all",
            "enable.idempotence": True,
        }
    )
    size = 0
    for start in range(0, count, _SERVE_EVERY):
        chunk = [records(start + n) for n in range(min(_SERVE_EVERY, count - start))]
        for n, value in enumerate(chunk, start=start):
            while True:
                try:
                    producer.produce(topic, value, partition=n % partitions, on_delivery=delivered)
                    break
                except BufferError:
                    producer.poll(0.1)
        size += sum(map(len, chunk))
        producer.poll(0)
    unsent = producer.flush(_FLUSH_SECONDS)
    assert unsent == 0, f"{unsent} records of {topic} were not taken within {_FLUSH_SECONDS:.0f} s"
    assert not failed, f"{len(failed)} records of {topic} failed: {list(islice(failed, 3))}"
    return size
