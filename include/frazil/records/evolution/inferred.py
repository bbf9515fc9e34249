"""Decodes JSON objects with undeclared fields for transforms: into columns by the types of their values, not of the table.

Only values that agree about the type of each field are decoded together. So one value never changes another: an integer
stays an integer, even if the next record has a fraction.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

import pyarrow as pa

from frazil.records.casting.source import Kind, kind_of
from frazil.records.evolution.agreement import EXACT, Agreement, Group, Leaves, NestedTypes, Path, ShapeGroups
from frazil.records.evolution.infer import Widest
from frazil.records.evolution.types import MAX_PRECISION, leaf_paths, number_evidence, type_from_evidence
from frazil.records.json.convert import check_characters
from frazil.records.json.exact import fold_fields, parse_object
from frazil.records.json.typed import JsonValues
from frazil.records.model.dead_letter import DeadCode, Reason, Rejection
from frazil.records.model.format import Decoded, Shaped
from frazil.records.model.json_number import JsonValue, Number, describe, double_holds, exact_value
from frazil.records.model.spec import RecordSpec

_MAX_DECODERS: Final = 64
"""The most schemas whose decoders are cached."""

_MAX_ONE_BY_ONE: Final = 16
"""A group of so many values, or fewer, is decoded one by one: preparing a block takes longer."""

_MAX_FIELDS: Final = 500
"""The most fields of a group without a column: if keys are data, each record may bring new ones."""

_MAX_NAMES: Final = 2_000
"""The most names of fields without a column in one call; `max_columns`, if that is more."""

_MAX_SHAPES: Final = 250
"""The most groups in one call that bring such names: each needs its own decoder, which costs more with more columns."""

_MAX_CELLS: Final = _MAX_SHAPES * 250
"""The most such groups, times the leaf columns of the table."""


_NULL: Final = pa.null()
_LONG: Final = pa.int64()
_SURE_LONG_DIGITS: Final = 18
"""Any integer of so many digits fits a long."""

_DOUBLE: Final = pa.float64()
_EMPTY_STRUCT: Final = pa.struct([])
_NULL_LIST: Final = pa.list_(_NULL)
_JSON_LISTS: Final = frozenset(map(pa.list_, (pa.bool_(), pa.int64(), pa.float64(), pa.string())))
"""List types that JSON lists can have, too: an empty list may have such a column's type."""


class _ColumnShape(NamedTuple):
    """A column's type, prepared for look-up: its kind, fields by casefolded name, the element type of a list.

    `is_open`: it is a struct, all fields of which are nullable.
    """

    type: pa.DataType
    kind: Kind
    fields: Mapping[str, _ColumnShape]
    element: _ColumnShape | None = None
    is_open: bool = False


_NO_COLUMN: Final = _ColumnShape(_NULL, Kind.NULL, {})


