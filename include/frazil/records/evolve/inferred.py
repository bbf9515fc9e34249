"""JSON objects whose fields nobody declared, as columns: for transforms, which come before the columns of the table.

Values that agree about the type of each field are decoded together, so that one value never changes what another becomes: an
integer beside a fraction stays an integer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pyarrow as pa

from frazil.records.dead import Reason, Rejection
from frazil.records.evolve.types import leaves, number_evidence, settled
from frazil.records.evolve.widest import Widest
from frazil.records.fit.source import Kind, kind_of
from frazil.records.formats.port import Decoded, Shaped
from frazil.records.json.convert import check_characters
from frazil.records.json.exact import parse_object
from frazil.records.json.names import folded
from frazil.records.json.number import Number, scaled
from frazil.records.json.text import JsonValue
from frazil.records.json.values import JsonValues
from frazil.records.spec import RecordSpec

_SHAPES: Final = 64
"""Shapes of which the decoder is kept."""

_FEW: Final = 16
"""Values of a shape that are decoded one by one: preparing a block takes longer."""

_MOST_FIELDS: Final = 500
"""Of an object whose values are decoded together: objects with keys that are data have ever new ones."""

_LAST: Final = 64
"""Shapes, the last ones, among which that of a value is sought."""

_MOST_DIGITS: Final = 38

_NULL: Final = pa.null()


class InferredJson:
    """Decodes JSON objects into the fields that they have; a `frazil.records.formats.port.Format`.

    Args:
        spec: What is wanted of the values.
        known: Fields of which decimals are read as such, since a double has fewer digits.
        blocks: Whether values may be parsed as blocks where that is exact.
    """

    def __init__(self, spec: RecordSpec, known: pa.Schema, *, blocks: bool = True) -> None:
        self._spec: Final = spec
        self._blocks: Final = blocks
        self._fold: Final = spec.fold
        self._is_transformed: Final = bool(spec.transforms)
        self._columns: Final = {self._key(column.name): column.type for column in known}
        self._decoders: Final[dict[tuple[pa.Schema, bool], JsonValues]] = {}

    def decode(self, values: pa.BinaryArray) -> Decoded:
        """Decode values, none of them null. No value makes this fail."""
        dead: dict[int, Reason] = {}
        kinds: list[tuple[pa.StructType, list[int]]] = []
        for position, raw in enumerate(values.to_pylist()):
            try:
                found = self._fields(self._parsed(raw), self._columns)
            except Rejection as verdict:
                dead[position] = verdict.reason
                continue
            self._sort(found, position, kinds)
        groups = []
        for of, positions in kinds:
            places = pa.array(positions, pa.int64())
            shaped, failed = self._group(of, values.take(places))
            groups.append(Shaped(shaped.columns, places.take(shaped.positions)))
            dead |= {positions[at]: reason for at, reason in failed.items()}
        return Decoded(tuple(group for group in groups if len(group.positions)), dict(sorted(dead.items())))

    def _parsed(self, raw: bytes) -> dict[str, JsonValue]:
        repeated = self._spec.duplicate_keys == "last"
        value = parse_object(raw, repeated_keys=repeated, in_order=self._fold is not None)
        if self._fold == "dead_letter":
            folded(value, {name.casefold() for name in value}, self._fold)
        return value

    def _key(self, name: str) -> str:
        return name if self._fold is None else name.casefold()

    def _sort(self, found: pa.StructType, position: int, kinds: list[tuple[pa.StructType, list[int]]]) -> None:
        """Put a value to those that it agrees with. Objects inside must have the same fields: texts are made of them.

        Before transforms it must have the very same fields itself: it would get nulls from its neighbours, which `Explode`
        or a renamed field tells apart from nothing.
        """
        for at in range(len(kinds) - 1, max(-1, len(kinds) - 1 - _LAST), -1):
            of, positions = kinds[at]
            agrees = None if self._is_transformed else self._agreed_fields(of, found, inner=False)
            both = of if of == found else agrees
            if both is not None:
                kinds[at] = both, positions
                positions.append(position)
                return
        kinds.append((found, [position]))

    def _fields(self, value: Mapping[str, JsonValue], columns: Mapping[str, pa.DataType]) -> pa.StructType:
        last = {self._key(name): name for name in value}
        for name in last.values():
            if not name.isascii():
                check_characters(name)
        fields = [pa.field(name, self._type(value[name], columns.get(key, _NULL))) for key, name in last.items()]
        return pa.struct(sorted(fields, key=lambda field: field.name))

    def _type(self, value: JsonValue, column: pa.DataType) -> pa.DataType:
        """Return the type of a value, next to that of the column of its name."""
        if isinstance(value, dict):
            is_struct = kind_of(column) is Kind.STRUCT
            return self._fields(value, {self._key(of.name): of.type for of in column} if is_struct else {})
        if isinstance(value, list):
            element = column.value_type if kind_of(column) is Kind.LIST else _NULL
            return pa.list_(self._element(value, element))
        if isinstance(value, Number):
            if kind_of(column) is Kind.DECIMAL:
                return _decimal(value, column)
            return _number_type(value)
        if isinstance(value, bool):
            return pa.bool_()
        return _NULL if value is None else pa.string()

    def _element(self, items: list[JsonValue], column: pa.DataType) -> pa.DataType:
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
        if left in {right, _NULL}:
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
