"""One reading of a partition for all destinations: whoever wants a record gets it, and Kafka is asked for it once."""

from __future__ import annotations

from collections.abc import Sequence

from frazil.verify.compare import Comparison
from frazil.verify.kafka import PartitionReader
from frazil.verify.spans import together, windows

WINDOW = 250_000
"""Offsets whose outcomes are held in memory at once, about 100 bytes each; many tables share them."""

LEAST = 10_000
"""Offsets that many tables hold at once at least: each window costs a look into the files of each of them."""


def read_once(
    comparisons: Sequence[Comparison], reader: PartitionReader, log: tuple[int, int], window: int = WINDOW
) -> None:
    """Hand every record to all comparisons that want it, in order.

    Args:
        comparisons: Of one partition, one of each destination.
        reader: Kafka.
        log: First offset that Kafka holds, and the last stable one (exclusive).
        window: Outcomes that all of them hold at once, about.
    """
    low, high = log
    size = max(min(LEAST, window), window // max(1, len(comparisons)))
    for of in windows(together([comparison.subject.segments for comparison in comparisons]), size):
        wanting = [comparison for comparison in comparisons if comparison.begin(of.start, of.end)]
        for message in reader.read(max(of.start, low), min(of.end, high)):
            offset = message.offset() or 0
            for comparison in wanting:
                comparison.take(message, offset)
        for comparison in wanting:
            comparison.end()
