"""Moving the position other than by reading: a reset somebody asked for, and a rewind after a rollback."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain, zip_longest

from frazil.batch.facts import ClusterFacts, Range, TopicFacts, TopicPartition, known_epochs
from frazil.batch.position import LostTail, Position, TopicPosition, united
from frazil.errors import Terminal


@dataclass(frozen=True, slots=True)
class Move:
    """How a reset moves one partition; `before` is None for one that was not known."""

    topic: str
    partition: int
    before: int | None
    after: int
    recreated: bool

    @property
    def distance(self) -> int:
        """Offsets that are skipped (positive) or come again (negative)."""
        return 0 if self.before is None or self.recreated else self.after - self.before


@dataclass(frozen=True, slots=True)
class Abandoned:
    """A batch that a rollback of the closing table took back.

    Attributes:
        position: Where it led.
        replayed: What it replaced.
        removed: Whether it took rows or letters out: letters do not come back with a rollback.
    """

    position: Position
    replayed: tuple[Range, ...]
    removed: bool = True


def reset_position(
    before: Position, facts: ClusterFacts, offsets: Mapping[TopicPartition, int], n: int, epoch: int
) -> Position:
    """The position that a reset writes.

    Topics and partitions without an offset stay where they are; a partition that nobody has read yet begins at its
    beginning. A topic that was recreated begins a new incarnation: rows of the older one stay in the table. In another
    cluster every topic is another one.

    Args:
        before: Where the pipeline stands.
        facts: What the broker says now.
        offsets: The new offsets.
        n: Number of the reset's batch.
        epoch: The new epoch.

    Raises:
        Terminal: A recreated topic has a partition without an offset, or a topic in another cluster has none at all.
    """
    moved = before.cluster != facts.cluster_id
    topics = _left_behind(before, facts, offsets, n) if moved else dict(before.topics)
    for name in sorted({topic for topic, _ in offsets}):
        found, known = facts.topics[name], before.topics.get(name)
        recreated = known is not None and (moved or is_recreated(known, found))
        kept = None if recreated else known or TopicPosition(found.id, (), ())
        at = tuple(_offset((name, number), offsets, kept) for number in range(len(found.partitions)))
        epochs = known_epochs(
            p.leader_epoch if (name, number) in offsets or kept is None else kept.leader_epoch(number)
            for number, p in enumerate(found.partitions)
        )
        since = n if recreated else _since(known)
        lost = kept.lost_tails if kept is not None else ()
        topics[name] = TopicPosition(found.id, at, at, since=since, leader_epochs=epochs, lost_tails=lost)
    return Position(n, epoch, facts.cluster_id, topics)


def _left_behind(
    before: Position, facts: ClusterFacts, offsets: Mapping[TopicPartition, int], n: int
) -> dict[str, TopicPosition]:
    """The topics as another cluster knows them: not at all. What it has must be given offsets."""
    unnamed = sorted((before.topics.keys() & facts.topics.keys()) - {topic for topic, _ in offsets})
    if unnamed:
        raise Terminal(
            f"Kafka cluster {facts.cluster_id} is another one than the position's, {before.cluster}, and"
            f" {', '.join(unnamed)} is given no offset",
            next_step="name every topic and partition, or reset to earliest or latest without --topic",
        )
    return {name: TopicPosition(None, (), (), since=n) for name in before.topics}


def is_recreated(known: TopicPosition | None, found: TopicFacts) -> bool:
    """Whether a topic is another one than the position knows: by its id, or because its log is too short."""
    if known is None:
        return False
    if known.id is not None and found.id is not None:
        return known.id != found.id
    beyond = any(at > p.high_watermark for at, p in zip(known.next, found.partitions, strict=False))
    return beyond or len(found.partitions) < len(known.next)


def _since(known: TopicPosition | None) -> int:
    return known.since if known is not None else 0


def _offset(key: TopicPartition, offsets: Mapping[TopicPartition, int], kept: TopicPosition | None) -> int:
    topic, number = key
    if key in offsets:
        return offsets[key]
    if kept is None:
        raise Terminal(
            f"topic {topic} begins anew and partition {number} is given no offset",
            next_step="name every partition of a topic that was recreated, or reset it to earliest or latest",
        )
    return kept.next[number] if number < len(kept.next) else 0  # the next plan says what is gone of it


def moves(before: Position, after: Position) -> tuple[Move, ...]:
    """How each partition moves, unmoved ones left out."""
    found = []
    for name, at in sorted(after.topics.items()):
        known = before.topics.get(name)
        recreated = known is not None and known.since != at.since
        for number, offset in enumerate(at.next):
            was = before.next_offset(name, number)
            if was != offset or recreated:
                found.append(Move(name, number, was, offset, recreated))
    return tuple(found)


def rewound(holds: Position, abandoned: Iterable[Abandoned], n: int, epoch: int) -> Position:
    """The position after the closing table was rolled back to where it holds `holds`.

    What abandoned batches only added comes again from there. What they took out (replays, moves back) took letters
    with it that are not rolled back, so the position goes back to where they began. Topics and partitions that only
    they knew keep their entry, at its beginning.

    Args:
        holds: What the ancestry of the closing table says.
        abandoned: The batches it no longer has, oldest first.
        n: Number of the rewinding batch.
        epoch: The new epoch.
    """
    later = [batch for batch in abandoned if batch.position.cluster == holds.cluster]
    known = {name: t for batch in later for name, t in batch.position.topics.items()} | dict(holds.topics)
    lowest = {key: at for name, t in holds.topics.items() for key, at in _by_partition(name, t.next)}
    farthest = {key: at for name, t in holds.topics.items() for key, at in _by_partition(name, t.known_end)}
    for batch in later:
        for key, begin, end in _touched(known, batch):
            # A move back that took nothing out, on record, left nothing to bring back.
            if batch.removed or key not in lowest:
                lowest[key] = min(lowest.get(key, begin), begin)
            farthest[key] = max(farthest.get(key, end), end)
    topics = {name: replace(t, lost_tails=_lost_tails(name, t, later)) for name, t in known.items()}
    return Position(n, epoch, holds.cluster, {name: _from(t, name, lowest, farthest) for name, t in topics.items()})


def _lost_tails(name: str, topic: TopicPosition, abandoned: Iterable[Abandoned]) -> tuple[LostTail, ...]:
    """Also those that abandoned batches noted: merged tables keep the rows."""
    known = (batch.position.topics.get(name) for batch in abandoned)
    noted = (t.lost_tails for t in known if t is not None and t.since == topic.since)
    return united([*topic.lost_tails, *chain.from_iterable(noted)])


def _by_partition(topic: str, offsets: tuple[int, ...]) -> Iterator[tuple[TopicPartition, int]]:
    return (((topic, number), at) for number, at in enumerate(offsets))


def _touched(known: Mapping[str, TopicPosition], batch: Abandoned) -> Iterator[tuple[TopicPartition, int, int]]:
    """Partitions of the known incarnations with the first offset that a batch touched, and where it left them."""
    topics = {name: t for name, t in batch.position.topics.items() if t.since == known[name].since}
    for r in batch.replayed:
        if r.topic in topics:
            yield (r.topic, r.partition), r.start, r.end
    for name, t in topics.items():
        for number, (begin, end) in enumerate(zip(t.start, t.known_end, strict=False)):
            yield (name, number), begin, end


def _from(
    topic: TopicPosition, name: str, lowest: Mapping[TopicPartition, int], farthest: Mapping[TopicPartition, int]
) -> TopicPosition:
    count = sum(of == name for of, _ in lowest)
    at = tuple(lowest[name, number] for number in range(count))
    rewound_to = replace(topic, start=at, next=at, end=tuple(farthest[name, number] for number in range(count)))
    return rewound_to if rewound_to.unread else replace(rewound_to, end=())


def within_log(position: Position, reached: Iterable[Position], facts: ClusterFacts) -> Position:
    """A rewound position that goes back no further than Kafka does: rows that can't come again stay.

    Beyond what any batch reached nothing was landed. If Kafka lost records there, the next plan must say so.

    Args:
        position: What `rewound` gave.
        reached: Positions that the pipeline had.
        facts: What the broker says now.
    """
    past = [of.topics for of in reached if of.cluster == position.cluster]
    topics = {}
    for name, t in position.topics.items():
        same = [of[name] for of in past if name in of and of[name].since == t.since]
        farthest = tuple(max(of) for of in zip_longest(t.next, *(of.next for of in same), fillvalue=0))
        at = tuple(map(max, t.next, _floors(replace(t, next=farthest), facts.topics.get(name))))
        topics[name] = t if at == t.next else _passing(t, at, same)
    return replace(position, topics=topics)


def _passing(topic: TopicPosition, at: tuple[int, ...], reached: Iterable[TopicPosition]) -> TopicPosition:
    """The topic from `at` on. Records that it passes over may be of later leader epochs than those before them."""
    epochs = list(map(topic.leader_epoch, range(len(at))))
    for number, offset in enumerate(at):
        if offset > topic.next[number]:
            beyond = (of for of in reached if number < len(of.next) and of.next[number] >= offset)
            epochs[number] = max(of.leader_epoch(number) for of in beyond)
    return replace(topic, start=at, next=at, leader_epochs=known_epochs(epochs))


def _floors(farthest: TopicPosition, found: TopicFacts | None) -> tuple[int, ...]:
    """The lowest offsets that partitions may go back to: their log starts; where the topic is gone, what was reached."""
    if found is None or is_recreated(farthest, found):
        return farthest.next
    return tuple(min(offset, p.log_start) for offset, p in zip(farthest.next, found.partitions, strict=False))
