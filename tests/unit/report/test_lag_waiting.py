"""What waits, when it is enough, and whether a run was called for it already: pure functions."""

from __future__ import annotations

from dataclasses import replace

import pytest

from frazil.batch.facts import PartitionFacts
from frazil.batch.plan import LOST_TRIGGER_SECONDS, Backlog, Threshold, TriggeredRun
from frazil.report.lag import PartitionLag, State, waiting


def partition(number: int, next_offset: int | None, log: PartitionFacts | None, state: State = "") -> PartitionLag:
    return PartitionLag("orders", number, next_offset, log, None, state)


def waiting_at(*offsets: int, end: int = 100, epoch: int | None = 0) -> Backlog:
    """What waits with the position at these offsets, in partitions that all end alike."""
    return waiting((partition(n, offset, PartitionFacts(0, end, end)) for n, offset in enumerate(offsets)), epoch, None)


def test_only_readable_records_start_a_run() -> None:
    """Counted is what a run would read: up to the stable end, from the log start where the position is new, nothing refused."""
    waiting_now = waiting(
        [
            partition(0, 90, PartitionFacts(0, 100, 500)),
            partition(1, None, PartitionFacts(40, 50, 50), "new"),
            partition(2, 7, PartitionFacts(0, 1_000, 1_000), "recreated"),
            partition(3, 7, None, "vanished"),
            partition(4, 60, PartitionFacts(0, 50, 50)),
        ],
        epoch=2,
        record_bytes=12.5,
    )

    assert waiting_now == Backlog(
        records=20,
        bytes=250,
        epoch=2,
        position={"orders/0": 90, "orders/1": 40, "orders/4": 50},
        ends={"orders/0": 100, "orders/1": 50, "orders/4": 50},
    )


@pytest.mark.parametrize(
    ("threshold", "reached"),
    [
        (Threshold(records=20), True),
        (Threshold(records=21), False),
        (Threshold(bytes=250), True),
        (Threshold(bytes=251), False),
        (Threshold(records=21, bytes=250), True),
        (Threshold(), False),
    ],
)
def test_run_starts_exactly_at_its_threshold(threshold: Threshold, reached: bool) -> None:
    """Either figure is enough, and is reached when it is met."""
    waiting_now = Backlog(20, 250, 0, {}, {})

    assert waiting_now.reaches(threshold) is reached
    assert not replace(waiting_now, epoch=None).reaches(threshold)


def test_bytes_count_only_where_a_batch_measured_them() -> None:
    """Without a measure only records count."""
    assert not Backlog(10**9, None, 0, {}, {}).reaches(Threshold(bytes=1))


def test_run_is_triggered_once_for_the_same_records() -> None:
    """A call is open until every partition has passed the end it had then, whatever came meanwhile; also after its way as JSON."""
    call = TriggeredRun.from_json(TriggeredRun(0, waiting_at(0, 0).ends, triggered_at=0.0).to_json())

    assert call.is_open(waiting_at(0, 0, end=5_000), 1.0)
    assert call.is_open(waiting_at(100, 99, end=5_000), 1.0)
    assert not call.is_open(waiting_at(100, 100, end=5_000), 1.0)


def test_trigger_without_a_run_expires() -> None:
    """It ends when it counts as lost, when a reset began another epoch, and where its partition is gone or made anew."""
    call = TriggeredRun(0, waiting_at(0).ends, triggered_at=0.0)

    assert call.is_open(waiting_at(0), LOST_TRIGGER_SECONDS)
    assert not call.is_open(waiting_at(0), LOST_TRIGGER_SECONDS + 1)
    assert not call.is_open(waiting_at(0, epoch=1), 1.0)
    assert not call.is_open(waiting([partition(0, 7, PartitionFacts(0, 9, 9), "recreated")], 0, None), 1.0)
