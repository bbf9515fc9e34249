"""Transforms only for some records: predicates, `When`, and leaving records out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from frazil.records.model.frame import Frame, Transform, Transformed
from frazil.records.model.late import pa, pc
from frazil.records.transforms.chain import combine_outcomes
from frazil.records.transforms.fields import tombstones
from frazil.records.transforms.patterns import WholeMatch


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
        WholeMatch(self.pattern)

    def holds(self, frame: Frame) -> pa.BooleanArray:
        """Return per row whether it holds."""
        topics = frame.topic.dictionary_encode()
        return WholeMatch(self.pattern).holds(topics.dictionary).take(topics.indices)


@dataclass(frozen=True, slots=True)
class HasHeaderKey:
    """Whether the record has a header of a name.

    Attributes:
        name: The name, exactly.
    """

    name: str

    def holds(self, frame: Frame) -> pa.BooleanArray:
        """Return per row whether it holds."""
        from frazil.records.transforms.header_lists import has_header

        return has_header(frame.headers, self.name)


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

    Where the transform adds, leaves out or renames fields, or gives them another type, both kinds of rows go on in frames of
    their own: a record has the fields that it would have alone.

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
            Terminal: what the transform raises.
        """
        holds = self.predicate.holds(frame)
        is_selected = pc.invert(holds) if self.negate else holds
        selected_rows = pc.indices_nonzero(is_selected).cast(pa.int64())
        if len(selected_rows) == len(frame):
            return self.transform.apply(frame)
        if not len(selected_rows):
            return Transformed(frame)
        done = self.transform.apply(frame.take(selected_rows))
        untouched = frame.take(pc.indices_nonzero(pc.invert(is_selected)).cast(pa.int64()))
        return combine_outcomes((untouched, *done.frames), done.dead, done.filtered)


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
