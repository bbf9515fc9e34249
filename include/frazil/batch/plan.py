"""The plan of a run: pure decisions from a position and the broker's offsets. And when runs start by themselves: at the
ticks of a session, or when enough records are unread.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import zip_longest
from typing import Any

from frazil.batch.facts import UNKNOWN_EPOCH, ClusterFacts, Range, TopicPartition, known_epochs
from frazil.batch.position import MALFORMED, Mode, Position, RunRequest, TopicPosition, check_version, whole_numbers
from frazil.error_codes import BAD_ARGUMENT, BAD_HANDOVER, RECORDS_EXPIRED

PLAN_VERSION = 2
"""Version of the plan's JSON."""


@dataclass(frozen=True, slots=True)
class PlannedTopic:
    """One topic of a plan: per partition the first offset to read, and the fixed end.

    A partition begins at the position, at 0 if the position does not know it yet, or behind records that are gone and skipped.
    `leader_epochs` are those of the leaders that reported the ends; empty if none is known.
    """

    id: str | None
    begin: tuple[int, ...]
    end: tuple[int, ...]
    leader_epochs: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class RunPlan:
    """What one run will read. Its ends are fixed once, here.

    Attributes:
        planned_at: When the broker reported the ends, ISO 8601 in UTC.
        topics: Topic -> what to read of it.
        complete: Whether the ends are every partition's high watermark: once a batch reaches them, everything that Kafka had
            accepted by `planned_at` has landed.
        epoch: Epoch of the position that the run was planned on. After a reset the plan is void.
        waits: Whether a decided batch waits for an engine to write its parts. The pipeline file may have changed since then.
        until: End of a session, which plans again at every tick, ISO 8601; None for a single run.
    """

    pipeline: str
    run: str
    planned_at: str
    cluster: str
    topics: Mapping[str, PlannedTopic]
    complete: bool
    epoch: int = 0
    mode: Mode = "ingest"
    started_by: str = ""
    reason: str | None = None
    waits: bool = False
    until: str | None = None

    @property
    def ranges(self) -> tuple[Range, ...]:
        """The ranges that the run reads, without empty ones, by topic and partition."""
        return tuple(r for r in _planned_ranges(self.topics) if r.span > 0)

    @property
    def records(self) -> int:
        """Offsets to read, an upper bound of the records."""
        return sum(r.span for r in self.ranges)

    def to_json(self) -> str:
        """The plan's JSON, which the plan task hands to the ingest task."""
        body = asdict(self) | {"v": PLAN_VERSION}
        for topic in body["topics"].values():
            if not topic["leader_epochs"]:
                del topic["leader_epochs"]
        return json.dumps(body, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> RunPlan:
        """Read `to_json`.

        Raises:
            Terminal: The text is not a plan of this version.
        """
        try:
            body = json.loads(text)
            check_version("plan", body.pop("v"), PLAN_VERSION, oldest=PLAN_VERSION)
            return cls(topics={name: _read_topic(topic) for name, topic in body.pop("topics").items()}, **body)
        except MALFORMED as error:
            raise BAD_HANDOVER.terminal(f"this is not a plan: {text[:200]!r} ({error})") from error


def _planned_ranges(topics: Mapping[str, PlannedTopic]) -> Iterable[Range]:
    for name, topic in sorted(topics.items()):
        for number, (begin, end) in enumerate(zip(topic.begin, topic.end, strict=True)):
            yield Range(name, number, begin, end)


def _read_topic(body: Mapping[str, Any]) -> PlannedTopic:
    begin, end = whole_numbers(body["begin"]), whole_numbers(body["end"])
    if len(begin) != len(end):
        raise ValueError(f"'begin' and 'end' differ in length: {begin}, {end}")
    epochs = whole_numbers(body.get("leader_epochs", []), least=UNKNOWN_EPOCH)
    return PlannedTopic(body["id"], begin, end, epochs)


def start_position(facts: ClusterFacts, offsets: Mapping[TopicPartition, int]) -> Position:
    """The position that a first run writes.

    Raises:
        Terminal: A partition has no offset: the start would be a guess.
    """
    missing = [
        f"topic {name}, partition {n}"
        for name, topic in facts.topics.items()
        for n in range(len(topic.partitions))
        if (name, n) not in offsets
    ]
    if missing:
        raise BAD_ARGUMENT.terminal(
            f"the pipeline's start names no offset for {', '.join(missing)}",
            next_step="name every partition under start.offsets, or use earliest, latest or a timestamp",
        )
    topics = {}
    for name, topic in facts.topics.items():
        start = tuple(offsets[name, n] for n in range(len(topic.partitions)))
        topics[name] = TopicPosition(topic.id, start, start, leader_epochs=topic.leader_epochs)
    return Position(0, 0, facts.cluster_id, topics)


def plan_topics(
    position: Position, facts: ClusterFacts, ends: Mapping[TopicPartition, int] | None = None
) -> dict[str, PlannedTopic]:
    """What a run reads: from the position to the stable ends.

    New partitions begin at 0. Where retention deleted unread records, the plan begins behind them: `frazil.batch.audit` has
    checked before whether the pipeline allows that.

    `ends` limit the stable ends. Where one is below the position, nothing is read.
    """
    planned = {}
    for name, topic in facts.topics.items():
        begin = [_first_offset(position, name, number, p.log_start) for number, p in enumerate(topic.partitions)]
        stable = [
            p.stable_end if ends is None else min(p.stable_end, ends.get((name, number), 0))
            for number, p in enumerate(topic.partitions)
        ]
        planned[name] = PlannedTopic(topic.id, tuple(begin), tuple(map(max, begin, stable)), topic.leader_epochs)
    return planned


def skip_vanished(position: Position, vanished: Iterable[str]) -> dict[str, PlannedTopic]:
    """Plan to skip the unread records of topics that no longer exist: begin and end are behind these records."""
    lost = {name: position.topics[name] for name in vanished}
    return {name: PlannedTopic(t.id, t.known_end, t.known_end) for name, t in lost.items() if t.unread}


def _first_offset(position: Position, topic: str, partition: int, at_least: int) -> int:
    return max(position.next_offset(topic, partition) or 0, at_least)


def remaining(plan: RunPlan, position: Position) -> tuple[Range, ...]:
    """The planned ranges that the position has not passed yet; empty if this run, or a concurrent one, has read all."""
    ranges = (replace(r, start=_first_offset(position, r.topic, r.partition, r.start)) for r in plan.ranges)
    return tuple(r for r in ranges if r.span > 0)


def skipped(plan: RunPlan, position: Position) -> tuple[Range, ...]:
    """Offsets between the position and the plan's start: their records are gone, and the batch records them as skipped."""
    gaps = (
        replace(r, start=position.next_offset(r.topic, r.partition) or 0, end=r.start)
        for r in _planned_ranges(plan.topics)
    )
    return tuple(gap for gap in gaps if gap.span > 0)


def reaches_high_watermarks(planned: Mapping[str, PlannedTopic], facts: ClusterFacts) -> bool:
    """Whether the planned ends are the high watermarks, so that the run reads every record Kafka has accepted."""
    return all(
        end >= p.high_watermark
        for name, topic in facts.topics.items()
        for end, p in zip(planned[name].end, topic.partitions, strict=True)
    )


def advance(position: Position, ranges: tuple[Range, ...], plan: RunPlan) -> Position:
    """The position after a batch that read `ranges`: `n` grows by one, and each partition moves to the end of its range.

    Raises:
        Terminal: A range does not begin at the position.
    """
    read = {(r.topic, r.partition): r for r in ranges}
    topics = {
        name: replace(topic_position, start=topic_position.next) for name, topic_position in position.topics.items()
    }
    for name, planned in plan.topics.items():
        current = position.topics.get(name, TopicPosition(planned.id, (), ()))
        start = [_first_offset(position, name, number, begin) for number, begin in enumerate(planned.begin)]
        start += current.next[len(start) :]
        following = tuple(_end_offset(read.get((name, number)), offset) for number, offset in enumerate(start))
        # A concurrent run may have planned further ends than this one.
        end = tuple(max(ends) for ends in zip_longest(current.end, planned.end, fillvalue=0))
        epochs = known_epochs(
            epoch
            if offset == before
            else planned_epoch
            if planned_epoch == UNKNOWN_EPOCH
            else max(epoch, planned_epoch)
            for offset, before, epoch, planned_epoch in zip_longest(
                following, current.next, current.leader_epochs, planned.leader_epochs, fillvalue=UNKNOWN_EPOCH
            )
        )
        after = replace(
            current, id=current.id or planned.id, start=tuple(start), next=following, end=end, leader_epochs=epochs
        )
        topics[name] = after if after.unread else replace(after, end=())
    return replace(position, n=position.n + 1, topics=topics)


def _end_offset(r: Range | None, offset: int) -> int:
    if r is None:
        return offset
    if r.start != offset:
        raise BAD_HANDOVER.terminal(
            f"topic {r.topic}, partition {r.partition}: the position is {offset}, the range begins at {r.start}"
        )
    return r.end


def replay_topics(
    position: Position,
    facts: ClusterFacts,
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    pipeline: str,
) -> dict[str, PlannedTopic]:
    """What a replay reads: from `starts` to `ends`, never beyond the position. Partitions without start or end are not read.

    Raises:
        Terminal: A range begins where Kafka no longer has records: its rows would be removed, and could not be landed again.
    """
    planned = {}
    missing = []
    for name, topic in facts.topics.items():
        if name not in position.topics:
            continue
        begin, end = [], []
        for number, partition in enumerate(topic.partitions):
            key = name, number
            until = min(ends.get(key, 0), position.next_offset(*key) or 0)
            start = min(starts.get(key, until), until)
            if start < until and start < partition.log_start:
                missing.append(f"topic {name}, partition {number}: {start} to {min(until, partition.log_start) - 1}")
            begin.append(start)
            end.append(until)
        planned[name] = PlannedTopic(topic.id, tuple(begin), tuple(end))
    if missing:
        raise RECORDS_EXPIRED.terminal(
            "a replay can't begin before Kafka's log: these offsets are gone\n"
            + "\n".join(f"  {gap}" for gap in missing),
            next_step=f"begin where the log begins: frazil replay {pipeline} --from earliest …",
        )
    return planned


UNMEASURED_RECORD_BYTES = 10 * 1024
"""Assumed size of a record before a batch has measured any. It is large on purpose, so that the first batch of a topic with
large records stays small."""


@dataclass(frozen=True, slots=True)
class BatchSize:
    """Bounds of one batch.

    Attributes:
        bytes: Most bytes of keys and values, as estimated from earlier batches.
    """

    records: int
    bytes: int

    def offsets(self, bytes_per_record: float | None) -> int:
        """Most offsets of a batch, by the measured bytes of a record; None if nothing was measured."""
        each = UNMEASURED_RECORD_BYTES if bytes_per_record is None else bytes_per_record
        return max(1, min(self.records, int(self.bytes / max(each, 1.0))))


def cut(ranges: tuple[Range, ...], max_records: int) -> Iterator[tuple[Range, ...]]:
    """Cut a run into batches of at most `max_records` offsets, in order, one at a time.

    Every partition advances in every batch in proportion to what it has left, so that all reach the end together.
    """
    unread = tuple(r for r in ranges if r.span)
    while unread:
        total = sum(r.span for r in unread)
        shares = _shares(unread, -(-total // -(-total // max_records)))
        yield tuple(replace(r, end=r.start + share) for r, share in zip(unread, shares, strict=True) if share)
        unread = tuple(
            replace(r, start=r.start + share) for r, share in zip(unread, shares, strict=True) if share < r.span
        )


def _shares(ranges: tuple[Range, ...], size: int) -> list[int]:
    """Split `size` offsets among the ranges, in proportion to their lengths.

    The offsets that rounding down leaves go to the largest fractions, so that the shares add up to `size` exactly.
    """
    total = sum(r.span for r in ranges)
    shares = [r.span * size // total for r in ranges]
    by_fraction = sorted(range(len(ranges)), key=lambda index: ranges[index].span * size % total, reverse=True)
    for index in by_fraction[: size - sum(shares)]:
        shares[index] += 1
    return shares


def split_into_tasks(ranges: tuple[Range, ...], records_per_task: int, tasks: int = 1) -> tuple[tuple[Range, ...], ...]:
    """Split ranges into tasks of equal length, in order, none longer than `records_per_task`.

    A task may get many small partitions, or a part of a large one.

    Args:
        ranges: Ranges to read. A partition may have several, where parts of a batch are staged again.
        records_per_task: Most offsets of a task.
        tasks: How many tasks run at once. The result has that many, or a multiple if they would be too long: all end together.
    """
    total = sum(r.span for r in ranges)
    count = min(tasks * max(1, -(-total // (records_per_task * tasks))), max(total, 1))
    bounds = [total * task // count for task in range(count + 1)]
    shares: list[list[Range]] = [[] for _ in range(count)]
    task = passed = 0
    for r in ranges:
        start = r.start
        while start < r.end:
            end = min(r.end, r.start + bounds[task + 1] - passed)
            shares[task].append(replace(r, start=start, end=end))
            start = end
            if passed + end - r.start == bounds[task + 1]:
                task += 1
        passed += r.span
    return tuple(map(tuple, shares))


END_VERSION = 1
"""Version of the JSON of `SessionEnd`."""

_BEGIN = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class SessionEnd:
    """The result of a session, whose batches are in the ledger.

    Attributes:
        complete_through: Every record that Kafka had accepted by this instant, ISO 8601, has landed; None if it is unknown.
    """

    complete_through: str | None

    def to_json(self) -> str:
        """One line of JSON."""
        return json.dumps({"v": END_VERSION, **asdict(self)})

    @classmethod
    def from_json(cls, text: str) -> SessionEnd:
        """Read `to_json`, also of a job that runs another version of Frazil.

        Raises:
            Terminal: The text is not the end of a session, or has a version that this Frazil does not know.
        """
        try:
            body = json.loads(text)
            check_version("session's end", body.get("v", 1), END_VERSION)
            return cls(body["complete_through"])
        except MALFORMED as error:
            raise BAD_HANDOVER.terminal(f"this is not the end of a session: {text[:200]!r} ({error})") from error


def next_tick(now: datetime, every: timedelta, until: datetime) -> datetime | None:
    """Return when the next batch is due, after `now`; None if the session is over. Ticks during a long batch are skipped.

    Ticks are multiples of `every` since 1970 (`10s`: :00, :10, :20 of each minute), so they are the same for every run. The end
    of the session is the last tick.
    """
    if now >= until:
        return None
    return min(now - (now - _BEGIN) % every + every, until)


def session_end(due: datetime, length: timedelta, now: datetime) -> datetime:
    """Return when the session of a scheduled run ends: when the next run is due, even if this one began late."""
    return due + max(1, (now - due) // length + 1) * length


def session_order(pipeline: str, request: RunRequest, now: datetime, until: datetime) -> RunPlan:
    """Return the order for a session: a plan without ranges."""
    return RunPlan(
        pipeline=pipeline,
        run=request.run,
        planned_at=now.isoformat(timespec="milliseconds"),
        cluster="",
        topics={},
        complete=False,
        started_by=request.started_by,
        reason=request.reason,
        until=until.isoformat(timespec="milliseconds"),
    )


LOST_TRIGGER_SECONDS = 900.0
"""Age at which a triggered run that landed nothing counts as lost, so that another may be triggered."""


@dataclass(frozen=True, slots=True)
class Threshold:
    """Unread records or bytes from which a run starts: one of the two is enough; None disables it."""

    records: int | None = None
    bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Backlog:
    """The unread records of a pipeline.

    Attributes:
        records: Unread offsets below the stable ends.
        bytes: Bytes of their keys and values, estimated from the last batch; None if no batch measured a record.
        epoch: Epoch of the position; None before the first run.
        position: `topic/partition` -> next offset to read, if it is known.
        ends: `topic/partition` -> stable end.
    """

    records: int
    bytes: int | None
    epoch: int | None
    position: Mapping[str, int]
    ends: Mapping[str, int]

    def reaches(self, threshold: Threshold) -> bool:
        """Whether enough records are unread to start a run. A pipeline that never ran waits for its schedule."""
        if self.epoch is None:
            return False
        enough = ((self.records, threshold.records), (self.bytes, threshold.bytes))
        return any(count is not None and most is not None and count >= most for count, most in enough)


@dataclass(frozen=True, slots=True)
class TriggeredRun:
    """A run that was triggered because enough records were unread.

    Attributes:
        ends: `topic/partition` -> end that the run will read to.
        triggered_at: Seconds since 1970.
    """

    epoch: int
    ends: Mapping[str, int]
    triggered_at: float

    def to_json(self) -> dict[str, Any]:
        """The form that Airflow stores."""
        return {"epoch": self.epoch, "ends": dict(self.ends), "at": self.triggered_at}

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> TriggeredRun:
        """Read what `to_json` returned.

        Raises:
            KeyError, TypeError, ValueError: Another version of Frazil wrote it.
        """
        ends = {place: int(end) for place, end in dict(body["ends"]).items()}
        return cls(int(body["epoch"]), ends, float(body["at"]))

    def is_open(self, backlog: Backlog, instant: float) -> bool:
        """Whether the triggered run has not read its records yet."""
        if backlog.epoch != self.epoch or instant - self.triggered_at > LOST_TRIGGER_SECONDS:
            return False
        return any(place in backlog.position and backlog.position[place] < end for place, end in self.ends.items())
