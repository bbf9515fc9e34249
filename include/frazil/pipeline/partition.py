"""How a new table is laid out: partition fields and sort order, in Iceberg's syntax."""

from __future__ import annotations

import re
from typing import Literal

from frazil.pipeline.strict import Model

TransformName = Literal["identity", "year", "month", "day", "hour", "bucket", "truncate"]

_TERM = re.compile(
    r"(?P<column>[^()\s,]+)|(?P<transform>identity|year|month|day|hour)\(\s*(?P<of>[^(),\s]+)\s*\)"
    r"|(?P<sized>bucket|truncate)\(\s*(?P<size>[1-9]\d*)\s*,\s*(?P<sized_of>[^(),\s]+)\s*\)",
    re.IGNORECASE,
)
_TURNED = re.compile(r"(?P<sized>bucket|truncate)\(\s*(?P<of>[^(),\s]+)\s*,\s*(?P<size>[1-9]\d*)\s*\)", re.IGNORECASE)
_NAMED = re.compile(r"(?P<term>.+?)\s+as\s+(?P<name>[^()\s,]+)", re.IGNORECASE)
_DIRECTED = re.compile(
    r"(?P<term>.+?)(?:\s+(?P<direction>asc|desc))?(?:\s+nulls\s+(?P<nulls>first|last))?", re.IGNORECASE
)


class PartitionField(Model):
    """One field of a partition spec: a column, or a transform of one."""

    column: str
    transform: TransformName = "identity"
    size: int | None = None
    given: str | None = None

    @property
    def name(self) -> str:
        """Name of the field in the partition spec."""
        return self.given or (self.column if self.transform == "identity" else f"{self.column}_{self.transform}")

    def __str__(self) -> str:
        size = "" if self.size is None else f"{self.size}, "
        return self.column if self.transform == "identity" else f"{self.transform}({size}{self.column})"


class SortField(Model):
    """One field of a sort order: a column, or a transform of one."""

    column: str
    transform: TransformName = "identity"
    size: int | None = None
    descending: bool = False
    nulls_first: bool = True


def parse_partition_field(text: str) -> PartitionField:
    """Parse Iceberg's transform syntax: ``document``, ``day(created_at)``, ``bucket(16, id) as shard``, ``truncate(4, name)``.

    Raises:
        ValueError: The text is none of these.
    """
    named = _NAMED.fullmatch(text.strip())
    term, name = (named["term"], named["name"]) if named is not None else (text, None)
    column, transform, size = _parsed(term, f"{text!r} is no partition field", "day(created_at)")
    return PartitionField(column=column, transform=transform, size=size, given=name)


def parse_sort_field(text: str) -> SortField:
    """Parse Iceberg's sort syntax: ``id``, ``created_at desc``, ``bucket(16, id) asc nulls last``.

    Nulls come first where values rise, last where they fall, unless the text says otherwise.

    Raises:
        ValueError: The text is none of these.
    """
    found = _DIRECTED.fullmatch(text.strip())
    term = found["term"] if found is not None else text
    column, transform, size = _parsed(term, f"{text!r} is no field of a sort order", "created_at desc nulls last")
    descending = found is not None and (found["direction"] or "").lower() == "desc"
    nulls = (found["nulls"] or "").lower() if found is not None else ""
    nulls_first = nulls == "first" if nulls else not descending
    return SortField(column=column, transform=transform, size=size, descending=descending, nulls_first=nulls_first)


def _parsed(term: str, complaint: str, example: str) -> tuple[str, TransformName, int | None]:
    """Column, transform and its number."""
    match = _TERM.fullmatch(term.strip())
    if match is None:
        turned = _TURNED.fullmatch(term.strip())
        if turned is not None:
            raise ValueError(f"{complaint}; did you mean {turned['sized'].lower()}({turned['size']}, {turned['of']})?")
        raise ValueError(f"{complaint}; examples: document, {example}, bucket(16, id), truncate(4, name)")
    if match["column"]:
        return match["column"], "identity", None
    if match["transform"]:
        return match["of"], match["transform"].lower(), None  # type: ignore[return-value]
    return match["sized_of"], match["sized"].lower(), int(match["size"])  # type: ignore[return-value]
