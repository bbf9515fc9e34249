"""Checks the ledger: whether its rows are consistent, and whether the tables have the rows that it counts per batch."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

from frazil.verify.facts.coverage import Key, final_removals, rolled_back_batches
from frazil.verify.facts.ledger import (
    READ_KINDS,
    REPAIR_KINDS,
    Batch,
    Position,
    Range,
    Removal,
    next_offsets,
    unrecorded_batches,
)
from frazil.verify.facts.result import Difference, ledger_difference
from frazil.verify.reading import Bounds


def ledger_differences(
    batches: Sequence[Batch], exploded: Collection[int] = (), *, is_merged: bool = False
) -> Iterator[Difference]:
    """Contradictions within the ledger. Batches in `exploded` may have several rows per record.

    In tables with merged rows no batch removes rows.
    """
    yield from _number_differences(batches)
    for batch in batches:
        yield from _row_differences(batch)
        yield from _count_differences(batch, explodes=batch.n in exploded)
        yield from _replay_differences(batch, is_merged=is_merged)
    yield from _position_differences(batches)


def _number_differences(batches: Sequence[Batch]) -> Iterator[Difference]:
    lost = unrecorded_batches(batches)
    if batches and batches[0].kind not in ("start", "reset") and not lost:
        yield ledger_difference(
            batches[0].n, "the ledger to begin with the batch of kind start", f"kind {batches[0].kind}"
        )
    for before, batch in pairwise(batches):
        # A rewind takes a number above every table's: one may have held a batch that the ledger never saw.
        is_hole = not lost.issuperset(range(before.n + 1, batch.n))
        if is_hole and batch.kind not in ("rewind", "reset"):
            yield ledger_difference(
                batch.n, f"batch {before.n + 1} after batch {before.n}", "no row of it in the ledger"
            )


def _row_differences(batch: Batch) -> Iterator[Difference]:
    if len(batch.ids) > 1:
        yield ledger_difference(batch.n, "one batch of this number", f"several: {', '.join(batch.ids)}")
    if len(set(batch.tables)) < len(batch.tables):
        yield ledger_difference(batch.n, "one ledger row per table", f"rows for {', '.join(batch.tables)}")
    is_due_per_role = {"destination": True, "dead_letters": batch.dead > 0} if batch.kind in READ_KINDS else {}
    for role in (role for role, is_due in is_due_per_role.items() if is_due and role not in batch.rows):
        yield ledger_difference(batch.n, f"a ledger row for the {role} table", "none")
    if batch.position.n != batch.n:
        yield ledger_difference(batch.n, f"a position of batch {batch.n}", f"one of batch {batch.position.n}")


def _count_differences(batch: Batch, *, explodes: bool) -> Iterator[Difference]:
    if batch.kind not in READ_KINDS:
        return
    if batch.read != batch.written + batch.dead + batch.filtered:
        outcomes = f"{batch.written} written + {batch.dead} dead + {batch.filtered} filtered"
        yield ledger_difference(batch.n, f"an outcome for each of {batch.read} records read", outcomes)
    if (span := sum(r.end - r.start for r in batch.ranges)) < batch.read:
        yield ledger_difference(batch.n, f"at least {batch.read} offsets for {batch.read} records", f"{span} offsets")
    for role, count in (("destination", batch.written), ("dead_letters", batch.dead)):
        if batch.rows.get(role, count) != count and not (explodes and role == "destination" and batch.has_more_rows):
            yield ledger_difference(batch.n, f"{count} rows in its {role} table", f"{batch.rows[role]}")


def _replay_differences(batch: Batch, *, is_merged: bool) -> Iterator[Difference]:
    """A replay must remove from each table exactly what it reads again: more loses rows, less duplicates them."""
    read = sorted((r.topic, r.partition, r.start, r.end) for r in batch.ranges)
    for role in sorted(batch.rows) if batch.kind == "replay" else ():
        expected = [] if is_merged and role == "destination" else read
        removed = [(r.topic, r.partition, r.start, r.end) for r in batch.removals.get(role, ())]
        if sorted(removed, key=repr) != sorted(expected, key=repr):
            yield ledger_difference(
                batch.n, f"{expected} taken out of its {role} table, as read again", f"{removed} taken out"
            )


def _position_differences(batches: Sequence[Batch]) -> Iterator[Difference]:
    """Every ingest must begin at the position before it, and its own position must be where it stopped reading."""
    for before, batch in pairwise(batches):
        if batch.kind in ("reset", "rewind") or batch.n != before.n + 1:
            continue
        offsets_before, offsets_after = next_offsets(before.position), next_offsets(batch.position)
        for r in (*batch.ranges, *batch.skipped):
            if (r.topic, r.partition) not in offsets_before | offsets_after:
                expected = f"batch {batch.n} to read and to skip partitions of its position"
                yield Difference("ledger", expected, f"{r.start} to {r.end}", r.topic, r.partition, batch=batch.n)
        moved = (
            _ranges_per_partition([*batch.ranges, *_skipped_ranges(batch, offsets_after)])
            if batch.kind == "ingest"
            else {}
        )
        for key in sorted(offsets_before.keys() | offsets_after.keys()):
            yield from _partition_differences(
                batch.n, key, offsets_before.get(key), offsets_after.get(key), moved.get(key, [])
            )


def _partition_differences(
    n: int, key: Key, offset_before: int | None, offset_after: int | None, read: Sequence[Range]
) -> Iterator[Difference]:
    next_offset = offset_before
    for r in read:
        if next_offset is not None and r.start != next_offset:
            yield Difference(
                "ledger",
                f"batch {n} to read on from offset {next_offset}",
                f"it began at {r.start}",
                *key,
                next_offset,
                n,
            )
        next_offset = r.end
    # A partition that appeared has no offset before; where nothing of it was read, any may be its beginning.
    if next_offset is not None and offset_after != next_offset:
        yield Difference(
            "ledger", f"the position {next_offset} after batch {n}", f"{offset_after}", *key, offset_after, n
        )


def _skipped_ranges(batch: Batch, offsets_after: Mapping[Key, int]) -> list[Range]:
    """Skipped ranges that the position moved over. A topic that vanished unread keeps its offset: it may come back."""
    return [r for r in batch.skipped if r.start < offsets_after.get((r.topic, r.partition), r.end)]


def _ranges_per_partition(ranges: Iterable[Range]) -> dict[Key, list[Range]]:
    spans: dict[Key, list[Range]] = {}
    for r in sorted(ranges, key=lambda r: r.start):
        spans.setdefault((r.topic, r.partition), []).append(r)
    return spans


def closing_differences(
    last: Batch, table: str, summary: Position | None, mirrored: Position | None
) -> Iterator[Difference]:
    """Whether the closing table contains the position that the ledger knows as the last one. `summary` is the position in the
    snapshots of main, None once they are expired; `mirrored` is the one in the table property.
    """
    for name, position in (("newest snapshot that carries a position", summary), ("property", mirrored)):
        if position is None and name != "property":
            continue
        if position is None or position.body != last.position.body:
            actual = "none" if position is None else f"n={position.n}, epoch={position.epoch}, {dict(position.topics)}"
            yield ledger_difference(last.n, f"the position of batch {last.n} in the {name} of {table}", actual)


def total_differences(
    batches: Sequence[Batch],
    tables: tuple[str | None, str],
    counted: Mapping[tuple[str, int], int],
    live: Mapping[str, int],
    requested: Bounds,
    differing: Collection[int],
) -> Iterator[Difference]:
    """Batches whose rows or dead letters are more or fewer than the ledger says.

    Not checked are batches of which a later one removed or gave up something, those that reach beyond the requested
    offsets or into an older incarnation of a topic, and those that already have differences.

    Args:
        batches: All batches of the ledger.
        tables: The destination and the dead letters; None for one whose rows are not told apart by batches.
        counted: (table, batch number) -> outcomes.
        live: Topics that are still what the position knows -> first batch number of their present incarnation.
        requested: Offsets that are compared.
        differing: Numbers of batches with differences.
    """
    for batch in whole_batches(batches, live, requested):
        if batch.n in differing:
            continue
        for table, expected_count in zip(
            tables, (batch.rows.get("destination", batch.written), batch.dead), strict=True
        ):
            if table is not None and (actual_count := counted.get((table, batch.n), 0)) != expected_count:
                yield Difference(
                    "ledger", f"{expected_count} rows of batch {batch.n} in {table}", f"{actual_count}", batch=batch.n
                )


def whole_batches(batches: Sequence[Batch], live: Mapping[str, int], requested: Bounds) -> Iterator[Batch]:
    """Batches that read records, whose outcomes are all still there, and whose offsets are all compared."""
    return (batch for batch in _untouched_batches(batches) if _is_inside(batch, live, requested))


def _untouched_batches(batches: Sequence[Batch]) -> Iterator[Batch]:
    undone = rolled_back_batches(batches)
    later: list[Removal] = []
    for batch in reversed(batches):
        if batch.n in undone:
            continue
        is_rewound = batch.kind == "rewind" and batch.skipped
        if batch.lost or is_rewound or (batch.kind in REPAIR_KINDS and (batch.removals or batch.skipped)):
            return  # rows or letters of earlier batches were lost
        if batch.kind in READ_KINDS and batch.ranges and not any(_overlaps(batch, r) for r in later):
            yield batch
        later += final_removals(batch)


def _overlaps(batch: Batch, removed: Removal) -> bool:
    end = removed.end
    return batch.n >= removed.since and any(
        r.topic == removed.topic
        and removed.partition in (None, r.partition)
        and removed.start < r.end
        and (end is None or r.start < end)
        for r in batch.ranges
    )


def _is_inside(batch: Batch, live: Mapping[str, int], requested: Bounds) -> bool:
    return all(_contains(requested.get((r.topic, r.partition)), r.start, r.end) for r in batch.ranges) and all(
        r.topic in live and batch.n >= live[r.topic] for r in batch.ranges
    )


def _contains(bounds: tuple[int, int | None] | None, start: int, end: int) -> bool:
    return bounds is not None and bounds[0] <= start and (bounds[1] is None or end <= bounds[1])
