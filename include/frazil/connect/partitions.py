"""Partition fields: the sink writes `bucket(id, 4)`, Iceberg and Frazil `bucket(4, id)`."""

from __future__ import annotations

import re

_TIMES = {"years": "year", "months": "month", "days": "day", "hours": "hour"}
_CALL = re.compile(r"(?P<transform>\w+)\((?P<column>[^,()]+)(?:,\s*(?P<size>\d+)\s*)?\)")
_OUTSIDE = re.compile(r",(?![^(]*\))")
"""A comma that is not within parentheses."""


def partition_fields(text: str) -> list[str]:
    """The fields of a list of the sink's, in Frazil's spelling.

    Raises:
        ValueError: One is none. The sink then logs an error and creates the table without partitions.
    """
    return [_field(part.strip()) for part in _OUTSIDE.split(text) if part.strip()]


def column_of(field: str) -> str:
    """The column of a field in Frazil's spelling."""
    return field.rstrip(")").rpartition("(")[2].rpartition(",")[2].strip()


def _field(text: str) -> str:
    if "(" not in text:
        if re.search(r"[\s)]", text):
            raise ValueError(f"{text!r} is no partition field of the sink")
        return text
    match = _CALL.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is no partition field of the sink")
    transform = _TIMES.get(match["transform"].lower(), match["transform"].lower())
    column, size = match["column"].strip(), match["size"]
    if transform in _TIMES.values() and size is None and not re.search(r"\s", column):
        return f"{transform}({column})"
    if transform in ("bucket", "truncate") and size is not None and int(size) and not re.search(r"\s", column):
        return f"{transform}({int(size)}, {column})"
    raise ValueError(f"{text!r} is no partition field of the sink")
