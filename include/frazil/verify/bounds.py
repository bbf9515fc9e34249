"""`--from` and `--to`: which offsets are asked for."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from frazil.errors import Terminal
from frazil.verify.kafka import Source

Key = tuple[str, int]

Bounds = Mapping[Key, tuple[int, int | None]]
"""Partition -> first offset, and one past the last; None stands for no bound."""

_NOTHING = (0, 0)


def bounds(partitions: Iterable[Key], from_: str | None, to: str | None, source: Source) -> Bounds:
    """What was asked for, per partition.

    Args:
        partitions: All there are.
        from_: Where to begin: an instant in ISO 8601 (UTC if it has no offset), or a JSON file of offsets, topic ->
            partition -> offset. Partitions that a file does not name are left out. None: at the beginning.
        to: Where to end, in the same way. None: at the position.
        source: Knows which offset belongs to an instant.

    Raises:
        Terminal: A text is neither, or a file can't be read.
        Retryable: Kafka does not answer.
    """
    keys = list(partitions)
    starts = None if from_ is None else _offsets(from_, keys, source)
    ends = None if to is None else _offsets(to, keys, source)
    return {key: _between(key, starts, ends) for key in keys}


def _between(
    key: Key, starts: Mapping[Key, int | None] | None, ends: Mapping[Key, int | None] | None
) -> tuple[int, int | None]:
    named = all(of is None or key in of for of in (starts, ends))
    start = 0 if starts is None else starts.get(key)
    # An instant after the last record is no beginning, and bounds nothing as an end.
    return (start, ends.get(key) if ends is not None else None) if named and start is not None else _NOTHING


def _offsets(text: str, partitions: list[Key], source: Source) -> dict[Key, int | None]:
    file = Path(text)
    if file.suffix == ".json" or file.is_file():
        return dict(_from_file(file))
    try:
        instant = datetime.fromisoformat(text)
    except ValueError as error:
        raise Terminal(
            f"{text!r} is neither an instant such as 2026-05-01T10:00:00+00:00 nor a JSON file of offsets",
            next_step=_SHAPE,
        ) from error
    utc = instant if instant.tzinfo else instant.replace(tzinfo=UTC)
    return source.offsets_at(round(utc.timestamp() * 1000), partitions)


_SHAPE = 'a file of offsets reads {"orders": {"0": 1200, "1": 1180}}'


def _from_file(file: Path) -> dict[Key, int]:
    try:
        body = json.loads(file.read_text(encoding="utf-8"))
        return {(str(topic), int(n)): _whole(offset) for topic, of in body.items() for n, offset in _pairs(of)}
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise Terminal(f"{file} holds no offsets: {error}", next_step=_SHAPE) from error


def _pairs(of: Any) -> Iterable[tuple[Any, Any]]:
    return enumerate(of) if isinstance(of, list) else of.items()


def _whole(offset: Any) -> int:
    if type(offset) is not int or offset < 0:
        raise ValueError(f"expected an offset of 0 or more, found {offset!r}")
    return offset
