"""A broker that keeps its connections and stops answering in the middle of a transfer."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from random import Random
from threading import Event
from typing import Any

import pytest

from frazil.errors import OutcomeUnknown, Retryable
from frazil.kafka.admin.consumer_group import mirror_offsets
from frazil.kafka.admin.topics import create_topic
from frazil.kafka.client.client import STALL_SECONDS
from frazil.kafka.client.cluster import OutgoingRecord
from frazil.kafka.read.read import ReadLimits, read_range
from frazil.kafka.write.produce import produce
from frazil.runtime.process import until

WRITERS = 8
"""So many that some of them are in the middle of it."""

NOISE = Random(1).randbytes(100_000)


def noise(count: int, size: int) -> Iterator[OutgoingRecord]:
    """Records that don't compress."""
    span = len(NOISE) - size
    return (OutgoingRecord(None, NOISE[n * 31 % span :][:size]) for n in range(count))


@pytest.fixture(autouse=True)
def short_stall(monkeypatch: pytest.MonkeyPatch) -> None:
    """A third of the time that a transfer stands still before it is given up."""
    for module in ("read.read", "write.produce"):
        monkeypatch.setattr(f"frazil.kafka.{module}.STALL_SECONDS", STALL_SECONDS / 3)


def test_frozen_broker_does_not_hang_reader(patient: Any) -> None:
    """The read ends with the offset it reached, in time, and never as if the range were read."""
    create_topic(patient.cluster, "t", 1)
    count = 40_000  # 200 MB: three times what the client reads ahead
    produce(patient.cluster, "t", noise(count, 5_000))
    batches = read_range(patient.cluster, "t", 0, 0, count, limits=ReadLimits(100))
    arrived = [(next(batches).num_rows, time.monotonic())]

    patient.freeze()
    with pytest.raises(Retryable, match="topic 't', partition 0: nothing arrived") as failure:
        arrived.extend((batch.num_rows, time.monotonic()) for batch in batches)

    assert time.monotonic() - arrived[-1][1] < 40
    assert sum(rows for rows, _ in arrived) < count
    assert f"of 0 to {count}" in failure.value.message


def test_frozen_broker_does_not_hang_producer(patient: Any) -> None:
    """The transfer ends in time as unknown, with the acknowledged count of that moment."""
    create_topic(patient.cluster, "t", 1)
    acknowledged: list[int] = []

    def freeze(count: int) -> None:
        patient.freeze()
        acknowledged.append(count)

    began = time.monotonic()
    with pytest.raises(OutcomeUnknown, match="may or may not have arrived") as failure:
        produce(patient.cluster, "t", noise(100_000, 100), rate=1_000, progress=freeze)

    assert time.monotonic() - began < 60
    assert f"{acknowledged[-1]} of " in failure.value.message


def test_frozen_coordinator_does_not_hang_consumer_group_update(patient: Any) -> None:
    """Frozen while positions are on their way to it: each writer hears in time that nobody answers."""
    create_topic(patient.cluster, "t", 1)
    written: list[int] = []
    over = Event()

    def mirrored() -> None:
        while not over.is_set():
            mirror_offsets(patient.cluster, "g", {("t", 0): len(written)})
            written.append(1)

    with ThreadPoolExecutor(WRITERS) as pool:
        writers = [pool.submit(mirrored) for _ in range(WRITERS)]
        assert until(lambda: len(written) > 3 * WRITERS, 30)
        patient.freeze()
        late = wait(writers, 40).not_done
        over.set()
        patient.thaw()  # ends those, too

    assert not late
    with pytest.raises(Retryable, match="answered in time"):
        writers[0].result()
