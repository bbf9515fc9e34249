"""What a table lost, by the ledger's rows of the batches that it does not hold, and what of it Kafka can give again."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import groupby
from typing import Any, Final

from frazil.batch.facts import ClusterFacts, Range
from frazil.batch.position import Position
from frazil.batch.removal import RemovedRange

Row = Mapping[str, Any]
"""One row of the ledger. Older ledgers lack some columns."""

_READING: Final = ("ingest", "replay", "dead_letters")


def lost_ranges(rows: Iterable[Row], table: str, after: int, position: Position) -> tuple[Range, ...]:
    """What the batches behind `after` read for a table, up to the position: what lies beyond it comes by itself.

    Args:
        rows: Rows of the ledger.
        table: The table.
        after: Number of the batch that it holds last; -1 for none.
        position: Where the pipeline stands.
    """
    found: list[Range] = []
    for n, of in _batches(rows):
        own = _own(of, table)
        if n > after and own is not None and own["kind"] in _READING:
            found += (_read_so_far(r, n, position) for r in read_ranges(own))
    return union(found)


def lost_removals(rows: Iterable[Row], table: str, after: int) -> tuple[RemovedRange, ...]:
    """What the batches behind `after` took out of a table: a rollback brought it back."""
    own = (row for row in rows if row["table"] == table and row["n"] > after)
    removed = (RemovedRange(*r) for row in own for r in json.loads(row.get("removed") or "[]"))
    return tuple(dict.fromkeys(removed))


def unfilled(rows: Iterable[Row], table: str) -> tuple[Range, ...]:
    """What repairs of a table recorded as lost, and no later batch read again."""
    found: tuple[Range, ...] = ()
    for _, of in _batches(rows):
        own, first = _own(of, table), of[0]
        if first["kind"] == "repair" and own is not None:
            found = union((*found, *_listed(own.get("skipped"))))
        elif first["kind"] in ("ingest", "replay"):
            found = without(found, read_ranges(first))
    return found


def union(ranges: Iterable[Range]) -> tuple[Range, ...]:
    """The same offsets, each once: ranges that meet are one."""
    found: list[Range] = []
    for r in sorted((r for r in ranges if r.span > 0), key=lambda r: (r.topic, r.partition, r.start)):
        last = found[-1] if found else None
        if last is not None and (last.topic, last.partition) == (r.topic, r.partition) and r.start <= last.end:
            found[-1] = replace(last, end=max(last.end, r.end))
        else:
            found.append(r)
    return tuple(found)


def without(ranges: Iterable[Range], others: Iterable[Range]) -> tuple[Range, ...]:
    """What is left of ranges."""
    taken = union(others)
    return tuple(part for r in ranges for part in _parts(r, taken))


def readable(
    ranges: Iterable[Range], position: Position, facts: ClusterFacts
) -> tuple[tuple[Range, ...], tuple[Range, ...]]:
    """What a replay can read of ranges, and what is gone: from Kafka, or with an earlier incarnation of the topic.

    Args:
        ranges: Offsets that were read before.
        position: Which topics the pipeline knows; a replay reads nothing beyond it.
        facts: What the broker says of them.
    """
    held, gone = [], []
    for r in ranges:
        start, end = _bounds(r, position, facts)
        held.append(replace(r, start=max(r.start, start), end=min(r.end, end)))
        gone.append(replace(r, end=min(r.end, start)))
    return union(held), union(gone)


def read_ranges(row: Row) -> tuple[Range, ...]:
    """What a batch read for the table of a row of the ledger."""
    return _listed(row.get("table_ranges") or row["ranges"])


def _batches(rows: Iterable[Row]) -> Iterator[tuple[int, list[Row]]]:
    ordered = sorted(rows, key=lambda row: row["n"])
    return ((n, list(of)) for n, of in groupby(ordered, key=lambda row: row["n"]))


def _own(rows: Iterable[Row], table: str) -> Row | None:
    return next((row for row in rows if row["table"] == table), None)


def _listed(text: str | None) -> tuple[Range, ...]:
    return tuple(Range(*r) for r in json.loads(text or "[]"))


def _read_so_far(r: Range, n: int, position: Position) -> Range:
    """A range of a batch up to the position; that of an earlier incarnation of its topic stays whole."""
    at, known = position.topics.get(r.topic), position.next_offset(r.topic, r.partition)
    return r if at is None or known is None or n < at.since else replace(r, end=min(r.end, known))


def _bounds(r: Range, position: Position, facts: ClusterFacts) -> tuple[int, int]:
    """Between which offsets Kafka holds records that the pipeline has read."""
    known, found = position.topics.get(r.topic), facts.topics.get(r.topic)
    if known is None or found is None or facts.cluster_id != position.cluster:
        return r.end, r.end
    if (None not in (known.id, found.id) and known.id != found.id) or r.partition >= len(found.partitions):
        return r.end, r.end
    return found.partitions[r.partition].log_start, position.next_offset(r.topic, r.partition) or 0


def _parts(r: Range, taken: Iterable[Range]) -> Iterator[Range]:
    at = r.start
    for other in taken:
        if (other.topic, other.partition) == (r.topic, r.partition) and at < other.end and other.start < r.end:
            if at < other.start:
                yield replace(r, start=at, end=other.start)
            at = other.end
    if at < r.end:
        yield replace(r, start=at)