class InferredJson:
    """Decodes JSON objects into the fields that they have; a `frazil.records.model.format.Format`.

    `columns` are the table's. A number for a decimal column becomes a decimal, since a double has fewer digits.
    """

    def __init__(
        self, spec: RecordSpec, columns: pa.Schema, agreement: Agreement = EXACT, *, blocks: bool = True
    ) -> None:
        self._spec: Final = spec
        self._blocks: Final = blocks
        self._fold: Final = spec.fold
        self._agreement: Final = agreement
        self._is_transformed: Final = bool(spec.transforms)
        self._columns: Final = {self._key(column.name): self._column_shape(column.type) for column in columns}
        self._most_names: Final = max(_MAX_NAMES, 0 if spec.evolution is None else spec.evolution.max_columns)
        leaf_count = sum(1 for column in columns for _ in leaf_paths(column.type))
        self._most_fields: Final = _MAX_FIELDS + leaf_count
        self._most_shapes: Final = min(_MAX_SHAPES, 1 + _MAX_CELLS // max(1, leaf_count))
        self._nested: Final = NestedTypes()
        self._decoders: Final[dict[tuple[pa.Schema, bool], JsonValues]] = {}

    def decode(self, values: pa.BinaryArray) -> Decoded:
        """Decode values, none of them null. No value makes this fail."""
        dead: dict[int, Reason] = {}
        shape_groups = ShapeGroups(self._agreement, self._common_type, self._most_fields)
        names: set[str] = set()
        groups_with_new_names = 0
        for position, raw in enumerate(values.to_pylist()):
            try:
                value = self._parsed(raw)
                new_names = self._add_unknown_names(value, self._columns, set(), is_top=True) - names
                if len(names) + len(new_names) > self._most_names:
                    raise _too_many(new_names, f"{self._most_names:,} names")
                if shape_groups.add(self._leaves(value), position) and new_names:
                    groups_with_new_names += 1
                    if groups_with_new_names > self._most_shapes:
                        shape_groups.drop_last()
                        raise _too_many(new_names, f"{self._most_shapes} shapes with names")
                names |= new_names
            except Rejection as e:
                dead[position] = e.reason
        decoded = [shaped for group in shape_groups.groups for shaped in self._decode_alive(group, values, dead)]
        return Decoded(tuple(group for group in decoded if len(group.positions)), dict(sorted(dead.items())))

    def _decode_alive(self, group: Group, values: pa.BinaryArray, dead: dict[int, Reason]) -> list[Shaped]:
        """Decode the values of a group, and add reasons to `dead`. Fields that only a dead value has do not exist for the others."""
        positions = pa.array(group.positions, pa.int64())
        shaped, failed = self._decode_group(group.type, values.take(positions))
        dead |= {group.positions[index]: reason for index, reason in failed.items()}
        alive = positions.take(shaped.positions)
        if not failed or self._agreement.exact is None:  # all values have the same fields
            return [Shaped(shaped.columns, alive)]
        shape_groups = ShapeGroups(self._agreement, self._common_type, self._most_fields)
        for position in alive.to_pylist():
            shape_groups.add(self._leaves(self._parsed(values[position].as_py())), position)
        return [
            shaped for alive_group in shape_groups.groups for shaped in self._decode_alive(alive_group, values, dead)
        ]

    def _parsed(self, raw: bytes) -> dict[str, JsonValue]:
        repeated = self._spec.duplicate_keys == "last"
        value = parse_object(raw, repeated_keys=repeated, in_order=self._fold is not None)
        if self._fold == "dead_letter":
            fold_fields(value, {name.casefold() for name in value}, self._fold)
        return value

    def _key(self, name: str) -> str:
        return name if self._fold is None else name.casefold()

    def _column_shape(self, column_type: pa.DataType) -> _ColumnShape:
        kind = kind_of(column_type)
        fields = (
            {self._key(field.name): self._column_shape(field.type) for field in column_type}
            if kind is Kind.STRUCT
            else {}
        )
        is_open = kind is Kind.STRUCT and all(field.nullable for field in column_type)
        return _ColumnShape(
            column_type,
            kind,
            fields,
            self._column_shape(column_type.value_type) if kind is Kind.LIST else None,
            is_open,
        )

    def _add_unknown_names(
        self, value: JsonValue, columns: Mapping[str, _ColumnShape], unknown_names: set[str], *, is_top: bool = False
    ) -> set[str]:
        """Add to `unknown_names` the names in a value that no column has."""
        if isinstance(value, list):
            for item in value:
                if item and isinstance(item, dict | list):
                    self._add_unknown_names(item, columns, unknown_names)
        elif isinstance(value, dict):
            keys = value if self._fold is None else {name.casefold(): item for name, item in value.items()}
            unknown_names.update(key for key in keys if key not in columns)
            for key, item in keys.items():
                if isinstance(item, dict | list):
                    column = columns.get(key, _NO_COLUMN)
                    while column.element is not None:
                        column = column.element
                    is_whole = (
                        is_top
                        and self._is_whole(key, column)
                        and not pa.types.is_struct(self._whole_type(item, column))
                    )
                    if not is_whole:
                        self._add_unknown_names(item, column.fields, unknown_names)
        return unknown_names

    def _is_whole(self, key: str, column: _ColumnShape) -> bool:
        """Return whether a column takes an object whole: the column is a map or a string, and no transform reads its fields before."""
        return column.kind in {Kind.MAP, Kind.TEXT} and self._agreement.traits((key,)).takes_whole

    def _common_type(self, first: pa.DataType, second: pa.DataType) -> pa.DataType | None:
        """Return the type that holds two values of one field; None if they don't agree. Null agrees with any type."""
        # Transforms see the types of nested fields: a null or `[]` inside must not get its type from another record.
        is_exact = self._is_transformed and _NULL not in (first, second)
        return None if is_exact else self._unify(first, second, union=False)

    def _leaves(self, value: Mapping[str, JsonValue]) -> Leaves:
        """Return the types of a value's fields by path. An object is opened if its fields may differ from value to value."""
        leaves = Leaves()
        self._add_open_fields(value, self._columns, (), leaves)
        return leaves

    def _add_open_fields(
        self, value: Mapping[str, JsonValue], columns: Mapping[str, _ColumnShape], outer: Path, leaves: Leaves
    ) -> None:
        for key, name in self._last_names(value).items():
            column, item, path = columns.get(key, _NO_COLUMN), value[name], (*outer, name)
            if not outer and isinstance(item, dict | list) and self._is_whole(key, column):
                leaves.types[path] = self._whole_type(item, column)
            elif isinstance(item, dict) and item and self._agreement.traits(path).is_opened:
                leaves.opened.add(path)
                self._add_open_fields(item, column.fields, path, leaves)
            else:
                self._add_field(item, path, column, leaves)

    def _add_field(self, item: JsonValue, path: Path, field_column: _ColumnShape, leaves: Leaves) -> None:
        """Add a field with its column's type if the whole value fits there, else with the type of the value."""
        traits = self._agreement.traits(path)
        is_flattened = isinstance(item, dict) and traits.is_opened  # an object without fields stays an empty object
        if traits.takes_column and not is_flattened:
            delimiter = self._agreement.delimiter
            column = field_column if delimiter is None else self._columns.get(self._key(delimiter.join(path)))
            if column is not None and (fitting := self._leaves_if_fitting(item, path, column)) is not None:
                leaves.types |= fitting.types
                leaves.opened |= fitting.opened
                return
        leaves.types[path] = self._type(item, field_column)

    def _leaves_if_fitting(self, value: JsonValue, path: Path, column: _ColumnShape) -> Leaves | None:
        """Return the fields of a value that fits its column; None if a field does not fit: then the whole may become a string.

        In a struct column null and absent are the same; in a string they differ.
        """
        if not isinstance(value, dict):
            value_type = self._type(value, column)
            if value_type in (column.type, _NULL):  # a set would hash the types, which writes them out as text
                return Leaves({path: value_type})
            if (value_type == _NULL_LIST and column.type in _JSON_LISTS) or (
                value_type == _LONG and column.type == _DOUBLE and _is_double(value)
            ):
                return Leaves({path: column.type})
            return None
        if not column.is_open:
            return None
        leaves = Leaves({}, {path})
        for key, name in self._last_names(value).items():
            inner = (
                self._leaves_if_fitting(value[name], (*path, name), column.fields[key])
                if key in column.fields
                else None
            )
            if inner is None:
                return None
            leaves.types |= inner.types
            leaves.opened |= inner.opened
        return leaves

    def _last_names(self, value: Mapping[str, JsonValue]) -> dict[str, str]:
        """Return the name of each field by its key; of names with the same key the last one counts."""
        for name in value:
            if not name.isascii():
                check_characters(name)
        return {self._key(name): name for name in value}

    def _whole_type(self, value: JsonValue, column: _ColumnShape) -> pa.DataType:
        """Return the type of a value for a map or string column, so that keys that are data don't become field names."""
        if column.kind is Kind.TEXT:
            return pa.string()
        if not isinstance(value, dict) or not pa.types.is_string(column.type.key_type):
            return self._type(value, _NO_COLUMN)
        value_type = self._element_type(list(value.values()), self._column_shape(column.type.item_type))
        # A map would turn values of several kinds into strings; as fields of a struct they keep their types.
        is_map = (
            all(isinstance(item, str) for item in value.values()) if pa.types.is_string(value_type) else bool(value)
        )
        if is_map and not _has_untyped_parts(value_type):
            return pa.map_(pa.string(), value_type)
        return self._type(value, _NO_COLUMN)

    def _type(self, value: JsonValue, column: _ColumnShape) -> pa.DataType:
        """Return the type of a value; its column decides only about decimals."""
        if isinstance(value, dict):
            return self._object_type(value, column) if value else _EMPTY_STRUCT
        if isinstance(value, list):
            return self._nested.list_of(self._element_type(value, column.element or _NO_COLUMN))
        if isinstance(value, Number):
            if column.kind is Kind.DECIMAL:
                return _decimal_type(value, column.type)
            return _number_type(value)
        if isinstance(value, bool):
            return pa.bool_()
        return _NULL if value is None else pa.string()

    def _object_type(self, value: Mapping[str, JsonValue], column: _ColumnShape) -> pa.DataType:
        parts = self._last_names(value).items()
        return self._nested.object_of(
            [(name, self._type(value[name], column.fields.get(key, _NO_COLUMN))) for key, name in parts]
        )

    def _element_type(self, items: list[JsonValue], column: _ColumnShape) -> pa.DataType:
        """Return the element type of a list: the type that holds all items, else a compromise that some items may not fit."""
        if not items:
            return _NULL
        # `id` first: most items share a cached type, and comparing types is slow.
        types_by_id = {id(item_type): item_type for item_type in (self._type(item, column) for item in items)}
        item_types = list(dict.fromkeys(types_by_id.values()))
        if (agreed := self._unify_all(item_types)) is not None:
            return agreed
        widest_item = Widest(self._fold is not None)
        for item_type in item_types:
            widest_item.add(item_type)
        compromise = type_from_evidence(widest_item.type)
        return (
            pa.string() if compromise == _NULL or sum(1 for _ in leaf_paths(compromise)) > _MAX_FIELDS else compromise
        )

    def _unify_all(self, types: list[pa.DataType]) -> pa.DataType | None:
        if len(types) == 1:
            return types[0]
        middle = len(types) // 2
        first, second = self._unify_all(types[:middle]), self._unify_all(types[middle:])
        return None if first is None or second is None else self._unify(first, second, union=True)

    def _unify(self, first: pa.DataType, second: pa.DataType, *, union: bool) -> pa.DataType | None:
        """Return the type that holds two types unchanged, or None. With `union`, structs may have different fields."""
        if first in (second, _NULL):  # a set would hash the types, which writes them out as text
            return second
        if second == _NULL:
            return first
        kinds = {kind_of(first), kind_of(second)}
        if kinds == {Kind.LIST}:
            element = self._unify(first.value_type, second.value_type, union=union)
            return None if element is None else pa.list_(element)
        if kinds != {Kind.STRUCT} or not (
            union or {struct_field.name for struct_field in first} == {struct_field.name for struct_field in second}
        ):
            return None
        return self._unify_structs(first, second, union=union)

    def _unify_structs(self, first: pa.StructType, second: pa.StructType, *, union: bool) -> pa.DataType | None:
        fields = {self._key(field.name): field for field in first}
        for field in second:
            same_key = fields.setdefault(self._key(field.name), field)
            unified = self._unify(same_key.type, field.type, union=union)
            if unified is None or same_key.name != field.name:
                return None
            fields[self._key(field.name)] = field.with_type(unified)
        if len(fields) > max(_MAX_FIELDS, len(first), len(second)):
            return None
        return pa.struct(sorted(fields.values(), key=lambda field: field.name))

    def _decode_group(self, group_type: pa.StructType, values: pa.BinaryArray) -> tuple[Shaped, Mapping[int, Reason]]:
        schema = pa.schema([field for field in group_type if field.type != _NULL])
        if not schema.names:  # all fields are null: there is nothing to decode
            null_rows = pa.RecordBatch.from_struct_array(pa.array([{}] * len(values), group_type))
            return Shaped(null_rows, pa.arange(0, len(values))), {}
        block, dead = self._decoder(schema, blocks=self._blocks and len(values) > _MAX_ONE_BY_ONE).rows(values)
        nulls = [field for field in group_type if field.type == _NULL]
        columns = [*block.rows.columns, *(pa.nulls(len(block.rows)) for _ in nulls)]
        return Shaped(pa.RecordBatch.from_arrays(columns, schema=pa.schema([*schema, *nulls])), block.positions), dead

    def _decoder(self, schema: pa.Schema, *, blocks: bool) -> JsonValues:
        key = schema, blocks
        if key not in self._decoders:
            if len(self._decoders) >= _MAX_DECODERS:
                del self._decoders[next(iter(self._decoders))]
            # Nobody declared these fields: a string column takes any value as its JSON text.
            options = RecordSpec(
                schema,
                duplicate_keys=self._spec.duplicate_keys,
                casts=self._spec.casts,
                kafka_columns=None,
                declared=frozenset(),
            )
            blocks = blocks and not any(_has_untyped_parts(field.type) for field in schema)
            self._decoders[key] = JsonValues(options, blocks=blocks)
        return self._decoders[key]


def _too_many(new_names: Collection[str], limit: str) -> Rejection:
    more = f" and {len(new_names) - 1:,} more" if len(new_names) > 1 else ""
    expected = f"at most {limit} that no column has, in records that are decoded together"
    return Rejection(DeadCode.TOO_MANY_NAMES, f"expected {expected}, found {describe(min(new_names))}{more}")


def _decimal_type(value: Number, column: pa.Decimal128Type) -> pa.DataType:
    """Return the type of a decimal column, with more digits if a number is too large for it."""
    digits = exact_value(value).magnitude + column.scale
    return pa.decimal128(MAX_PRECISION, column.scale) if column.precision < digits <= MAX_PRECISION else column


def _number_type(value: Number) -> pa.DataType:
    """Return the type that holds a number: long or double, else decimal."""
    if len(value) <= _SURE_LONG_DIGITS and value.isdigit():
        return _LONG
    return type_from_evidence(number_evidence(value))


def _is_double(value: JsonValue) -> bool:
    """Return whether a double represents an integer exactly."""
    return isinstance(value, Number) and double_holds(value, float(value))


def _has_untyped_parts(data_type: pa.DataType) -> bool:
    """Return whether a type has parts without a known type: nulls, or structs without fields."""
    match kind_of(data_type):
        case Kind.STRUCT:
            return not data_type.num_fields or any(_has_untyped_parts(field.type) for field in data_type)
        case Kind.LIST:
            return _has_untyped_parts(data_type.value_type)
    return bool(data_type == _NULL)
