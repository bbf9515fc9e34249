"""Clients of librdkafka, with explicit time limits and without output of their own; and a pool of admin clients that stay open
between requests.

Property names: https://github.com/confluentinc/librdkafka/blob/master/CONFIGURATION.md
"""

from __future__ import annotations

import atexit
import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock
from types import MappingProxyType
from typing import Any, Final, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient

from frazil.kafka.client.authentication import is_refusal
from frazil.kafka.client.cluster import Cluster, OutgoingRecord
from frazil.kafka.client.errors import translate
from frazil.kafka_properties import client_properties

IDLE_SECONDS: Final = 60.0
"""Idle time after which a client is closed, at the next request to any cluster. So a process that makes requests at short
intervals keeps its connection."""

OLDEST_SECONDS: Final = 600.0
"""Age from which an idle client is replaced, because a client reads certificates and addresses only when it is created."""


@dataclass(eq=False)
class _PooledClient:
    """A client, the number of its present users, and when it was opened and last used (monotonic seconds)."""

    client: Admin
    made_at: float
    used_at: float
    users: int = 0
    is_sound: bool = True

    def is_fit(self, now: float) -> bool:
        """Whether the client may take another request."""
        return self.is_sound and (self.users > 0 or now - self.made_at < OLDEST_SECONDS)

    def is_idle(self, now: float) -> bool:
        """Whether nobody has used the client for long."""
        return self.users == 0 and now - self.used_at >= IDLE_SECONDS


@dataclass
class AdminPool:
    """Lends admin clients: a new client must connect and load metadata first.

    Args:
        make: Makes a client.
        clock: Monotonic seconds.
    """

    make: Callable[[Cluster], Admin]
    clock: Callable[[], float] = time.monotonic
    _clients: list[_PooledClient] = field(default_factory=list)
    _of_parent: list[_PooledClient] = field(default_factory=list)
    _lock: Lock = field(default_factory=Lock)

    def __post_init__(self) -> None:
        os.register_at_fork(after_in_child=self._abandon_clients)
        atexit.register(self.close)

    @contextmanager
    def lend(self, cluster: Cluster) -> Iterator[Admin]:
        """Lend the client of a cluster. If the block fails, the next request gets a new client, without outdated leaders or
        broken connections.

        Raises:
            Terminal: The cluster's properties are not valid.
        """
        pooled = self._take(cluster)
        try:
            yield pooled.client
        except BaseException:
            pooled.is_sound = False
            raise
        finally:
            self._give_back(pooled)

    def close(self) -> None:
        """Close the clients without users."""
        with self._lock:
            closing = [pooled for pooled in self._clients if pooled.users == 0]
            self._clients = [pooled for pooled in self._clients if pooled.users > 0]
        _close(closing)

    def _take(self, cluster: Cluster) -> _PooledClient:
        now = self.clock()
        with self._lock:
            closing = [
                pooled
                for pooled in self._clients
                if pooled.users == 0 and (pooled.is_idle(now) or not pooled.is_fit(now))
            ]
            self._clients = [pooled for pooled in self._clients if pooled not in closing]
            pooled = next(
                (pooled for pooled in self._clients if pooled.client.cluster == cluster and pooled.is_fit(now)), None
            )
            if pooled is None:
                pooled = _PooledClient(self.make(cluster), now, now)
                self._clients.append(pooled)
            elif pooled.users == 0:
                pooled.client.forget_errors()
            pooled.users += 1
        _close(closing)
        return pooled

    def _give_back(self, lent: _PooledClient) -> None:
        with self._lock:
            lent.users -= 1
            lent.used_at = self.clock()
            is_over = lent.users == 0 and not lent.is_sound
            if is_over:
                self._clients = [pooled for pooled in self._clients if pooled is not lent]
        if is_over:
            _close([lent])

    def _abandon_clients(self) -> None:
        # In a forked child the client's threads don't run: to close a client, or to free it, would wait for them forever.
        self._of_parent += self._clients
        self._clients = []
        self._lock = Lock()


def _close(clients: list[_PooledClient]) -> None:
    for pooled in clients:
        pooled.client.close()


REQUEST_SECONDS: Final = 8.0
"""Bounds one request to a cluster, with the search for a reachable broker. An answer takes milliseconds, after a change of
leaders some seconds. A person at a terminal learns within 15 s that no broker answers."""

STALL_SECONDS: Final = 12.0
"""Bounds the time without progress while records flow: twice as long as a change of leaders takes, and below the 15 s after which
silence looks like a hang. It restarts with every record, so it does not limit the size of a transfer."""

STATISTICS_SECONDS: Final = 3.0
"""How often a consumer reports how far it has fetched: several times within STALL_SECONDS, and rarely enough to cost nothing."""

_NONE: Final[Mapping[str, Any]] = MappingProxyType({})

