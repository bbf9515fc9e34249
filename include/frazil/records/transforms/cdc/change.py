"""Shared by transforms of change events: the `_cdc` struct, before and after images, and checks of many rows at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from frazil.error_codes import FIELDS_UNFIT
from frazil.records import pa, pc
from frazil.records.model.column import type_name
from frazil.records.model.dead_letter import Reason
from frazil.records.model.frame import Column, Columns
from frazil.records.transforms.fields import describe_value, failure, typed_field

Verdict = tuple["pa.BooleanArray", str, str]
"""A check: mask of the rows that fail, the message, and the path of the field."""


def failures(
    verdicts: Iterable[Verdict], rows_to_check: pa.BooleanArray, values: pa.Array | None = None
) -> dict[int, Reason]:
    """Return reasons by row: of each row the first check that fails.

    Args:
        verdicts: Masks without nulls, with messages that may end in `found {}`.
        rows_to_check: Mask of the rows that are checked.
        values: Per row the value that `{}` in a message stands for.
    """
    failed: dict[int, Reason] = {}
    for mask, message, path in verdicts:
        for row in pc.indices_nonzero(pc.and_(mask, rows_to_check)).to_pylist():
            text = message if values is None else message.replace("{}", _describe(values[row].as_py()))
            failed.setdefault(row, failure(text, path))
    return failed


def _describe(value: object) -> str:
    return "null" if value is None else describe_value(value)


def choose_image(name: str, after: Columns, before: Columns, takes_before: pa.BooleanArray) -> Columns:
    """Merge two images of rows: the image before where `takes_before` is true, else the image after.

    Raises:
        Terminal: a field has different types in the two images.
    """
    if not before:
        return after
    return {
        field_name: _merge_images(name, field_name, after.get(field_name), before.get(field_name), takes_before)
        for field_name in {**after, **before}
    }


def _merge_images(
    name: str, field: str, after: Column | None, before: Column | None, takes_before: pa.BooleanArray
) -> Column:
    image = after or before
    if image is None:
        raise AssertionError(field)
    declared, values = image
    nothing: Column = (declared.with_nullable(nullable=True), pa.nulls(len(values), declared.type))
    (old, old_values), (new, new_values) = _with_common_type(before or nothing, after or nothing)
    if old.type != new.type:
        raise FIELDS_UNFIT.terminal(
            f"{name}: expected one type of field {field}, found {type_name(old.type)} before and {type_name(new.type)} after",
            next_step="declare the rows of before and after with the same fields",
        )
    size = len(takes_before)
    # One array of both images, the image after first; a row of the image before is `size` further.
    stacked = pa.concat_arrays([new_values, old_values])
    row_offset = pc.if_else(takes_before, pa.scalar(size, pa.int64()), pa.scalar(0, pa.int64()))
    return new.with_nullable(old.nullable or new.nullable), stacked.take(pc.add(pa.arange(0, size), row_offset))


def _with_common_type(old: Column, new: Column) -> tuple[Column, Column]:
    """Cast two images of a field to one type: undeclared JSON is null in one image, or an integer instead of a double."""
    (old_field, old_values), (new_field, new_values) = old, new
    if pa.types.is_null(old_field.type) or (pa.types.is_int64(old_field.type) and pa.types.is_float64(new_field.type)):
        return _cast_column(old_field, old_values, new_field.type), new
    if pa.types.is_null(new_field.type) or (pa.types.is_float64(old_field.type) and pa.types.is_int64(new_field.type)):
        return old, _cast_column(new_field, new_values, old_field.type)
    return old, new


def _cast_column(declared: pa.Field, values: pa.Array, kind: pa.DataType) -> Column:
    try:
        return declared.with_type(kind), values.cast(kind)
    except pa.ArrowInvalid:  # a whole number that no double holds
        return declared, values


def text_field(transform: str, fields: pa.RecordBatch, path: str) -> pa.StringArray:
    """Return a text field, nulls where there is none of this name.

    Raises:
        Terminal: the field is no text.
    """
    values = typed_field(transform, fields, path, ("string", "string"))
    return pa.nulls(fields.num_rows, pa.string()) if values is None else values


def cdc_struct(columns: Mapping[str, pa.Array]) -> pa.StructArray:
    """Return the struct of the facts about a change, all optional but `op`."""
    fields = [pa.field(name, values.type, nullable=name != "op") for name, values in columns.items()]
    return pa.StructArray.from_arrays(list(columns.values()), fields=fields)


def refuse_field(transform: str, name: str, names: Iterable[str]) -> None:
    """Refuse data that has a field of the name that the transform adds.

    Raises:
        Terminal: it has.
    """
    if name in names:
        raise FIELDS_UNFIT.terminal(
            f"{transform}: the data has a field {name} itself", next_step="choose another name under cdc_field"
        )
