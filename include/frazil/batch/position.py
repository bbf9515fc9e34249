"""The position: the next offset to read of every topic partition. And targets: places in topics as a person names them,
such as a beginning, an end, an instant or offsets.

Written form, one JSON object in the table property ``kafka.offsets.<pipeline>`` and in the manifest of a batch::

    {
        "v": 1,
        "n": 7,
        "epoch": 0,
        "cluster": "<id>",
        "topics": {"orders": {"id": "<topic uuid>", "from": [0, 5], "next": [10, 9]}},
    }

``from`` and ``next`` hold one offset per partition, in the order of the partitions. Four more keys exist only where they say
something: ``since``, the batch that began with this incarnation of the topic (default 0); ``end``, the planned ends of a run that
has not reached them; ``leader_epochs``, per partition the leader epoch when its planned end was read, or -1; and
``lost_tails``, ``[partition, start, n]`` of each end that a log lost.

A snapshot summary has only the offsets that its batch moved, under the same key, in a form with a version of its own::

    {"v": 2, "n": 7, "epoch": 0, "topics": {"orders": {"1": [5, 9]}}}
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import zip_longest
from typing import Any, Final, Literal, NamedTuple

from frazil import __version__
from frazil.batch.facts import UNKNOWN_EPOCH, ClusterFacts, PartitionFacts, TopicPartition, known_epochs
from frazil.error_codes import BAD_ARGUMENT, BAD_HANDOVER, BAD_STATE

MALFORMED: Final = (ValueError, KeyError, TypeError, AttributeError, RecursionError)
"""Errors that a text raises which is not the JSON of its kind: the last one if it is nested too deeply, as only a forged one is."""

UPGRADE = "upgrade this Frazil to the one that wrote it or a newer one; docs/upgrading.md has the order of parts"


def check_version(what: str, version: object, newest: int, oldest: int = 1) -> None:
    """Refuse a version that this Frazil does not read.

    Raises:
        Terminal: A newer Frazil wrote it, or one that is too old.
        ValueError: It is no version.
    """
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise ValueError(f"version {version!r}")
    reads = f"version {newest}" if oldest == newest else f"versions {oldest} to {newest}"
    if version > newest:
        raise BAD_HANDOVER.terminal(
            f"{what} of version {version} was found, written by a newer Frazil: this one, {__version__}, reads {reads}",
            next_step=UPGRADE,
        )
    if version < oldest:
        raise BAD_HANDOVER.terminal(
            f"{what} of version {version} was found, written by an older Frazil: this one, {__version__}, reads {reads}",
            next_step="run again: what is handed over within a run is written again by the next one",
        )


VERSION = 1
"""Version of a position's JSON."""

MOVES_VERSION = 2
"""Version of the JSON in a snapshot summary. A Frazil that expects the whole position there refuses it."""

MARK_VERSION = 1
"""Version of a mark's JSON, which has no version key while it is 1."""


class LostTail(NamedTuple):
    """The end of a log that was lost after it was read: rows that batches before `n` landed from `start` on have lost records."""

    partition: int
    start: int
    n: int


def merge_tails(lost: Iterable[LostTail]) -> tuple[LostTail, ...]:
    """Return the fewest tails that cover the same rows."""
    tails: list[LostTail] = []
    for tail in sorted(lost, key=lambda lost_tail: (lost_tail.partition, lost_tail.start, -lost_tail.n)):
        if not tails or tails[-1].partition != tail.partition or tails[-1].n < tail.n:
            tails.append(tail)
    return tuple(tails)


@dataclass(frozen=True, slots=True)
class TopicPosition:
    """The position in one topic.

    Attributes:
        id: Kafka's topic id; None where the broker gives none.
        start: Per partition, where the last batch began.
        next: Per partition, the next offset to read.
        since: Number of the batch that began with this incarnation of the topic: 0, or that of a reset.
        end: Per partition, the planned end of an unfinished run; empty once it is reached.
        leader_epochs: Per partition, a leader epoch that no record before `next` exceeds; empty if none is known. Where
            the log of that epoch ends before `next`, it was truncated (KIP-320).
        lost_tails: Ends that its logs lost: merged tables keep their rows, whose offsets can't be compared with later ones.
    """

    id: str | None
    start: tuple[int, ...]
    next: tuple[int, ...]
    since: int = 0
    end: tuple[int, ...] = ()
    leader_epochs: tuple[int, ...] = ()
    lost_tails: tuple[LostTail, ...] = ()

    def leader_epoch(self, partition: int) -> int:
        """Leader epoch of a partition; `UNKNOWN_EPOCH` if it is not known."""
        return self.leader_epochs[partition] if partition < len(self.leader_epochs) else UNKNOWN_EPOCH

    @property
    def unread(self) -> tuple[int, ...]:
        """Numbers of the partitions whose planned end is not reached."""
        return tuple(n for n, (offset, end) in enumerate(zip(self.next, self.end, strict=False)) if offset < end)

    @property
    def known_end(self) -> tuple[int, ...]:
        """Per partition, one past the last record known to have existed, whether it was read or not."""
        return tuple(max(offsets) for offsets in zip_longest(self.next, self.end, fillvalue=0))