_DEFAULTS: Final[dict[str, Any]] = {
    # One request on an open connection. Below STALL_SECONDS, so that a frozen broker costs a reconnect, not the transfer.
    "socket.timeout.ms": 10_000,
    # One TCP and TLS set-up. After an address that drops packets, a second one still has time within REQUEST_SECONDS.
    "socket.connection.setup.timeout.ms": 3_000,
    # Longest pause between two attempts to connect (default 10 s), so that a broker that is back is found at once.
    "reconnect.backoff.max.ms": 1_000,
    # Brokers close idle connections by design; a line in the log for each would teach people to ignore the log.
    "log.connection.close": False,
    "client.id": "frazil",
}

_CONSUMER: Final[dict[str, Any]] = {
    # The client requires a group, even if partitions are assigned and nothing is committed.
    "group.id": "frazil",
    # Bounds how long a commit waits for the group's coordinator (default 45 s).
    "session.timeout.ms": int(REQUEST_SECONDS * 1_000),
    "heartbeat.interval.ms": 2_000,
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    # A missing offset is an error with coordinates; another offset in its place would lose or repeat records.
    "auto.offset.reset": "error",
    "isolation.level": "read_committed",
    # The only sign that a range that ends in transaction markers or aborted records has been read to its end.
    "enable.partition.eof": True,
    "check.crcs": True,
    # How long a broker holds a fetch at the end of the log (default 500 ms): each tail of markers costs as much.
    "fetch.wait.max.ms": 50,
    # How long the client pauses while its queue is full (default 1 s): decoding empties the queue sooner.
    "fetch.queue.backoff.ms": 20,
    # How long it pauses before it fetches a batch again that it can't unpack (default 500 ms): the reader skips that batch.
    "fetch.error.backoff.ms": 20,
    # The client raises fetch.max.bytes to this value; it bounds nothing else of a consumer.
    "message.max.bytes": 1_000,
}

FETCH_BYTES: Final = 8 * 1024
"""Most bytes of a broker's answer, as they are in the log; its first batch of records may be larger.

The client unpacks a whole answer before it hands out the first record, and 4 bytes of zstd may become 128 KiB: that bounds
memory to 256 MiB per broker. With large batches, larger answers are no faster. With batches of 16 KB they would save a fifth of
the client's CPU, and from distant brokers they would save time."""

_CONSUMER_DEFAULTS: Final[dict[str, Any]] = {
    "fetch.max.bytes": FETCH_BYTES,
    # The queue of unpacked records (default 64 MiB). One answer may exceed it.
    "queued.max.messages.kbytes": 16 * 1024,
    # The largest answer, and the largest unpacked batch of records with zstd (default 100,000,000).
    "receive.message.max.bytes": 128 * 2**20,
}

_PRODUCER: Final[dict[str, Any]] = {"enable.idempotence": True, "acks": "all"}

_PRODUCER_DEFAULTS: Final[dict[str, Any]] = {
    "compression.type": "lz4",
    # As Kafka's Java client does, so that both send a key to the same partition.
    "partitioner": "murmur2_random",
    # At rates that need batches they fill up in a few milliseconds, and at lower rates nobody notices the wait.
    "linger.ms": 10,
    # Each record without a key goes to a random partition. By default all records of some milliseconds go to one partition.
    "sticky.partitioning.linger.ms": 0,
    # Records that wait in this process, about 10 MB of small ones. Beyond, the sender waits for the broker.
    "queue.buffering.max.messages": 50_000,
    # The same of large records (default 1 GiB); room for one of the largest.
    "queue.buffering.max.kbytes": 256 * 1024,
    # The largest that librdkafka takes: the topic's own limit decides, and its refusal names the topic.
    "message.max.bytes": 1_000_000_000,
    # The last resort for a single record: STALL_SECONDS without any acknowledgement end the transfer long before.
    "message.timeout.ms": 60_000,
}

_TRANSACTIONS: Final[dict[str, Any]] = {
    # Age from which the broker aborts an open transaction, so that readers of committed records go on. It rarely matters: the
    # next producer with this id aborts the transaction at once.
    "transaction.timeout.ms": 60_000,
    # A record may live as long as its transaction.
    "message.timeout.ms": 60_000,
}

_LOG: Final = logging.getLogger(__name__)
# Without any handler, logging's last resort would print warnings to stderr; now the application decides.
_LOG.addHandler(logging.NullHandler())

_Client = TypeVar("_Client", AdminClient, Consumer, Producer)
_Answer = TypeVar("_Answer")


class ErrorLog:
    """Errors that a client reported to its callback, such as failed connections: they explain a time-out."""

    def __init__(self) -> None:
        self._latest: dict[tuple[int, bool], KafkaError] = {}

    def __call__(self, error: KafkaError) -> None:
        """Record an error. librdkafka repeats errors, so only the latest of each code is kept.

        A refusal of credentials is kept apart from other errors of its code, which may follow it.
        """
        self._latest[error.code(), is_refusal(error)] = error

    def __iter__(self) -> Iterator[KafkaError]:
        return iter(tuple(self._latest.values()))

    def forget(self) -> None:
        """Drop the recorded errors: they concern earlier connections."""
        self._latest.clear()


