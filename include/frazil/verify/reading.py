"""Finds the offsets to compare (`--from`, `--to`), and reads each partition once for all destinations."""

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
"""Partition -> first offset, and the one after the last; None means no upper bound."""

Logs = Mapping[Key, tuple[int, int]]
"""Partition -> first offset that Kafka holds, and the last stable one (exclusive)."""

NO_OFFSETS = (0, 0)
"""Bounds of a partition that is not compared."""


def bounds(logs: Logs, start_text: str | None, end_text: str | None, source: Source) -> Bounds:
    """The offsets to compare, per partition.

    Args:
        logs: All partitions that Kafka has of the topics.
        start_text: Where to begin: `earliest`, `latest`, an instant in ISO 8601 (UTC if it has no offset), or a JSON file of
            offsets, topic -> partition -> offset. Partitions that a file does not name are left out. None: at the
            beginning.
        end_text: Where to end, in the same way. None: at the position.
        source: The cluster, which is asked for the offsets of an instant.

    Raises:
        Terminal: A text has none of these forms, a file can't be read or names other partitions, or the end is before the
            beginning.
        Retryable: Kafka does not answer.
    """
    starts = None if start_text is None else _offsets(start_text, logs, source)
    ends = None if end_text is None else _offsets(end_text, logs, source)
    requested = {key: _requested_range(key, logs[key], starts, ends) for key in logs}
    ranges = ((topic, n, start, end) for (topic, n), (start, end) in requested.items())
    crossed = [f"{topic}/{n}: {start} to {end}" for topic, n, start, end in ranges if end is not None and start > end]
    if crossed:
        raise BAD_ARGUMENT.terminal(f"--to is before --from: {', '.join(sorted(crossed))}", next_step="swap them")
    if starts is not None and ends is not None and logs and not starts.keys() & ends.keys():
        raise BAD_ARGUMENT.terminal(
            "no partition is named in --from and --to both", next_step="name the same partitions in both files"
        )
    return requested


def _requested_range(
    key: Key, log: tuple[int, int], starts: Mapping[Key, int | None] | None, ends: Mapping[Key, int | None] | None
) -> tuple[int, int | None]:
    if any(offsets is not None and key not in offsets for offsets in (starts, ends)):
        return NO_OFFSETS
    # An instant after the last record has no offset: as a start it is the end of the log, as an end it bounds nothing.
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
    """An instant in milliseconds since 1970, rounded up, as Kafka counts."""
    try:
        # fromisoformat accepts any character in place of the T: a number of milliseconds would be a date long ago.
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
            for n, offset in (enumerate(partitions) if isinstance(partitions, list) else partitions.items())
        }
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise BAD_ARGUMENT.terminal(f"{file} holds no offsets: {error}", next_step=_SHAPE) from error
    if unknown_partitions := [f"{topic}/{n}" for topic, n in sorted(offsets.keys() - logs.keys())]:
        raise BAD_ARGUMENT.terminal(
            f"{file} names {', '.join(unknown_partitions)}: the pipeline never read it, or Kafka no longer has it",
            next_step=f"known: {', '.join(f'{topic}/{n}' for topic, n in sorted(logs)) or 'no partitions'}",
        )
    return offsets


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
"""Offsets whose outcomes are in memory at once, about 100 bytes each. Several tables share this number."""

MIN_WINDOW = 10_000
"""Smallest window per table: each window costs one scan of every table."""

RecordRouter = Callable[[Message], frozenset[str] | None]
"""Names the tables whose comparisons need a record, besides those that have an outcome of it; None: all tables."""


def read_once(
    comparisons: Mapping[str, Comparison],
    reader: PartitionReader,
    log: tuple[int, int],
    router: RecordRouter | None = None,
    window_size: int = WINDOW,
) -> int:
    """Read every record once, pass it to the comparisons of tables that need it, and return the number of records.

    Other comparisons only count the record, so that the work grows with the records, not with the tables that share a topic.
    All comparisons together have about `window_size` outcomes in memory at once.
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
        # A record that is unreadable or too large is a dead letter for all tables.
        is_for_all = router is None or any(each.unreadable_code(message) is not None for each in first)
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
