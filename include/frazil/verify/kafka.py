"""The Kafka client of verify: reads committed records by explicit offsets, the state of topics, and schemas of registries."""

from __future__ import annotations

import json
import logging
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from frazil.error_codes import BAD_SETTING, KAFKA_FAILED, REGISTRY_FAILED
from frazil.errors import FrazilError
from frazil.extras import require
from frazil.kafka_properties import client_properties
from frazil.pipeline.settings.settings import ClusterSettings, RegistrySettings
from frazil.verify.catalogs import kafka_error
from frazil.verify.values.native import Schema, SchemaReader, UnjudgedError

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import SchemaReference, SchemaRegistryClient


ANSWER_SECONDS = 10.0
"""Timeout of one request."""

SILENT_SECONDS = 20.0
"""Longest time without progress while records are read."""

_POLL_SECONDS = 0.5
_CONSUMED_AT_ONCE = 10_000
_LARGE_BYTES = 2**20
"""Size from which on a record is consumed alone, because the next ones may be as large, and memory is bounded."""

_WORK_SECONDS = 1.0
"""CPU time without a record which shows that the client is unpacking a large batch of records."""

_OUT_OF_RANGE: Final = frozenset({KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE})  # noqa: SLF001
_NOT_UNPACKED: Final = KafkaError._BAD_COMPRESSION  # noqa: SLF001
_END_OF_PARTITION: Final = KafkaError._PARTITION_EOF  # noqa: SLF001 - librdkafka's own codes begin with an underscore
_NO_TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAA"
"""The zero id, which brokers without topic ids return."""

_DEFAULTS: Mapping[str, Any] = {"socket.connection.setup.timeout.ms": 3_000, "log.connection.close": False}
_BOUNDS: Mapping[str, Any] = {
    # The client unpacks a whole response at once; zstd may unpack to 32,768 times the size.
    "fetch.max.bytes": 8 * 1024,
    "queued.max.messages.kbytes": 16 * 1024,
    "receive.message.max.bytes": 128 * 2**20,
}
"""Memory limits of a consumer; the settings may override them."""

