"""The transform that gives fields another type on purpose, also where that loses digits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final, Literal, get_args

import pyarrow as pa
import pyarrow.compute as pc

from frazil.error_codes import BAD_TRANSFORM
from frazil.records.model.dead_letter import Reason
from frazil.records.model.format import BARE
from frazil.records.model.frame import Frame, MissingField, Transformed
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
from frazil.records.transforms.values import numbers
from frazil.records.transforms.values.texts import texts_of

CastType = Literal["int8", "int16", "int32", "int64", "float32", "float64", "boolean", "string"]


@dataclass(frozen=True, slots=True)
class Cast:
    """Casts fields as Kafka Connect does: `1.9` becomes 1, `true` 1, a timestamp its milliseconds, anything a text.

    A record fails where a text is no number (or neither `true` nor `false`), and where a number is too large for its new
    type: Kafka Connect wraps such a number around, here no value changes unseen. int8 and int16 are ranges: such columns
    are int32. Fields that are not there do nothing.

    Attributes:
        spec: Types by the names of fields; or one type, for values without fields.
        target: Values or keys.

    Raises:
        Terminal: no type, or one that is not known.
    """

    spec: Mapping[str, CastType] | CastType
    target: Target = "value"

    def __post_init__(self) -> None:
        cast_types = [self.spec] if isinstance(self.spec, str) else list(self.spec.values())
        if unknown_types := sorted(set(cast_types) - set(get_args(CastType))):
            raise BAD_TRANSFORM.terminal(
                f"Cast: {unknown_types[0]!r} is not a type to cast to",
                next_step=f"known: {', '.join(get_args(CastType))}",
            )
        if not cast_types:
            raise BAD_TRANSFORM.terminal("Cast: nothing to cast", next_step="name fields and their types under spec")

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
            cast = _CASTS[cast_type](values) or _uncastable(values)
            for row in cast.failed:
                actual = describe_value(values[row].as_py())
                failed.setdefault(row, failure(f"Cast: expected {cast_type}, found {actual}", name))
            fields = put_column(fields, name, cast.values)
        return select(with_fields(frame, self.target, fields), failed=failed)


def _uncastable(values: pa.Array) -> numbers.Cast:
    """Fail every row that has a value."""
    return numbers.Cast(values, pc.indices_nonzero(values.is_valid()).to_pylist())


def _strings(values: pa.Array) -> numbers.Cast | None:
    texts = texts_of(values)
    return None if texts is None else numbers.Cast(texts)


_CASTS: Final[dict[str, Callable[[pa.Array], numbers.Cast | None]]] = {
    "int8": partial(numbers.to_integers, bits=8),
    "int16": partial(numbers.to_integers, bits=16),
    "int32": partial(numbers.to_integers, bits=32),
    "int64": partial(numbers.to_integers, bits=64),
    "float32": partial(numbers.to_floats, float_type=pa.float32()),
    "float64": partial(numbers.to_floats, float_type=pa.float64()),
    "boolean": numbers.to_booleans,
    "string": _strings,
}
