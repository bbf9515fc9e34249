"""JSON objects whose fields nobody declared, as columns: for transforms, which come before the columns of the table.

Values that agree about the type of each field are decoded together, so that one value never changes what another becomes: an
integer beside a fraction stays an integer.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

import pyarrow as pa

from frazil.records.casting.source import Kind, kind_of
from frazil.records.evolution.agreement import EXACT, Agreement, Leaves, NestedTypes, Path, ShapeGroups
from frazil.records.evolution.types import leaves, number_evidence, settled
from frazil.records.evolution.widest import Widest
from frazil.records.json.convert import check_characters
from frazil.records.json.exact import parse_object
from frazil.records.json.names import folded
from frazil.records.json.values import JsonValues
from frazil.records.model.dead_letter import DeadCode, Reason, Rejection
from frazil.records.model.format import Decoded, Shaped
from frazil.records.model.json_number import Number, is_held, scaled
from frazil.records.model.json_text import JsonValue, describe
from frazil.records.model.spec import RecordSpec

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

_MOST_DIGITS: Final = 38

_NULL: Final = pa.null()
_LONG: Final = pa.int64()
_LONG_DIGITS: Final = 18
"""So many digits are surely a long."""

_DOUBLE: Final = pa.float64()
_NOTHING: Final = pa.struct([])
_NULLS: Final = pa.list_(_NULL)
_LISTS: Final = frozenset(map(pa.list_, (pa.bool_(), pa.int64(), pa.float64(), pa.string())))
"""Types of columns that lists of JSON values have as well."""


class _Known(NamedTuple):
    """What is known of a field: its type, that of the parts of it, and whether it is a struct whose fields may be null."""

    type: pa.DataType
    kind: Kind
    fields: Mapping[str, _Known]
    element: _Known | None = None
    is_open: bool = False


_UNKNOWN: Final = _Known(_NULL, Kind.NULL, {})


class InferredJson:
    """Decodes JSON objects into the fields that they have; a `frazil.records.model.format.Format`.

    Args:
        spec: What is wanted of the values.
        known: Fields of which decimals are read as such, since a double has fewer digits.
        agreement: Which fields of values that are decoded together may differ.
        blocks: Whether values may be parsed as blocks where that is exact.
    """

    def __init__(
        self, spec: RecordSpec, known: pa.Schema, agreement: Agreement = EXACT, *, blocks: bool = True
    ) -> None:
        self._spec: Final = spec
        self._blocks: Final = blocks
        self._fold: Final = spec.fold
        self._agreement: Final = agreement
        self._is_transformed: Final = bool(spec.transforms)
        self._columns: Final = {self._key(column.name): self._known(column.type) for column in known}
        self._most_names: Final = max(_MOST_NAMES, 0 if spec.evolution is None else spec.evolution.max_columns)
        columns = sum(1 for column in known for _ in leaves(column.type))
        self._most_shapes: Final = min(_MOST_SHAPES, 1 + _MOST_CELLS // max(1, columns))
        self._nested: Final = NestedTypes()
        self._decoders: Final[dict[tuple[pa.Schema, bool], JsonValues]] = {}

    def decode(self, values: pa.BinaryArray) -> Decoded:
        """Decode values, none of them null. No value makes this fail."""
        dead: dict[int, Reason] = {}
        groups = ShapeGroups(self._agreement, self._both, _MOST_FIELDS)
        names: set[str] = set()
        brought = 0
        for position, raw in enumerate(values.to_pylist()):
            try:
                value = self._parsed(raw)
                new = self._names(value, self._columns, set(), is_top=True) - names
                if len(names) + len(new) > self._most_names:
                    raise _too_many(new, f"{self._most_names:,} names")
                if groups.put(self._leaves(value), position) and new:
                    brought += 1
                    if brought > self._most_shapes:
                        groups.drop_last()
                        raise _too_many(new, f"{self._most_shapes} shapes with names")
                names |= new
            except Rejection as verdict:
                dead[position] = verdict.reason
        decoded = []
        for group in groups.all:
            places = pa.array(group.positions, pa.int64())
            shaped, failed = self._group(group.type, values.take(places))
            decoded.append(Shaped(shaped.columns, places.take(shaped.positions)))
            dead |= {group.positions[at]: reason for at, reason in failed.items()}
        return Decoded(tuple(group for group in decoded if len(group.positions)), dict(sorted(dead.items())))

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
        is_open = kind is Kind.STRUCT and all(field.nullable for field in of)
        return _Known(of, kind, fields, self._known(of.value_type) if kind is Kind.LIST else None, is_open)

    def _names(
        self, value: JsonValue, columns: Mapping[str, _Known], found: set[str], *, is_top: bool = False
    ) -> set[str]:
        """Add the names in a value that no column has to those that were found."""
        if isinstance(value, list):
            for item in value:
                if item and isinstance(item, dict | list):
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
        return known.kind in {Kind.MAP, Kind.TEXT} and self._agreement.place((key,)).takes_whole

    def _both(self, left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
        """Return the type of two values of one field, or None: null is nothing, also where the other has a value."""
        # Before transforms what is inside tells its own type: a null or `[]` must not get one from a neighbour.
        is_exact = self._is_transformed and _NULL not in (left, right)
        return None if is_exact else self._agreed(left, right, union=False)

    def _leaves(self, value: Mapping[str, JsonValue]) -> Leaves:
        """Return the types of the fields of a value by their paths: objects that neighbours may have other fields of are open."""
        leaves = Leaves()
        self._open(value, self._columns, (), leaves)
        return leaves

    def _open(self, value: Mapping[str, JsonValue], columns: Mapping[str, _Known], outer: Path, leaves: Leaves) -> None:
        for key, name in self._last_names(value).items():
            known, item, path = columns.get(key, _UNKNOWN), value[name], (*outer, name)
            if not outer and isinstance(item, dict | list) and self._is_whole(key, known):
                leaves.types[path] = self._whole(item, known)
            elif isinstance(item, dict) and item and self._agreement.place(path).is_opened:
                leaves.opened.add(path)
                self._open(item, known.fields, path, leaves)
            else:
                self._close(item, path, known, leaves)

    def _close(self, item: JsonValue, path: Path, known: _Known, leaves: Leaves) -> None:
        """Add a field: as its column has it, if all of it fits there."""
        place = self._agreement.place(path)
        is_flattened = isinstance(item, dict) and place.is_opened  # one without fields stays what it is
        if place.takes_column and not is_flattened:
            delimiter = self._agreement.delimiter
            column = known if delimiter is None else self._columns.get(self._key(delimiter.join(path)))
            if column is not None and (fitting := self._fitting(item, path, column)) is not None:
                leaves.types |= fitting.types
                leaves.opened |= fitting.opened
                return
        leaves.types[path] = self._type(item, known)

    def _fitting(self, value: JsonValue, path: Path, column: _Known) -> Leaves | None:
        """Return the fields of a value that is what a column holds; None: some are not, and may become a text with the others.

        In a column null is the same as nothing, in a text not.
        """
        if not isinstance(value, dict):
            of = self._type(value, column)
            if of in (column.type, _NULL):  # a set would write both as text
                return Leaves({path: of})
            if (of == _NULLS and column.type in _LISTS) or (
                of == _LONG and column.type == _DOUBLE and _is_double(value)
            ):
                return Leaves({path: column.type})
            return None
        if not column.is_open:
            return None
        leaves = Leaves({}, {path})
        for key, name in self._last_names(value).items():
            within = self._fitting(value[name], (*path, name), column.fields[key]) if key in column.fields else None
            if within is None:
                return None
            leaves.types |= within.types
            leaves.opened |= within.opened
        return leaves

    def _last_names(self, value: Mapping[str, JsonValue]) -> dict[str, str]:
        """Return the names of the fields by their keys, of each key the last one."""
        for name in value:
            if not name.isascii():
                check_characters(name)
        return {self._key(name): name for name in value}

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
            return self._object(value, column) if value else _NOTHING
        if isinstance(value, list):
            return self._nested.list_of(self._element(value, column.element or _UNKNOWN))
        if isinstance(value, Number):
            if column.kind is Kind.DECIMAL:
                return _decimal(value, column.type)
            return _number_type(value)
        if isinstance(value, bool):
            return pa.bool_()
        return _NULL if value is None else pa.string()

    def _object(self, value: Mapping[str, JsonValue], column: _Known) -> pa.DataType:
        parts = self._last_names(value).items()
        return self._nested.object_of(
            [(name, self._type(value[name], column.fields.get(key, _UNKNOWN))) for key, name in parts]
        )

    def _element(self, items: list[JsonValue], column: _Known) -> pa.DataType:
        """Return the type of the items of a list: what all agree about, else a compromise, which some may not fit."""
        if not items:
            return _NULL
        once = {id(of): of for of in (self._type(item, column) for item in items)}
        found = list(dict.fromkeys(once.values()))
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
    if len(value) <= _LONG_DIGITS and value.isdigit():
        return _LONG
    return settled(number_evidence(value))


def _is_double(value: JsonValue) -> bool:
    """Return whether a whole number is one that a double holds."""
    return isinstance(value, Number) and is_held(value, float(value))


def _has_gaps(of: pa.DataType) -> bool:
    """Return whether a type has parts that no value told."""
    match kind_of(of):
        case Kind.STRUCT:
            return not of.num_fields or any(_has_gaps(field.type) for field in of)
        case Kind.LIST:
            return _has_gaps(of.value_type)
    return bool(of == _NULL)
