"""Kafka, read for this check alone: committed records by explicit offsets, and what the cluster says of its topics."""

from __future__ import annotations

import json
import logging
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from frazil.errors import FrazilError, Retryable
from frazil.pipeline.settings.settings import ClusterSettings
from frazil.verify.catalogs import kafka_fault

ANSWER_SECONDS = 10.0
"""Bounds one question."""

SILENT_SECONDS = 20.0
"""Bounds the time without any progress while records are read."""

_POLL_SECONDS = 0.5
_CONSUMED_AT_ONCE = 10_000
_LARGE_BYTES = 2**20
"""A value of so many bytes is taken alone: others behind it may be as large."""

_WORK_SECONDS = 1.0
"""CPU time in a silence that says that the client unpacks a large batch of records."""

_OUT_OF_RANGE: Final = frozenset({KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE})  # noqa: SLF001
_NOT_UNPACKED: Final = KafkaError._BAD_COMPRESSION  # noqa: SLF001
_END_OF_PARTITION: Final = KafkaError._PARTITION_EOF  # noqa: SLF001 - librdkafka's own codes begin with an underscore
_NO_TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAA"
"""How the zero id is written: what brokers without topic ids answer."""

_DEFAULTS: Mapping[str, Any] = {"socket.connection.setup.timeout.ms": 3_000, "log.connection.close": False}
_BOUNDS: Mapping[str, Any] = {
    # The client unpacks a whole answer at once, zstd up to 32,768 times its size.
    "fetch.max.bytes": 8 * 1024,
    "queued.max.messages.kbytes": 16 * 1024,
    "receive.message.max.bytes": 128 * 2**20,
}
"""How much a consumer holds; the settings may say otherwise."""

_REQUIRED: Mapping[str, Any] = {
    "group.id": "frazil-verify",  # asked for by the client; nothing is ever committed to it
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "error",
    "isolation.level": "read_committed",
    "enable.partition.eof": True,
    "check.crcs": True,
    "fetch.wait.max.ms": 50,
    "fetch.error.backoff.ms": 20,
    "message.max.bytes": 1_000,  # the client raises fetch.max.bytes to it
    "statistics.interval.ms": 3_000,
}
_LOG = logging.getLogger(__name__)
_LOG.addHandler(logging.NullHandler())


@dataclass(frozen=True, slots=True)
class TopicState:
    """What the cluster says of a topic now.

    Attributes:
        id: Topic id as Kafka's tools write it, None where the broker gives none.
        is_compacted: Whether records may vanish from the middle of the log.
        offsets: Per partition: the first offset it holds, and the last stable one (exclusive).
    """

    id: str | None
    is_compacted: bool
    offsets: tuple[tuple[int, int], ...]


