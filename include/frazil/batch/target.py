"""A place in topics as a person names it: their beginning, their end, an instant, how long ago, or offsets."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from frazil.batch.facts import ClusterFacts, PartitionFacts, TopicPartition
from frazil.batch.position import whole_numbers
from frazil.error_codes import BAD_ARGUMENT

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Target:
    """A start or end of reading.

    Attributes:
        kind: `earliest` is every log start, `latest` every stable end, `timestamp` the first record at or after an
            instant (the stable end if there is none), `offsets` what is written for each partition.
        instant: With `timestamp`: the instant.
        offsets: With `offsets`: topic -> partition -> offset. Partitions that are not listed are not concerned.
    """

    kind: Literal["earliest", "latest", "timestamp", "offsets"]
    instant: datetime | None = None
    offsets: Mapping[str, Mapping[int, int]] = field(default_factory=dict)

    @property
    def at_ms(self) -> int | None:
        """The instant in milliseconds since 1970, as Kafka counts: the first that is not before it.

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
        Terminal: It is not of that shape.
    """
    try:
        return Target(
            "offsets", offsets={str(topic): _by_partition(partitions) for topic, partitions in json.loads(text).items()}
        )
    except (ValueError, TypeError, AttributeError) as error:
        raise BAD_ARGUMENT.terminal(
            f"{source} holds no offsets: {error}",
            next_step='expected topic -> partition -> offset, such as {"orders": {"0": 1200, "1": 1180}}',
        ) from error


def _by_partition(offsets: Any) -> dict[int, int]:
    pairs = (
        enumerate(offsets)
        if isinstance(offsets, list)
        else [(int(number), offset) for number, offset in offsets.items()]
    )
    by_number = dict(pairs)
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
        return _named(target.offsets, partitions)
    if target.kind == "timestamp":
        return {key: _first(first_offsets.get(key), p) for key, p in partitions.items()}
    return {key: p.log_start if target.kind == "earliest" else p.stable_end for key, p in partitions.items()}


def _first(offset: int | None, partition: PartitionFacts) -> int:
    return partition.stable_end if offset is None else min(max(offset, partition.log_start), partition.stable_end)


def _named(
    offsets: Mapping[str, Mapping[int, int]], partitions: Mapping[TopicPartition, PartitionFacts]
) -> dict[TopicPartition, int]:
    targets = {(topic, number): offset for topic, by_number in offsets.items() for number, offset in by_number.items()}
    problems = [_problem(key, offset, partitions.get(key)) for key, offset in sorted(targets.items())]
    misfits = [problem for problem in problems if problem]
    if misfits:
        raise BAD_ARGUMENT.terminal(
            "these offsets don't fit the topics:\n" + "\n".join(f"  {line}" for line in misfits)
        )
    return targets


def _problem(key: TopicPartition, offset: int, partition: PartitionFacts | None) -> str | None:
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
        ValueError: It is before the calendar begins, or a place in a topic that is no instant; the message begins with
            the text.
        Terminal: It can't be read.
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
"""`ingest` lands what is new, `replay` lands a range again in place of what it landed before, `dry_run` only looks."""


@dataclass(frozen=True, slots=True)
class RunRequest:
    """The request for a run. The default is a scheduled run: land everything new.

    Attributes:
        started_by: Who or what started it, such as `cli:ann@host` or `airflow:scheduled`.
        start: Where a replay or a dry run begins; a dry run without it begins at the position.
        end: Where it ends at the latest. An ingest run never leaves a gap: it begins at the position, and has nothing
            to do where the end lies below.
    """

    run: str
    started_by: str = ""
    mode: Mode = "ingest"
    start: Target | None = None
    end: Target | None = None
    reason: str | None = None
