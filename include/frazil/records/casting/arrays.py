"""Whole arrays of one Arrow type to another, wherever that says what the judge of single values would say.

Settling gives an array of the target type and says which rows it has a doubt about; these are decided one by one. A pair
of types without a way of its own is converted value by value, and doubts what the judge refuses.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from frazil.records.casting.finalize import scalar_settle
from frazil.records.casting.nested import ExactPlan, build, keeps_keys_apart, matching
from frazil.records.casting.scalar import Exact, FitRules
from frazil.records.casting.source import Kind, as_lists, kind_of, plain, plain_type, sent, values, window
from frazil.records.json.intermediate_types import Settled, any_of
from frazil.records.model.dead_letter import Rejection

Settle = Callable[[pa.Array], Settled]


def settle_plan(source: pa.DataType, target: pa.DataType, rules: FitRules) -> Settle:
    """Return what settles arrays of one type as another."""
    found = plain_type(source)
    settle = _nested(found, target, rules) or scalar_settle(found, target, rules) or one_by_one(found, target, rules)
    return settle if found == source else partial(_decoded, settle)


def one_by_one(source: pa.DataType, target: pa.DataType, rules: FitRules) -> Settle:
    """Return what settles by the judge alone."""
    plan = ExactPlan(rules)
    exact = plan.exact(source, target, "")
    is_hopeless = any(not path for path, _ in plan.problems)
    return partial(_none, target) if is_hopeless else partial(_each, exact, target)


def _decoded(settle: Settle, array: pa.Array) -> Settled:
    return settle(plain(array))


def _each(exact: Exact, target: pa.DataType, array: pa.Array) -> Settled:
    rows = [None if value is None else _value_of(exact, value) for value in values(array)]
    made = build(rows, target)
    if made.null_count == array.null_count:
        return made, None
    return made, pc.and_(made.is_null(), array.is_valid())


def _none(target: pa.DataType, array: pa.Array) -> Settled:
    """Doubt every value: their type has no way to the other."""
    return pa.nulls(len(array), target), array.is_valid()


def _value_of(exact: Exact, value: Any) -> object:
    try:
        return exact(value)
    except Rejection:
        return None


def _nested(source: pa.DataType, target: pa.DataType, rules: FitRules) -> Settle | None:
    pair = (kind_of(source), kind_of(target))
    if pair == (Kind.STRUCT, Kind.STRUCT):
        return _struct_plan(source, target, rules)
    if pair == (Kind.LIST, Kind.LIST) and not pa.types.is_fixed_size_list(target):
        return partial(_settle_list, target, settle_plan(source.value_type, target.value_type, rules))
    if pair == (Kind.MAP, Kind.MAP) and keeps_keys_apart(source, target):
        key = settle_plan(source.key_type, target.key_type, rules)
        return partial(_settle_map, target, key, settle_plan(source.item_type, target.item_type, rules))
    return None


def _struct_plan(source: pa.StructType, target: pa.StructType, rules: FitRules) -> Settle:
    names = [field.name for field in source]
    places = [matching(field.name, names, case_insensitive=rules.case_insensitive) for field in target]
    settles = [
        None if at is None else settle_plan(source.field(at).type, field.type, rules)
        for at, field in zip(places, target, strict=True)
    ]
    others = [at for at in range(len(names)) if at not in places] if rules.strict else []
    return partial(_settle_struct, target, places, settles, others)


def _settle_struct(
    target: pa.StructType, places: list[int | None], settles: list[Settle | None], others: list[int], array: pa.Array
) -> Settled:
    children = array.flatten()
    settled = [
        _settle_field(field, settle, pa.nulls(len(array)) if at is None else children[at])
        for field, at, settle in zip(target, places, settles, strict=True)
    ]
    doubt = any_of([doubt for _, doubt in settled] + [sent(array.type.field(at), children[at]) for at in others])
    made = pa.StructArray.from_arrays([child for child, _ in settled], fields=list(target), mask=_nulls(array))
    return made, _inside(array, doubt)


def _settle_field(field: pa.Field, settle: Settle | None, array: pa.Array) -> Settled:
    """Settle an array of `field`; a null in a required one is a doubt."""
    made, doubt = (pa.nulls(len(array), field.type), None) if settle is None else settle(array)
    nulls = made.is_null() if not field.nullable and made.null_count else None
    return made, any_of([doubt, nulls])


def _nulls(array: pa.Array) -> pa.BooleanArray | None:
    return array.is_null() if array.null_count else None


def _inside(array: pa.Array, doubt: pa.BooleanArray | None) -> pa.BooleanArray | None:
    """Return the doubts without those inside of nulls, where nothing is."""
    if doubt is None or not pc.any(doubt).as_py():
        return None
    return pc.and_(doubt, array.is_valid())


def _settle_list(target: pa.DataType, settle: Settle, array: pa.Array) -> Settled:
    lists = as_lists(array)
    offsets, first, last = window(lists)
    made, doubt = _settle_field(target.value_field, settle, lists.values.slice(first, last - first))
    wide = pa.types.is_large_list(target)
    edges = offsets.cast(pa.int64() if wide else pa.int32())
    kind = pa.LargeListArray if wide else pa.ListArray
    settled = kind.from_arrays(edges, made, type=target, mask=_nulls(lists))
    return settled, _inside(lists, _parents(edges, doubt))


def _settle_map(target: pa.MapType, key: Settle, item: Settle, array: pa.Array) -> Settled:
    offsets, first, last = window(array)
    keys, key_doubt = _settle_field(target.key_field, key, array.keys.slice(first, last - first))
    items, item_doubt = _settle_field(target.item_field, item, array.items.slice(first, last - first))
    doubt = any_of([key_doubt, item_doubt])
    if key_doubt is not None:  # a map refuses null keys even where its row is decided elsewhere
        return pa.nulls(len(array), target), array.is_valid()
    settled = pa.MapArray.from_arrays(offsets, keys, items, type=target, mask=_nulls(array))
    return settled, _inside(array, _parents(offsets, doubt))


_ZERO: Final = pa.array([0], pa.int64())


def _parents(offsets: pa.Array, doubt: pa.BooleanArray | None) -> pa.BooleanArray | None:
    """Return which lists hold a doubtful item."""
    if doubt is None:
        return None
    seen = pa.concat_arrays([_ZERO, pc.cumulative_sum(doubt.cast(pa.int64()))])
    return pc.greater(pc.subtract(seen.take(offsets[1:]), seen.take(offsets[:-1])), 0)
