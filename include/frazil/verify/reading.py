"""One reading of a partition for all destinations: whoever wants a record gets it, and Kafka is asked for it once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from confluent_kafka import Message

from frazil.verify.compare import Comparison
from frazil.verify.kafka import PartitionReader
from frazil.verify.spans import Window, together, windows

WINDOW = 250_000
"""Offsets whose outcomes are held in memory at once, about 100 bytes each; many tables share them."""

LEAST = 10_000
"""Offsets that many tables hold at once at least: each window costs a look into the files of each of them."""

MeantFor = Callable[[Message], frozenset[str] | None]
"""The tables that look at a record, beside those that hold an outcome of it; None: all do."""


def read_once(
    comparisons: Mapping[str, Comparison],
    reader: PartitionReader,
    log: tuple[int, int],
    meant_for: MeantFor | None = None,
    window: int = WINDOW,
) -> int:
    """Hand every record to the comparisons that it means something to, in order, and return how many there were.

    A comparison that is not handed a record counts it: where many tables share a topic, the work follows the records.

    Args:
        comparisons: Of one partition, one of each destination, by its name.
        reader: Kafka.
        log: First offset that Kafka holds, and the last stable one (exclusive).
        meant_for: How records are routed; None: all are handed to all.
        window: Outcomes that all of them hold at once, about.
    """
    low, high = log
    size, count = max(min(LEAST, window), window // max(1, len(comparisons))), 0
    for of in windows(together([comparison.subject.segments for comparison in comparisons.values()]), size):
        wanting = {name: each for name, each in comparisons.items() if each.begin(of.start, of.end)}
        messages = reader.read(max(of.start, low), min(of.end, high))
        count += _all(wanting.values(), messages, of) if meant_for is None else _some(wanting, messages, of, meant_for)
        for comparison in wanting.values():
            comparison.end()
    return count


def _all(wanting: Iterable[Comparison], messages: Iterable[Message], window: Window) -> int:
    every, count, covered = tuple(wanting), 0, _Covered(window)
    for message in messages:
        offset = message.offset() or 0
        count += covered.has(offset)
        for comparison in every:
            comparison.take(message, offset)
    return count


def _some(wanting: Mapping[str, Comparison], messages: Iterable[Message], window: Window, meant_for: MeantFor) -> int:
    holders: dict[int, list[str]] = {}
    for name, comparison in wanting.items():
        for offset in comparison.offsets:
            holders.setdefault(offset, []).append(name)
    passed: list[int] = []
    handed: dict[str, list[int]] = {name: [] for name in wanting}
    count, covered = 0, _Covered(window)
    for message in messages:
        offset = message.offset() or 0
        count += covered.has(offset)
        # A letter of a record that is not taken over is of the record as a whole: all tables know it.
        is_unread = bool(wanting) and next(iter(wanting.values())).unread_code(message) is not None
        meant = None if is_unread else meant_for(message)
        if meant is None:
            for comparison in wanting.values():
                comparison.take(message, offset)
            continue
        passed.append(offset)
        for name in {*holders.get(offset, ()), *(of for of in meant if of in wanting)}:
            wanting[name].take(message, offset)
            handed[name].append(offset)
    for name, comparison in wanting.items():
        comparison.pass_over(passed, handed[name])
    return count


class _Covered:
    """Which offsets of a window were read by a batch; asked in ascending order."""

    def __init__(self, window: Window) -> None:
        self._segments: Sequence[tuple[int, int]] = [(of.start, of.end) for of in window.segments]
        self._at = 0

    def has(self, offset: int) -> bool:
        while self._at < len(self._segments) and offset >= self._segments[self._at][1]:
            self._at += 1
        return self._at < len(self._segments) and offset >= self._segments[self._at][0]
