"""Compaction on demand: topics that the broker's cleaner takes to, and topics that are compacted only for a while."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from frazil.kafka.client.cluster import Cluster, OutgoingRecord
from frazil.kafka.read.read import read_range
from frazil.runtime.process import until
from tests.produce import produce

COMPACTED: Final = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    # Every batch whose time is later begins a segment, and only the last segment is never cleaned.
    "segment.ms": "1",
    "delete.retention.ms": "0",
}
CLEANED_SECONDS: Final = 60
LONG_AGO_MS: Final = 1_700_000_000_000


@contextmanager
def eager_cleaner(broker: str) -> Iterator[None]:
    """The cleaner looks for work all the time, not every 15 s."""
    servers = {"bootstrap.servers": broker}
    _alter(servers, ConfigResource(ResourceType.BROKER, "1"), {"log.cleaner.backoff.ms": "10"})
    yield
    _alter(servers, ConfigResource(ResourceType.BROKER, "1"), {"log.cleaner.backoff.ms": None})


def configure(cluster: Cluster, topic: str, config: Mapping[str, str]) -> None:
    """Change the configuration of a topic."""
    _alter(cluster.properties, ConfigResource(ResourceType.TOPIC, topic), config)


def _alter(properties: Mapping[str, str], resource: ConfigResource, config: Mapping[str, str | None]) -> None:
    for name, value in config.items():
        operation = AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
        resource.add_incremental_config(ConfigEntry(name, value, incremental_operation=operation))
    with AdminClient(dict(properties)) as client:
        for future in client.incremental_alter_configs([resource]).values():
            future.result(30)


def send_apart(cluster: Cluster, topic: str, records: list[tuple[bytes, bytes | None]], first: int = 0) -> None:
    """Send keys and values, each in a segment of its own."""
    for number, (key, value) in enumerate(records, first):
        produce(cluster, topic, [OutgoingRecord(key, value, (), LONG_AGO_MS + 1_000 * number)])


def read(cluster: Cluster, topic: str, start: int, end: int) -> list[int]:
    """Offsets that a range of partition 0 gives."""
    return [offset for batch in read_range(cluster, topic, 0, start, end) for offset in batch["offset"].to_pylist()]


def wait_for(cluster: Cluster, topic: str, end: int, remaining: list[int]) -> None:
    """Wait until the cleaner left exactly these offsets below `end`."""
    assert until(lambda: read(cluster, topic, 0, end) == remaining, CLEANED_SECONDS), read(cluster, topic, 0, end)
