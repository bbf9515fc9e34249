"""A producer of transactions: the only one of its name that can commit, until another one of the name is opened.

Initialising it ends whatever earlier ones of the name left open and bars them from committing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from frazil.error_codes import KAFKA_FAILED
from frazil.errors import FrazilError, Retryable
from frazil.failpoints import Failpoint, hit
from frazil.kafka.client.client import REQUEST_SECONDS, STALL_SECONDS, ErrorLog
from frazil.kafka.client.cluster import Cluster
from frazil.kafka.client.errors import RecordTooLarge, is_too_large, reasons, translate_transaction
from frazil.kafka.client.record import OutgoingRecord

_BEGIN_SECONDS: Final = 12.0
"""Bounds the time until a producer is initialised, usually some milliseconds. The first one of a cluster waits for the
topic of transactions to be made, one that follows a crash for the broker's aborting of what is open."""

_POLL_SECONDS: Final = 0.1


@dataclass(slots=True)
class TransactionalProducer:
    """A transactional producer. Opening another one with the same id fences it, so only the newest can commit.

    Attributes:
        topic: An existing topic, that of messages about no record in particular.
    """

    cluster: Cluster
    topic: str
    name: str
    client: Producer
    complaints: ErrorLog
    _sent: int = 0
    _acknowledged: int = 0
    _failed: tuple[KafkaError, str, OutgoingRecord] | None = None

    def begin(self) -> None:
        """Fence earlier producers with this transactional id, and abort their open transactions.

        Raises:
            Fenced: another one was opened at the same moment.
        """
        self.called(lambda: self.client.init_transactions(_BEGIN_SECONDS))

    def send(self, records: Iterable[OutgoingRecord], last: Callable[[], None]) -> None:
        """Send records to the topic in a transaction of their own.

        Records are taken one by one, and held in memory until the broker has them; `last` adds what belongs to them,
        when all of them are acknowledged.

        Raises:
            Fenced: another producer of the name was opened: nothing was sent.
            RecordTooLarge: the topic refuses a record, alone or in a batch with others.
            Retryable: no broker answers. The next producer of the name aborts what is open.
            Terminal: the topic is missing, refuses a record, or credentials or permissions don't fit.
        """
        self.called(self.client.begin_transaction)
        try:
            for record in records:
                self._produce(self.topic, record)
            self._confirm()
            last()
            hit(Failpoint.CAPTURE_COMMITTING)
            self.called(lambda: self.client.commit_transaction(STALL_SECONDS))
        except FrazilError:
            self._abort()
            raise
        hit(Failpoint.CAPTURE_COMMITTED)

    def add(self, topic: str, record: OutgoingRecord) -> None:
        """Send one more record in the open transaction, to any topic, and wait until it is acknowledged."""
        self._produce(topic, record)
        self._confirm()

    def called(self, ask: Callable[[], object]) -> None:
        """Call the client, and translate its errors.

        Raises:
            Fenced, Retryable, Terminal: The client's error, translated.
        """
        try:
            ask()
        except KafkaException as e:
            with suppress(KafkaException):  # it raises a fatal error again
                self.client.poll(0)  # serves the complaints
            raise self._translated(e) from e

    def _abort(self) -> None:
        """Abort the transaction, so that consumers of committed records need not wait. If that fails, the next producer with
        this id aborts it, or the broker after its time-out.
        """
        self.client.purge()
        with suppress(KafkaException):
            self.client.abort_transaction(REQUEST_SECONDS)

    def _produce(self, topic: str, record: OutgoingRecord) -> None:
        began = time.monotonic()
        while not self._accepted(topic, record):
            self._poll(_POLL_SECONDS)  # back-pressure
            if time.monotonic() - began > STALL_SECONDS:
                raise self._stalled()
        self._sent += 1
        self._poll(0)

    def _accepted(self, topic: str, record: OutgoingRecord) -> bool:
        try:
            self.client.produce(
                topic,
                value=record.value,
                key=record.key,
                headers=list(record.headers),
                timestamp=record.timestamp_ms or 0,
                on_delivery=partial(self._delivered, topic, record),
            )
        except BufferError:
            return False
        except KafkaException as e:
            raise self._translated(e, topic, record) from e
        return True

    def _delivered(self, topic: str, record: OutgoingRecord, error: KafkaError | None, _: Message) -> None:
        if error is not None:
            self._failed = self._failed or (error, topic, record)
        else:
            self._acknowledged += 1

    def _confirm(self) -> None:
        """Wait for every acknowledgement, so that a commit never overtakes a refusal."""
        moved, before = time.monotonic(), self._acknowledged
        while self._failed is None and self._acknowledged < self._sent:
            self._poll(_POLL_SECONDS)
            if self._acknowledged != before:
                moved, before = time.monotonic(), self._acknowledged
            elif time.monotonic() - moved > STALL_SECONDS:
                raise self._stalled()
        if self._failed is not None:
            raise self._translated(*self._failed)

    def _poll(self, seconds: float) -> None:
        """Take acknowledgements for so long."""
        try:
            self.client.poll(seconds)
        except KafkaException as e:
            raise self._translated(e) from e

    def _translated(
        self, error: KafkaException | KafkaError, topic: str | None = None, record: OutgoingRecord | None = None
    ) -> FrazilError:
        if record is not None and is_too_large(error):
            return RecordTooLarge(self.cluster, topic or self.topic, record)
        return translate_transaction(error, self.cluster, self.name, self.complaints, topic=topic or self.topic)

    def _stalled(self) -> Retryable:
        return KAFKA_FAILED.retryable(
            f"{self.cluster}, topic {self.topic!r}: no acknowledgement for {STALL_SECONDS:.0f} s"
            f"{reasons(self.cluster, self.complaints)}",
            next_step="look at the brokers, then try again: nothing is sent twice",
        )
