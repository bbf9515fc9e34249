"""One declared column: finds its field in decoded records, and casts whole arrays of it where the outcome is surely that of the exact
conversion of single values.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property, partial
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from frazil.records.casting.nested import ExactPlan, index_of_name, keeps_keys_apart
from frazil.records.casting.scalar import FitRules, ValueCast, refuse
from frazil.records.casting.scalar_arrays import plan_scalar_cast
from frazil.records.casting.source import Kind, as_lists, kind_of, physical_values, plain, plain_type, present_mask
from frazil.records.json.convert import build_array, missing_value
from frazil.records.json.intermediate_types import (
    ArrayCast,
    CastResult,
    cast_field,
    cast_list,
    cast_struct,
    list_window,
    lists_in_doubt,
    null_mask,
    or_masks,
    value_or_none,
    without_nulls,
)
from frazil.records.json.record import ExactDecoder, variant_refusal
from frazil.records.model.cells import cells_per_element, too_wide, wide_rows
from frazil.records.model.column import ColumnSpec, Reading, type_name
from frazil.records.model.dead_letter import Reason, Rejection
from frazil.records.model.spec import RecordSpec

# A cast returns an array of the target type, and a mask of the rows in doubt; these are converted one by one. Types without a cast of
# whole arrays are converted value by value; then the values that the exact converter refuses are in doubt.


def plan_cast(source: pa.DataType, target: pa.DataType, rules: FitRules) -> ArrayCast:
    """Return the cast of arrays from one type to another."""
    plain_source = plain_type(source)
    cast = (
        _plan_nested(plain_source, target, rules)
        or plan_scalar_cast(plain_source, target, rules)
        or plan_exact_cast(plain_source, target, rules)
    )
    return cast if plain_source == source else partial(_cast_plain, cast)


def plan_exact_cast(source: pa.DataType, target: pa.DataType, rules: FitRules) -> ArrayCast:
    """Return a cast that converts each value with the exact converter."""
    plan = ExactPlan(rules)
    exact = plan.exact(source, target, "")
    is_hopeless = any(not path for path, _ in plan.problems)
    return partial(doubt_all, target) if is_hopeless else partial(_cast_each, exact, target)


def _cast_plain(cast: ArrayCast, array: pa.Array) -> CastResult:
    return cast(plain(array))


def _cast_each(exact: ValueCast, target: pa.DataType, array: pa.Array) -> CastResult:
    rows = [None if value is None else value_or_none(exact, value) for value in physical_values(array)]
    converted = build_array(rows, target)
    if converted.null_count == array.null_count:
        return converted, None
    return converted, pc.and_(converted.is_null(), array.is_valid())


def doubt_all(target: pa.DataType, array: pa.Array) -> CastResult:
    """Return null, in doubt, for every value: no value of the source type can become the target type."""
    return pa.nulls(len(array), target), array.is_valid()


def _plan_nested(source: pa.DataType, target: pa.DataType, rules: FitRules) -> ArrayCast | None:
    pair = (kind_of(source), kind_of(target))
    if pair == (Kind.STRUCT, Kind.STRUCT):
        return _plan_struct(source, target, rules)
    if pair == (Kind.LIST, Kind.LIST) and not pa.types.is_fixed_size_list(target):
        return partial(_cast_list, target, plan_cast(source.value_type, target.value_type, rules))
    if pair == (Kind.MAP, Kind.MAP) and keeps_keys_apart(source, target):
        key = plan_cast(source.key_type, target.key_type, rules)
        return partial(_cast_map, target, key, plan_cast(source.item_type, target.item_type, rules))
    return None


def _plan_struct(source: pa.StructType, target: pa.StructType, rules: FitRules) -> ArrayCast:
    names = [field.name for field in source]
    indexes = [index_of_name(field.name, names, case_insensitive=rules.case_insensitive) for field in target]
    casts = [
        None if index is None else plan_cast(source.field(index).type, field.type, rules)
        for index, field in zip(indexes, target, strict=True)
    ]
    unmatched = [index for index in range(len(names)) if index not in indexes] if rules.strict else []
    return partial(_cast_struct, target, indexes, casts, unmatched)


def _cast_struct(
    target: pa.StructType,
    indexes: list[int | None],
    casts: list[ArrayCast | None],
    unmatched: list[int],
    array: pa.Array,
) -> CastResult:
    children = array.flatten()
    nulls = pa.nulls(len(array))
    structs, doubt = cast_struct(
        target, casts, [nulls if index is None else children[index] for index in indexes], array
    )
    strays = or_masks([present_mask(array.type.field(index), children[index]) for index in unmatched])
    return structs, or_masks([doubt, without_nulls(array, strays)])


def _cast_list(target: pa.DataType, cast: ArrayCast, array: pa.Array) -> CastResult:
    return cast_list(target, cast, as_lists(array))


def _cast_map(target: pa.MapType, key: ArrayCast, item: ArrayCast, array: pa.Array) -> CastResult:
    offsets, first, last = list_window(array)
    keys, key_doubt = cast_field(target.key_field, key, array.keys.slice(first, last - first))
    items, item_doubt = cast_field(target.item_field, item, array.items.slice(first, last - first))
    doubt = or_masks([key_doubt, item_doubt])
    if key_doubt is not None:  # Arrow refuses null keys, also in rows that are converted one by one
        return pa.nulls(len(array), target), array.is_valid()
    maps = pa.MapArray.from_arrays(offsets, keys, items, type=target, mask=null_mask(array))
    return maps, without_nulls(array, lists_in_doubt(offsets, doubt))


_ROWS_AT_ONCE: Final = 1_000
"""Rows that are converted one by one until further rows of records that became dead letters are skipped."""


class ColumnPlan:
    """How one column is filled from records of one shape.

    Attributes:
        spec: The declaration of the column.
        field: Field of the rows; not nullable if null is refused.
        indexes: Path to the source field, as the index of the field at each level; empty if there is no such field.
        steps: Path to the source field as names, for the paths of reasons; none for the whole value.
        blocked: Whether the path ends early, at a field that is no struct.

    Raises:
        Terminal: the default does not fit.
    """

    def __init__(self, spec: ColumnSpec, field: pa.Field, schema: pa.Schema, rules: FitRules, *, blocks: bool) -> None:
        self.spec: Final = spec
        self.field: Final = field.with_nullable(field.nullable and not spec.required)
        self.indexes, self._source, self.blocked = _locate(spec.steps, schema, rules)
        self.steps: Final = spec.steps[: len(self.indexes)] if self.blocked else spec.steps
        self._rules: Final = _column_rules(spec.reading, rules)
        cast = plan_cast if blocks else plan_exact_cast
        self._cast: Final = (
            partial(doubt_all, self.field.type) if self.blocked else cast(self._source, self.field.type, self._rules)
        )
        self._default: Final = _default(spec, self.field)
        self._is_wide: Final = cells_per_element(self.field.type) > 1

    @cached_property
    def _exact(self) -> tuple[ValueCast, list[tuple[str, str]]]:
        """The exact converter of values in doubt; and its problems (see `ExactPlan`).

        It is made for the first value in doubt: most shapes have none.
        """
        if self.blocked:
            message = f"expected an object on the way, found {type_name(self._source)}"
            return partial(refuse, "object", self._source), [("", message)]
        plan = ExactPlan(self._rules)
        return plan.exact(self._source, self.field.type, ""), plan.problems

    @property
    def problems(self) -> list[str]:
        """The reasons why no value can ever become the column."""
        messages = [f"{self.spec.name}: {message}{_in_field(self.spec, path)}" for path, message in self._exact[1]]
        if self.steps and not self.indexes and not self.field.nullable and not self.spec.has_default:
            messages.append(f"{self.spec.name}: a required column, and there is no field {'.'.join(self.spec.steps)}")
        return messages

    def fit(self, batch: pa.RecordBatch, dead: dict[int, Reason], records: pa.Int64Array | None = None) -> pa.Array:
        """Return the column, and add a reason for each row that no other column refused before. The values of dead rows mean nothing.

        Args:
            batch: The fields.
            dead: Reasons by row; new ones are added.
            records: The record of each row, if one dead row makes all rows of its record dead: the others need no reason.
        """
        if self.steps and not self.indexes and self._default is None and self.field.nullable:
            return pa.nulls(len(batch), self.field.type)
        values, absent = self._find_values(batch)
        if self._is_wide:
            values = self._drop_wide(values, dead)
        column = self._cast_values(values, dead, records)
        if self.spec.variant:
            _refuse_variants(column, dead)
        gaps = values.is_null() if values.null_count else None
        return column if gaps is None else self._fill_gaps(column, gaps, absent, dead)

    def _drop_wide(self, values: pa.Array, dead: dict[int, Reason]) -> pa.Array:
        """Return the values with null in place of those that make too many cells in the column; their rows are dead."""
        wide = wide_rows(values, self.field.type)
        if not wide.any():
            return values
        for row in np.flatnonzero(wide).tolist():
            _reject_row(dead, row, too_wide(), self.steps)
        return values.take(pa.array(np.arange(len(values)), mask=wide))

    def _find_values(self, batch: pa.RecordBatch) -> tuple[pa.Array, pa.BooleanArray | None]:
        """Return the values of the source field, and the mask of rows without the field (None: the rows where it is null)."""
        if not self.steps:
            return batch.to_struct_array(), None
        if not self.indexes:
            return pa.nulls(len(batch)), None
        array, absent = plain(batch.column(self.indexes[0])), pa.nulls(len(batch), pa.bool_()).is_valid()
        for index in self.indexes[1:]:
            absent = array.is_null()
            array = plain(array.flatten()[index])
        return array, None if self.blocked else absent

    def _cast_values(self, array: pa.Array, dead: dict[int, Reason], records: pa.Int64Array | None) -> pa.Array:
        column, doubt = self._cast(array)
        doubtful = pa.array([], pa.int64()) if doubt is None else pc.indices_nonzero(doubt)
        fixed: dict[int, object] = {}
        refused: list[int] = []
        for start in range(0, len(doubtful), _ROWS_AT_ONCE):
            rows = doubtful.slice(start, _ROWS_AT_ONCE)
            # One refused row makes its record dead, so other rows of that record need no conversion.
            if records is not None and refused:
                dead_records = records.take(pa.array(refused, pa.int64()))
                rows = rows.filter(pc.invert(pc.is_in(records.take(rows), value_set=dead_records)))
            for row, value in zip(rows.to_pylist(), physical_values(array.take(rows)), strict=True):
                try:
                    fixed[row] = self._exact[0](value)
                except Rejection as e:
                    _reject_row(dead, row, e, self.steps)
                    refused.append(row)
        if not fixed:
            return column
        return _replace_rows(column, list(fixed), build_array(list(fixed.values()), self.field.type))

    def _fill_gaps(
        self, column: pa.Array, gaps: pa.BooleanArray, absent: pa.BooleanArray | None, dead: dict[int, Reason]
    ) -> pa.Array:
        if self._default is not None:
            chosen = gaps if absent is None or not self.field.nullable else pc.and_(gaps, absent)
            if rows := pc.indices_nonzero(chosen).to_pylist():
                column = _replace_rows(column, rows, self._default.take(pa.array([0] * len(rows), pa.int64())))
            return column
        if not self.field.nullable:
            for row in pc.indices_nonzero(gaps).to_pylist():
                _reject_row(dead, row, missing_value(type_name(self.field.type)), self.steps)
        return column


def _refuse_variants(texts: pa.Array, dead: dict[int, Reason]) -> None:
    for row, text in enumerate(texts.to_pylist()):
        if row not in dead and text is not None and (reason := variant_refusal(text)) is not None:
            dead[row] = reason


def _reject_row(dead: dict[int, Reason], row: int, verdict: Rejection, steps: tuple[str, ...]) -> None:
    """Add the reason of a row, with its path from the root, unless the row has one."""
    reason = verdict.reason
    for step in reversed(steps):
        reason = reason.with_parent(step)
    dead.setdefault(row, reason)


def _replace_rows(array: pa.Array, rows: list[int], replacements: pa.Array) -> pa.Array:
    """Return an array with the values of some (ascending) rows replaced."""
    indexes = pa.arange(0, len(array))
    is_replaced = pc.is_in(indexes, value_set=pa.array(rows, pa.int64()))
    # Replacements are appended, and `order` picks each replaced row from there: this works for nested types, too.
    order = pc.replace_with_mask(indexes, is_replaced, pa.arange(len(array), len(array) + len(rows)))
    return pa.concat_arrays([array, replacements]).take(order)


def _in_field(spec: ColumnSpec, path: str) -> str:
    """Return the end of a message that names the field of a problem; empty if the column's name says that already."""
    place = f"{'.'.join(spec.steps)}{path}".removeprefix("." if not spec.steps else "")
    return "" if place in ("", spec.name) else f" in the field {place!r}"


