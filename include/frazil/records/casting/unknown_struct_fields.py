"""Fields nested in structs, also in lists and maps, that no column takes: they are counted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from frazil.records.casting.nested import index_of_name
from frazil.records.casting.source import Kind, as_lists, kind_of, plain, plain_type, present_mask
from frazil.records.json.intermediate_types import list_window
from frazil.records.model.unknown_fields import UnknownFieldPairs

ColumnTarget = tuple[tuple[str, ...], pa.DataType]
"""What one column reads: the path of names to its field, relative to the present level, and the type that it becomes."""


@dataclass(frozen=True, slots=True)
class UnmatchedFields:
    """Fields in values of one type that no column takes.

    Attributes:
        unmatched: Indexes of the fields of a struct that no column takes.
        inner: Such fields nested in other fields of the struct, by index of the outer field.
        items: Such fields in the items of a list, or in the values of a map.
        is_map: Whether the fields of the struct become entries of a map: then their names are data, not part of a path.
    """

    unmatched: tuple[int, ...] = ()
    inner: tuple[tuple[int, UnmatchedFields], ...] = ()
    items: UnmatchedFields | None = None
    is_map: bool = False

    def find_pairs(self, array: pa.Array, rows: pa.Int64Array, path: str) -> Iterator[UnknownFieldPairs]:
        """Return the rows that have such fields, with the paths of the fields.

        Args:
            array: Values, one for each of `rows`.
            rows: The row that each value belongs to; may repeat.
            path: Names from the root to the values, with a dot at the end.
        """
        values = plain(array)
        if self.items is not None:
            yield from self.items.find_pairs(*_items(values, rows), path)
            return
        if not (self.unmatched or self.inner):
            return
        children = values.flatten()
        for index in self.unmatched:
            field = values.type.field(index)
            field_rows = rows.filter(present_mask(field, children[index]))
            yield UnknownFieldPairs(
                field_rows, pa.repeat(pa.scalar(f"{path}{field.name}", pa.string()), len(field_rows))
            )
        for index, inner in self.inner:
            yield from inner.find_pairs(
                children[index], rows, path if self.is_map else f"{path}{values.type.field(index).name}."
            )


def find_unmatched_fields(
    source: pa.DataType, targets: Sequence[ColumnTarget], *, any_case: bool
) -> UnmatchedFields | None:
    """Return the fields in values of a type that no column takes; None if there are none."""
    plain_data_type, kind = plain_type(source), kind_of(plain_type(source))
    if kind is Kind.STRUCT:
        return _unmatched_of_struct(plain_data_type, targets, any_case=any_case)
    if kind not in {Kind.LIST, Kind.MAP} or any(
        steps or kind_of(column_type) is not kind for steps, column_type in targets
    ):
        return None
    inner_types = [column_type.value_type if kind is Kind.LIST else column_type.item_type for _, column_type in targets]
    item_type = plain_data_type.value_type if kind is Kind.LIST else plain_data_type.item_type
    items = find_unmatched_fields(item_type, [((), column_type) for column_type in inner_types], any_case=any_case)
    return None if items is None else UnmatchedFields(items=items)


def _unmatched_of_struct(
    source: pa.StructType, targets: Sequence[ColumnTarget], *, any_case: bool
) -> UnmatchedFields | None:
    names = [field.name for field in source]
    targets_by_index: dict[int, list[ColumnTarget]] = {}
    for steps, target_type in targets:
        if not steps and kind_of(target_type) is Kind.MAP:
            for position in range(len(names)):
                targets_by_index.setdefault(position, []).append(((), target_type.item_type))
            continue
        if not steps and kind_of(target_type) is not Kind.STRUCT:
            return None  # the column takes the whole struct as JSON text
        named_targets = (
            [(steps[0], (steps[1:], target_type))]
            if steps
            else [(field.name, ((), field.type)) for field in target_type]
        )
        for name, target in named_targets:
            index = index_of_name(name, names, case_insensitive=any_case)
            if index is not None:
                targets_by_index.setdefault(index, []).append(target)
    inner = [
        (index, find_unmatched_fields(source.field(index).type, fields, any_case=any_case))
        for index, fields in sorted(targets_by_index.items())
    ]
    unmatched = tuple(index for index in range(len(names)) if index not in targets_by_index)
    nested = tuple((index, fields) for index, fields in inner if fields is not None)
    is_map = any(not steps and kind_of(target_type) is Kind.MAP for steps, target_type in targets)
    return UnmatchedFields(unmatched, nested, is_map=is_map) if unmatched or nested else None


def _items(values: pa.Array, rows: pa.Int64Array) -> tuple[pa.Array, pa.Int64Array]:
    """Return the items of lists, or the values of maps, and the row of each."""
    lists = values if pa.types.is_map(values.type) else as_lists(values)
    offsets, first, last = list_window(lists)
    items = (lists.items if pa.types.is_map(lists.type) else lists.values).slice(first, last - first)
    parents = pc.list_parent_indices(pa.LargeListArray.from_arrays(offsets.cast(pa.int64()), pa.nulls(len(items))))
    if lists.null_count:  # a null list may have items in its buffers, which belong to no row
        is_valid = lists.is_valid().take(parents)
        items, parents = items.filter(is_valid), parents.filter(is_valid)
    return items, rows.take(parents)
