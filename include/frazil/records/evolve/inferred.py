"""JSON objects whose fields nobody declared, as columns: for transforms, which come before the columns of the table.

Values that agree about the type of each field are decoded together, so that one value never changes what another becomes: an
integer beside a fraction stays an integer.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

import pyarrow as pa

from frazil.records.dead import DeadCode, Reason, Rejection
from frazil.records.evolve.types import leaves, number_evidence, settled
from frazil.records.evolve.widest import Widest
from frazil.records.fit.source import Kind, kind_of
from frazil.records.formats.port import Decoded, Shaped
from frazil.records.json.convert import check_characters
from frazil.records.json.exact import parse_object
from frazil.records.json.names import folded
from frazil.records.json.number import Number, scaled
from frazil.records.json.text import JsonValue, describe
from frazil.records.json.values import JsonValues
from frazil.records.spec import RecordSpec

_SHAPES: Final = 64
"""Shapes of which the decoder is kept."""

_FEW: Final = 16
"""Values of a shape that are decoded one by one: preparing a block takes longer."""

_MOST_FIELDS: Final = 500
"""Of an object whose values are decoded together: objects with keys that are data have ever new ones."""

_MOST_NAMES: Final = 2_000
"""Of fields that no column has, in values that are decoded together; `max_columns`, if that is more."""

_MOST_SHAPES: Final = 250
"""Shapes that bring such names: each one is prepared for itself, and the longer the more columns there are."""

_MOST_CELLS: Final = _MOST_SHAPES * 250
"""Shapes that bring such names times the columns, those in structs counted one by one."""

_LAST: Final = 64
"""Shapes, the last ones, among which that of a value is sought."""

_MOST_DIGITS: Final = 38

_NULL: Final = pa.null()

_Fields = dict[str, tuple[str, pa.DataType]]
"""Names and types of the fields of a value by name, or by folded name."""


class _Known(NamedTuple):
    """What is known of a field: its type, and that of the parts of it."""

    type: pa.DataType
    kind: Kind
    fields: Mapping[str, _Known]
    element: _Known | None = None


_UNKNOWN: Final = _Known(_NULL, Kind.NULL, {})


@dataclass
class _Shape:
    """Values that are decoded together.

    Attributes:
        fields: Their names and types by folded name; by name if `is_closed`.
        positions: Of the values.
        is_closed: Whether two of the names differ in case only: then no value joins that has other fields.
    """

    fields: _Fields
    positions: list[int]
    is_closed: bool


class InferredJson:
    """Decodes JSON objects into the fields that they have; a `frazil.records.formats.port.Format`.

    Args:
        spec: What is wanted of the values.
        known: Fields of which decimals are read as such, since a double has fewer digits.
        exact: Folded names of fields that are not the same to what comes behind if they are null or not there; None: all.
        blocks: Whether values may be parsed as blocks where that is exact.
    """

    def __init__(
        self, spec: RecordSpec, known: pa.Schema, exact: Collection[str] | None = None, *, blocks: bool = True
    ) -> None:
        self._spec: Final = spec
        self._blocks: Final = blocks
        self._fold: Final = spec.fold
        self._exact: Final = exact
        self._is_transformed: Final = bool(spec.transforms)
        self._columns: Final = {self._key(column.name): self._known(column.type) for column in known}
        self._most_names: Final = max(_MOST_NAMES, 0 if spec.evolution is None else spec.evolution.max_columns)
        columns = sum(1 for column in known for _ in leaves(column.type))
        self._most_shapes: Final = min(_MOST_SHAPES, 1 + _MOST_CELLS // max(1, columns))
        self._decoders: Final[dict[tuple[pa.Schema, bool], JsonValues]] = {}

    def decode(self, values: pa.BinaryArray) -> Decoded:
        """Decode values, none of them null. No value makes this fail."""
        dead: dict[int, Reason] = {}
        shapes: list[_Shape] = []
        names: set[str] = set()
        brought = 0
        for position, raw in enumerate(values.to_pylist()):
            try:
                value = self._parsed(raw)
                new = self._names(value, self._columns, set(), is_top=True) - names
                if len(names) + len(new) > self._most_names:
                    raise _too_many(new, f"{self._most_names:,} names")
                found = self._fields(value, self._columns, is_top=True)
                if self._put(found, position, shapes) and new:
                    brought += 1
                    if brought > self._most_shapes:
                        shapes.pop()
                        raise _too_many(new, f"{self._most_shapes} shapes with names")
                names |= new
            except Rejection as verdict:
                dead[position] = verdict.reason
        groups = []
        for shape in shapes:
            places = pa.array(shape.positions, pa.int64())
            shaped, failed = self._group(_struct(shape.fields.values()), values.take(places))
            groups.append(Shaped(shaped.columns, places.take(shaped.positions)))
            dead |= {shape.positions[at]: reason for at, reason in failed.items()}
        return Decoded(tuple(group for group in groups if len(group.positions)), dict(sorted(dead.items())))

    def _parsed(self, raw: bytes) -> dict[str, JsonValue]:
        repeated = self._spec.duplicate_keys == "last"
        value = parse_object(raw, repeated_keys=repeated, in_order=self._fold is not None)
        if self._fold == "dead_letter":
            folded(value, {name.casefold() for name in value}, self._fold)
        return value

    def _key(self, name: str) -> str:
        return name if self._fold is None else name.casefold()

    def _known(self, of: pa.DataType) -> _Known:
        kind = kind_of(of)
        fields = {self._key(field.name): self._known(field.type) for field in of} if kind is Kind.STRUCT else {}
        return _Known(of, kind, fields, self._known(of.value_type) if kind is Kind.LIST else None)

    def _names(
        self, value: JsonValue, columns: Mapping[str, _Known], found: set[str], *, is_top: bool = False
    ) -> set[str]:
        """Add the names in a value that no column has to those that were found."""
        if isinstance(value, list):
            for item in value:
                self._names(item, columns, found)
        elif isinstance(value, dict):
            keys = value if self._fold is None else {name.casefold(): item for name, item in value.items()}
            found |= keys.keys() - columns.keys()
            for key, item in keys.items():
                if isinstance(item, dict | list):
                    known = columns.get(key, _UNKNOWN)
                    while known.element is not None:
                        known = known.element
                    is_whole = (
                        is_top and self._is_whole(key, known) and not pa.types.is_struct(self._whole(item, known))
                    )
                    if not is_whole:
                        self._names(item, known.fields, found)
        return found

    def _is_whole(self, key: str, known: _Known) -> bool:
        """Return whether an object is taken as a whole: its column is a map or a text, and nothing looks into it before."""
        return known.kind in {Kind.MAP, Kind.TEXT} and self._exact is not None and key.casefold() not in self._exact

    def _put(self, found: _Fields, position: int, shapes: list[_Shape]) -> bool:
        """Put a value to those that it agrees with, or return whether it is the first of its shape.

        Objects inside must have the same fields: texts are made of them. Fields that transforms look at must be the very same
        ones: a value would get nulls from its neighbours, which `Explode` or a renamed field tells apart from nothing.
        """
        keyed = {name.casefold(): each for name, each in found.items()}
        is_closed = len(keyed) < len(found)
        fields = found if is_closed else keyed
        for shape in reversed(shapes[-_LAST:]):
            if shape.is_closed == is_closed and (
                shape.fields == fields or (not is_closed and self._agree(shape, fields))
            ):
                shape.positions.append(position)
                return False
        shapes.append(_Shape(fields, [position], is_closed))
        return True

    def _agree(self, shape: _Shape, fields: _Fields) -> bool:
        """Add fields to those of a shape, if they agree."""
        if self._exact is None:
            return False
        wider: _Fields = {}
        for key, (name, of) in fields.items():
            known = shape.fields.get(key)
            if known is None or known[1] != of:
                both = of if known is None else self._both(known[1], of)
                if both is None or key in self._exact or (known is not None and known[0] != name):
                    return False
                wider[key] = name, both
            elif known[0] != name:
                return False
        size = len(shape.fields.keys() | wider.keys())
        if size > max(_MOST_FIELDS, len(fields), len(shape.fields)) or any(
            key in shape.fields and key not in fields for key in self._exact
        ):
            return False
        shape.fields.update(wider)
        return True

    def _both(self, left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
        """Return the type of two values of one field, or None: null is nothing, also where the other has a value."""
        # Before transforms what is inside tells its own type: a null or `[]` must not get one from a neighbour.
        is_exact = self._is_transformed and _NULL not in (left, right)
        return None if is_exact else self._agreed(left, right, union=False)

    def _fields(
        self, value: Mapping[str, JsonValue], columns: Mapping[str, _Known], *, is_top: bool = False
    ) -> _Fields:
        last = {self._key(name): name for name in value}
        found: _Fields = {}
        for key, name in last.items():
            if not name.isascii():
                check_characters(name)
            known, item = columns.get(key, _UNKNOWN), value[name]
            is_whole = is_top and isinstance(item, dict | list) and self._is_whole(key, known)
            found[name] = name, self._whole(item, known) if is_whole else self._type(item, known)
        return found

    def _whole(self, value: JsonValue, known: _Known) -> pa.DataType:
        """Return the type of an object for a column that is a map or a text: keys that are data are no names."""
        if known.kind is Kind.TEXT:
            return pa.string()
        if not isinstance(value, dict) or not pa.types.is_string(known.type.key_type):
            return self._type(value, _UNKNOWN)
        of = self._element(list(value.values()), self._known(known.type.item_type))
        # Values of several kinds would be texts there, and stay what they are as fields.
        is_map = all(isinstance(item, str) for item in value.values()) if pa.types.is_string(of) else bool(value)
        return pa.map_(pa.string(), of) if is_map and not _has_gaps(of) else self._type(value, _UNKNOWN)

    def _type(self, value: JsonValue, column: _Known) -> pa.DataType:
        """Return the type of a value, next to that of the column of its name."""
        if isinstance(value, dict):
            return _struct(self._fields(value, column.fields).values())
        if isinstance(value, list):
            return pa.list_(self._element(value, column.element or _UNKNOWN))
        if isinstance(value, Number):
            if column.kind is Kind.DECIMAL:
                return _decimal(value, column.type)
            return _number_type(value)
        if isinstance(value, bool):
            return pa.bool_()
        return _NULL if value is None else pa.string()

    def _element(self, items: list[JsonValue], column: _Known) -> pa.DataType:
        """Return the type of the items of a list: what all agree about, else a compromise, which some may not fit."""
        found = list(dict.fromkeys(self._type(item, column) for item in items)) or [_NULL]
        if (agreed := self._all_agreed(found)) is not None:
            return agreed
        met = Widest(self._fold is not None)
        for of in found:
            met.take(of)
        made = settled(met.type)
        return pa.string() if made == _NULL or sum(1 for _ in leaves(made)) > _MOST_FIELDS else made

    def _all_agreed(self, found: list[pa.DataType]) -> pa.DataType | None:
        if len(found) == 1:
            return found[0]
        middle = len(found) // 2
        left, right = self._all_agreed(found[:middle]), self._all_agreed(found[middle:])
        return None if left is None or right is None else self._agreed(left, right, union=True)

    def _agreed(self, left: pa.DataType, right: pa.DataType, *, union: bool) -> pa.DataType | None:
        """Return the type of both without a compromise, or None; with `union` objects may have different fields."""
        if left in (right, _NULL):  # a set would write both as text
            return right
        if right == _NULL:
            return left
        kinds = {kind_of(left), kind_of(right)}
        if kinds == {Kind.LIST}:
            element = self._agreed(left.value_type, right.value_type, union=union)
            return None if element is None else pa.list_(element)
        if kinds != {Kind.STRUCT} or not (union or {of.name for of in left} == {of.name for of in right}):
            return None
        return self._agreed_fields(left, right, inner=union)

    def _agreed_fields(self, left: pa.StructType, right: pa.StructType, *, inner: bool) -> pa.DataType | None:
        found = {self._key(field.name): field for field in left}
        for field in right:
            known = found.setdefault(self._key(field.name), field)
            both = self._agreed(known.type, field.type, union=inner)
            if both is None or known.name != field.name:
                return None
            found[self._key(field.name)] = field.with_type(both)
        if len(found) > max(_MOST_FIELDS, len(left), len(right)):
            return None
        return pa.struct(sorted(found.values(), key=lambda field: field.name))

    def _group(self, of: pa.StructType, values: pa.BinaryArray) -> tuple[Shaped, Mapping[int, Reason]]:
        schema = pa.schema([field for field in of if field.type != _NULL])
        if not schema.names:  # nothing but nulls
            block = pa.RecordBatch.from_struct_array(pa.array([{}] * len(values), of))
            return Shaped(block, pa.arange(0, len(values))), {}
        block_, dead = self._decoder(schema, blocks=self._blocks and len(values) > _FEW).rows(values)
        nulls = [field for field in of if field.type == _NULL]
        columns = [*block_.rows.columns, *(pa.nulls(len(block_.rows)) for _ in nulls)]
        return Shaped(pa.RecordBatch.from_arrays(columns, schema=pa.schema([*schema, *nulls])), block_.positions), dead

    def _decoder(self, schema: pa.Schema, *, blocks: bool) -> JsonValues:
        key = schema, blocks
        if key not in self._decoders:
            if len(self._decoders) >= _SHAPES:
                del self._decoders[next(iter(self._decoders))]
            # Nobody declared these fields: a text of items of several kinds takes each of them as its JSON text.
            options = RecordSpec(
                schema,
                duplicate_keys=self._spec.duplicate_keys,
                casts=self._spec.casts,
                kafka_columns=None,
                declared=frozenset(),
            )
            blocks = blocks and not any(_has_gaps(field.type) for field in schema)
            self._decoders[key] = JsonValues(options, blocks=blocks)
        return self._decoders[key]


def _struct(fields: Iterable[tuple[str, pa.DataType]]) -> pa.StructType:
    return pa.struct([pa.field(name, of) for name, of in sorted(fields, key=lambda each: each[0])])


def _too_many(new: Collection[str], most: str) -> Rejection:
    others = f" and {len(new) - 1:,} more" if len(new) > 1 else ""
    message = f"expected at most {most} that no column has in records that are decoded together, found {describe(min(new))}{others}"
    return Rejection(DeadCode.TOO_MANY_NAMES, message)


def _decimal(value: Number, column: pa.Decimal128Type) -> pa.DataType:
    """Return the type of a column, or one with more digits for a number that is too large for it."""
    digits = scaled(value).magnitude + column.scale
    return pa.decimal128(_MOST_DIGITS, column.scale) if column.precision < digits <= _MOST_DIGITS else column


def _number_type(value: Number) -> pa.DataType:
    """Return the type that holds a number: long or double, else decimal."""
    return settled(number_evidence(value))


def _has_gaps(of: pa.DataType) -> bool:
    """Return whether a type has parts that no value told."""
    match kind_of(of):
        case Kind.STRUCT:
            return not of.num_fields or any(_has_gaps(field.type) for field in of)
        case Kind.LIST:
            return _has_gaps(of.value_type)
    return bool(of == _NULL)
