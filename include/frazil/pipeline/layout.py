"""Whether the layout that a pipeline file asks of a new table fits its columns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from frazil.pipeline.partition import PartitionField, SortField
from frazil.pipeline.types import VARIANT, Primitive
from frazil.pipeline.value import Column

Layout = tuple[tuple[PartitionField, ...], tuple[SortField, ...]]
"""Partition fields and sort fields."""

_TIME = ("year", "month", "day", "hour")


def check_layout(table: str, columns: Mapping[str, Column], names: Collection[str], layout: Layout) -> None:
    """Hold a layout against the columns of a destination.

    Args:
        table: Name of the table.
        columns: The declared columns.
        names: These and the columns that Frazil adds.
        layout: What the file asks for.

    Raises:
        ValueError: A field is named twice, or its column is not there or can't be used.
    """
    partition, order = layout
    for key, fields in (("partition_by", partition), ("sort_by", order)):
        for field in fields:
            _check_column(table, key, field.column, columns, names)
    _refuse_twice("partition_by names a field", (field.name for field in partition))
    _refuse_redundant(partition)
    _refuse_twice("sort_by names a column", (f"{field.column} ({field.transform})" for field in order))
    for field in partition:
        if field.name in names and (field.transform != "identity" or field.name != field.column):
            raise ValueError(
                f"partition_by makes a field {field.name}, and {table} has a column of that name; give the field another one,"
                f" such as `… as {field.name}_part`"
            )


def _check_column(table: str, key: str, name: str, columns: Mapping[str, Column], names: Collection[str]) -> None:
    if columns and name not in names:  # without declared ones records bring them
        raise ValueError(f"{key} names {name!r}, which is no column of {table}")
    if name in columns and columns[name].parsed == VARIANT:
        raise ValueError(
            f"{key} names {name!r}: a variant can't {'partition' if key == 'partition_by' else 'sort'} a table"
        )
    if name in columns and not isinstance(columns[name].parsed, Primitive):
        raise ValueError(f"{key} names {name!r}, of type {columns[name].type}, which has no order")


def _refuse_redundant(partition: tuple[PartitionField, ...]) -> None:
    """Iceberg takes one field per column and kind of transform: a day has its month in it."""
    seen: dict[object, PartitionField] = {}
    for field in partition:
        kind = "time" if field.transform in _TIME else (field.transform, field.size)
        earlier = seen.setdefault((field.column, kind), field)
        if earlier is not field:
            raise ValueError(
                f"partition_by: {field.name} says nothing about {field.column} that {earlier.name} does not say"
            )


def _refuse_twice(complaint: str, names: Iterable[str]) -> None:
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise ValueError(f"{complaint} twice: {twice[0]}")
