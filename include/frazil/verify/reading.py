"""The offsets to compare (`--from`, `--to`), and one reading of each partition for all destinations."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from confluent_kafka import Message

from frazil.error_codes import BAD_ARGUMENT
from frazil.pipeline.models.pipeline_file import Pipeline
from frazil.verify.compare import Comparison
from frazil.verify.facts.coverage import Key, Window, union_of_segments, windows
from frazil.verify.kafka import PartitionReader, Source
from frazil.verify.values.json_document import EPOCH

Bounds = Mapping[Key, tuple[int, int | None]]
"""Partition -> first offset, and one past the last; None means no upper bound."""

Logs = Mapping[Key, tuple[int, int]]
"""Partition -> first offset that Kafka holds, and the last stable one (exclusive)."""

_NO_OFFSETS = (0, 0)


def bounds(logs: Logs, start_text: str | None, end_text: str | None, source: Source) -> Bounds:
    """The offsets to compare, per partition.

    Args:
        logs: All partitions that Kafka has of the topics.
        start_text: Where to begin: `earliest`, `latest`, an instant in ISO 8601 (UTC if it has no offset), or a JSON file of
            offsets, topic -> partition -> offset. Partitions that a file does not name are left out. None: at the
            beginning.
        end_text: Where to end, in the same way. None: at the position.
        source: Knows which offset belongs to an instant.

    Raises:
        Terminal: A text is neither, a file can't be read or names other partitions, or the end lies before the beginning.
        Retryable: Kafka does not answer.
    """
    starts = None if start_text is None else _offsets(start_text, logs, source)
    ends = None if end_text is None else _offsets(end_text, logs, source)
    requested = {key: _requested_range(key, logs[key], starts, ends) for key in logs}
    crossed = [
        f"{topic}/{n}: {start} to {end}" for (topic, n), (start, end) in requested.items() if _is_crossed(start, end)
    ]
    if crossed:
        raise BAD_ARGUMENT.terminal(f"--to is before --from: {', '.join(sorted(crossed))}", next_step="swap them")
    if starts is not None and ends is not None and logs and not starts.keys() & ends.keys():
        raise BAD_ARGUMENT.terminal(
            "no partition is named in --from and --to both", next_step="name the same partitions in both files"
        )
    return requested


def _is_crossed(start: int, end: int | None) -> bool:
    return end is not None and start > end


def _requested_range(
    key: Key, log: tuple[int, int], starts: Mapping[Key, int | None] | None, ends: Mapping[Key, int | None] | None
) -> tuple[int, int | None]:
    if any(offsets is not None and key not in offsets for offsets in (starts, ends)):
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
        raise BAD_ARGUMENT.terminal(
            f"{text!r} is not a position in a topic: expected earliest, latest, an instant such as 2026-05-01T10:00:00+00:00,"
            " or the name of a JSON file with offsets",
            next_step=_SHAPE,
        ) from error
    utc = instant if instant.tzinfo else instant.replace(tzinfo=UTC)
    return max(0, -((EPOCH - utc) // timedelta(milliseconds=1)))


_SHAPE = 'a file of offsets reads {"orders": {"0": 1200, "1": 1180}}'


def _from_file(file: Path, logs: Logs) -> dict[Key, int]:
    try:
        body = json.loads(file.read_text(encoding="utf-8"))
        offsets = {
            (str(topic), int(n)): _require_offset(offset)
            for topic, partitions in body.items()
            for n, offset in _partition_offsets(partitions)
        }
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise BAD_ARGUMENT.terminal(f"{file} holds no offsets: {error}", next_step=_SHAPE) from error
    if unknown_partitions := [f"{topic}/{n}" for topic, n in sorted(offsets.keys() - logs.keys())]:
        raise BAD_ARGUMENT.terminal(
            f"{file} names {', '.join(unknown_partitions)}: the pipeline never read it, or Kafka no longer has it",
            next_step=f"known: {', '.join(f'{topic}/{n}' for topic, n in sorted(logs)) or 'no partitions'}",
        )
    return offsets


def _partition_offsets(partitions: Any) -> Iterable[tuple[Any, Any]]:
    return enumerate(partitions) if isinstance(partitions, list) else partitions.items()


def _require_offset(offset: Any) -> int:
    if type(offset) is not int or offset < 0:
        raise ValueError(f"expected an offset of 0 or more, found {offset!r}")
    return offset


def refuse_part_of_merged(pipeline: Pipeline, start: str | None, end: str | None) -> None:
    """Refuse `--from` and `--to` for merged tables: a merged row depends on all changes of its key.

    Raises:
        Terminal: Only a part of the topic would be compared, and rows are merged.
    """
    merged = [destination.table for destination in pipeline.destinations if destination.is_merged]
    if merged and (start is not None or end is not None):
        raise BAD_ARGUMENT.terminal(
            f"merged rows of {', '.join(merged)} depend on all changes of their key, so a part of the topic can't be verified",
            next_step=f"frazil verify {pipeline.name}, without --from and --to",
        )


WINDOW = 250_000
"""Offsets whose outcomes are held in memory at once, about 100 bytes each; many tables share them."""

MIN_WINDOW = 10_000
"""Smallest window where many tables share the memory: each window costs one scan of every table."""

RecordRouter = Callable[[Message], frozenset[str] | None]
"""Names the tables that must look at a record, besides those that have an outcome of it; None: all tables."""


def read_once(
    comparisons: Mapping[str, Comparison],
    reader: PartitionReader,
    log: tuple[int, int],
    router: RecordRouter | None = None,
    window_size: int = WINDOW,
) -> int:
    """Hand every record in order to the comparisons that need it, and return how many records there were.

    Other comparisons only count the record: where many tables share a topic, the work grows with records, not tables. All
    comparisons together hold about `window_size` outcomes in memory at once.
    """
    low, high = log
    size, count = max(min(MIN_WINDOW, window_size), window_size // max(1, len(comparisons))), 0
    for window in windows(
        union_of_segments([comparison.subject.segments for comparison in comparisons.values()]), size
    ):
        active = {name: each for name, each in comparisons.items() if each.begin(window.start, window.end)}
        messages = reader.read(max(window.start, low), min(window.end, high))
        count += _distribute(active, messages, window, router)
        for comparison in active.values():
            comparison.end()
    return count


def _distribute(
    comparisons: Mapping[str, Comparison], messages: Iterable[Message], window: Window, router: RecordRouter | None
) -> int:
    holders: dict[int, list[str]] = {}
    for name, comparison in comparisons.items():
        for offset in comparison.offsets if router is not None else ():
            holders.setdefault(offset, []).append(name)
    routed_offsets: list[int] = []
    offsets_per_table: dict[str, list[int]] = {name: [] for name in comparisons}
    first, count = [*comparisons.values()][:1], 0
    for message in messages:
        offset = message.offset() or 0
        count += window.has(offset)
        # A record without readable payload is one dead letter for all tables, so every table must look at it.
        is_for_all = router is None or any(each.unread_code(message) is not None for each in first)
        tables = None if router is None or is_for_all else router(message)
        if tables is None:
            for comparison in comparisons.values():
                comparison.take(message, offset)
            continue
        routed_offsets.append(offset)
        for name in {*holders.get(offset, ()), *(table for table in tables if table in comparisons)}:
            comparisons[name].take(message, offset)
            offsets_per_table[name].append(offset)
    for name, comparison in comparisons.items():
        comparison.count_routed_elsewhere(routed_offsets, offsets_per_table[name])
    return count
