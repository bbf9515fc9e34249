"""Checks whether the ledger is consistent, and whether the tables have as many rows per batch as it counts."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
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
    """Contradictions within the ledger.

    Args:
        batches: All batches of the ledger.
        exploded: Numbers of batches that may have several rows per record.
        is_merged: Whether rows are merged into the destination: then a replay removes none.
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
        # A rewind takes a number above those in all tables: one of them may have had a batch that the ledger never got.
        has_gap = not lost.issuperset(range(before.n + 1, batch.n))
        if has_gap and batch.kind not in ("rewind", "reset"):
            yield ledger_difference(
                batch.n, f"batch {before.n + 1} after batch {before.n}", "no row of it in the ledger"
            )


def _row_differences(batch: Batch) -> Iterator[Difference]:
    if len(batch.ids) > 1:
        yield ledger_difference(batch.n, "one batch of this number", f"several: {', '.join(batch.ids)}")
    if len(set(batch.tables)) < len(batch.tables):
        yield ledger_difference(batch.n, "one ledger row per table", f"rows for {', '.join(batch.tables)}")
    roles = ("destination", *(("dead_letters",) if batch.dead else ())) if batch.kind in READ_KINDS else ()
    for role in (role for role in roles if role not in batch.rows):
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
    """A replay must remove from each table exactly the ranges that it reads again, so that no row is lost or doubled."""
    read = sorted((r.topic, r.partition, r.start, r.end) for r in batch.ranges)
    for role in sorted(batch.rows) if batch.kind == "replay" else ():
        expected = [] if is_merged and role == "destination" else read
        removed = [(r.topic, r.partition, r.start, r.end) for r in batch.removals.get(role, ())]
        if sorted(removed, key=repr) != sorted(expected, key=repr):
            yield ledger_difference(
                batch.n, f"{expected} taken out of its {role} table, as read again", f"{removed} taken out"
            )


def _position_differences(batches: Sequence[Batch]) -> Iterator[Difference]:
    """Every ingest must begin at the position before it, and its own position must be the offset after its last one."""
    for before, batch in pairwise(batches):
        if batch.kind in ("reset", "rewind") or batch.n != before.n + 1:
            continue
        offsets_before, offsets_after = next_offsets(before.position), next_offsets(batch.position)
        for r in (*batch.ranges, *batch.skipped):
            if (r.topic, r.partition) not in offsets_before | offsets_after:
                expected = f"batch {batch.n} to read and to skip partitions of its position"
                yield Difference("ledger", expected, f"{r.start} to {r.end}", r.topic, r.partition, batch=batch.n)
        moved: dict[Key, list[Range]] = {}
        # A topic that vanished unread keeps its offset, since it may come back: the position did not move over these ranges.
        skipped = [r for r in batch.skipped if r.start < offsets_after.get((r.topic, r.partition), r.end)]
        for r in sorted((*batch.ranges, *skipped), key=lambda r: r.start) if batch.kind == "ingest" else ():
            moved.setdefault((r.topic, r.partition), []).append(r)
        for key in sorted(offsets_before.keys() | offsets_after.keys()):
            offsets = offsets_before.get(key), offsets_after.get(key)
            yield from _partition_differences(batch.n, key, *offsets, moved.get(key, []))


def _partition_differences(
    n: int, key: Key, offset_before: int | None, offset_after: int | None, read: Sequence[Range]
) -> Iterator[Difference]:
    next_offset = offset_before
    for r in read:
        if next_offset is not None and r.start != next_offset:
            expected = f"batch {n} to read on from offset {next_offset}"
            yield Difference("ledger", expected, f"it began at {r.start}", *key, next_offset, n)
        next_offset = r.end
    # A new partition has no offset before; if nothing of it was read, its first offset is not known.
    if next_offset is not None and offset_after != next_offset:
        expected = f"the position {next_offset} after batch {n}"
        yield Difference("ledger", expected, f"{offset_after}", *key, offset_after, n)


def closing_differences(
    last: Batch, table: str, summary: Position | None, mirrored: Position | None
) -> Iterator[Difference]:
    """Compare the position in the closing table with the last one of the ledger. `summary` is the position in the snapshots,
    None once they are expired; `mirrored` is the one in the table property.
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
        tables: Names of the destination and of the dead letters; None for a table whose rows don't keep their batch.
        counted: (table, batch number) -> outcomes.
        live: Topics that still have the id of the position -> first batch number of their present incarnation.
        requested: Offsets that are compared.
        differing: Numbers of batches with differences.
    """
    for batch in whole_batches(batches, live, requested):
        if batch.n in differing:
            continue
        counts = batch.rows.get("destination", batch.written), batch.dead
        for table, count in zip(tables, counts, strict=True):
            if table is not None and (actual := counted.get((table, batch.n), 0)) != count:
                yield ledger_difference(batch.n, f"{count} rows of batch {batch.n} in {table}", f"{actual}")


def whole_batches(batches: Sequence[Batch], live: Mapping[str, int], requested: Bounds) -> Iterator[Batch]:
    """Batches that read records, whose outcomes all still exist, and whose offsets are all compared."""
    return (batch for batch in _untouched_batches(batches) if _is_inside(batch, live, requested))


def _untouched_batches(batches: Sequence[Batch]) -> Iterator[Batch]:
    undone = rolled_back_batches(batches)
    later: list[Removal] = []
    for batch in reversed(batches):
        if batch.n in undone:
            continue
        is_rewound = batch.kind == "rewind" and batch.skipped
        if batch.lost or is_rewound or (batch.kind in REPAIR_KINDS and (batch.removals or batch.skipped)):
            return  # rows or dead letters of earlier batches were lost
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
