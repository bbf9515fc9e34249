"""How a new table is laid out: partition fields and sort order, in Iceberg's syntax, and whether they fit its columns."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Literal

from frazil.pipeline.models.value import Column
from frazil.pipeline.syntax.strict import AtKey, Model
from frazil.pipeline.syntax.types import VARIANT, ColumnType, Primitive

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
    alias: str | None = None

    @property
    def name(self) -> str:
        """Name of the field in the partition spec."""
        return self.alias or (self.column if self.transform == "identity" else f"{self.column}_{self.transform}")

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
    return PartitionField(column=column, transform=transform, size=size, alias=name)


def parse_sort_field(text: str) -> SortField:
    """Parse Iceberg's sort syntax: ``id``, ``created_at desc``, ``bucket(16, id) asc nulls last``.

    Nulls come first where values rise, last where they fall, unless the text says otherwise.

    Raises:
        ValueError: The text is none of these.
    """
    match = _DIRECTED.fullmatch(text.strip())
    term = match["term"] if match is not None else text
    column, transform, size = _parsed(term, f"{text!r} is no field of a sort order", "created_at desc nulls last")
    descending = match is not None and (match["direction"] or "").lower() == "desc"
    nulls = (match["nulls"] or "").lower() if match is not None else ""
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


Layout = tuple[tuple[PartitionField, ...], tuple[SortField, ...]]
"""Partition fields and sort fields."""

KAFKA_TYPES = tuple(map(Primitive, ("string", "int", "long", "timestamptz", "long")))
"""Types of the Kafka columns, in their order."""

_TIME = ("year", "month", "day", "hour")
_DAYS = ("date", "timestamp", "timestamptz")
_TYPES = {
    **dict.fromkeys(("year", "month", "day"), _DAYS),
    "hour": ("timestamp", "timestamptz"),
    "bucket": (*("int", "long", "decimal", "time", "string", "uuid", "fixed", "binary"), *_DAYS),
    "truncate": ("int", "long", "decimal", "string", "binary"),
}
"""Types that a transform takes (table specification, "Partition Transforms"); identity takes any that is not nested."""


def check_layout(table: str, columns: Mapping[str, Column], added: Sequence[str], layout: Layout) -> None:
    """Check a layout against the columns of a destination.

    Raises:
        AtKey: A field is named twice, or its column does not exist or can't be used.
    """
    partition, order = layout
    types = {name: column.parsed for name, column in columns.items()} | dict(zip(added, KAFKA_TYPES, strict=False))
    terms: tuple[tuple[str, Sequence[PartitionField | SortField]], ...] = (
        ("partition_by", partition),
        ("sort_by", order),
    )
    for key, fields in terms:
        for number, field in enumerate(fields):
            if field.column in types:
                _check_type(f"{key}.{number}", field, types[field.column])
            elif columns:  # without declared ones records bring them
                similar = get_close_matches(field.column, types, 1)
                hint = f", did you mean {similar[0]!r}?" if similar else f"; there are {', '.join(types)}"
                raise AtKey(f"{key}.{number}", f"{field.column!r} is not a column of {table}{hint}")
    _refuse_twice("partition_by", "names a field", (field.name for field in partition))
    _refuse_redundant(partition)
    _refuse_twice("sort_by", "names a column", (f"{field.column} ({field.transform})" for field in order))
    for field in partition:
        if field.name in types and (field.transform != "identity" or field.name != field.column):
            raise AtKey(
                "partition_by",
                f"makes a field {field.name}, and {table} has a column of that name; give the field another one,"
                f" such as `… as {field.name}_part`",
            )


def _check_type(key: str, field: PartitionField | SortField, column_type: ColumnType) -> None:
    allowed = _TYPES.get(field.transform)
    if not isinstance(column_type, Primitive) or column_type == VARIANT:
        raise AtKey(
            key,
            f"{field.column!r} is {column_type}, which has no order: take a column that is no list, map, struct or variant",
        )
    if allowed is not None and column_type.name not in allowed:
        raise AtKey(
            key, f"{field.transform}({field.column}) is for {', '.join(allowed)}; {field.column!r} is {column_type}"
        )


def _refuse_redundant(partition: tuple[PartitionField, ...]) -> None:
    """Iceberg takes one field per column and kind of transform: a day has its month in it."""
    earlier_fields: dict[object, PartitionField] = {}
    for field in partition:
        kind = "time" if field.transform in _TIME else (field.transform, field.size)
        earlier = earlier_fields.setdefault((field.column, kind), field)
        if earlier is not field:
            raise AtKey(
                "partition_by", f"{field.name} adds nothing to {earlier.name}: both partition by {field.column}"
            )


def _refuse_twice(key: str, complaint: str, names: Iterable[str]) -> None:
    repeated_names = [name for name, count in Counter(names).items() if count > 1]
    if repeated_names:
        raise AtKey(key, f"{complaint} twice: {repeated_names[0]}")
