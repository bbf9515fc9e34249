"""Fields inside of structs that no column takes: found for counting, also in lists and maps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from frazil.records.casting.nested import matching
from frazil.records.casting.source import Kind, as_lists, kind_of, plain, plain_type, sent, window
from frazil.records.model.unknown_fields import UnknownAt

Taker = tuple[tuple[str, ...], pa.DataType]
"""Names from here to the field that a column takes, and the type that it becomes."""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """What is left out of values of one type.

    Attributes:
        others: Fields of a struct that nobody takes.
        inner: What is left out of fields of a struct.
        items: What is left out of the items of a list, or the values of a map.
        is_map: Whether the fields of a struct become entries of a map: their names are values, not names of columns.
    """

    others: tuple[int, ...] = ()
    inner: tuple[tuple[int, LeftOut], ...] = ()
    items: LeftOut | None = None
    is_map: bool = False

    def of(self, array: pa.Array, rows: pa.Int64Array, path: str) -> Iterator[UnknownAt]:
        """Return which rows have such fields.

        Args:
            array: Values, one for each of `rows`.
            rows: The rows that they are of; may repeat.
            path: Names from the root to them, with a dot behind.
        """
        values = plain(array)
        if self.items is not None:
            yield from self.items.of(*_items(values, rows), path)
            return
        if not (self.others or self.inner):
            return
        children = values.flatten()
        for at in self.others:
            field = values.type.field(at)
            found = rows.filter(sent(field, children[at]))
            yield UnknownAt(found, pa.repeat(pa.scalar(f"{path}{field.name}", pa.string()), len(found)))
        for at, inner in self.inner:
            yield from inner.of(children[at], rows, path if self.is_map else f"{path}{values.type.field(at).name}.")


def left_out(source: pa.DataType, takers: Sequence[Taker], *, any_case: bool) -> LeftOut | None:
    """Return what columns leave out of values of a type; None if they take all, or it has no fields."""
    found, kind = plain_type(source), kind_of(plain_type(source))
    if kind is Kind.STRUCT:
        return _of_struct(found, takers, any_case=any_case)
    if kind not in {Kind.LIST, Kind.MAP} or any(steps or kind_of(to) is not kind for steps, to in takers):
        return None
    inner = [to.value_type if kind is Kind.LIST else to.item_type for _, to in takers]
    of = found.value_type if kind is Kind.LIST else found.item_type
    items = left_out(of, [((), to) for to in inner], any_case=any_case)
    return None if items is None else LeftOut(items=items)


def _of_struct(source: pa.StructType, takers: Sequence[Taker], *, any_case: bool) -> LeftOut | None:
    names = [field.name for field in source]
    taken: dict[int, list[Taker]] = {}
    for steps, to in takers:
        if not steps and kind_of(to) is Kind.MAP:
            for every in range(len(names)):
                taken.setdefault(every, []).append(((), to.item_type))
            continue
        if not steps and kind_of(to) is not Kind.STRUCT:
            return None  # as JSON text: all of it
        wanted = [(steps[0], (steps[1:], to))] if steps else [(field.name, ((), field.type)) for field in to]
        for name, taker in wanted:
            at = matching(name, names, case_insensitive=any_case)
            if at is not None:
                taken.setdefault(at, []).append(taker)
    inner = [(at, left_out(source.field(at).type, of, any_case=any_case)) for at, of in sorted(taken.items())]
    others = tuple(at for at in range(len(names)) if at not in taken)
    kept = tuple((at, of) for at, of in inner if of is not None)
    is_map = any(not steps and kind_of(to) is Kind.MAP for steps, to in takers)
    return LeftOut(others, kept, is_map=is_map) if others or kept else None


def _items(values: pa.Array, rows: pa.Int64Array) -> tuple[pa.Array, pa.Int64Array]:
    """Return the items of lists, or the values of maps, and the row of each."""
    lists = values if pa.types.is_map(values.type) else as_lists(values)
    offsets, first, last = window(lists)
    items = (lists.items if pa.types.is_map(lists.type) else lists.values).slice(first, last - first)
    parents = pc.list_parent_indices(pa.LargeListArray.from_arrays(offsets.cast(pa.int64()), pa.nulls(len(items))))
    if lists.null_count:  # a null list may stand over items, which are nobody's
        kept = lists.is_valid().take(parents)
        items, parents = items.filter(kept), parents.filter(kept)
    return items, rows.take(parents)
