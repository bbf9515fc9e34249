"""Clients of librdkafka with explicit time limits, that print nothing by themselves; and a pool of those that stay
open between requests.

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

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from frazil.kafka.client.authentication import is_refusal
from frazil.kafka.client.cluster import Cluster
from frazil.kafka.client.errors import translate
from frazil.kafka_properties import client_properties

IDLE_SECONDS: Final = 60.0
"""After so long without a question a client is closed, at the next question to any cluster: a process that looks at its
pipelines every interval keeps one connection, one that asked once does not for long."""

OLDEST_SECONDS: Final = 600.0
"""Age at which an idle client is replaced, because a client reads certificates and addresses only when it is created."""


@dataclass(eq=False)
class _PooledClient:
    """A client, the number of requests at work, and when it was opened and last used (monotonic seconds)."""

    client: Admin
    made_at: float
    used_at: float
    users: int = 0
    is_sound: bool = True

    def is_fit(self, now: float) -> bool:
        """Whether it may take another question."""
        return self.is_sound and (self.users > 0 or now - self.made_at < OLDEST_SECONDS)

    def is_idle(self, now: float) -> bool:
        """Whether it has been unused for long."""
        return self.users == 0 and now - self.used_at >= IDLE_SECONDS


@dataclass
class AdminPool:
    """Lends admin clients, since a new one needs a connection with handshakes and has to load metadata first.

    Args:
        make: Makes one.
        clock: Monotonic seconds.
    """

    make: Callable[[Cluster], Admin]
    clock: Callable[[], float] = time.monotonic
    _clients: list[_PooledClient] = field(default_factory=list)
    _of_parent: list[_PooledClient] = field(default_factory=list)
    _lock: Lock = field(default_factory=Lock)

    def __post_init__(self) -> None:
        os.register_at_fork(after_in_child=self._begin_anew)
        atexit.register(self.close)

    @contextmanager
    def lent(self, cluster: Cluster) -> Iterator[Admin]:
        """Lend the client of a cluster. After a failure it is not lent again: the next request gets a new one, without
        outdated leaders or broken connections.

        Raises:
            Terminal: the cluster's properties are not valid.
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
        """Close the clients that are not in use."""
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
                pooled.client.begin_anew()
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

    def _begin_anew(self) -> None:
        # In a child none of the client's threads runs: to close it, or to let go of it, would wait for them for ever.
        self._of_parent += self._clients
        self._clients = []
        self._lock = Lock()


def _close(clients: list[_PooledClient]) -> None:
    for pooled in clients:
        pooled.client.close()


REQUEST_SECONDS: Final = 8.0
"""Bounds one request to a cluster, with the search for a reachable broker. An answer takes milliseconds, after a change of
leaders some seconds; a person at a terminal should learn within 15 s that no broker answers."""

STALL_SECONDS: Final = 12.0
"""Bounds the time without any progress while records flow: twice what a leader change takes, and
below the 15 s after which silence looks like a hang. It restarts with every record, so it does not
limit the size of a transfer."""

STATISTICS_SECONDS: Final = 3.0
"""How often a consumer tells how far it has fetched: some times within STALL_SECONDS, and rarely enough to cost nothing."""

_NONE: Final[Mapping[str, Any]] = MappingProxyType({})

_DEFAULTS: Final[dict[str, Any]] = {
    # One request on an open connection. Below STALL_SECONDS, so that a frozen broker costs a
    # reconnect, not the transfer.
    "socket.timeout.ms": 10_000,
    # One TCP and TLS set-up. An address that swallows packets leaves time for a second one within
    # REQUEST_SECONDS.
    "socket.connection.setup.timeout.ms": 3_000,
    # Longest pause between two attempts to connect (default 10 s): a broker that is back is found
    # at once.
    "reconnect.backoff.max.ms": 1_000,
    # Brokers drop idle connections by design; a line in the log for each would only teach people to
    # ignore it.
    "log.connection.close": False,
    "client.id": "frazil",
}

