"""The ranges that a table lost, from ledger rows of batches it does not hold, and which of them Kafka still has."""

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
    """Ranges that the batches after `after` read for a table, up to the position: later records are read anyway.

    `after` is the last batch that the table holds; -1 means none.
    """
    ranges: list[Range] = []
    for n, batch_rows in _batches(rows):
        own = _own(batch_rows, table)
        if n > after and own is not None and own["kind"] in _READING:
            ranges += (_read_so_far(r, n, position) for r in read_ranges(own))
    return union(ranges)


def lost_removals(rows: Iterable[Row], table: str, after: int) -> tuple[RemovedRange, ...]:
    """Ranges that the batches after `after` removed from a table, and that a rollback restored."""
    own = (row for row in rows if row["table"] == table and row["n"] > after)
    removed = (RemovedRange(*r) for row in own for r in json.loads(row.get("removed") or "[]"))
    return tuple(dict.fromkeys(removed))


def unfilled(rows: Iterable[Row], table: str) -> tuple[Range, ...]:
    """Ranges that repairs of a table recorded as lost, and that no later batch read again."""
    ranges: tuple[Range, ...] = ()
    for _, batch_rows in _batches(rows):
        own, first = _own(batch_rows, table), batch_rows[0]
        if first["kind"] == "repair" and own is not None:
            ranges = union((*ranges, *_read_ranges(own.get("skipped"))))
        elif first["kind"] in ("ingest", "replay"):
            ranges = subtract(ranges, read_ranges(first))
    return ranges


def union(ranges: Iterable[Range]) -> tuple[Range, ...]:
    """The same offsets, each once: ranges that meet are one."""
    segments: list[Range] = []
    for r in sorted((r for r in ranges if r.span > 0), key=lambda r: (r.topic, r.partition, r.start)):
        last = segments[-1] if segments else None
        if last is not None and (last.topic, last.partition) == (r.topic, r.partition) and r.start <= last.end:
            segments[-1] = replace(last, end=max(last.end, r.end))
        else:
            segments.append(r)
    return tuple(segments)


def subtract(ranges: Iterable[Range], excluded: Iterable[Range]) -> tuple[Range, ...]:
    """The ranges without some others."""
    segments = union(excluded)
    return tuple(part for r in ranges for part in _parts(r, segments))


def readable(
    ranges: Iterable[Range], position: Position, facts: ClusterFacts
) -> tuple[tuple[Range, ...], tuple[Range, ...]]:
    """Split ranges into what a replay can still read, and what is gone, because Kafka deleted it or the topic was recreated."""
    present, missing = [], []
    for r in ranges:
        start, end = _bounds(r, position, facts)
        present.append(replace(r, start=max(r.start, start), end=min(r.end, end)))
        missing.append(replace(r, end=min(r.end, start)))
    return union(present), union(missing)


def read_ranges(row: Row) -> tuple[Range, ...]:
    """The ranges that a batch read for the table of a ledger row."""
    return _read_ranges(row.get("table_ranges") or row["ranges"])


def _batches(rows: Iterable[Row]) -> Iterator[tuple[int, list[Row]]]:
    ordered = sorted(rows, key=lambda row: row["n"])
    return ((n, list(group)) for n, group in groupby(ordered, key=lambda row: row["n"]))


def _own(rows: Iterable[Row], table: str) -> Row | None:
    return next((row for row in rows if row["table"] == table), None)


def _read_ranges(text: str | None) -> tuple[Range, ...]:
    return tuple(Range(*r) for r in json.loads(text or "[]"))


def _read_so_far(r: Range, n: int, position: Position) -> Range:
    """A range of a batch up to the position; that of an earlier incarnation of its topic stays whole."""
    topic_position, next_offset = position.topics.get(r.topic), position.next_offset(r.topic, r.partition)
    return (
        r
        if topic_position is None or next_offset is None or n < topic_position.since
        else replace(r, end=min(r.end, next_offset))
    )


def _bounds(r: Range, position: Position, facts: ClusterFacts) -> tuple[int, int]:
    """The offsets of records that the pipeline has read and that Kafka still has."""
    topic_position, topic = position.topics.get(r.topic), facts.topics.get(r.topic)
    if topic_position is None or topic is None or facts.cluster_id != position.cluster:
        return r.end, r.end
    if (None not in (topic_position.id, topic.id) and topic_position.id != topic.id) or r.partition >= len(
        topic.partitions
    ):
        return r.end, r.end
    return topic.partitions[r.partition].log_start, position.next_offset(r.topic, r.partition) or 0


def _parts(r: Range, segments: Iterable[Range]) -> Iterator[Range]:
    start = r.start
    for segment in segments:
        if (
            (segment.topic, segment.partition) == (r.topic, r.partition)
            and start < segment.end
            and segment.start < r.end
        ):
            if start < segment.start:
                yield replace(r, start=start, end=segment.start)
            start = segment.end
    if start < r.end:
        yield replace(r, start=start)