class Source:
    """The Kafka cluster of a pipeline.

    Args:
        name: Its name in the settings file.
        settings: How to reach it.
    """

    def __init__(self, name: str, settings: ClusterSettings) -> None:
        self.name = name
        self._properties = {"bootstrap.servers": settings.bootstrap_servers, **settings.properties}
        self._said: dict[int, str] = {}
        self._statistics = ""
        self._fetched: list[int] = []

    def __repr__(self) -> str:
        return f"Source({self.name!r})"

    def cluster_id(self) -> str:
        """Id of the cluster.

        Raises:
            Retryable: It does not answer.
            Terminal: It does not let us in.
        """
        doing = f"asking Kafka cluster {self.name} for its id"
        try:
            admin = self._admin()  # a name of its own: a client that nobody holds takes its questions with it
            found: str = admin.describe_cluster(request_timeout=ANSWER_SECONDS).result().cluster_id
        except KafkaException as error:
            raise self.fault(error, doing) from error
        return found

    def topics(self, names: Sequence[str]) -> dict[str, TopicState]:
        """State of the topics; those that the cluster does not have are left out.

        Raises:
            Retryable: It does not answer.
            Terminal: It does not let us in.
        """
        if not names:
            return {}
        doing = f"asking Kafka cluster {self.name} for topics {', '.join(names)}"
        consumer = self.consumer()
        try:
            return self._states(consumer, names)
        except KafkaException as error:
            raise self.fault(error, doing) from error
        finally:
            consumer.close()

    def _states(self, consumer: Consumer, names: Sequence[str]) -> dict[str, TopicState]:
        admin, found = self._admin(), {}
        described = admin.describe_topics(TopicCollection(list(names)), request_timeout=ANSWER_SECONDS)
        for name, answer in described.items():
            try:
                topic = answer.result()
            except KafkaException as error:
                if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                    continue
                raise
            held = [self._held(consumer, name, p) for p in sorted(part.id for part in topic.partitions)]
            found[name] = TopicState(_topic_id(str(topic.topic_id)), self._is_compacted(admin, name), tuple(held))
        return found

    @staticmethod
    def _held(consumer: Consumer, topic: str, partition: int) -> tuple[int, int]:
        # With isolation level read_committed, the upper one is the last stable offset.
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=ANSWER_SECONDS)
        return low, high

    @staticmethod
    def _is_compacted(admin: AdminClient, topic: str) -> bool:
        resource = ConfigResource(ResourceType.TOPIC, topic)
        answer = admin.describe_configs([resource], request_timeout=ANSWER_SECONDS)[resource].result()
        return "compact" in str(answer["cleanup.policy"].value)

    def offsets_at(self, milliseconds: int, partitions: Sequence[tuple[str, int]]) -> dict[tuple[str, int], int | None]:
        """First offset at or after an instant per partition, None where there is none.

        Raises:
            Retryable: It does not answer.
            Terminal: It does not let us in.
        """
        asked = [TopicPartition(topic, partition, milliseconds) for topic, partition in partitions]
        consumer = self.consumer()
        try:
            answers = consumer.offsets_for_times(asked, timeout=ANSWER_SECONDS) if asked else []
        except KafkaException as error:
            raise self.fault(error, f"asking Kafka cluster {self.name} for offsets at an instant") from error
        finally:
            consumer.close()
        return {(a.topic, a.partition): a.offset if a.offset >= 0 else None for a in answers}

    def consumer(self) -> Consumer:
        """A consumer of committed records.

        Raises:
            Terminal: The cluster's properties are not valid.
        """
        try:
            return Consumer(
                {**_DEFAULTS, **_BOUNDS, **self._properties, **_REQUIRED, **self._hooks(), "stats_cb": self._count}
            )
        except KafkaException as error:
            raise self.fault(error, f"Kafka cluster {self.name}") from error

    def _admin(self) -> AdminClient:
        return AdminClient({**_DEFAULTS, **self._properties, **self._hooks()})

    def _hooks(self) -> dict[str, Any]:
        return {"error_cb": self._hear, "logger": _LOG}

    def _count(self, statistics: str) -> None:
        self._statistics = statistics

    def fetched(self) -> list[int]:
        """The next offset that the last consumer fetches of each partition: it fetches aborted records, and hands none out."""
        if self._statistics:  # read once: of thousands of partitions that takes milliseconds of work
            topics, self._statistics = json.loads(self._statistics)["topics"].values(), ""
            self._fetched = [at["next_offset"] for topic in topics for at in topic["partitions"].values()]
        return self._fetched

    def _hear(self, error: KafkaError) -> None:
        self._said[error.code()] = error.str()

    def fault(self, error: KafkaException | KafkaError, doing: str) -> FrazilError:
        """The Frazil error for what the client said."""
        return kafka_fault(error, doing, self._properties, self.complaints())

    def complaints(self) -> str:
        """What connections failed with, to be put behind a message."""
        return f"; {'; '.join(sorted(self._said.values()))}" if self._said else ""


def _topic_id(text: str) -> str | None:
    # librdkafka writes the plain base64 alphabet, Kafka's tools the one for URLs.
    return None if text == _NO_TOPIC_ID else text.replace("+", "-").replace("/", "_")


def _with_safe_headers(message: Message) -> Message:
    """The same message, without headers if the client can't read them: if it is asked again, the process ends."""
    try:
        # Called from C: a call that the interpreter has specialised would not notice that it failed.
        next(map(Message.headers, (message,)))
    except SystemError:
        message.set_headers([])
    return message


