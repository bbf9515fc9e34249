"""Whether the ledger is right in itself, and says of each batch as many rows and dead letters as the tables have."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

from frazil.verify.facts.coverage import rolled_back, taken_out
from frazil.verify.facts.ledger import MENDING, READING, Batch, Position, Range, Removed, offsets, unrecorded
from frazil.verify.facts.result import Difference
from frazil.verify.reading import Bounds

Key = tuple[str, int]


def ledger_differences(
    batches: Sequence[Batch], exploded: Collection[int] = (), *, is_merged: bool = False
) -> Iterator[Difference]:
    """What the ledger says of itself that can't be true.

    Args:
        batches: All batches.
        exploded: Numbers of those that may have made several rows of a record.
        is_merged: Whether the destination's rows are what their last changes made of them: no batch takes any out.
    """
    yield from _numbers(batches)
    for batch in batches:
        yield from _rows(batch)
        yield from _counts(batch, explodes=batch.n in exploded)
        yield from _replacement(batch, is_merged=is_merged)
    yield from _steps(batches)


def _wrong(n: int, expected: str, found: str) -> Difference:
    return Difference("ledger", expected, found, batch=n)


def _numbers(batches: Sequence[Batch]) -> Iterator[Difference]:
    lost = unrecorded(batches)
    if batches and batches[0].kind not in ("start", "reset") and not lost:
        yield _wrong(batches[0].n, "the ledger to begin with the batch of kind start", f"kind {batches[0].kind}")
    for before, batch in pairwise(batches):
        # A rewind takes a number above every table's: one may have held a batch that the ledger never saw.
        is_hole = not lost.issuperset(range(before.n + 1, batch.n))
        if is_hole and batch.kind not in ("rewind", "reset"):
            yield _wrong(batch.n, f"batch {before.n + 1} after batch {before.n}", "no row of it in the ledger")


def _rows(batch: Batch) -> Iterator[Difference]:
    if len(batch.ids) > 1:
        yield _wrong(batch.n, "one batch of this number", f"several: {', '.join(batch.ids)}")
    if len(set(batch.tables)) < len(batch.tables):
        yield _wrong(batch.n, "one ledger row per table", f"rows for {', '.join(batch.tables)}")
    wanted = {"destination": True, "dead_letters": batch.dead > 0} if batch.kind in READING else {}
    for role in (role for role, is_due in wanted.items() if is_due and role not in batch.rows):
        yield _wrong(batch.n, f"a ledger row for the {role} table", "none")
    if batch.position.n != batch.n:
        yield _wrong(batch.n, f"a position of batch {batch.n}", f"one of batch {batch.position.n}")


def _counts(batch: Batch, *, explodes: bool) -> Iterator[Difference]:
    if batch.kind not in READING:
        return
    if batch.read != batch.written + batch.dead + batch.filtered:
        outcomes = f"{batch.written} written + {batch.dead} dead + {batch.filtered} filtered"
        yield _wrong(batch.n, f"an outcome for each of {batch.read} records read", outcomes)
    if (span := sum(r.end - r.start for r in batch.ranges)) < batch.read:
        yield _wrong(batch.n, f"at least {batch.read} offsets for {batch.read} records", f"{span} offsets")
    for role, count in (("destination", batch.written), ("dead_letters", batch.dead)):
        if batch.rows.get(role, count) != count and not (explodes and role == "destination" and batch.has_more_rows):
            yield _wrong(batch.n, f"{count} rows in its {role} table", f"{batch.rows[role]}")


def _replacement(batch: Batch, *, is_merged: bool) -> Iterator[Difference]:
    """A replay takes out of each table what it reads again: no more, or something is lost; no less, or it is there twice."""
    read = sorted((r.topic, r.partition, r.start, r.end) for r in batch.ranges)
    for role in sorted(batch.rows) if batch.kind == "replay" else ():
        wanted = [] if is_merged and role == "destination" else read
        found = [(r.topic, r.partition, r.start, r.end) for r in batch.removals.get(role, ())]
        if sorted(found, key=repr) != sorted(wanted, key=repr):
            yield _wrong(batch.n, f"{wanted} taken out of its {role} table, as read again", f"{found} taken out")


def _steps(batches: Sequence[Batch]) -> Iterator[Difference]:
    """Every ingest carries on where the position stood, and leaves it where it stopped reading: no hole in between."""
    for before, batch in pairwise(batches):
        if batch.kind in ("reset", "rewind") or batch.n != before.n + 1:
            continue
        known, now = offsets(before.position), offsets(batch.position)
        for r in (*batch.ranges, *batch.skipped):
            if (r.topic, r.partition) not in known | now:
                expected = f"batch {batch.n} to read and to skip partitions of its position"
                yield Difference("ledger", expected, f"{r.start} to {r.end}", r.topic, r.partition, batch=batch.n)
        moved = _spans([*batch.ranges, *_passed_over(batch, now)]) if batch.kind == "ingest" else {}
        for key in sorted(known.keys() | now.keys()):
            yield from _step(batch.n, key, known.get(key), now.get(key), moved.get(key, []))


def _step(n: int, key: Key, known: int | None, now: int | None, read: Sequence[Range]) -> Iterator[Difference]:
    at = known
    for r in read:
        if at is not None and r.start != at:
            yield Difference("ledger", f"batch {n} to read on from offset {at}", f"it began at {r.start}", *key, at, n)
        at = r.end
    # A partition that appeared has no offset before; where nothing of it was read, any may be its beginning.
    if at is not None and now != at:
        yield Difference("ledger", f"the position {at} after batch {n}", f"{now}", *key, now, n)


def _passed_over(batch: Batch, now: Mapping[Key, int]) -> list[Range]:
    """What the position moved over. A topic that vanished unread keeps its place: it may come back."""
    return [r for r in batch.skipped if r.start < now.get((r.topic, r.partition), r.end)]


def _spans(ranges: Iterable[Range]) -> dict[Key, list[Range]]:
    found: dict[Key, list[Range]] = {}
    for r in sorted(ranges, key=lambda r: r.start):
        found.setdefault((r.topic, r.partition), []).append(r)
    return found


def closing_differences(
    last: Batch, table: str, summary: Position | None, mirrored: Position | None
) -> Iterator[Difference]:
    """Whether the closing table holds the position that the ledger knows as the last one.

    Args:
        last: The last batch of the ledger.
        table: The closing table.
        summary: The position in the snapshots of main; None once they are expired.
        mirrored: The one in the table property.
    """
    for name, found in (("newest snapshot that carries a position", summary), ("property", mirrored)):
        if found is None and name != "property":
            continue
        if found is None or found.body != last.position.body:
            said = "none" if found is None else f"n={found.n}, epoch={found.epoch}, {dict(found.topics)}"
            yield _wrong(last.n, f"the position of batch {last.n} in the {name} of {table}", said)


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
