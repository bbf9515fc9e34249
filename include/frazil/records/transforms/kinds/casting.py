"""The transform that gives fields another type on purpose, also where that loses digits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

from frazil.records import pa, pc
from frazil.records.model.dead_letter import Reason
from frazil.records.model.frame import BARE, Frame, MissingField, Transformed
from frazil.records.transforms.definition import (
    KAFKA,
    ConnectClass,
    Names,
    TransformDefinition,
    option,
    pairs,
    target_option,
)
from frazil.records.transforms.fields import (
    Target,
    bare_column,
    describe_value,
    failure,
    fields_of,
    find,
    lacking,
    put_column,
    reject_all,
    select,
    with_fields,
)

if TYPE_CHECKING:
    from frazil.records.transforms.values import numbers

CAST_TYPES: Final = ("int8", "int16", "int32", "int64", "float32", "float64", "boolean", "string")
"""Types that fields can be cast to, in Kafka Connect's names."""


def _pairs(spec: object) -> object:
    return spec if isinstance(spec, str) and ":" not in spec else pairs(spec)


def _known_types(spec: dict[str, str] | str) -> dict[str, str] | str:
    types = [spec] if isinstance(spec, str) else list(spec.values())
    if not types:
        raise ValueError("nothing to cast")
    if unknown_types := sorted(set(types) - set(CAST_TYPES)):
        raise ValueError(f"{unknown_types[0]!r} is not a type to cast to; known: {', '.join(CAST_TYPES)}")
    return spec


@dataclass(frozen=True, slots=True)
class Cast(TransformDefinition):
    """Gives fields another type, also where that loses digits; what is out of range is a dead letter.

    As in Kafka Connect `1.9` becomes 1, `true` 1, a timestamp its milliseconds, anything a text. A record fails where a text is
    no number (or neither `true` nor `false`), and where a number is too large for its new type: Kafka Connect wraps such a
    number around, here no value changes unseen. int8 and int16 are ranges: such columns are int32. Fields that are not there do
    nothing.
    """

    connect_class: ClassVar = ConnectClass(f"{KAFKA}Cast")

    spec: dict[str, str] | str = option(
        "Types by fields: a mapping, or pairs `field:type`; or one type, for values without fields.",
        form=(_pairs, dict[str, str] | tuple[str, ...] | str),
        check=_known_types,
    )
    target: Target = target_option()

    def lacks(self, frame: Frame) -> Iterator[MissingField]:
        """Yield the configured fields that do not exist."""
        fields = fields_of(frame, self.target)
        if not isinstance(self.spec, str):
            yield from lacking(fields, "spec", self.spec)
        elif bare_column(fields) is None:
            yield MissingField(
                "spec",
                f"one type, {self.spec}, is for values without fields; there are {', '.join(fields.schema.names)}",
            )

    def apply(self, frame: Frame) -> Transformed:
        """Cast the fields."""
        fields = fields_of(frame, self.target)
        if isinstance(self.spec, str) and bare_column(fields) is None:
            return reject_all(frame, f"Cast: expected a value without fields to be {self.spec}, found fields")
        spec = {BARE: self.spec} if isinstance(self.spec, str) else self.spec
        failed: dict[int, Reason] = {}
        for name, cast_type in spec.items():
            values = find(fields, name, nested=False)
            if values is None:
                continue
            cast = _cast(values, cast_type)
            for row in cast.failed:
                actual = describe_value(values[row].as_py())
                failed.setdefault(row, failure(f"Cast: expected {cast_type}, found {actual}", name))
            fields = put_column(fields, name, cast.values)
        return select(with_fields(frame, self.target, fields), failed=failed)

    def referenced_names(self) -> Names:
        """Return the fields that are cast; one type alone is for values whose only field is called `value`."""
        return None if isinstance(self.spec, str) else self.spec


def _cast(values: pa.Array, cast_type: str) -> numbers.Cast:
    """Return values in another type; where it takes none of theirs, every row that has a value fails."""
    from frazil.records.transforms.values import numbers
    from frazil.records.transforms.values.texts import texts_of

    cast: numbers.Cast | None
    if cast_type == "string":
        texts = texts_of(values)
        cast = None if texts is None else numbers.Cast(texts)
    elif cast_type == "boolean":
        cast = numbers.to_booleans(values)
    elif cast_type.startswith("float"):
        cast = numbers.to_floats(values, float_type=pa.float32() if cast_type == "float32" else pa.float64())
    else:
        cast = numbers.to_integers(values, bits=int(cast_type.removeprefix("int")))
    return cast or numbers.Cast(values, pc.indices_nonzero(values.is_valid()).to_pylist())
