"""The branch that changes are merged into, and its columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from frazil.batch.merge import Merge
from frazil.spark.quoting import quoted


@dataclass(frozen=True)
class Target:
    """The branch that is changed.

    Attributes:
        table: Name of the table, for messages.
        branch: The branch, quoted.
        types: Column -> type, as Spark says them.
        partitioned_by: Columns whose values are partition values as they are.
        variants: Columns whose JSON texts become variants.
    """

    table: str
    branch: str
    types: Mapping[str, str]
    partitioned_by: tuple[str, ...] = ()
    variants: tuple[str, ...] = ()


def facts_of(merge: Merge) -> tuple[str, ...]:
    """Columns of what a record says of itself, and of what orders changes."""
    names = merge.columns
    order = () if merge.order_by is None else (merge.order_by,)
    return (names.topic, names.partition, names.offset, merge.timestamp, names.batch, *order)


def assigned(values: Mapping[str, str]) -> str:
    """Columns of the target, known as `t`, and what they become."""
    return ", ".join(f"t.{quoted(name)} = {of}" for name, of in values.items())
