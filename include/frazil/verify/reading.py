"""Which offsets are asked for (`--from`, `--to`), and one reading of a partition for all destinations."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from confluent_kafka import Message

from frazil.errors import Terminal
from frazil.pipeline.models.pipeline_file import Pipeline
from frazil.verify.compare import Comparison
from frazil.verify.facts.coverage import Window, together, windows
from frazil.verify.kafka import PartitionReader, Source

Key = tuple[str, int]

Bounds = Mapping[Key, tuple[int, int | None]]
"""Partition -> first offset, and one past the last; None stands for no bound."""

Logs = Mapping[Key, tuple[int, int]]
"""Partition -> first offset that Kafka holds, and the last stable one (exclusive)."""

_NO_OFFSETS = (0, 0)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def bounds(logs: Logs, from_: str | None, to: str | None, source: Source) -> Bounds:
    """What was asked for, per partition.

    Args:
        logs: All partitions there are.
        from_: Where to begin: `earliest`, `latest`, an instant in ISO 8601 (UTC if it has no offset), or a JSON file of
            offsets, topic -> partition -> offset. Partitions that a file does not name are left out. None: at the
            beginning.
        to: Where to end, in the same way. None: at the position.
        source: Knows which offset belongs to an instant.

    Raises:
        Terminal: A text is neither, a file can't be read or names other partitions, or the end lies before the beginning.
        Retryable: Kafka does not answer.
    """
    starts = None if from_ is None else _offsets(from_, logs, source)
    ends = None if to is None else _offsets(to, logs, source)
    found = {key: _between(key, logs[key], starts, ends) for key in logs}
    crossed = [
        f"{topic}/{n}: {start} to {end}" for (topic, n), (start, end) in found.items() if _is_crossed(start, end)
    ]
    if crossed:
        raise Terminal(
            f"--to lies before --from: {', '.join(sorted(crossed))}", next_step="give them the other way round"
        )
    if starts is not None and ends is not None and logs and not starts.keys() & ends.keys():
        raise Terminal(
            "no partition is named in --from and --to both", next_step="name the same partitions in both files"
        )
    return found


def _is_crossed(start: int, end: int | None) -> bool:
    return end is not None and start > end


def _between(
    key: Key, log: tuple[int, int], starts: Mapping[Key, int | None] | None, ends: Mapping[Key, int | None] | None
) -> tuple[int, int | None]:
    if any(of is not None and key not in of for of in (starts, ends)):
        return _NO_OFFSETS
    # An instant after the last record begins behind it, and bounds nothing as an end.
    start = 0 if starts is None else starts[key]
    return log[1] if start is None else start, None if ends is None else ends[key]


def _offsets(text: str, logs: Logs, source: Source) -> dict[Key, int | None]:
    if text in ("earliest", "latest"):
        return {key: log[text == "latest"] for key, log in logs.items()}
    file = Path(text)
    if file.suffix == ".json" or file.is_file():
        return dict(_from_file(file, logs))
    return source.offsets_at(_milliseconds(text), list(logs))


def _milliseconds(text: str) -> int:
    """An instant as Kafka counts: the first millisecond that is not before it."""
    try:
        # fromisoformat takes any character for the T: milliseconds would be read as an instant long ago.
        instant = datetime.fromisoformat("" if text.isdigit() else text)
    except ValueError as error:
        raise Terminal(
            f"{text!r} is no place in a topic: expected earliest, latest, an instant such as 2026-05-01T10:00:00+00:00,"
            " or the name of a JSON file with offsets",
            next_step=_SHAPE,
        ) from error
    utc = instant if instant.tzinfo else instant.replace(tzinfo=UTC)
    return max(0, -((_EPOCH - utc) // timedelta(milliseconds=1)))


_SHAPE = 'a file of offsets reads {"orders": {"0": 1200, "1": 1180}}'


def _from_file(file: Path, logs: Logs) -> dict[Key, int]:
    try:
        body = json.loads(file.read_text(encoding="utf-8"))
        found = {(str(topic), int(n)): _whole(offset) for topic, of in body.items() for n, offset in _pairs(of)}
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise Terminal(f"{file} holds no offsets: {error}", next_step=_SHAPE) from error
    if unknown := [f"{topic}/{n}" for topic, n in sorted(found.keys() - logs.keys())]:
        raise Terminal(
            f"{file} names {', '.join(unknown)}: the pipeline did not read that, or Kafka does not have it any more",
            next_step=f"known are {', '.join(f'{topic}/{n}' for topic, n in sorted(logs)) or 'no partitions'}",
        )
    return found


def _pairs(of: Any) -> Iterable[tuple[Any, Any]]:
    return enumerate(of) if isinstance(of, list) else of.items()


def _whole(offset: Any) -> int:
    if type(offset) is not int or offset < 0:
        raise ValueError(f"expected an offset of 0 or more, found {offset!r}")
    return offset


def refuse_part_of_merged(pipeline: Pipeline, from_: str | None, to: str | None) -> None:
    """A row that is merged is what all changes of its key made of it: some of them say nothing.

    Raises:
        Terminal: A part of the topic is asked for, and rows are merged.
    """
    merged = [of.table for of in pipeline.destinations if of.is_merged]
    if merged and (from_ is not None or to is not None):
        raise Terminal(
            f"rows of {', '.join(merged)} are what all changes of their key made of them: a part of the topic can't be held"
            " against them",
            next_step=f"frazil verify {pipeline.name}, without --from and --to",
        )


WINDOW = 250_000
"""Offsets whose outcomes are held in memory at once, about 100 bytes each; many tables share them."""

LEAST = 10_000
"""Offsets that many tables hold at once at least: each window costs a look into the files of each of them."""

MeantFor = Callable[[Message], frozenset[str] | None]
"""The tables that look at a record, beside those that hold an outcome of it; None: all do."""


def read_once(
    comparisons: Mapping[str, Comparison],
    reader: PartitionReader,
    log: tuple[int, int],
    meant_for: MeantFor | None = None,
    window: int = WINDOW,
) -> int:
    """Hand every record to the comparisons that it means something to, in order, and return how many there were.

    A comparison that is not handed a record counts it: where many tables share a topic, the work follows the records.

    Args:
        comparisons: Of one partition, one of each destination, by its name.
        reader: Kafka.
        log: First offset that Kafka holds, and the last stable one (exclusive).
        meant_for: How records are routed; None: all are handed to all.
        window: Outcomes that all of them hold at once, about.
    """
    low, high = log
    size, count = max(min(LEAST, window), window // max(1, len(comparisons))), 0
    for of in windows(together([comparison.subject.segments for comparison in comparisons.values()]), size):
        wanting = {name: each for name, each in comparisons.items() if each.begin(of.start, of.end)}
        messages = reader.read(max(of.start, low), min(of.end, high))
        count += _all(wanting.values(), messages, of) if meant_for is None else _some(wanting, messages, of, meant_for)
        for comparison in wanting.values():
            comparison.end()
    return count


def _all(wanting: Iterable[Comparison], messages: Iterable[Message], window: Window) -> int:
    every, count, covered = tuple(wanting), 0, _Covered(window)
    for message in messages:
        offset = message.offset() or 0
        count += covered.has(offset)
        for comparison in every:
            comparison.take(message, offset)
    return count


def _some(wanting: Mapping[str, Comparison], messages: Iterable[Message], window: Window, meant_for: MeantFor) -> int:
    holders: dict[int, list[str]] = {}
    for name, comparison in wanting.items():
        for offset in comparison.offsets:
            holders.setdefault(offset, []).append(name)
    passed: list[int] = []
    handed: dict[str, list[int]] = {name: [] for name in wanting}
    count, covered = 0, _Covered(window)
    for message in messages:
        offset = message.offset() or 0
        count += covered.has(offset)
        # A letter of a record that is not taken over is of the record as a whole: all tables know it.
        is_unread = bool(wanting) and next(iter(wanting.values())).unread_code(message) is not None
        meant = None if is_unread else meant_for(message)
        if meant is None:
            for comparison in wanting.values():
                comparison.take(message, offset)
            continue
        passed.append(offset)
        for name in {*holders.get(offset, ()), *(of for of in meant if of in wanting)}:
            wanting[name].take(message, offset)
            handed[name].append(offset)
    for name, comparison in wanting.items():
        comparison.pass_over(passed, handed[name])
    return count


class _Covered:
    """Which offsets of a window were read by a batch; asked in ascending order."""

    def __init__(self, window: Window) -> None:
        self._segments: Sequence[tuple[int, int]] = [(of.start, of.end) for of in window.segments]
        self._at = 0

    def has(self, offset: int) -> bool:
        while self._at < len(self._segments) and offset >= self._segments[self._at][1]:
            self._at += 1
        return self._at < len(self._segments) and offset >= self._segments[self._at][0]