class PartitionReader:
    """Reads ascending ranges of one partition; ranges that touch are read in one go.

    Args:
        source: The cluster.
        topic: Topic.
        partition: Partition number.

    Attributes:
        log_start: First offset that Kafka still held when a range was found to begin before it; 0 if none did.
    """

    def __init__(self, source: Source, topic: str, partition: int) -> None:
        self.log_start = 0
        self._source, self._topic, self._partition = source, topic, partition
        self._consumer: Consumer | None = None
        self._arrived: deque[Message] = deque()
        self._at = -1

    def close(self) -> None:
        """End the consumer, if there is one."""
        if self._consumer is not None:
            self._consumer.close()

    def log(self) -> tuple[int, int]:
        """First offset that Kafka holds now, and the last stable one (exclusive).

        Raises:
            Retryable: It does not answer.
            Terminal: The cluster does not let us in.
        """
        place = TopicPartition(self._topic, self._partition)
        try:
            low, high = self._open().get_watermark_offsets(place, timeout=ANSWER_SECONDS)
        except KafkaException as error:
            raise self._source.fault(error, f"asking {self._name()} for its offsets") from error
        return low, high

    def read(self, start: int, end: int) -> Iterator[Message]:
        """Committed records with offsets `start` <= o < `end`, in order.

        What retention deletes meanwhile is left out, and `log_start` tells of it. Ends when Kafka hands out something at or beyond `end`: a record, or the end of the partition, which counts the
        transaction markers and aborted records before it. An offset of a batch of records that the client can't unpack comes
        as a message with that error. Headers with a name that is not UTF-8 are left out.

        Args:
            start: First offset.
            end: One past the last; at most the last stable offset.

        Raises:
            Retryable: Nothing arrives any more, or the log ends before `end`.
            Terminal: The cluster does not let us in.
        """
        if start >= end:
            return
        if start != self._at:
            self._begin(start)
        while self._at < end:
            if not self._arrived:
                self._arrived.extend(self._next(end))
            message = self._arrived[0]
            if (error := message.error()) is not None:
                self._arrived.popleft()
                if error.code() == _NOT_UNPACKED:
                    yield from self._unreadable(message.offset() or 0, error, start, end)
                else:
                    self._pass_over(message, error, end)
            elif (offset := message.offset() or 0) >= end:
                self._at = end  # kept: the next range may begin with it
            else:
                self._arrived.popleft()
                self._at = offset + 1
                if offset >= start:
                    yield _with_safe_headers(message)
        self._at = end

    def _begin(self, start: int) -> None:
        self._arrived.clear()
        self._open().assign([TopicPartition(self._topic, self._partition, start)])
        self._at = start

    def _open(self) -> Consumer:
        if self._consumer is None:
            self._consumer = self._source.consumer()
        return self._consumer

    def _next(self, end: int) -> list[Message]:
        consumer = self._open()
        deadline, worked = time.monotonic() + SILENT_SECONDS, time.process_time()
        fetched: list[int] | None = None
        while (first := consumer.poll(_POLL_SECONDS)) is None:
            before, fetched = fetched, self._source.fetched()
            if before not in (None, fetched):
                deadline = time.monotonic() + SILENT_SECONDS
            if time.monotonic() >= deadline and time.process_time() - worked >= _WORK_SECONDS:
                deadline, worked = time.monotonic() + SILENT_SECONDS, time.process_time()
            elif time.monotonic() >= deadline:
                raise Retryable(
                    f"{self._name()}: nothing arrived for {SILENT_SECONDS:.0f} s at offset {self._at}, on the way to {end}"
                    f"{self._source.complaints()}",
                    next_step="try again; if it stays, look at the broker that leads the partition",
                )
        return [first, *(consumer.consume(_CONSUMED_AT_ONCE, 0) if len(first) < _LARGE_BYTES else ())]

    def _unreadable(self, base: int, error: KafkaError, start: int, end: int) -> Iterator[Message]:
        """The offsets of a batch of records, which begins at `base`, as messages with its error; then go on behind it.

        The client does not tell where it ends. Each of its offsets brings the same error.
        """
        first = inside = self._at
        behind, step = min(inside + 1, end), 1
        while behind < end and self._is_within(base, behind):
            step *= 2
            inside, behind = behind, min(behind + step, end)
        while behind - inside > 1:
            middle = (inside + behind) // 2
            if self._is_within(base, middle):
                inside = middle
            else:
                behind = middle
        self._begin(behind)
        for offset in range(max(first, base, start), behind):
            yield Message(topic=self._topic, partition=self._partition, offset=offset, error=error)

    def _is_within(self, base: int, offset: int) -> bool:
        self._begin(offset)
        first = self._next(offset)[0]
        error = first.error()
        return error is not None and error.code() == _NOT_UNPACKED and first.offset() == base

    def _pass_over(self, message: Message, error: KafkaError, end: int) -> None:
        """Go on behind what is not there: the end of the partition, or a start of the log that moved."""
        if error.code() == _END_OF_PARTITION:
            self._at = max(self._at, message.offset() or 0)
            return
        low = self.log()[0] if error.code() in _OUT_OF_RANGE else 0
        if low <= self._at:
            raise self._source.fault(error, f"reading {self._name()} at offset {self._at}")
        self.log_start = low
        self._begin(min(low, end))

    def _name(self) -> str:
        return f"Kafka cluster {self._source.name}, topic {self._topic}, partition {self._partition}"