@dataclass(frozen=True, slots=True)
class Admin:
    """An admin client whose answers are results or errors of Frazil."""

    cluster: Cluster
    client: AdminClient
    client_errors: ErrorLog = field(default_factory=ErrorLog)

    def answer(self, future: Future[_Answer], *, topic: str | None = None, partition: int | None = None) -> _Answer:
        """Wait for an answer.

        Raises:
            FrazilError: See `frazil.kafka.client.errors.translate`. Its cause is the KafkaException.
        """
        try:
            return future.result()
        except KafkaException as e:
            self.client.poll(0)  # delivers errors to the callback
            raise translate(e, self.cluster, self.client_errors, topic=topic, partition=partition) from e

    def forget_errors(self) -> None:
        """Drop errors from idle times: they must not explain a failure of the next request."""
        self.client.poll(0)  # delivers errors to the callback
        self.client_errors.forget()

    def close(self) -> None:
        """Close the connections, and wait for the client's threads."""
        with self.client:
            pass


def _admin(cluster: Cluster) -> Admin:
    client_errors = ErrorLog()
    return Admin(cluster, _build(AdminClient, cluster, client_errors), client_errors)


_ADMINS: Final = AdminPool(_admin)


@contextmanager
def admin(cluster: Cluster) -> Iterator[Admin]:
    """Lend the process's admin client of a cluster. Several threads may use it at the same time."""
    with _ADMINS.lend(cluster) as admin_client:
        yield admin_client


def consumer(
    cluster: Cluster,
    client_errors: ErrorLog,
    group: str | None = None,
    statistics: Callable[[str], object] | None = None,
    *,
    committed: bool = True,
) -> Consumer:
    """A consumer for assigned partitions: it joins no group, and chooses no offset by itself.

    `group` is the group whose committed offsets it reads. While it is polled, `statistics` gets librdkafka's statistics, a JSON
    text, every `STATISTICS_SECONDS`.
    """
    options: dict[str, Any] = {} if group is None else {"group.id": group}
    if statistics is not None:
        options |= {"stats_cb": statistics, "statistics.interval.ms": int(STATISTICS_SECONDS * 1_000)}
    if not committed:
        options |= {"isolation.level": "read_uncommitted"}
    return _build(Consumer, cluster, client_errors, _CONSUMER_DEFAULTS, _CONSUMER | options)


def producer(cluster: Cluster, client_errors: ErrorLog, *, batch_bytes: int | None = None) -> Producer:
    """An idempotent producer that waits for all in-sync replicas.

    `batch_bytes` bounds a batch of several records: a topic limits batches, so records that fit one by one may be too large
    together.
    """
    return _build(Producer, cluster, client_errors, _PRODUCER_DEFAULTS, _PRODUCER | _batches(batch_bytes))


def transactional_producer(
    cluster: Cluster,
    client_errors: ErrorLog,
    name: str,
    *,
    batch_bytes: int | None = None,
    seconds: float | None = None,
) -> Producer:
    """A producer for transactions. Once initialised, it is the only producer with this transactional id that can commit.

    `seconds` bound a transaction; brokers allow up to `transaction.max.timeout.ms`, by default 15 minutes.
    """
    options = {"transactional.id": name, **_TRANSACTIONS} | _batches(batch_bytes)
    if seconds is not None:
        options |= dict.fromkeys(("transaction.timeout.ms", "message.timeout.ms"), int(seconds * 1_000))
    return _build(Producer, cluster, client_errors, _PRODUCER_DEFAULTS, _PRODUCER | options)


def _batches(size: int | None) -> dict[str, Any]:
    """The property that bounds a batch; a single record may be larger."""
    return {} if size is None else {"batch.size": size}


def enqueue(
    client: Producer, topic: str, record: OutgoingRecord, on_delivery: Callable[[KafkaError | None, Message], None]
) -> bool:
    """Hand a record to a producer's queue, and return whether the queue had room."""
    try:
        client.produce(
            topic,
            value=record.value,
            key=record.key,
            headers=list(record.headers),
            timestamp=record.timestamp_ms or 0,
            on_delivery=on_delivery,
        )
    except BufferError:
        return False
    return True


def _build(
    make: Callable[[dict[str, Any]], _Client],
    cluster: Cluster,
    client_errors: ErrorLog,
    defaults: Mapping[str, Any] = _NONE,
    required: Mapping[str, Any] = _NONE,
) -> _Client:
    """Make a client. The cluster's properties override defaults, but none of those that correctness needs."""
    hooks = {"error_cb": client_errors, "logger": _LOG}
    properties = {**_DEFAULTS, **defaults, **client_properties(cluster.name, cluster.properties), **required, **hooks}
    try:
        return make(properties)
    except KafkaException as e:
        raise translate(e, cluster, client_errors) from e
