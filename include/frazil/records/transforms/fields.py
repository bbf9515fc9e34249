"""What transforms share: find, add and remove fields of values or keys, select and reject rows, match texts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from typing import Final, Literal

from frazil.error_codes import BAD_TRANSFORM, FIELDS_UNFIT
from frazil.records import pa, pc
from frazil.records.model.column import type_name
from frazil.records.model.dead_letter import DeadCode, Reason
from frazil.records.model.format import BARE, Frame, MissingField, Transformed
from frazil.records.model.json_number import SHOWN_CHARACTERS

Target = Literal["value", "key"]
"""Which half of the records a transform works on."""

FieldKind = tuple[str, ...]
"""Types that a field may have: their name in messages, then the tests of `pa.types` without `is_`, as in `("long", "integer")`."""

_MAX_NAMES_SHOWN: Final = 8
"""Most field names that a message shows."""


def fields_of(frame: Frame, target: Target) -> pa.RecordBatch:
    """Return the fields of the values or of the keys.

    Raises:
        Terminal: The target is the key, and keys are not decoded.
    """
    if target == "value":
        return frame.value
    if frame.key is None:
        raise BAD_TRANSFORM.terminal(
            "a transform works on the key, and keys are not decoded",
            next_step="declare `key:` in the pipeline file, or put ValueToKey before the transform",
        )
    return frame.key


def with_fields(frame: Frame, target: Target, fields: pa.RecordBatch) -> Frame:
    """Return the frame with other fields of its values or keys."""
    return replace(frame, value=fields) if target == "value" else replace(frame, key=fields)


def tombstones(frame: Frame) -> pa.BooleanArray:
    """Return, per row, whether its record came without value and no transform gave it one; never null.

    Rows of an exploded list have no bytes of the value either. But another row of their record has them, or a field is not null.
    """
    raw_values = frame.records.column("value")
    if not raw_values.null_count:
        return raw_values.is_null()
    with_value = frame.positions.filter(raw_values.is_valid())
    empty = pc.invert(pc.is_in(frame.positions, value_set=with_value))
    for values in frame.value.columns:
        empty = pc.and_(empty, values.is_null())
    return empty


def batch_of(
    columns: Sequence[tuple[pa.Field, pa.Array]], rows: int, *, like: pa.RecordBatch | None = None
) -> pa.RecordBatch:
    """Return columns as a batch that has `rows` rows even without any column, and the schema metadata of `like`."""
    metadata = None if like is None else like.schema.metadata
    if not columns:
        nothing = pa.RecordBatch.from_struct_array(pa.array([{}] * rows, pa.struct([])))
        return nothing.replace_schema_metadata(metadata)
    schema = pa.schema([field for field, _ in columns], metadata)
    return pa.RecordBatch.from_arrays([array for _, array in columns], schema=schema)


def null_row(schema: pa.Schema) -> pa.RecordBatch:
    """Return one row of nulls; all its fields are optional."""
    return batch_of([(field.with_nullable(nullable=True), pa.nulls(1, field.type)) for field in schema], 1)


def columns_of(fields: pa.RecordBatch) -> list[tuple[pa.Field, pa.Array]]:
    """Return the columns with their declarations; the reverse of `batch_of`."""
    return list(zip(fields.schema, fields.columns, strict=True))


def put_column(fields: pa.RecordBatch, name: str, values: pa.Array) -> pa.RecordBatch:
    """Return the batch with an optional column added at its end, or in the place of the one of that name."""
    columns = columns_of(fields)
    names = fields.schema.names
    column = (pa.field(name, values.type), values)
    if name in names:
        columns[names.index(name)] = column
    else:
        columns.append(column)
    return batch_of(columns, len(values), like=fields)


def bare_column(fields: pa.RecordBatch) -> pa.Array | None:
    """Return the one column of values that have no fields (a text, a number, a list); None if they have fields."""
    return fields.column(0) if fields.schema.names == [BARE] else None


def find(fields: pa.RecordBatch, path: str, *, nested: bool = True) -> pa.Array | None:
    """Return the values of a field, or None if there is none.

    Args:
        fields: Where to look.
        path: The name of a field. If no field has this name and `nested` is set, the steps that `split_path` returns.
        nested: Whether to look inside structs and maps.
    """
    values = _column(fields, path)
    if values is not None or not nested:
        return values
    first, *rest = split_path(path)
    values = _column(fields, first)
    for step in rest:
        if values is None:
            return None
        values = _child(values, step)
    return values


def typed_field(
    owner: str, fields: pa.RecordBatch, path: str, kind: FieldKind, next_step: str = "", *, nested: bool = True
) -> pa.Array | None:
    """Return the values of a field; None if no field has this name, or its type is null.

    Raises:
        Terminal: It has another type.
    """
    values = find(fields, path, nested=nested)
    if values is None or pa.types.is_null(values.type):
        return None
    return require_type(owner, path, values, kind, next_step)


def require_type(owner: str, path: str, values: pa.Array, kind: FieldKind, next_step: str = "") -> pa.Array:
    """Return values unchanged, after checking that their type is one of a kind's.

    Raises:
        Terminal: It is another one.
    """
    expected, *tests = kind
    if any(getattr(pa.types, f"is_{test}")(values.type) for test in tests):
        return values
    raise FIELDS_UNFIT.terminal(
        f"{owner}: expected {path} as {expected}, found {type_name(values.type)}",
        next_step=next_step or f"declare {path} as {expected}",
    )


def split_path(path: str) -> list[str]:
    """Split a path at its dots, except within backticks: `` `a.b`.c `` is the field c in `a.b` (Kafka's KIP-821).

    A backtick within backticks is doubled, or escaped by a backslash as in KIP-821.
    """
    path_steps: list[str] = []
    rest: str | None = path
    while rest is not None:
        if rest.startswith("`") and (end := _closing(rest)) > 0:
            path_steps.append(rest[1:end].replace("\\`", "`").replace("``", "`"))
            rest = rest[end + 2 :] if end + 1 < len(rest) else None
        else:
            step, dot, after = rest.partition(".")
            path_steps.append(step)
            rest = after if dot else None
    return path_steps


def _closing(text: str) -> int:
    """Return the index of the backtick that closes a step in backticks; -1 if none stands before a dot or the end."""
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


def _child(values: pa.Array, step: str) -> pa.Array | None:
    if pa.types.is_struct(values.type):
        index = values.type.get_field_index(step)
        return None if index < 0 else pc.struct_field(values, index)
    if pa.types.is_map(values.type) and pa.types.is_string(values.type.key_type):
        return pc.map_lookup(values, pa.scalar(step), "last")
    return None


def reject_all(frame: Frame, message: str, path: str = "") -> Transformed:
    """Reject all records of a frame for one reason, such as a field that none of them has."""
    reason = failure(message, path)
    return Transformed(frame.take(pa.array([], pa.int64())), dict.fromkeys(frame.positions.to_pylist(), reason))


def failure(message: str, path: str = "") -> Reason:
    """Return the reason of a record on which a transform fails."""
    return Reason(DeadCode.TRANSFORM_FAILED, message, path)


def no_field_message(transform: str, name: str, fields: pa.RecordBatch) -> str:
    """Return a message that a field is missing, with the names of those that exist."""
    names = fields.schema.names
    suggestions = get_close_matches(name, names, 1)
    hint = f"; did you mean {suggestions[0]}?" if suggestions else ""
    return f"{transform}: expected a field {name}, found {_listed(names)}{hint}"


def lacking(
    fields: pa.RecordBatch, option: str, paths: Iterable[str], *, nested: bool = False
) -> Iterator[MissingField]:
    """Yield the fields that do not exist, with a similar name as a hint. `find` defines paths and `nested`."""
    for path in paths:
        if find(fields, path, nested=nested) is None:
            names = list(_paths(fields.schema)) if nested else fields.schema.names
            suggestions = get_close_matches(path, names, 1)
            hint = f"did you mean {suggestions[0]}?" if suggestions else f"there are {_listed(names)}"
            yield MissingField(option, f"no field {path!r} here; {hint}", path)


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_MAX_NAMES_SHOWN]) or "none"
    return f"{shown} …" if len(names) > _MAX_NAMES_SHOWN else shown


def _paths(fields: Iterable[pa.Field]) -> Iterator[str]:
    for declared in fields:
        name = f"`{declared.name}`" if "." in declared.name else declared.name
        yield declared.name
        if pa.types.is_struct(declared.type):
            yield from (f"{name}.{inner}" for inner in _paths(declared.type))


def describe_value(value: object) -> str:
    """Return a value for a message, cut to `SHOWN_CHARACTERS`."""
    text = value[: SHOWN_CHARACTERS + 1] if isinstance(value, str | bytes) else value
    description = f'text "{text}"' if isinstance(text, str) else str(text)
    return description if len(description) <= SHOWN_CHARACTERS else f"{description[:SHOWN_CHARACTERS]}…"


def first_duplicate(names: Sequence[str]) -> str | None:
    """Return the first name that repeats an earlier one, or None."""
    earlier_names: set[str] = set()
    for name in names:
        if name in earlier_names:
            return name
        earlier_names.add(name)
    return None


def select(
    frame: Frame, keep: pa.BooleanArray | None = None, failed: Mapping[int, Reason] | None = None
) -> Transformed:
    """Keep some rows; report the other records as dead or filtered.

    Args:
        frame: The rows.
        keep: Per row whether it is kept; null counts as false. None keeps all.
        failed: Reasons by row. They override `keep`; all rows of the same records go.
    """
    dead: dict[int, Reason] = {}
    for row, reason in sorted((failed or {}).items()):
        dead.setdefault(frame.positions[row].as_py(), reason)
    keeps_row = pa.repeat(value=True, size=len(frame)) if keep is None else pc.fill_null(keep, fill_value=False)
    if dead:
        is_dead = pc.is_in(frame.positions, value_set=pa.array(list(dead), pa.int64()))
        keeps_row = pc.and_(keeps_row, pc.invert(is_dead))
    if keeps_row.true_count == len(frame):
        return Transformed(frame)
    kept_rows = frame.take(pc.indices_nonzero(keeps_row).cast(pa.int64()))
    filtered = set(pc.unique(frame.positions.filter(pc.invert(keeps_row))).to_pylist())
    return Transformed(kept_rows, dead, frozenset(filtered.difference(dead, kept_rows.positions.to_pylist())))


# Python's `re` would backtrack: on a text that a producer chooses, it could take years. RE2, in Arrow, takes linear time.

_NAMED_GROUP: Final = re.compile(r"(?<!\\)((?:\\\\)*)\(\?<(?=[A-Za-z])")

_MAX_GROUP: Final = 9
"""The highest group that a replacement may contain: RE2 reads one digit."""


class WholeMatch:
    """A regular expression that matches whole texts, in linear time.

    Raises:
        Terminal: It is not valid, or has what RE2 does not support: look-ahead, look-behind, back-references.
    """

    def __init__(self, pattern: str) -> None:
        re2_pattern = _NAMED_GROUP.sub(r"\1(?P<", pattern)
        try:
            compiled = re.compile(re2_pattern)  # for its groups only
            pc.match_substring_regex(pa.array([""]), re2_pattern)
        except (re.error, RecursionError, OverflowError, pa.ArrowInvalid) as e:
            raise BAD_TRANSFORM.terminal(
                f"{pattern!r} is not a regular expression that RE2 takes: {e}",
                next_step="correct the expression in the pipeline file",
            ) from e
        self.pattern: Final = pattern
        self.groups: Final = compiled.groups
        self.names: Final = dict(compiled.groupindex)
        self._whole: Final = f"\\A(?s:{re2_pattern})\\z"

    def holds(self, texts: pa.StringArray) -> pa.BooleanArray:
        """Return, per text, whether it matches."""
        return pc.match_substring_regex(texts, self._whole)

    def replace(self, texts: pa.StringArray, pieces: Sequence[str | int]) -> pa.StringArray:
        """Return the texts with each one that matches replaced.

        Args:
            texts: The texts.
            pieces: The parts of the replacement: texts, and numbers of groups. A group that did not match is empty.

        Raises:
            Terminal: The number of a group is too large.
        """
        if too_large := [piece for piece in pieces if isinstance(piece, int) and piece > _MAX_GROUP]:
            raise BAD_TRANSFORM.terminal(
                f"group {too_large[0]} of {self.pattern!r} can't be used in a replacement: only the first {_MAX_GROUP} can",
                next_step="write groups that the replacement does not use as (?:…)",
            )
        re2_pieces = (f"\\{piece}" if isinstance(piece, int) else piece.replace("\\", "\\\\") for piece in pieces)
        return pc.replace_substring_regex(texts, self._whole, "".join(re2_pieces))