_REQUIRED: Mapping[str, Any] = {
    "group.id": "frazil-verify",  # the client requires one; nothing is ever committed to it
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
    """State of a topic in the cluster.

    Attributes:
        id: Topic id as Kafka's tools write it; None if the broker has none.
        is_compacted: Whether Kafka may remove records from the middle of the log.
        offsets: For each partition: the first offset that Kafka has, and the last stable offset (exclusive).
    """

    id: str | None
    is_compacted: bool
    offsets: tuple[tuple[int, int], ...]


class Source:
    """The Kafka cluster of a pipeline."""

    def __init__(self, name: str, settings: ClusterSettings) -> None:
        self.name = name
        self._properties = settings.client_properties
        self._client_errors: dict[int, str] = {}
        self._statistics = ""
        self._fetched: list[int] = []

    def __repr__(self) -> str:
        return f"Source({self.name!r})"

    def cluster_id(self) -> str:
        """Id of the cluster.

        Raises:
            Retryable: The cluster does not answer.
            Terminal: It denies access.
        """
        with self.asking(f"asking Kafka cluster {self.name} for its id"):
            admin = self._admin()  # keep a reference: a client that is garbage-collected drops its pending requests
            cluster: str = admin.describe_cluster(request_timeout=ANSWER_SECONDS).result().cluster_id
        return cluster

    def topics(self, names: Sequence[str]) -> dict[str, TopicState]:
        """State of the topics, without those that the cluster does not have.

        Raises:
            Retryable: The cluster does not answer.
            Terminal: It denies access.
        """
        if not names:
            return {}
        action = f"asking Kafka cluster {self.name} for topics {', '.join(names)}"
        with self.asking(action), closing(self.consumer()) as consumer:
            return self._states(consumer, names)

    def _states(self, consumer: Consumer, names: Sequence[str]) -> dict[str, TopicState]:
        admin, states = self._admin(), {}
        described = admin.describe_topics(TopicCollection(list(names)), request_timeout=ANSWER_SECONDS)
        for name, answer in described.items():
            try:
                topic = answer.result()
            except KafkaException as error:
                if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                    continue
                raise
            offsets = [_log_ends(consumer, name, number) for number in sorted(part.id for part in topic.partitions)]
            states[name] = TopicState(_topic_id(str(topic.topic_id)), self._is_compacted(admin, name), tuple(offsets))
        return states

    @staticmethod
    def _is_compacted(admin: AdminClient, topic: str) -> bool:
        resource = ConfigResource(ResourceType.TOPIC, topic)
        answer = admin.describe_configs([resource], request_timeout=ANSWER_SECONDS)[resource].result()
        return "compact" in str(answer["cleanup.policy"].value)

    def offsets_at(self, milliseconds: int, partitions: Sequence[tuple[str, int]]) -> dict[tuple[str, int], int | None]:
        """Partition -> its first offset at or after an instant; None if there is none.

        Raises:
            Retryable: The cluster does not answer.
            Terminal: It denies access.
        """
        queries = [TopicPartition(topic, partition, milliseconds) for topic, partition in partitions]
        action = f"asking Kafka cluster {self.name} for offsets at an instant"
        with self.asking(action), closing(self.consumer()) as consumer:
            answers = consumer.offsets_for_times(queries, timeout=ANSWER_SECONDS) if queries else []
        return {(a.topic, a.partition): a.offset if a.offset >= 0 else None for a in answers}

    def consumer(self) -> Consumer:
        """A consumer of committed records.

        Raises:
            Terminal: The cluster's properties are not valid.
        """
        required = {**_REQUIRED, **self._callbacks(), "stats_cb": self._store_statistics}
        with self.asking(f"Kafka cluster {self.name}"):
            return Consumer({**_DEFAULTS, **_BOUNDS, **client_properties(self.name, self._properties), **required})

    def _admin(self) -> AdminClient:
        return AdminClient({**_DEFAULTS, **client_properties(self.name, self._properties), **self._callbacks()})

    def _callbacks(self) -> dict[str, Any]:
        return {"error_cb": self._record_error, "logger": _LOG}

    def _store_statistics(self, statistics: str) -> None:
        self._statistics = statistics

    def fetch_positions(self) -> list[int]:
        """The next offset that the last consumer fetches from each partition; it also moves over aborted records."""
        if self._statistics:  # parse only once: with thousands of partitions it takes milliseconds
            topics, self._statistics = json.loads(self._statistics)["topics"].values(), ""
            self._fetched = [partition["next_offset"] for topic in topics for partition in topic["partitions"].values()]
        return self._fetched

    def _record_error(self, error: KafkaError) -> None:
        self._client_errors[error.code()] = error.str()

    @contextmanager
    def asking(self, action: str) -> Iterator[None]:
        """Run a block that asks the cluster; errors of the client become Frazil's, with the action as their coordinates."""
        try:
            yield
        except KafkaException as error:
            raise self.frazil_error(error, action) from error

    def frazil_error(self, error: KafkaException | KafkaError, action: str) -> FrazilError:
        """The Frazil error for an error of the client."""
        return kafka_error(error, action, self._properties, self.connection_errors())

    def connection_errors(self) -> str:
        """Connection errors of the client, as a suffix for a message."""
        return f"; {'; '.join(sorted(self._client_errors.values()))}" if self._client_errors else ""


def _topic_id(text: str) -> str | None:
    # librdkafka writes the plain base64 alphabet, Kafka's tools the one for URLs.
    return None if text == _NO_TOPIC_ID else text.replace("+", "-").replace("/", "_")


def _log_ends(consumer: Consumer, topic: str, partition: int) -> tuple[int, int]:
    """First offset that Kafka has of a partition, and its last stable offset, which is what `read_committed` returns."""
    low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=ANSWER_SECONDS)
    return low, high


def _with_safe_headers(message: Message) -> Message:
    """The message, without its headers if the client can't read them: a second attempt would crash the process."""
    try:
        # Called by `map`, so from C: a call that the interpreter has specialised would not notice the failure.
        next(map(Message.headers, (message,)))
    except SystemError:
        message.set_headers([])
    return message


