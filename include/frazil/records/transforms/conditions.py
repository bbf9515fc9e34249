"""Transforms only for some records: predicates, `When`, and leaving records out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from frazil.errors import Terminal
from frazil.records.frame import Frame, Transform, Transformed
from frazil.records.transforms.chain import settled
from frazil.records.transforms.fields import batch_of, columns_of, tombstones
from frazil.records.transforms.header_lists import rows_with
from frazil.records.transforms.routers import java_regex


class Predicate(Protocol):
    """Tells for which rows a transform is meant."""

    def holds(self, frame: Frame) -> pa.BooleanArray:
        """Return per row whether it holds, never null."""


@dataclass(frozen=True, slots=True)
class TopicNameMatches:
    """Whether an expression matches the whole topic, as routed so far.

    Attributes:
        pattern: The expression, as Java spells it.

    Raises:
        Terminal: not an expression.
    """

    pattern: str

    def __post_init__(self) -> None:
        java_regex(self.pattern)

    def holds(self, frame: Frame) -> pa.BooleanArray:
        """Return per row whether it holds."""
        pattern = java_regex(self.pattern)
        known = frame.topic.dictionary_encode()
        found = [pattern.fullmatch(topic) is not None for topic in known.dictionary.to_pylist()]
        return pa.array(found, pa.bool_()).take(known.indices)


@dataclass(frozen=True, slots=True)
class HasHeaderKey:
    """Whether the record has a header of a name.

    Attributes:
        name: The name, exactly.
    """

    name: str

    def holds(self, frame: Frame) -> pa.BooleanArray:
        """Return per row whether it holds."""
        return rows_with(frame.headers, self.name)


@dataclass(frozen=True, slots=True)
class RecordIsTombstone:
    """Whether the record came without value, and no transform gave it one."""

    def holds(self, frame: Frame) -> pa.BooleanArray:
        """Return per row whether it holds."""
        return tombstones(frame)


@dataclass(frozen=True, slots=True)
class Filter:
    """Leaves records out; they are counted as filtered. Made for `When`: alone it leaves out all of them."""

    def apply(self, frame: Frame) -> Transformed:
        """Leave all rows out."""
        return Transformed(frame.take(pa.array([], pa.int64())), filtered=frozenset(frame.positions.to_pylist()))


@dataclass(frozen=True, slots=True)
class When:
    """Applies a transform to the rows for which a predicate holds; the others go on as they are.

    All rows of a frame have the same fields. So where the transform adds, leaves out or renames fields, both kinds of rows
    get the fields of both, null where they have none: first those of the untouched rows, in their order, then the new ones.
    The same goes for the fields of the key.

    Attributes:
        transform: What to apply.
        predicate: For which rows.
        negate: Rather for the rows for which the predicate does not hold.
    """

    transform: Transform
    predicate: Predicate
    negate: bool = False

    def apply(self, frame: Frame) -> Transformed:
        """Transform the rows that are meant.

        Raises:
            Terminal: the transform gives a field another type, and some rows are untouched; or what the transform raises.
        """
        holds = self.predicate.holds(frame)
        meant = pc.invert(holds) if self.negate else holds
        touched = pc.indices_nonzero(meant).cast(pa.int64())
        if len(touched) == len(frame):
            return self.transform.apply(frame)
        if not len(touched):
            return Transformed(frame)
        done = self.transform.apply(frame.take(touched))
        others = frame.take(pc.indices_nonzero(pc.invert(meant)).cast(pa.int64()))
        return settled(_together(others, done.frame), done.dead, done.filtered)


@dataclass(frozen=True, slots=True)
class WithKey:
    """Applies a transform of keys to records that have one; the others go on as they are, as in Kafka Connect.

    Attributes:
        transform: What to apply.
    """

    transform: Transform

    def apply(self, frame: Frame) -> Transformed:
        """Transform the keys, if there are any.

        Raises:
            Terminal: what the transform raises.
        """
        return Transformed(frame) if frame.key is None else self.transform.apply(frame)


def _together(untouched: Frame, touched: Frame) -> Frame:
    """Return the rows of both by position, in one shape."""
    if not len(touched):
        return untouched
    both = Frame(
        _stacked(untouched.records, touched.records),
        pa.concat_arrays([untouched.positions, touched.positions]),
        pa.concat_arrays([untouched.topic, touched.topic]),
        _unified(untouched.value, touched.value),
        _unified_keys(untouched, touched),
        pa.concat_arrays([untouched.headers, touched.headers]),
    )
    return both.take(pc.sort_indices(both.positions).cast(pa.int64()))


def _stacked(above: pa.RecordBatch, below: pa.RecordBatch) -> pa.RecordBatch:
    columns = [pa.concat_arrays(pair) for pair in zip(above.columns, below.columns, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=above.schema)


def _unified_keys(untouched: Frame, touched: Frame) -> pa.RecordBatch | None:
    if untouched.key is None and touched.key is None:
        return None
    return _unified(_keys(untouched), _keys(touched))


def _keys(frame: Frame) -> pa.RecordBatch:
    return batch_of([], len(frame)) if frame.key is None else frame.key


def _unified(above: pa.RecordBatch, below: pa.RecordBatch) -> pa.RecordBatch:
    names = list(dict.fromkeys([*above.schema.names, *below.schema.names]))
    upper = {field.name: (field, values) for field, values in columns_of(above)}
    lower = {field.name: (field, values) for field, values in columns_of(below)}
    columns = []
    for name in names:
        field, values = upper.get(name) or _nulls(lower[name][0], above.num_rows)
        other, more = lower.get(name) or _nulls(field, below.num_rows)
        if field.type != other.type:
            raise _differ(name, field.type, other.type)
        columns.append((other if field.nullable is False else field, pa.concat_arrays([values, more])))
    return batch_of(columns, above.num_rows + below.num_rows, like=below)


def _nulls(field: pa.Field, rows: int) -> tuple[pa.Field, pa.Array]:
    return field.with_nullable(True), pa.nulls(rows, field.type)  # noqa: FBT003 - pyarrow has no name for it


def _differ(name: str, untouched: pa.DataType, touched: pa.DataType) -> Terminal:
    return Terminal(
        f"the field {name} becomes {touched} where `when` holds and is {untouched} elsewhere: one column can't be both",
        next_step="transform all records alike, or give the transformed field another name",
    )
