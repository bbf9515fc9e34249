"""What transforms of change events share: the `_cdc` struct, and verdicts on many rows at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from frazil.errors import Terminal
from frazil.records.dead import Reason
from frazil.records.transforms.fields import failure, find, shown
from frazil.records.transforms.flatten import Column

Columns = Mapping[str, Column]
"""Fields of a row's image, by name."""

Verdict = tuple[pa.BooleanArray, str, str]
"""Where rows fail, the message, and the path of the field."""


def failures(verdicts: Iterable[Verdict], among: pa.BooleanArray, found: pa.Array | None = None) -> dict[int, Reason]:
    """Return reasons by row, the first verdict that strikes a row.

    Args:
        verdicts: Masks without nulls, with messages that may end in `found {}`.
        among: The rows that verdicts are passed on.
        found: What `{}` in a message stands for, per row.
    """
    failed: dict[int, Reason] = {}
    for mask, message, path in verdicts:
        for row in pc.indices_nonzero(pc.and_(mask, among)).to_pylist():
            said = message if found is None else message.replace("{}", _found(found[row].as_py()))
            failed.setdefault(row, failure(said, path))
    return failed


def _found(value: object) -> str:
    return "null" if value is None else shown(value)


def chosen(name: str, after: Columns, before: Columns, takes_before: pa.BooleanArray) -> Columns:
    """Return the fields of two images of a row: of the one before where it is to be taken, else of the one after.

    Raises:
        Terminal: A field has another type in the other one.
    """
    if not before:
        return after
    return {of: _merged(name, of, after.get(of), before.get(of), takes_before) for of in {**after, **before}}


def _merged(
    name: str, field: str, after: Column | None, before: Column | None, takes_before: pa.BooleanArray
) -> Column:
    known = after or before
    if known is None:
        raise AssertionError(field)
    declared, values = known
    nothing: Column = (declared.with_nullable(nullable=True), pa.nulls(len(values), declared.type))
    (old, old_values), (new, new_values) = _met(before or nothing, after or nothing)
    if old.type != new.type:
        raise Terminal(
            f"{name}: expected one type of field {field}, found {old.type} before and {new.type} after",
            next_step="declare the rows of before and after with the same fields",
        )
    size = len(takes_before)
    both = pa.concat_arrays([new_values, old_values])
    further = pc.if_else(takes_before, pa.scalar(size, pa.int64()), pa.scalar(0, pa.int64()))
    return new.with_nullable(old.nullable or new.nullable), both.take(pc.add(pa.arange(0, size), further))


def _met(old: Column, new: Column) -> tuple[Column, Column]:
    """Images of JSON that nobody declared are typed by what they hold: null is of any type, a whole number may be a double."""
    (left, left_values), (right, right_values) = old, new
    if pa.types.is_null(left.type) or (pa.types.is_int64(left.type) and pa.types.is_float64(right.type)):
        return _as(left, left_values, right.type), new
    if pa.types.is_null(right.type) or (pa.types.is_float64(left.type) and pa.types.is_int64(right.type)):
        return old, _as(right, right_values, left.type)
    return old, new


def _as(declared: pa.Field, values: pa.Array, kind: pa.DataType) -> Column:
    try:
        return declared.with_type(kind), values.cast(kind)
    except pa.ArrowInvalid:  # a whole number that no double holds
        return declared, values


def text_field(transform: str, fields: pa.RecordBatch, path: str) -> pa.StringArray:
    """Return a text field, nulls where there is none of this name.

    Raises:
        Terminal: the field is no text.
    """
    values = find(fields, path)
    if values is None or pa.types.is_null(values.type):
        return pa.nulls(fields.num_rows, pa.string())
    if not pa.types.is_string(values.type):
        raise Terminal(
            f"{transform}: expected {path} as string, found {values.type}", next_step=f"declare {path} as string"
        )
    return values


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
        raise Terminal(
            f"{transform}: the data has a field {name} itself", next_step="choose another name under cdc_field"
        )