@dataclass(frozen=True, slots=True)
class Position:
    """The position of a pipeline after its batch `n`.

    Attributes:
        n: Number of deciding commits so far; 0 is the commit that wrote the start position.
        epoch: Counts resets.
    """

    n: int
    epoch: int
    cluster: str
    topics: Mapping[str, TopicPosition] = field(default_factory=dict)

    def next_offset(self, topic: str, partition: int) -> int | None:
        """Next offset to read, or None if the position does not know the partition yet."""
        topic_position = self.topics.get(topic)
        return (
            topic_position.next[partition]
            if topic_position is not None and partition < len(topic_position.next)
            else None
        )

    def at_rest(self, n: int) -> Position:
        """The position after a batch `n` that moves nothing."""
        return replace(
            self, n=n, topics={name: replace(topic, start=topic.next) for name, topic in self.topics.items()}
        )

    def with_lost_tails(self, ends: Mapping[tuple[str, int], int | None]) -> Position:
        """The position of a batch that continues after logs were truncated.

        Args:
            ends: Topic and partition -> where the log was truncated; None if that is not known. Then the lost tail begins at
                this position: Kafka uses offsets from there on again, and rows below it win over a replay's or a letter's.
        """
        topics = {}
        for name, topic_position in self.topics.items():
            tails = (
                LostTail(number, topic_position.next[number] if end is None else end, self.n)
                for (topic, number), end in ends.items()
                if topic == name
            )
            topics[name] = replace(topic_position, lost_tails=merge_tails([*topic_position.lost_tails, *tails]))
        return replace(self, topics=topics)

    def to_json(self) -> str:
        """The written form."""
        topics = {name: _topic_body(t) for name, t in sorted(self.topics.items())}
        body = {"v": VERSION, "n": self.n, "epoch": self.epoch, "cluster": self.cluster, "topics": topics}
        return json.dumps(body, separators=(",", ":"))

    def moves_json(self) -> str:
        """The moves of the last batch: start and next offset of each moved partition. Its length follows the batch."""
        moved = {name: _moves(t) for name, t in sorted(self.topics.items())}
        topics = {name: partitions for name, partitions in moved.items() if partitions}
        body = {"v": MOVES_VERSION, "n": self.n, "epoch": self.epoch, "topics": topics}
        return json.dumps(body, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Position:
        """Read the written form.

        Raises:
            Terminal: The text is not a position, or of a version this Frazil does not know.
        """
        try:
            body = json.loads(text)
            check_version("position", body["v"], VERSION)
            topics = {name: _topic_from_body(t) for name, t in body["topics"].items()}
            n, epoch = whole_numbers([body["n"], body["epoch"]])
            position = cls(n, epoch, str(body["cluster"]), topics)
        except MALFORMED as error:
            raise BAD_STATE.terminal(
                f"this is not a position: {text[:200]!r} ({type(error).__name__}: {error})",
                next_step="was the snapshot property edited by hand? Restore it from the ledger: frazil history PIPELINE",
            ) from error
        if any(len(t.start) != len(t.next) for t in topics.values()):
            raise BAD_STATE.terminal(f"this is not a position: 'from' and 'next' differ in length: {text[:200]!r}")
        return position


def is_whole_position(text: str) -> bool:
    """Whether a summary's value is a whole position, as in snapshots of older versions."""
    try:
        return bool(json.loads(text)["v"] == VERSION)
    except MALFORMED:
        return False


def _moves(topic: TopicPosition) -> dict[int, tuple[int, int]]:
    offsets = zip(topic.start, topic.next, strict=True)
    return {number: (start, end) for number, (start, end) in enumerate(offsets) if start != end}


def _topic_body(topic: TopicPosition) -> dict[str, Any]:
    body: dict[str, Any] = {"id": topic.id, "from": topic.start, "next": topic.next}
    if topic.since:
        body["since"] = topic.since
    if topic.unread:
        body["end"] = topic.end
    if topic.leader_epochs:
        body["leader_epochs"] = topic.leader_epochs
    if topic.lost_tails:
        body["lost_tails"] = topic.lost_tails
    return body


def _topic_from_body(body: Mapping[str, Any]) -> TopicPosition:
    (since,) = whole_numbers([body.get("since", 0)])
    end = whole_numbers(body.get("end", []))
    epochs = known_epochs(whole_numbers(body.get("leader_epochs", []), least=UNKNOWN_EPOCH))
    lost = tuple(LostTail(*whole_numbers(tail)) for tail in body.get("lost_tails", []))
    return TopicPosition(body["id"], whole_numbers(body["from"]), whole_numbers(body["next"]), since, end, epochs, lost)


def whole_numbers(values: list[Any], least: int = 0) -> tuple[int, ...]:
    """Check values out of JSON, such as offsets, and return them.

    Raises:
        ValueError: They are no list, or one of them is no integer of `least` or more.
    """
    is_list = isinstance(values, list)
    if not is_list or any(not isinstance(value, int) or isinstance(value, bool) or value < least for value in values):
        raise ValueError(f"expected integers of {least} or more, found {values}")
    return tuple(values)


@dataclass(frozen=True, slots=True)
class BatchMark:
    """The mark of the last batch that a table contains. Written under ``frazil.batch.<pipeline>`` in summaries and properties."""

    n: int
    batch: str
    epoch: int

    def to_json(self) -> str:
        """The written form."""
        return json.dumps({"n": self.n, "batch": self.batch, "epoch": self.epoch}, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> BatchMark:
        """Read the written form.

        Raises:
            Terminal: The text is not a mark, or of a version this Frazil does not know.
        """
        try:
            body = json.loads(text)
            check_version("batch mark", body.get("v", 1), MARK_VERSION)
            n, epoch = whole_numbers([body["n"], body["epoch"]])
            return cls(n, str(body["batch"]), epoch)
        except MALFORMED as error:
            raise BAD_STATE.terminal(f"this is not a batch mark: {text[:200]!r}") from error


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Target:
    """A start or end of reading.

    Attributes:
        kind: `earliest` is every log start, `latest` every stable end, `timestamp` the first record at or after an
            instant (the stable end if there is none), `offsets` an offset of each listed partition.
        instant: With `timestamp`: the instant.
        offsets: With `offsets`: topic -> partition -> offset. Partitions that are not listed have no target.
    """

    kind: Literal["earliest", "latest", "timestamp", "offsets"]
    instant: datetime | None = None
    offsets: Mapping[str, Mapping[int, int]] = field(default_factory=dict)

    @property
    def at_ms(self) -> int | None:
        """The instant as Kafka counts, in milliseconds since 1970, rounded up.

        Never negative: Kafka takes -1 for the end of a log and -2 for its beginning.
        """
        return None if self.instant is None else max(0, -((_EPOCH - self.instant) // timedelta(milliseconds=1)))

    def __str__(self) -> str:
        if self.kind == "timestamp" and self.instant is not None:
            return self.instant.isoformat()
        return self.kind


EARLIEST, LATEST = Target("earliest"), Target("latest")


def parse_target(text: str) -> Target:
    """Read ``earliest``, ``latest``, or an instant in ISO 8601; without an offset it is in UTC.

    Raises:
        Terminal: The text is none of these.
    """
    if text in ("earliest", "latest"):
        return EARLIEST if text == "earliest" else LATEST
    try:
        instant = _instant(text)
    except ValueError as error:
        raise BAD_ARGUMENT.terminal(
            f"{text!r} is not a position in a topic: expected earliest, latest, an instant such as 2026-05-01T10:00:00+00:00,"
            " or the name of a JSON file with offsets",
            next_step='a file of offsets reads {"orders": {"0": 1200, "1": 1180}}',
        ) from error
    return Target("timestamp", instant if instant.tzinfo else instant.replace(tzinfo=UTC))


def _instant(text: str) -> datetime:
    if text.isdigit():
        # fromisoformat takes any character for the T: milliseconds of 2024 would be read as an instant in 1712.
        raise ValueError(f"{text} is a number")
    return datetime.fromisoformat(text)


def parse_offsets(text: str, source: str) -> Target:
    """Read offsets from JSON: topic -> partition -> offset, ``{"orders": {"0": 1200}}``, or a list per topic.

    Raises:
        Terminal: The text is not of that shape.
    """
    try:
        offsets = {str(topic): _by_partition(partitions) for topic, partitions in json.loads(text).items()}
        return Target("offsets", offsets=offsets)
    except MALFORMED as error:
        raise BAD_ARGUMENT.terminal(
            f"{source} holds no offsets: {error}",
            next_step='expected topic -> partition -> offset, such as {"orders": {"0": 1200, "1": 1180}}',
        ) from error


def _by_partition(offsets: Any) -> dict[int, int]:
    pairs = enumerate(offsets) if isinstance(offsets, list) else offsets.items()
    by_number = {int(number): offset for number, offset in pairs}
    whole_numbers([*by_number.keys(), *by_number.values()])
    return by_number


def resolve(
    target: Target, facts: ClusterFacts, first_offsets: Mapping[TopicPartition, int | None]
) -> dict[TopicPartition, int]:
    """The offset a target means in every partition.

    For an instant, `first_offsets` has the first offset at or after it per partition, None if there is none. Partitions
    that a file of offsets does not name are left out.

    Raises:
        Terminal: A named topic or partition does not exist, or an offset lies outside of the log.
    """
    partitions = {(name, n): p for name, topic in facts.topics.items() for n, p in enumerate(topic.partitions)}
    if target.kind == "offsets":
        return _checked_offsets(target.offsets, partitions)
    if target.kind == "timestamp":
        return {key: _readable_offset(first_offsets.get(key), p) for key, p in partitions.items()}
    return {key: p.log_start if target.kind == "earliest" else p.stable_end for key, p in partitions.items()}


def _readable_offset(offset: int | None, partition: PartitionFacts) -> int:
    return partition.stable_end if offset is None else min(max(offset, partition.log_start), partition.stable_end)


def _checked_offsets(
    offsets: Mapping[str, Mapping[int, int]], partitions: Mapping[TopicPartition, PartitionFacts]
) -> dict[TopicPartition, int]:
    targets = {(topic, number): offset for topic, by_number in offsets.items() for number, offset in by_number.items()}
    problems = (_offset_problem(key, offset, partitions.get(key)) for key, offset in sorted(targets.items()))
    if misfits := [problem for problem in problems if problem]:
        raise BAD_ARGUMENT.terminal(
            "these offsets don't fit the topics:\n" + "\n".join(f"  {line}" for line in misfits)
        )
    return targets


def _offset_problem(key: TopicPartition, offset: int, partition: PartitionFacts | None) -> str | None:
    where = f"topic {key[0]}, partition {key[1]}"
    if partition is None:
        return f"{where}: there is no such partition among the pipeline's topics"
    if partition.log_start <= offset <= partition.stable_end:
        return None
    return f"{where}: {offset} was asked for, the log holds {partition.log_start} to {partition.stable_end}"


_AGO = re.compile(r"(\d{1,6})([smhd])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def parse_instant(text: str, now: datetime) -> datetime:
    """Read ``90m``, ``24h``, ``7d``, or an instant in ISO 8601; without an offset it is in UTC.

    Raises:
        ValueError: The instant is before the year 1, or the text names a target that is no instant. The message begins with
            the text.
        Terminal: The text can't be read.
    """
    if match := _AGO.fullmatch(text.strip()):
        try:
            return now - timedelta(**{_UNITS[match[2]]: int(match[1])})
        except OverflowError as error:
            raise ValueError(f"{text} is before the calendar begins") from error
    instant = parse_target(text.strip()).instant
    if instant is None:
        raise ValueError(f"{text} is neither an instant nor how long ago it was (90m, 24h, 7d)")
    return instant


Mode = Literal["ingest", "replay", "dry_run"]
"""`ingest` lands new records, `replay` lands a range again in place of its rows, `dry_run` lands nothing."""


@dataclass(frozen=True, slots=True)
class RunRequest:
    """The request for a run. The default is a scheduled run, which lands all new records.

    Attributes:
        started_by: Who or what started the run, such as `cli:ann@host` or `airflow:scheduled`.
        start: Where a replay or a dry run begins; a dry run without it begins at the position.
        end: Where the run ends at the latest. An ingest run leaves no gap: it begins at the position, and reads nothing of
            partitions whose end is below.
    """

    run: str
    started_by: str = ""
    mode: Mode = "ingest"
    start: Target | None = None
    end: Target | None = None
    reason: str | None = None
