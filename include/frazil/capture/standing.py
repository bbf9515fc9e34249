"""The state of a capture when a run begins: its topics, its position, and the person's request."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Literal

from frazil.capture.position import CaptureOrder, CapturePosition, Reset, TopicState, require_position
from frazil.error_codes import BAD_CAPTURE_POSITION, TOPIC_MISSING
from frazil.kafka.admin.observe import observe
from frazil.kafka.admin.topics import ready_topic
from frazil.kafka.client.cluster import Cluster
from frazil.kafka.write.captures import CaptureProducer, capture_producer, last_position, ready_positions
from frazil.pipeline.settings.capture import Capture

Begin = Callable[[Literal["beginning", "end"]], Any]
"""Makes the state from which a source is captured from its beginning, or its end, on."""


@dataclass(frozen=True, slots=True)
class Ground:
    """A capture with its cluster, its topic of positions and its environment.

    The environment has a name if several share the cluster.
    """

    capture: Capture
    cluster: Cluster
    positions: str
    environment: str | None = None

    @property
    def identity(self) -> str:
        """Name of its producer and its position, different for each environment that shares a cluster."""
        return self.capture.name if self.environment is None else f"{self.environment}.{self.capture.name}"

    def position(self) -> CapturePosition | None:
        """Its last position; None if it has none.

        Raises:
            Terminal, Retryable: As `last_position`; or what is there is none.
        """
        stored = self.position_and_time()
        return None if stored is None else stored[0]

    def position_and_time(self) -> tuple[CapturePosition, datetime] | None:
        """Its last position, and when that was committed.

        Raises:
            Terminal, Retryable: As `position`.
        """
        stored = last_position(self.cluster, self.positions, self.identity)
        return None if stored is None else (CapturePosition.from_json(stored[0]), stored[1])

    def topic(self) -> TopicState | None:
        """Its topic; None if it is not there."""
        facts = observe(self.cluster, [self.capture.topic], absent_ok=True).topics.get(self.capture.topic)
        if facts is None:
            return None
        return TopicState(self.capture.topic, facts.id, sum(partition.high_watermark for partition in facts.partitions))

    def ready_topic(self) -> TopicState:
        """The capture's topic, created if it is missing and the capture file says how.

        Raises:
            Terminal: It is missing.
            Retryable: No broker answers.
        """
        if self.capture.partitions is not None:
            ready_topic(self.cluster, self.capture.topic, self.capture.partitions)
        state = self.topic()
        if state is None:
            raise TOPIC_MISSING.terminal(
                f"{self.cluster} has no topic {self.capture.topic!r}",
                next_step=f"create it, or let capture {self.capture.name} do so: partitions: 1",
            )
        return state


@contextmanager
def open_capture(
    ground: Ground, order: CaptureOrder, begin: Begin, now: datetime, seconds: float | None = None
) -> Iterator[tuple[CaptureProducer, CapturePosition]]:
    """Open a capture's producer, which fences earlier ones, and find its position. A first run or a reset commits one first.

    Args:
        ground: What it rests on.
        order: What is asked for.
        begin: Makes a state to begin with.
        now: The time, UTC.
        seconds: How long a transaction may be open; None for the usual minute.

    Raises:
        Terminal: The position is lost or does not fit; topics are missing, or refuse.
        Retryable: No broker answers, or another run began at the same moment.
    """
    topic = ground.ready_topic()
    ready_positions(ground.cluster, ground.positions)
    capture = ground.capture
    with capture_producer(ground.cluster, capture.topic, ground.positions, ground.identity, seconds) as producer:
        # Behind the opening: nobody else of this name commits any more.
        last = ground.position()
        if order.restart_at is not None and not _is_done(last, order):
            position = _reset_position(capture, last, topic, order, begin, now)
            producer.send((), position.to_json)
        elif last is None:
            require_position(capture.name, capture.capture, None, replace(topic, used=ground.ready_topic().used))
            position = CapturePosition(capture.capture, topic.name, topic.id, 0, 0, order.run, begin(capture.start))
            producer.send((), position.to_json)
        else:
            require_position(capture.name, capture.capture, last, topic)
            position = last
        yield producer, position


def _is_done(last: CapturePosition | None, order: CaptureOrder) -> bool:
    """Whether an earlier try of this run did the reset."""
    return (
        last is not None and last.run == order.run and last.reset is not None and last.reset.target == order.restart_at
    )


def _reset_position(
    capture: Capture,
    last: CapturePosition | None,
    topic: TopicState,
    order: CaptureOrder,
    begin: Begin,
    now: datetime,
) -> CapturePosition:
    n = None if last is None else last.n
    if order.restart_at is None or order.restart_at == "position":
        if last is None or last.kind != capture.capture:
            raise BAD_CAPTURE_POSITION.terminal(
                f"capture {capture.name} has no position of kind {capture.capture} to go on from",
                next_step="--from beginning, or --from end",
            )
        state = last.state
    else:
        state = begin(order.restart_at)
    reset = Reset(
        order.restart_at or "position", order.reason, order.requested_by, now.isoformat(timespec="seconds"), n
    )
    epoch = 1 if last is None else last.epoch + 1
    number = 0 if n is None else n + 1
    return CapturePosition(capture.capture, topic.name, topic.id, number, epoch, order.run, state, reset)
