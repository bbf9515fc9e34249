"""Fields of a frame's values or keys: find, put, leave out. What every transform of fields is written with."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from difflib import get_close_matches
from typing import Final, Literal

import pyarrow as pa
import pyarrow.compute as pc

from frazil.errors import Terminal
from frazil.records.dead import DeadCode, Reason
from frazil.records.formats.port import BARE
from frazil.records.frame import Frame, Lack, Transformed
from frazil.records.json.text import SHOWN_CHARACTERS

Target = Literal["value", "key"]
"""Which half of the records a transform works on."""

_LISTED: Final = 8
"""So many field names a message shows."""


def fields_of(frame: Frame, target: Target) -> pa.RecordBatch:
    """Return the fields of the values or of the keys.

    Raises:
        Terminal: keys are wanted and not decoded.
    """
    if target == "value":
        return frame.value
    if frame.key is None:
        raise Terminal(
            "a transform works on the key, and keys are not decoded",
            next_step="declare `key:` in the pipeline file, or put ValueToKey before the transform",
        )
    return frame.key


def with_fields(frame: Frame, target: Target, fields: pa.RecordBatch) -> Frame:
    """Return the frame with other fields of its values or keys."""
    return replace(frame, value=fields) if target == "value" else replace(frame, key=fields)


def tombstones(frame: Frame) -> pa.BooleanArray:
    """Return per row whether its record came without value and no transform gave it one; never null.

    A row that an exploded list made carries no bytes either. It is told from a tombstone by the other rows of its record,
    and by having fields that are not null.
    """
    sent = frame.records.column("value")
    if not sent.null_count:
        return sent.is_null()
    with_value = frame.positions.filter(sent.is_valid())
    empty = pc.invert(pc.is_in(frame.positions, value_set=with_value))
    for values in frame.value.columns:
        empty = pc.and_(empty, values.is_null())
    return empty


def batch_of(
    columns: Sequence[tuple[pa.Field, pa.Array]], rows: int, *, like: pa.RecordBatch | None = None
) -> pa.RecordBatch:
    """Return columns as a batch that knows its number of rows even without any column.

    Args:
        columns: Declarations and values.
        rows: Number of rows.
        like: Batch whose schema metadata the new one keeps.
    """
    metadata = None if like is None else like.schema.metadata
    if not columns:
        nothing = pa.RecordBatch.from_struct_array(pa.array([{}] * rows, pa.struct([])))
        return nothing.replace_schema_metadata(metadata)
    schema = pa.schema([field for field, _ in columns], metadata)
    return pa.RecordBatch.from_arrays([array for _, array in columns], schema=schema)


def columns_of(fields: pa.RecordBatch) -> list[tuple[pa.Field, pa.Array]]:
    """Return the columns with their declarations; the reverse of `batch_of`."""
    return list(zip(fields.schema, fields.columns, strict=True))


def put(fields: pa.RecordBatch, name: str, values: pa.Array) -> pa.RecordBatch:
    """Return the batch with an optional column added at its end, or in the place of the one of that name."""
    columns = columns_of(fields)
    names = fields.schema.names
    column = (pa.field(name, values.type), values)
    if name in names:
        columns[names.index(name)] = column
    else:
        columns.append(column)
    return batch_of(columns, len(values), like=fields)


def bare(fields: pa.RecordBatch) -> pa.Array | None:
    """Return the one column of values that have no fields (a text, a number, a list); None if they have fields."""
    return fields.column(0) if fields.schema.names == [BARE] else None


def find(fields: pa.RecordBatch, path: str, *, nested: bool = True) -> pa.Array | None:
    """Return the values of a field, or None if there is none.

    Args:
        fields: Where to look.
        path: The name of a field; where none has this name and `nested` is set, steps as `steps` reads them.
        nested: Whether fields within structs and maps are looked for.
    """
    found = _column(fields, path)
    if found is not None or not nested:
        return found
    first, *rest = steps(path)
    found = _column(fields, first)
    for step in rest:
        if found is None:
            return None
        found = _inside(found, step)
    return found


def steps(path: str) -> list[str]:
    """Split a path at its dots, except within backticks: `` `a.b`.c `` is the field c in `a.b` (Kafka's KIP-821).

    A backtick within backticks is written twice, or behind a backslash as in the proposal.
    """
    found: list[str] = []
    rest: str | None = path
    while rest is not None:
        if rest.startswith("`") and (end := _closing(rest)) > 0:
            found.append(rest[1:end].replace("\\`", "`").replace("``", "`"))
            rest = rest[end + 2 :] if end + 1 < len(rest) else None
        else:
            step, dot, behind = rest.partition(".")
            found.append(step)
            rest = behind if dot else None
    return found


def _closing(text: str) -> int:
    """Return where the backtick is that ends a step, or -1: the step ends at a dot or at the end of the text."""
    position = text.find("`", 1)
    while position > 0:
        doubled = text[position + 1 : position + 2] == "`"
        if not doubled and text[position - 1] != "\\" and text[position + 1 : position + 2] in ("", "."):
            return position
        position = text.find("`", position + (2 if doubled else 1))
    return -1


def _column(fields: pa.RecordBatch, name: str) -> pa.Array | None:
    index = fields.schema.get_field_index(name)
    return None if index < 0 else fields.column(index)


def _inside(values: pa.Array, step: str) -> pa.Array | None:
    if pa.types.is_struct(values.type):
        index = values.type.get_field_index(step)
        return None if index < 0 else pc.struct_field(values, index)
    if pa.types.is_map(values.type) and pa.types.is_string(values.type.key_type):
        return pc.map_lookup(values, pa.scalar(step), "last")
    return None


def none_survive(frame: Frame, message: str, path: str = "") -> Transformed:
    """Return a frame without rows: none of these records has what the transform needs."""
    reason = failure(message, path)
    return Transformed(frame.take(pa.array([], pa.int64())), dict.fromkeys(frame.positions.to_pylist(), reason))


def failure(message: str, path: str = "") -> Reason:
    """Return the reason of a record on which a transform can't do its work."""
    return Reason(DeadCode.TRANSFORM_FAILED, message, path)


def no_field(transform: str, name: str, fields: pa.RecordBatch) -> str:
    """Say that a field is not there, and which are."""
    names = fields.schema.names
    near = get_close_matches(name, names, 1)
    listed = ", ".join(names[:_LISTED]) + (" …" if len(names) > _LISTED else "")
    shown = f"{listed or 'none'}" + (f"; did you mean {near[0]}?" if near else "")
    return f"{transform}: expected a field {name}, found {shown}"


def lacking(fields: pa.RecordBatch, option: str, paths: Iterable[str], *, nested: bool = False) -> Iterator[Lack]:
    """Say which fields are not there, and what is near.

    Args:
        fields: Where to look.
        option: The option that names them.
        paths: Names, or paths as `find` reads them.
        nested: As in `find`.
    """
    for path in paths:
        if find(fields, path, nested=nested) is None:
            known = list(_paths(fields.schema)) if nested else fields.schema.names
            near = get_close_matches(path, known, 1)
            listed = ", ".join(known[:_LISTED]) + (" …" if len(known) > _LISTED else "")
            there = f"near: {near[0]}" if near else f"there are {listed}" if known else "there are none"
            yield Lack(option, f"no field {path!r} here; {there}", path)


def _paths(fields: Iterable[pa.Field]) -> Iterator[str]:
    for declared in fields:
        name = f"`{declared.name}`" if "." in declared.name else declared.name
        yield declared.name
        if pa.types.is_struct(declared.type):
            yield from (f"{name}.{inner}" for inner in _paths(declared.type))


def shown(value: object) -> str:
    """Return a found value for a message, cut to what a log may hold."""
    text = value[: SHOWN_CHARACTERS + 1] if isinstance(value, str | bytes) else value
    said = f'text "{text}"' if isinstance(text, str) else str(text)
    return said if len(said) <= SHOWN_CHARACTERS else f"{said[:SHOWN_CHARACTERS]}…"


def repeated(names: Sequence[str]) -> str | None:
    """Return a name that is there twice, or None."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None
