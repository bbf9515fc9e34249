"""Nested data: structs as plain columns, and a list as rows, one per element."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from frazil.error_codes import FIELDS_UNFIT
from frazil.errors import Terminal
from frazil.records import np, pa, pc
from frazil.records.model.column import type_name
from frazil.records.model.dead_letter import Reason
from frazil.records.model.frame import Column, Frame, Transformed
from frazil.records.transforms.definition import KAFKA, ConnectClass, Names, TransformDefinition, option, target_option
from frazil.records.transforms.fields import (
    Target,
    batch_of,
    columns_of,
    fields_of,
    first_duplicate,
    no_field_message,
    reject_all,
    require_type,
    select,
    with_fields,
)


@dataclass(frozen=True, slots=True)
class Flatten(TransformDefinition):
    """Turns struct fields into fields of their own, named by their path.

    Such as `address.city`. What a null struct holds is null. Maps, and structs without fields, stay as they are; so do structs
    within lists (explode the list first, or have it as JSON). Two fields that would get one name end the run.
    """

    connect_class: ClassVar = ConnectClass(f"{KAFKA}Flatten")

    delimiter: str = option("Between the names of a path.", ".")
    depth: int | None = option("So many levels are opened; all without.", None, ge=1)
    lists: Literal["keep", "json"] = option("Lists are kept, or become JSON text.", "keep")
    target: Target = target_option()

    def apply(self, frame: Frame) -> Transformed:
        """Flatten."""
        fields = fields_of(frame, self.target)
        paths: dict[str, tuple[str, ...]] = {}
        columns: list[Column] = []
        for path, (declared, values) in self._flatten(columns_of(fields), ()):
            name = self.delimiter.join(path)
            if name in paths:
                raise _collision(name, paths[name], path)
            paths[name] = path
            columns.append((declared.with_name(name), values))
        return Transformed(with_fields(frame, self.target, batch_of(columns, len(frame), like=fields)))

    def _flatten(self, columns: list[Column], outer: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Column]]:
        for declared, values in columns:
            path = (*outer, declared.name)
            if self._is_flattened(declared.type, len(path)):
                yield from self._flatten(children(declared, values), path)
            elif self.lists == "json" and _is_list(declared.type):
                from frazil.records.transforms.values.texts import json_texts

                yield path, (declared.with_type(pa.string()), json_texts(values))
            else:
                yield path, (declared, values)

    def _is_flattened(self, kind: pa.DataType, level: int) -> bool:
        return pa.types.is_struct(kind) and kind.num_fields > 0 and (self.depth is None or level <= self.depth)

    def referenced_names(self) -> Names:
        """Return none: the decoder itself handles a Flatten of all records."""
        return ()


def children(declared: pa.Field, values: pa.StructArray) -> list[Column]:
    """Return the fields of a struct column, null where it is null, and optional if it is."""
    fields = [field.with_nullable(field.nullable or declared.nullable) for field in declared.type]
    return list(zip(fields, values.flatten(), strict=True))


def _is_list(kind: pa.DataType) -> bool:
    return any(test(kind) for test in (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list))


def _collision(name: str, first: tuple[str, ...], second: tuple[str, ...]) -> Terminal:
    first_path, second_path = (" > ".join(path) for path in (first, second))
    return FIELDS_UNFIT.terminal(
        f"Flatten: {first_path} and {second_path} both become {name}",
        next_step="choose another delimiter, or rename one of them with ReplaceField first",
    )


@dataclass(frozen=True, slots=True)
class Explode(TransformDefinition):
    """Makes one row per element of a list.

    The other fields repeat, in the order of the list. The rows of one record share its position. Only the first of them carries
    the bytes of the record's value, the others carry none: a record of 10 MB with 10,000 elements would become 100 GB. Records of
    a shape without the list fail; the element has the list's name. A field that is no list, elements to spread that are no structs,
    and two fields that would get one name end the run.
    """

    reads: ClassVar = ("field",)

    field: str = option("The list.", min_length=1)
    outer: bool = option("A record whose list is null or empty keeps one row; otherwise it is filtered.", True)
    position_field: str | None = option(
        "Field for the element's place in the list, from 0.", None, key="position.field"
    )
    spread: bool = option("The fields of struct elements take the list's place.", False)

    def apply(self, frame: Frame) -> Transformed:
        """Explode."""
        index = frame.value.schema.get_field_index(self.field)
        if index < 0:
            return reject_all(frame, no_field_message("Explode", self.field, frame.value), self.field)
        lists = _as_list(self.field, frame.value.column(index))
        keeps_row = None if self.outer else pc.greater(pc.list_value_length(lists), 0)
        selected = select(frame, keeps_row, _too_large(frame, self.field, lists))
        return replace(selected, frame=self._rows(selected.frame, index))

    def _rows(self, frame: Frame, index: int) -> Frame:
        lists = _as_list(self.field, frame.value.column(index))
        parents, elements, element_indexes = _explode(lists)
        item = pa.field(self.field, elements.type, nullable=self.outer or lists.type.value_field.nullable)
        # The lists stay behind: repeated for each of their elements they would fill the memory.
        other_fields = frame.value.drop_columns([self.field])
        repeated_rows = _without_repeated_bytes(
            replace(frame, value=_with_row_numbers(other_fields, len(frame))), parents
        )
        columns = columns_of(repeated_rows.value)[:-1]
        columns[index:index] = self._spread(item, elements)
        if self.position_field is not None:
            columns.append((pa.field(self.position_field, pa.int32(), nullable=self.outer), element_indexes))
        if duplicate := first_duplicate([declared.name for declared, _ in columns]):
            raise FIELDS_UNFIT.terminal(
                f"Explode: two fields would be named {duplicate}", next_step="rename one with ReplaceField first"
            )
        return repeated_rows.with_value(batch_of(columns, len(parents), like=frame.value))

    def _spread(self, item: pa.Field, elements: pa.Array) -> list[Column]:
        if not self.spread:
            return [(item, elements)]
        if not pa.types.is_struct(item.type):
            raise FIELDS_UNFIT.terminal(
                f"Explode: expected {self.field} as a list of structs to spread, found elements of type {type_name(item.type)}",
                next_step="remove spread",
            )
        return children(item, elements)

    def referenced_names(self) -> Names:
        """Return the fields that the options name."""
        return None if self.spread else [self.field, self.position_field]


def _as_list(name: str, values: pa.Array) -> pa.ListArray:
    kind = values.type
    if pa.types.is_fixed_size_list(kind) or pa.types.is_large_list(kind):
        return values.cast(pa.list_(kind.value_field))
    return require_type("Explode", name, values, ("a list", "list"), "name a field that is a list")


def _too_large(frame: Frame, name: str, lists: pa.ListArray) -> dict[int, Reason]:
    """Return the rows that would become too large by exploding: fields next to a long list are repeated for each element.

    Raises:
        StepTooWide: those that can take too much together.
    """
    from frazil.records.model.cells import STEP_BYTES, too_many_rows, wide_repeats

    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    parts = [
        frame.value.drop_columns([name]),
        frame.records.drop_columns(["value"]),  # goes with the first row only
        frame.topic,
        frame.headers,
        *([] if frame.key is None else [frame.key]),
    ]
    # Sizes row by row take time, so only where the whole frame for each element of the longest list would be too much.
    if int(lengths.max()) * sum(part.nbytes for part in parts) <= STEP_BYTES:
        return {}
    sizes = [sum(part.slice(row, 1).nbytes for part in parts) for row in range(len(frame))]
    is_too_wide = wide_repeats(lengths, np.array(sizes, np.int64))
    return {int(row): replace(too_many_rows(int(lengths[row])), path=name) for row in np.flatnonzero(is_too_wide)}


def _explode(lists: pa.ListArray) -> tuple[pa.Int64Array, pa.Array, pa.Int32Array]:
    """Return per element the row of its list, the element and its index; a list without elements gives one null."""
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_pylist()
    parents: list[int] = []
    element_indexes: list[int | None] = []
    flat_indexes: list[int | None] = []
    start = 0
    for row, length in enumerate(lengths):
        parents += [row] * (length or 1)
        element_indexes += range(length) if length else (None,)
        flat_indexes += range(start, start + length) if length else (None,)
        start += length
    elements = lists.flatten().take(pa.array(flat_indexes, pa.int64()))
    return pa.array(parents, pa.int64()), elements, pa.array(element_indexes, pa.int32())


def _with_row_numbers(fields: pa.RecordBatch, row_count: int) -> pa.RecordBatch:
    """Add a column of row numbers: a batch without columns would lose its number of rows."""
    number = (pa.field("", pa.int64()), pa.array(range(row_count), pa.int64()))
    return batch_of([*columns_of(fields), number], row_count)


def _without_repeated_bytes(frame: Frame, parents: pa.Int64Array) -> Frame:
    """Repeat rows; only the first row of each record keeps the bytes of its value."""
    records = frame.records
    raw = records.column("value")
    value_index = records.schema.get_field_index("value")
    without_bytes = records.set_column(value_index, records.schema.field(value_index), pa.nulls(len(records), raw.type))
    rows = replace(frame, records=without_bytes).take(parents)
    positions = rows.positions
    is_first = pa.array(
        [
            row == 0 or position != previous
            for row, (position, previous) in enumerate(_with_previous(positions.to_pylist()))
        ],
        pa.bool_(),
    )
    # Taken for each row, nulls among them, Arrow would make room for a value of mean length in each.
    first_values = raw.take(parents.filter(is_first))
    values = pc.replace_with_mask(pa.repeat(pa.scalar(b"", raw.type), len(rows)), is_first, first_values)
    return replace(rows, records=rows.records.set_column(value_index, records.schema.field(value_index), values))


def _with_previous(values: list[int]) -> list[tuple[int, int]]:
    return list(zip(values, values[:1] + values[:-1], strict=True))