_CONSUMER: Final[dict[str, Any]] = {
    # Required by the client even where partitions are assigned and nothing is ever committed to the
    # group.
    "group.id": "frazil",
    # Bounds how long a commit waits for the group's coordinator (default 45 s).
    "session.timeout.ms": int(REQUEST_SECONDS * 1_000),
    "heartbeat.interval.ms": 2_000,
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    # An offset that is not there is an error with coordinates; another offset in its place would
    # lose or repeat records.
    "auto.offset.reset": "error",
    "isolation.level": "read_committed",
    # The only sign that a range which ends in transaction markers or aborted records has been read
    # to its end.
    "enable.partition.eof": True,
    "check.crcs": True,
    # How long a broker holds a fetch at the end of the log (default 500 ms): bounds what each tail
    # of markers costs.
    "fetch.wait.max.ms": 50,
    # How long the client rests when it holds enough ahead (default 1 s): decoding is through with that much in less.
    "fetch.queue.backoff.ms": 20,
    # How long it rests before it fetches again what it could not unpack (default 500 ms): the reader passes over it.
    "fetch.error.backoff.ms": 20,
    # The client raises fetch.max.bytes to it; it bounds nothing else of a consumer.
    "message.max.bytes": 1_000,
}

FETCH_BYTES: Final = 8 * 1024
"""Most bytes of one answer of a broker, as they are in the log; the first batch of records is in it whatever its size is.

The client unpacks a whole answer before it hands out its first record, and 4 bytes of zstd may become 128 KiB: 256 MiB for
each broker that is read at once. Larger answers read no faster where batches are large; with batches of 16 KB they save a
fifth of the client's CPU, and from far brokers they save time."""

_CONSUMER_DEFAULTS: Final[dict[str, Any]] = {
    "fetch.max.bytes": FETCH_BYTES,
    # Unpacked records held ahead (default 64 MiB). An answer may go beyond it once.
    "queued.max.messages.kbytes": 16 * 1024,
    # The largest answer, and the largest batch of records that zstd is unpacked to (default 100,000,000).
    "receive.message.max.bytes": 128 * 2**20,
}

_PRODUCER: Final[dict[str, Any]] = {"enable.idempotence": True, "acks": "all"}

_PRODUCER_DEFAULTS: Final[dict[str, Any]] = {
    "compression.type": "lz4",
    # Where Kafka's own Java client puts a key, so that both agree on a key's partition.
    "partitioner": "murmur2_random",
    # Batches fill up within a few milliseconds at any rate worth batching for, and nobody notices
    # the wait at others.
    "linger.ms": 10,
    # Records without a key go to all partitions from the first one on, not to one for some milliseconds, then another:
    # a thousand of them would all lie in one.
    "sticky.partitioning.linger.ms": 0,
    # Records waiting in this process; beyond them the sender waits for the broker. About 10 MB of
    # small records.
    "queue.buffering.max.messages": 50_000,
    # The same of large records (default 1 GiB); room for one of the largest.
    "queue.buffering.max.kbytes": 256 * 1024,
    # The largest that librdkafka takes: the topic's own limit decides, and its refusal names the topic.
    "message.max.bytes": 1_000_000_000,
    # The last resort for a single record. STALL_SECONDS without any acknowledgement ends the
    # transfer long before.
    "message.timeout.ms": 60_000,
}

_TRANSACTIONS: Final[dict[str, Any]] = {
    # After it the broker aborts what a producer left open, and readers of committed records go on. Nobody waits for it
    # as a rule: the next producer of the name aborts it at once.
    "transaction.timeout.ms": 60_000,
    # A record may live as long as its transaction.
    "message.timeout.ms": 60_000,
}

_LOG: Final = logging.getLogger(__name__)
# Without any handler, logging's last resort would print warnings to stderr; with this one the
# application decides.
_LOG.addHandler(logging.NullHandler())

_Client = TypeVar("_Client", AdminClient, Consumer, Producer)
_Answer = TypeVar("_Answer")


