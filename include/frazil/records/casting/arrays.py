"""Casts of whole arrays from one Arrow type to another, wherever that agrees with the exact conversion of single values.

A cast returns an array of the target type, and a mask of the rows in doubt; these are converted one by one. A pair of types
without a cast of its own is converted value by value; then values that the exact converter refuses are in doubt.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from frazil.records.casting.finalize import plan_scalar_cast
from frazil.records.casting.nested import ExactPlan, build_array, index_of_name, keeps_keys_apart
from frazil.records.casting.scalar import Exact, FitRules
from frazil.records.casting.source import (
    Kind,
    as_lists,
    kind_of,
    physical_values,
    plain,
    plain_type,
    present_mask,
)
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
    without_nulls,
)
from frazil.records.model.dead_letter import Rejection


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
    return partial(doubt_all, target) if is_hopeless else partial(_cast_each, exact, target)


def _cast_plain(cast: ArrayCast, array: pa.Array) -> CastResult:
    return cast(plain(array))


def _cast_each(exact: Exact, target: pa.DataType, array: pa.Array) -> CastResult:
    rows = [None if value is None else _value_or_none(exact, value) for value in physical_values(array)]
    converted = build_array(rows, target)
    if converted.null_count == array.null_count:
        return converted, None
    return converted, pc.and_(converted.is_null(), array.is_valid())


def doubt_all(target: pa.DataType, array: pa.Array) -> CastResult:
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
