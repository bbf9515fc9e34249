"""Whether the layout that a pipeline file asks of a new table fits its columns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches

from frazil.pipeline.partition import PartitionField, SortField
from frazil.pipeline.strict import AtKey
from frazil.pipeline.types import VARIANT, ColumnType, Primitive
from frazil.pipeline.value import Column

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
    """Hold a layout against the columns of a destination.

    Args:
        table: Name of the table.
        columns: The declared columns.
        added: The Kafka columns, in their order; none if the table has none.
        layout: What the file asks for.

    Raises:
        AtKey: A field is named twice, or its column is not there or can't be used.
    """
    partition, order = layout
    types = {name: of.parsed for name, of in columns.items()} | dict(zip(added, KAFKA_TYPES, strict=False))
    terms: tuple[tuple[str, Sequence[PartitionField | SortField]], ...] = (
        ("partition_by", partition),
        ("sort_by", order),
    )
    for key, fields in terms:
        for number, field in enumerate(fields):
            if field.column in types:
                _check_type(f"{key}.{number}", field, types[field.column])
            elif columns:  # without declared ones records bring them
                near = get_close_matches(field.column, types, 1)
                hint = f", did you mean {near[0]!r}?" if near else f"; there are {', '.join(types)}"
                raise AtKey(f"{key}.{number}", f"{field.column!r} is no column of {table}{hint}")
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


def _check_type(key: str, field: PartitionField | SortField, of: ColumnType) -> None:
    allowed = _TYPES.get(field.transform)
    if not isinstance(of, Primitive) or of == VARIANT:
        raise AtKey(
            key, f"{field.column!r} is {of}, which has no order: take a column that is no list, map, struct or variant"
        )
    if allowed is not None and of.name not in allowed:
        raise AtKey(key, f"{field.transform}({field.column}) is for {', '.join(allowed)}; {field.column!r} is {of}")


def _refuse_redundant(partition: tuple[PartitionField, ...]) -> None:
    """Iceberg takes one field per column and kind of transform: a day has its month in it."""
    seen: dict[object, PartitionField] = {}
    for field in partition:
        kind = "time" if field.transform in _TIME else (field.transform, field.size)
        earlier = seen.setdefault((field.column, kind), field)
        if earlier is not field:
            raise AtKey(
                "partition_by", f"{field.name} says nothing about {field.column} that {earlier.name} does not say"
            )


def _refuse_twice(key: str, complaint: str, names: Iterable[str]) -> None:
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise AtKey(key, f"{complaint} twice: {twice[0]}")
