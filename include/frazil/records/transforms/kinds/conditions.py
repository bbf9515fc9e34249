"""Conditions on records: predicates, `When` and `WithKey`, which apply a transform to some rows, and `Filter`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from frazil.records import pa, pc
from frazil.records.model.format import Frame, Transform, Transformed
from frazil.records.transforms.chain import combine_outcomes
from frazil.records.transforms.definition import KAFKA, ConnectClass, Names, Predicate, TransformDefinition, option
from frazil.records.transforms.fields import WholeMatch, tombstones
from frazil.records.transforms.kinds.nested import Flatten


@dataclass(frozen=True, slots=True)
class TopicNameMatches(Predicate):
    """Records whose topic, as routed so far, matches an expression as a whole."""

    pattern: str = option("Regular expression of RE2; named groups as Java spells them.", form="expression")

    def prepare(self) -> None:
        """Refuse an expression that RE2 does not support."""
        WholeMatch(self.pattern)

    def holds(self, frame: Frame) -> pa.BooleanArray:
        """Return, per row, whether the condition holds."""
        topics = frame.topic.dictionary_encode()
        return WholeMatch(self.pattern).holds(topics.dictionary).take(topics.indices)


@dataclass(frozen=True, slots=True)
class HasHeaderKey(Predicate):
    """Records that have a header."""

    name: str = option("Name of the header.", min_length=1)

    def holds(self, frame: Frame) -> pa.BooleanArray:
        """Return, per row, whether the condition holds."""
        from frazil.records.transforms.header_lists import has_header

        return has_header(frame.headers, self.name)


@dataclass(frozen=True, slots=True)
class HeaderMatches(Predicate):
    """Records whose header, a UTF-8 text, matches an expression as a whole. Of several headers of the name the last one counts."""

    name: str = option("Name of the header.", min_length=1)
    pattern: str = option("Regular expression of RE2; named groups as Java spells them.", form="expression")

    def prepare(self) -> None:
        """Refuse an expression that RE2 does not support."""
        WholeMatch(self.pattern)

    def holds(self, frame: Frame) -> pa.BooleanArray:
        """Return, per row, whether the condition holds."""
        from frazil.records.transforms.header_lists import header_texts

        texts = header_texts(frame.headers, self.name).dictionary_encode()
        matching = WholeMatch(self.pattern).holds(texts.dictionary).take(texts.indices)
        return pc.fill_null(matching, fill_value=False)


@dataclass(frozen=True, slots=True)
class RecordIsTombstone(Predicate):
    """Records without value. They never reach transforms, so only `negate: true` is allowed: all records that have a value."""

    needs_negation: ClassVar = (
        "RecordIsTombstone would never hold: value.null_value decides about records without value before transforms; leave the"
        " transform out, or write negate: true"
    )

    def holds(self, frame: Frame) -> pa.BooleanArray:
        """Return, per row, whether the condition holds."""
        return tombstones(frame)


@dataclass(frozen=True, slots=True)
class Filter(TransformDefinition):
    """Leaves out the records that `when` selects; they are counted as filtered."""

    connect_class: ClassVar = ConnectClass(f"{KAFKA}Filter")
    uses_fields: ClassVar = False
    needs_condition: ClassVar = "without `when` it would leave out every record"

    def apply(self, frame: Frame) -> Transformed:
        """Leave out all records; `When` calls it with those that the condition selects."""
        return Transformed(frame.take(pa.array([], pa.int64())), filtered=frozenset(frame.positions.to_pylist()))


@dataclass(frozen=True, slots=True)
class When:
    """Applies a transform to the rows for which a predicate holds; the others continue unchanged.

    If the transform changes names or types of fields, changed and unchanged rows continue in separate frames: each record has the
    fields that it would have if it were alone.
    """

    transform: Transform
    predicate: Predicate
    negate: bool = False

    def apply(self, frame: Frame) -> Transformed:
        """Transform the selected rows.

        Raises:
            Terminal: The transform raises it.
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
    """Applies a transform of keys to records that have a key; the others continue unchanged, as in Kafka Connect."""

    transform: Transform

    def apply(self, frame: Frame) -> Transformed:
        """Transform the keys, if there are any.

        Raises:
            Terminal: The transform raises it.
        """
        return Transformed(frame) if frame.key is None else self.transform.apply(frame)


def named_fields(transforms: Sequence[Transform]) -> frozenset[str] | None:
    """Return the casefolded names of the fields that transforms read or write; None if a transform reads all fields.

    Each other field passes through or is left out, whatever the rest of the record is. An own transform counts as reading all.
    """
    folded_names: set[str] = set()
    for transform in transforms:
        names = _names(transform)
        if names is None:
            return None
        folded_names.update(name.casefold() for name in names if name)
    return frozenset(folded_names)


def _names(transform: Transform) -> Names:
    if isinstance(transform, WithKey):
        return ()
    if isinstance(transform, When):
        # The decoder itself handles a Flatten of all records, but not one under a condition.
        return None if isinstance(transform.transform, Flatten) else _names(transform.transform)
    # An own transform may inherit from one of Frazil's, and read more than the inherited method says.
    if not isinstance(transform, TransformDefinition) or not type(transform).__module__.startswith(f"{__package__}."):
        return None
    return transform.referenced_names()
