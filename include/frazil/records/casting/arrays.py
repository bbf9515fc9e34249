"""Casts of whole arrays from one Arrow type to another, wherever that agrees with the exact conversion of single values.

A cast returns an array of the target type, and a mask of the rows in doubt; these are converted one by one. A pair of types
without a cast of its own is converted value by value; then values that the exact converter refuses are in doubt.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from frazil.records.casting.finalize import plan_scalar_cast
from frazil.records.casting.nested import ExactPlan, build_array, index_of_name, keeps_keys_apart
from frazil.records.casting.scalar import Exact, FitRules
from frazil.records.casting.source import (
    Kind,
    as_lists,
    kind_of,
    list_window,
    physical_values,
    plain,
    plain_type,
    present_mask,
)
from frazil.records.json.intermediate_types import CastResult, or_masks
from frazil.records.model.dead_letter import Rejection

ArrayCast = Callable[[pa.Array], CastResult]


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
    """Return a cast that converts each value by the exact converter."""
    plan = ExactPlan(rules)
    exact = plan.exact(source, target, "")
    is_hopeless = any(not path for path, _ in plan.problems)
    return partial(_doubt_all, target) if is_hopeless else partial(_cast_each, exact, target)


def _cast_plain(cast: ArrayCast, array: pa.Array) -> CastResult:
    return cast(plain(array))


def _cast_each(exact: Exact, target: pa.DataType, array: pa.Array) -> CastResult:
    rows = [None if value is None else _value_or_none(exact, value) for value in physical_values(array)]
    converted = build_array(rows, target)
    if converted.null_count == array.null_count:
        return converted, None
    return converted, pc.and_(converted.is_null(), array.is_valid())


def _doubt_all(target: pa.DataType, array: pa.Array) -> CastResult:
    """Return null and doubt for every value: no value of the source type can become the target type."""
    return pa.nulls(len(array), target), array.is_valid()


def _value_or_none(exact: Exact, value: Any) -> object:
    try:
        return exact(value)
    except Rejection:
        return None


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
    results = [
        _cast_field(field, cast, pa.nulls(len(array)) if index is None else children[index])
        for field, index, cast in zip(target, indexes, casts, strict=True)
    ]
    doubt = or_masks(
        [doubt for _, doubt in results]
        + [present_mask(array.type.field(index), children[index]) for index in unmatched]
    )
    structs = pa.StructArray.from_arrays([child for child, _ in results], fields=list(target), mask=_nulls(array))
    return structs, _mask_nulls(array, doubt)


def _cast_field(field: pa.Field, cast: ArrayCast | None, array: pa.Array) -> CastResult:
    """Cast an array to the type of `field`; a null in a required field is in doubt."""
    column, doubt = (pa.nulls(len(array), field.type), None) if cast is None else cast(array)
    nulls = column.is_null() if not field.nullable and column.null_count else None
    return column, or_masks([doubt, nulls])


def _nulls(array: pa.Array) -> pa.BooleanArray | None:
    return array.is_null() if array.null_count else None


def _mask_nulls(array: pa.Array, doubt: pa.BooleanArray | None) -> pa.BooleanArray | None:
    """Return the mask of doubt without rows that are null: what lies inside of a null does not count."""
    if doubt is None or not pc.any(doubt).as_py():
        return None
    return pc.and_(doubt, array.is_valid())


def _cast_list(target: pa.DataType, cast: ArrayCast, array: pa.Array) -> CastResult:
    lists = as_lists(array)
    offsets, first, last = list_window(lists)
    items, doubt = _cast_field(target.value_field, cast, lists.values.slice(first, last - first))
    wide = pa.types.is_large_list(target)
    edges = offsets.cast(pa.int64() if wide else pa.int32())
    kind = pa.LargeListArray if wide else pa.ListArray
    result = kind.from_arrays(edges, items, type=target, mask=_nulls(lists))
    return result, _mask_nulls(lists, _lists_in_doubt(edges, doubt))


def _cast_map(target: pa.MapType, key: ArrayCast, item: ArrayCast, array: pa.Array) -> CastResult:
    offsets, first, last = list_window(array)
    keys, key_doubt = _cast_field(target.key_field, key, array.keys.slice(first, last - first))
    items, item_doubt = _cast_field(target.item_field, item, array.items.slice(first, last - first))
    doubt = or_masks([key_doubt, item_doubt])
    if key_doubt is not None:  # Arrow refuses null keys, also in rows that are converted one by one
        return pa.nulls(len(array), target), array.is_valid()
    maps = pa.MapArray.from_arrays(offsets, keys, items, type=target, mask=_nulls(array))
    return maps, _mask_nulls(array, _lists_in_doubt(offsets, doubt))


_ZERO: Final = pa.array([0], pa.int64())


def _lists_in_doubt(offsets: pa.Array, doubt: pa.BooleanArray | None) -> pa.BooleanArray | None:
    """Return which lists hold an item in doubt."""
    if doubt is None:
        return None
    # A list has an item in doubt if the running sum of doubts rises between its first and its last offset.
    doubts_before = pa.concat_arrays([_ZERO, pc.cumulative_sum(doubt.cast(pa.int64()))])
    return pc.greater(pc.subtract(doubts_before.take(offsets[1:]), doubts_before.take(offsets[:-1])), 0)