class PartitionReader:
    """Reads ascending ranges of one partition; adjacent ranges without a new seek.

    Attributes:
        log_start: First offset in Kafka when a range began before it, because of retention; 0 if none did.
    """

    def __init__(self, source: Source, topic: str, partition: int) -> None:
        self.log_start = 0
        self._source, self._topic, self._partition = source, topic, partition
        self._consumer: Consumer | None = None
        self._messages: deque[Message] = deque()
        self._next_offset = -1

    def close(self) -> None:
        """End the consumer, if there is one."""
        if self._consumer is not None:
            self._consumer.close()

    def log(self) -> tuple[int, int]:
        """First offset that Kafka has now, and the last stable offset (exclusive).

        Raises:
            Retryable: The cluster does not answer.
            Terminal: It denies access.
        """
        with self._source.asking(f"asking {self._name()} for its offsets"):
            return _log_ends(self._open_consumer(), self._topic, self._partition)

    def read(self, start: int, end: int) -> Iterator[Message]:
        """Committed records with offsets `start` <= o < `end`, in order.

        Records that retention deletes meanwhile are missing, and `log_start` is set. Reading ends when Kafka returns a
        record at or beyond `end`, or the end of the partition, which counts transaction markers and aborted records. Each
        offset of a record batch that the client can't unpack is a message with that error. A message has no headers if the
        client can't read them.

        Raises:
            Retryable: No message arrives any more, or the log ends before `end`.
            Terminal: The cluster denies access.
        """
        if start >= end:
            return
        if start != self._next_offset:
            self._seek(start)
        while self._next_offset < end:
            if not self._messages:
                self._messages.extend(self._next_messages(end))
            message = self._messages[0]
            if (error := message.error()) is not None:
                self._messages.popleft()
                if error.code() == _NOT_UNPACKED:
                    yield from self._unreadable(message.offset() or 0, error, start, end)
                else:
                    self._handle_event(message, error, end)
            elif (offset := message.offset() or 0) >= end:
                self._next_offset = end  # the message stays queued, since the next range may begin with it
            else:
                self._messages.popleft()
                self._next_offset = offset + 1
                if offset >= start:
                    yield _with_safe_headers(message)
        self._next_offset = end

    def _seek(self, start: int) -> None:
        self._messages.clear()
        self._open_consumer().assign([TopicPartition(self._topic, self._partition, start)])
        self._next_offset = start

    def _open_consumer(self) -> Consumer:
        if self._consumer is None:
            self._consumer = self._source.consumer()
        return self._consumer

    def _next_messages(self, end: int) -> list[Message]:
        consumer = self._open_consumer()
        deadline, worked = time.monotonic() + SILENT_SECONDS, time.process_time()
        fetched: list[int] | None = None
        while (first := consumer.poll(_POLL_SECONDS)) is None:
            before, fetched = fetched, self._source.fetch_positions()
            if before not in (None, fetched):
                deadline = time.monotonic() + SILENT_SECONDS
            if time.monotonic() >= deadline and time.process_time() - worked >= _WORK_SECONDS:
                deadline, worked = time.monotonic() + SILENT_SECONDS, time.process_time()
            elif time.monotonic() >= deadline:
                raise KAFKA_FAILED.retryable(
                    f"{self._name()}: nothing arrived for {SILENT_SECONDS:.0f} s at offset {self._next_offset}, on the way to {end}"
                    f"{self._source.connection_errors()}",
                    next_step="try again; if it persists, check the broker that leads the partition",
                )
        return [first, *(consumer.consume(_CONSUMED_AT_ONCE, 0) if len(first) < _LARGE_BYTES else ())]

    def _unreadable(self, base: int, error: KafkaError, start: int, end: int) -> Iterator[Message]:
        """Yield each offset of the unreadable record batch that begins at `base` as a message with its error.

        Then continue after the batch. The client does not say where the batch ends, but a seek to any of its offsets gives the
        same error, so a binary search finds the end.
        """
        first = inside = self._next_offset
        after, step = min(inside + 1, end), 1
        while after < end and self._is_in_batch(base, after):
            step *= 2
            inside, after = after, min(after + step, end)
        while after - inside > 1:
            middle = (inside + after) // 2
            if self._is_in_batch(base, middle):
                inside = middle
            else:
                after = middle
        self._seek(after)
        for offset in range(max(first, base, start), after):
            yield Message(topic=self._topic, partition=self._partition, offset=offset, error=error)

    def _is_in_batch(self, base: int, offset: int) -> bool:
        self._seek(offset)
        first = self._next_messages(offset)[0]
        error = first.error()
        return error is not None and error.code() == _NOT_UNPACKED and first.offset() == base

    def _handle_event(self, message: Message, error: KafkaError, end: int) -> None:
        """Go on after the end of the partition, or at a log start that retention moved; raise any other error."""
        if error.code() == _END_OF_PARTITION:
            self._next_offset = max(self._next_offset, message.offset() or 0)
            return
        low = self.log()[0] if error.code() in _OUT_OF_RANGE else 0
        if low <= self._next_offset:
            raise self._source.frazil_error(error, f"reading {self._name()} at offset {self._next_offset}")
        self.log_start = low
        self._seek(min(low, end))

    def _name(self) -> str:
        return f"Kafka cluster {self._source.name}, topic {self._topic}, partition {self._partition}"


_REFUSED = (401, 403)
_NOT_FOUND = 404
_VERSION: Final = "../../registry/v3/ids/globalIds"


