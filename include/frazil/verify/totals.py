"""Rows and dead letters per batch, against the ledger's counts: also where Kafka holds the records no more."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from frazil.verify.bounds import Bounds
from frazil.verify.coverage import rolled_back, taken_out
from frazil.verify.ledger import MENDING, READING, Batch, Removed
from frazil.verify.result import Difference


def total_differences(
    batches: Sequence[Batch],
    tables: tuple[str | None, str],
    counted: Mapping[tuple[str, int], int],
    live: Mapping[str, int],
    asked: Bounds,
    known: Collection[int],
) -> Iterator[Difference]:
    """Batches whose rows or dead letters are more or fewer than the ledger says.

    Left out are batches of which a later one took something out or gave something up, those that reach beyond what was
    asked for or into an older incarnation of a topic, and those that differences were found of.

    Args:
        batches: All batches of the ledger.
        tables: The destination and the dead letters; None for one whose rows are not told apart by batches.
        counted: (table, batch number) -> outcomes.
        live: Topics that are still what the position knows -> first batch number of their present incarnation.
        asked: Which offsets are compared.
        known: Numbers of batches with differences.
    """
    for batch in whole_batches(batches, live, asked):
        if batch.n in known:
            continue
        for table, wanted in zip(tables, (batch.rows.get("destination", batch.written), batch.dead), strict=True):
            if table is not None and (found := counted.get((table, batch.n), 0)) != wanted:
                yield Difference("ledger", f"{wanted} rows of batch {batch.n} in {table}", f"{found}", batch=batch.n)


def whole_batches(batches: Sequence[Batch], live: Mapping[str, int], asked: Bounds) -> Iterator[Batch]:
    """Batches that read, of which nothing was taken out, and of which all was asked for."""
    return (batch for batch in _untouched(batches) if _is_inside(batch, live, asked))


def _untouched(batches: Sequence[Batch]) -> Iterator[Batch]:
    undone = rolled_back(batches)
    later: list[Removed] = []
    for batch in reversed(batches):
        if batch.n in undone:
            continue
        is_rewound = batch.kind == "rewind" and batch.skipped
        if batch.lost or is_rewound or (batch.kind in MENDING and (batch.removals or batch.skipped)):
            return  # rows or letters of earlier batches were lost
        if batch.kind in READING and batch.ranges and not any(_meets(batch, r) for r in later):
            yield batch
        later += taken_out(batch)


def _meets(batch: Batch, removed: Removed) -> bool:
    end = removed.end
    return batch.n >= removed.since and any(
        r.topic == removed.topic
        and removed.partition in (None, r.partition)
        and removed.start < r.end
        and (end is None or r.start < end)
        for r in batch.ranges
    )


def _is_inside(batch: Batch, live: Mapping[str, int], asked: Bounds) -> bool:
    return all(_holds(asked.get((r.topic, r.partition)), r.start, r.end) for r in batch.ranges) and all(
        r.topic in live and batch.n >= live[r.topic] for r in batch.ranges
    )


def _holds(bounds: tuple[int, int | None] | None, start: int, end: int) -> bool:
    return bounds is not None and bounds[0] <= start and (bounds[1] is None or end <= bounds[1])
