"""Where partitions end, asked again and again over one connection: the look of a run that stays."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import ExitStack
from types import TracebackType
from typing import Self

from confluent_kafka import IsolationLevel, TopicPartition
from confluent_kafka.admin import OffsetSpec

from frazil.kafka.client import REQUEST_SECONDS, Admin, admin
from frazil.kafka.cluster import Cluster


class LogEnds:
    """Asks one cluster. A new client for each look would cost more than the look, two round trips. Use it as a context
    manager.
    """

    def __init__(self) -> None:
        self._kept = ExitStack()
        self._asked: Admin | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._kept.close()
        self._asked = None

    def look(self, cluster: Cluster, partitions: Collection[tuple[str, int]]) -> Mapping[tuple[str, int], int]:
        """Return the last stable offset of each partition: where what can be read ends.

        Raises:
            Retryable: No broker answers, or a partition has no leader now.
            Terminal: A topic or partition is not there any more, or access is refused.
        """
        if self._asked is None or self._asked.cluster != cluster:
            self._kept.close()
            self._asked = self._kept.enter_context(admin(cluster))
        if not partitions:
            return {}
        asked = self._asked
        request = {TopicPartition(topic, number): OffsetSpec.latest() for topic, number in partitions}
        futures = asked.client.list_offsets(
            request, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=REQUEST_SECONDS
        )
        return {
            (of.topic, of.partition): asked.answer(future, topic=of.topic, partition=of.partition).offset
            for of, future in futures.items()
        }