class Registries:
    """The registries of a project. Call it with a name, and it returns the reader of that registry's schemas."""

    def __init__(self, settings: Mapping[str, RegistrySettings]) -> None:
        self._settings = settings

    def __call__(self, name: str) -> SchemaReader:
        """The reader of a registry's schemas by id.

        Raises:
            Terminal: The settings have no such registry, or the client's libraries are not installed.
        """
        if name not in self._settings:
            known_names = ", ".join(sorted(self._settings)) or "none"
            raise BAD_SETTING.terminal(
                f"registry {name} is not in the settings file", next_step=f"defined under registries: {known_names}"
            )
        require("registry", f"registry {name}")
        from confluent_kafka.schema_registry import SchemaRegistryClient

        registry = self._settings[name]
        if registry.framing == "glue":
            return SchemaReader(_glue_reader(name, registry), registry.framing)
        client = SchemaRegistryClient({"url": registry.url, **registry.client_properties})
        is_global = registry.framing == "apicurio-global-id"
        return SchemaReader(lambda key: _schema(client, name, key, is_global=is_global), registry.framing)


def _glue_reader(name: str, registry: RegistrySettings) -> Callable[[int | UUID], Schema]:
    """Returns the function that reads schema versions of AWS Glue."""
    require("glue", f"registry {name}")
    import boto3
    from botocore.exceptions import BotoCoreError, ClientError

    options = {_GLUE_OPTIONS[key]: value for key, value in registry.properties.items()}
    try:
        client = boto3.Session(**options).client("glue", endpoint_url=registry.url or None)
    except (BotoCoreError, ValueError) as error:
        raise REGISTRY_FAILED.terminal(
            f"registry {name}: no client of AWS Glue can be made: {type(error).__name__}",
            next_step=f"check url and properties of registries.{name} in the settings",
        ) from error

    def read(version: int | UUID) -> Schema:
        try:
            return client.get_schema_version(SchemaVersionId=str(version))["SchemaDefinition"], {}
        except ClientError as error:
            code = error.response["Error"]["Code"]
            if code in ("EntityNotFoundException", "AccessDeniedException"):
                raise UnjudgedError(f"registry {name} shows no schema {version}") from None
            why = code
        except BotoCoreError as error:
            why = type(error).__name__
        raise REGISTRY_FAILED.retryable(
            f"registry {name} does not give schema {version}: {why}", next_step="try again later"
        )

    return read


_GLUE_OPTIONS: Final = {
    "glue.region": "region_name",
    "glue.profile-name": "profile_name",
    "glue.access-key-id": "aws_access_key_id",
    "glue.secret-access-key": "aws_secret_access_key",
    "glue.session-token": "aws_session_token",
}


def _schema(client: SchemaRegistryClient, name: str, number: int | UUID, *, is_global: bool) -> Schema:
    """A schema with all schemas that it refers to.

    Raises:
        UnjudgedError: The registry does not have the schema, or denies access to it.
        Retryable: The registry does not answer.
    """
    from confluent_kafka.schema_registry.error import SchemaRegistryError

    try:
        if is_global:  # Apicurio's own API, which can insert the schemas that a schema refers to
            query = {"references": "DEREFERENCE"}
            return json.dumps(client._rest_client.get(f"{_VERSION}/{number}", query)), {}  # noqa: SLF001
        schema = client.get_schema(int(number))
        references: dict[str, str] = {}
        _add_references(client, schema.references or (), references)
    except SchemaRegistryError as error:
        if error.http_status_code in (*_REFUSED, _NOT_FOUND):
            raise UnjudgedError(f"registry {name} shows no schema {number}") from None
        raise REGISTRY_FAILED.retryable(
            f"registry {name} does not give schema {number}: HTTP {error.http_status_code}", next_step="try again later"
        ) from None
    except ValueError:  # a schema of another format, such as XML
        raise UnjudgedError(f"registry {name} has no schema {number} that can be read here") from None
    except OSError as error:
        raise REGISTRY_FAILED.retryable(
            f"registry {name} does not answer: {type(error).__name__}",
            next_step="try again; if it persists, check its log",
        ) from None
    return schema.schema_str or "", references


def _add_references(
    client: SchemaRegistryClient, references: list[SchemaReference] | tuple[()], schemas: dict[str, str]
) -> None:
    """Add the referenced schemas, each one after the schemas that it refers to itself."""
    for reference in references:
        name, subject, version = reference.name, reference.subject, reference.version
        if name is not None and name not in schemas and subject is not None and version is not None:
            schema = client.get_version(subject, version).schema
            _add_references(client, schema.references or (), schemas)
            schemas[name] = schema.schema_str or ""
