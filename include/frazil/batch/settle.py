"""What a dead-letter table owes: letters that batches left in it and that it does not hold any more."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from frazil.batch.facts import ClusterFacts, Range
from frazil.batch.letters import undone
from frazil.batch.position import Position
from frazil.batch.removal import RemovedRange


@dataclass(frozen=True, slots=True)
class Landing:
    """What one batch did to the dead letters.

    Attributes:
        n: Its number.
        ranges: What it read; empty for a batch that read nothing.
        dead: Dead letters it left.
        filtered: Records it left out on purpose.
        is_current: Whether it ran under the present pipeline file.
        removed: Letters it took out.
        brought_home: Letters that it landed after all: nothing is owed for them while the batch stands.
    """

    n: int
    ranges: tuple[Range, ...] = ()
    dead: int = 0
    filtered: int = 0
    is_current: bool = True
    removed: tuple[RemovedRange, ...] = ()
    brought_home: tuple[RemovedRange, ...] = ()


@dataclass(frozen=True, slots=True)
class Owed:
    """Letters of one batch that are still its outcome: they lie in `ranges`, and are `dead` at most.

    Attributes:
        n: Number of the batch.
        ranges: Where they lie.
        dead: How many the batch left.
        filtered: Records the batch left out on purpose.
        is_current: Whether it ran under the present pipeline file.
        whole: Whether the ranges are all that the batch read, so that there must be exactly `dead` letters in them.
    """

    n: int
    ranges: tuple[Range, ...]
    dead: int
    filtered: int
    is_current: bool
    whole: bool = True


def standing(landings: Iterable[Landing]) -> tuple[Landing, ...]:
    """The same with letters that were brought home among those that were taken out, unless a rewind took that back."""
    known = tuple(landings)
    taken_back = undone((of.n, of.removed) for of in known)
    return tuple(
        of if of.n in taken_back else replace(of, removed=(*of.removed, *of.brought_home), brought_home=())
        for of in known
    )


def owed(landings: Iterable[Landing], after: int) -> tuple[Owed, ...]:
    """Letters of the batches above `after` that no later batch took out or replaced.

    Args:
        landings: All batches that are known, in any order.
        after: The batch that the table holds last; -1 for none.
    """
    left: list[Owed] = []
    for landing in sorted(landings, key=lambda of: of.n):
        left = [_spared(of, landing.removed) for of in left]
        if landing.n > after and landing.dead:
            left.append(Owed(landing.n, landing.ranges, landing.dead, landing.filtered, landing.is_current))
    return tuple(of for of in left if of.ranges)


def _spared(of: Owed, removed: Iterable[RemovedRange]) -> Owed:
    """What a later batch left of them."""
    gone = [r for r in removed if r.since <= of.n]
    if not gone:
        return of
    ranges = tuple(part for r in of.ranges for part in _without(r, gone))
    return of if ranges == of.ranges else replace(of, ranges=ranges, whole=False)


def _without(r: Range, gone: Iterable[RemovedRange]) -> Iterator[Range]:
    """What is left of a range, in one sweep: a batch that brought letters home may name thousands of offsets."""
    met = (
        (of.start, r.end if of.end is None else of.end)
        for of in gone
        if of.topic == r.topic and of.partition in (None, r.partition) and of.start < r.end
    )
    at = r.start
    for start, end in sorted(met):
        if at < start:
            yield replace(r, start=at, end=start)
        at = max(at, end)
    if at < r.end:
        yield replace(r, start=at)


def part_gone(of: Owed, position: Position, facts: ClusterFacts) -> tuple[Owed, tuple[Range, ...]]:
    """What Kafka still holds of the ranges, and the ranges that are gone.

    Gone are records before the log start, those of a topic that vanished, and those of an earlier incarnation.

    Args:
        of: Letters of a batch.
        position: Which topics the pipeline knows, and since which batch.
        facts: What the broker says of them.
    """
    held, gone = [], []
    for r in of.ranges:
        start = _readable_from(r, of.n, position, facts)
        held.append(replace(r, start=max(r.start, start)))
        gone.append(replace(r, end=min(r.end, start)))
    lost = tuple(r for r in gone if r.span > 0)
    kept = tuple(r for r in held if r.span > 0)
    return replace(of, ranges=kept, whole=of.whole and not lost), lost


def _readable_from(r: Range, n: int, position: Position, facts: ClusterFacts) -> int:
    known, found = position.topics.get(r.topic), facts.topics.get(r.topic)
    if known is None or found is None or facts.cluster_id != position.cluster or n < known.since:
        return r.end
    if (None not in (known.id, found.id) and known.id != found.id) or r.partition >= len(found.partitions):
        return r.end
    return found.partitions[r.partition].log_start


@dataclass(frozen=True, slots=True)
class Verdict:
    """Which records without a row become letters again.

    Attributes:
        with_good: Whether those that the present pipeline file calls good become letters, too.
        missing: Letters that the batch left and that can't be found again, at most.
        problem: Why the numbers don't tell which records were letters; None if they do.
    """

    with_good: bool
    missing: int = 0
    problem: str | None = None


def verdict(of: Owed, dead: int, good: int) -> Verdict:
    """Tell which records were letters, from how many there must be.

    A record without a row was a letter of its batch, also where an edited pipeline file now calls it good; or its row
    was deleted since, and then it must not come back as a letter.

    Args:
        of: What the batch left.
        dead: Records without a row that can't become rows.
        good: Records without a row that could become rows under the present pipeline file.
    """
    total = dead + good
    if dead == of.dead or (of.is_current and not of.whole and dead < of.dead):
        return Verdict(with_good=False)
    if total == of.dead or (not of.whole and total < of.dead):
        return Verdict(with_good=True)
    said = f"batch {of.n} left {of.dead} dead letters; {dead} bad and {good} good records without a row were found"
    if total < of.dead:
        found = dead if of.is_current else total
        return Verdict(not of.is_current, of.dead - found, f"{said}: some are gone from Kafka")
    return Verdict(
        with_good=False,
        missing=max(0, of.dead - dead),
        problem=f"{said}: rows were deleted, and nobody can tell which of the good ones were letters",
    )