class ErrorLog:
    """Errors that a client reported by callback: why connections failed, the reason for a time-out."""

    def __init__(self) -> None:
        self._latest: dict[tuple[int, bool], KafkaError] = {}

    def __call__(self, error: KafkaError) -> None:
        """Record an error that librdkafka reports. It repeats them, so only the latest per code is kept.

        Refused credentials are kept besides other errors of the same code, which may follow them.
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
    complaints: ErrorLog = field(default_factory=ErrorLog)

    def answer(self, future: Future[_Answer], *, topic: str | None = None, partition: int | None = None) -> _Answer:
        """Wait for an answer.

        Raises:
            FrazilError: see `frazil.kafka.client.errors.translate`. Its cause is the KafkaException.
        """
        try:
            return future.result()
        except KafkaException as e:
            self.client.poll(0)  # serves the complaints
            raise translate(e, self.cluster, self.complaints, topic=topic, partition=partition) from e

    def begin_anew(self) -> None:
        """Drop errors from idle times: they must not explain a failure of the next request."""
        self.client.poll(0)  # serves the complaints
        self.complaints.forget()

    def close(self) -> None:
        """Close the connections. Waits for the client's threads."""
        with self.client:
            pass


def _admin(cluster: Cluster) -> Admin:
    complaints = ErrorLog()
    return Admin(cluster, _build(AdminClient, cluster, complaints), complaints)


_ADMINS: Final = AdminPool(_admin)


@contextmanager
def admin(cluster: Cluster) -> Iterator[Admin]:
    """Lend the process's admin client of a cluster. Several threads may use it at the same time."""
    with _ADMINS.lent(cluster) as admin_client:
        yield admin_client


def consumer(
    cluster: Cluster,
    complaints: ErrorLog,
    group: str | None = None,
    statistics: Callable[[str], object] | None = None,
    *,
    committed: bool = True,
) -> Consumer:
    """A consumer for assigned partitions: no member of a group, no automatic offset.

    `group` is one whose committed offsets it is for. `statistics` takes librdkafka's, JSON, every `STATISTICS_SECONDS`
    in which the consumer is polled.
    """
    own: dict[str, Any] = {} if group is None else {"group.id": group}
    if statistics is not None:
        own |= {"stats_cb": statistics, "statistics.interval.ms": int(STATISTICS_SECONDS * 1_000)}
    if not committed:
        own |= {"isolation.level": "read_uncommitted"}
    return _build(Consumer, cluster, complaints, _CONSUMER_DEFAULTS, _CONSUMER | own)


def producer(cluster: Cluster, complaints: ErrorLog, *, batch_bytes: int | None = None) -> Producer:
    """An idempotent producer that waits for all in-sync replicas.

    `batch_bytes` bounds a batch of several records: a topic's limit is one of batches, and records that it takes one by
    one may be too large together.
    """
    return _build(Producer, cluster, complaints, _PRODUCER_DEFAULTS, _PRODUCER | _batches(batch_bytes))


def transactional_producer(
    cluster: Cluster, complaints: ErrorLog, name: str, *, batch_bytes: int | None = None, seconds: float | None = None
) -> Producer:
    """A producer for transactions. Once initialised, it is the only one of its name that can commit.

    A transaction may be open for so many seconds, at most `transaction.max.timeout.ms` of the brokers, 15 minutes
    unless they say otherwise.
    """
    own = {"transactional.id": name, **_TRANSACTIONS} | _batches(batch_bytes)
    if seconds is not None:
        own |= dict.fromkeys(("transaction.timeout.ms", "message.timeout.ms"), int(seconds * 1_000))
    return _build(Producer, cluster, complaints, _PRODUCER_DEFAULTS, _PRODUCER | own)


def _batches(size: int | None) -> dict[str, Any]:
    """The first record of a batch is taken whatever its size is; no other one is beyond this size."""
    return {} if size is None else {"batch.size": size}


def _build(
    make: Callable[[dict[str, Any]], _Client],
    cluster: Cluster,
    complaints: ErrorLog,
    defaults: Mapping[str, Any] = _NONE,
    required: Mapping[str, Any] = _NONE,
) -> _Client:
    """Make a client: the settings may change defaults, not what correctness rests on."""
    hooks = {"error_cb": complaints, "logger": _LOG}
    own = client_properties(cluster.name, cluster.properties)
    properties = {**_DEFAULTS, **defaults, **own, **required, **hooks}
    try:
        return make(properties)
    except KafkaException as e:
        raise translate(e, cluster, complaints) from e