def _column_rules(reading: Reading, rules: FitRules) -> FitRules:
    """Return the rules of one column: those of the table, with what the column declares for itself."""
    return replace(
        rules,
        unit=reading.unit,
        local_time=reading.local_time,
        number_texts=rules.number_texts or reading.cast_text,
        json_texts=rules.json_texts or reading.inferred,
        text_counts=rules.text_casts or reading.cast_text,
        truncates=reading.truncates,
    )


def _locate(steps: tuple[str, ...], schema: pa.Schema, rules: FitRules) -> tuple[tuple[int, ...], pa.DataType, bool]:
    """Return the path to a field as indexes, its plain type, and whether the path ends early at a field that is no struct."""
    indexes: list[int] = []
    source: pa.DataType = pa.struct(list(schema)) if not steps else pa.null()
    for step in steps:
        if not indexes:
            index = _top_level_index(step, schema, rules)
        elif kind_of(source) is not Kind.STRUCT:
            return tuple(indexes), source, kind_of(source) is not Kind.NULL
        else:
            index = index_of_name(step, [field.name for field in source], case_insensitive=rules.case_insensitive)
        if index is None:
            return (), pa.null(), False
        source = plain_type((source if indexes else schema).field(index).type)
        indexes.append(index)
    return tuple(indexes), source, False


def _top_level_index(step: str, schema: pa.Schema, rules: FitRules) -> int | None:
    # Does what `index_of_name` does, but makes no list of all names for each column.
    indexes = schema.get_all_field_indices(step)
    if indexes or not rules.case_insensitive:
        return int(indexes[-1]) if indexes else None
    return index_of_name(step, schema.names, case_insensitive=True)


def _default(spec: ColumnSpec, field: pa.Field) -> pa.Array | None:
    """Return the default as an array of one value, decoded as a JSON record would have it; None without a default."""
    if not spec.has_default:
        return None
    name, unit = spec.name, spec.reading.unit
    units = {} if unit is None else {name: unit}
    schema = pa.schema([field.with_name(name)])
    decoder = ExactDecoder(RecordSpec(schema, defaults={name: spec.default}, units=units, kafka_columns=None))
    return decoder.table([decoder.row(b"{}")]).column(0)
