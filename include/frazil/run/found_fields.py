"""What a pipeline file looks for among fields that are known before any record is read: misspelled names, mostly."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from difflib import get_close_matches

import pyarrow as pa

from frazil.errors import Terminal
from frazil.pipeline.route import Route
from frazil.pipeline.value import Column
from frazil.records.fit.source import plain_type
from frazil.records.json.record import ExactDecoder
from frazil.records.spec import RecordSpec
from frazil.records.type_names import spelled

_NAMED = 20
"""Fields that a message lists."""


def unfilled(spec: RecordSpec, half: str, shapes: Sequence[pa.Schema]) -> Iterator[str]:
    """Columns that would be null in every row, since no value, or key, of these shapes has their field: one line each."""
    for column in spec.column_specs:
        if (column.name in spec.of_key) == (half == "key") and not column.has_default:
            absent = [_absent(column.steps, of, any_case=spec.field_names == "case_insensitive") for of in shapes]
            if all(absent):
                # One of the shapes may know what is meant.
                nearest = next((each for each in absent if each and "did you mean" in each), absent[0])
                yield f"{column.name}: no {half} has the field {nearest}"


def unfit_default(name: str, column: Column, of: pa.DataType) -> Iterator[str]:
    """Why the default of a column can't be read as a JSON record would carry it."""
    units = {} if column.unit is None else {name: column.unit}
    schema = pa.schema([pa.field(name, of, nullable=not column.required)])
    try:
        ExactDecoder(RecordSpec(schema, defaults={name: column.default}, units=units, kafka_columns=None))
    except Terminal as error:
        yield error.message.removeprefix(f"column {name}: the default ")


def undecided(route: Route | None, shapes: Sequence[pa.Schema], *, any_case: bool) -> Iterator[str]:
    """Why no record of these shapes ever finds its table by a field: one line, with the key path."""
    if (found := deciding(route)) is not None:
        told = [_undecided(found[1], fields, any_case=any_case) for fields in shapes]
        if all(told):
            yield f"{found[0]}: {told[0]}"


def _undecided(path: str, fields: pa.Schema, *, any_case: bool) -> str | None:
    steps = path.split(".")
    if (absent := _absent(steps, fields, any_case=any_case)) is not None:
        return f"no value has the field {absent}"
    kind = _kind(steps, fields, any_case=any_case)
    if kind is not None and _decides(kind):
        return None
    return f"a text, number or boolean decides; {path!r} is {'not in an object' if kind is None else spelled(kind)}"


def deciding(route: Route | None) -> tuple[str, str] | None:
    """The key of a file that names the field that decides, and that field; None if the topic does, or nothing."""
    if route is None or route.topic is not None:
        return None
    if route.static is not None:
        return "route.static.field", route.static.field
    return None if route.field is None else ("route.field.name", route.field.name)


def near(name: str, known: Sequence[str]) -> str:
    """What may have been meant by a name that is not known."""
    if found := get_close_matches(name, known, 1):
        return f"did you mean {found[0]!r}?"
    more = f" and {len(known) - _NAMED} more" if len(known) > _NAMED else ""
    return f"there are {', '.join(known[:_NAMED]) or 'none'}{more}"


def _absent(steps: Sequence[str], fields: Iterable[pa.Field], *, any_case: bool) -> str | None:
    """The first of the steps that no field has, and what may be meant; None if there may be one."""
    for depth, step in enumerate(steps):
        found, names = _field(step, fields, any_case=any_case)
        if found is None:
            outer = ".".join(steps[:depth])
            known = [f"{outer}.{name}" if outer else name for name in names]
            path = ".".join(steps[: depth + 1])
            return f"{path!r}, {near(path, known)}"
        kind = plain_type(found.type)
        if not pa.types.is_struct(kind):
            return None
        fields = kind
    return None


def _kind(steps: Sequence[str], fields: Iterable[pa.Field], *, any_case: bool) -> pa.DataType | None:
    """The type of the field at the end of steps; None if the way there ends at one without fields."""
    kind: pa.DataType = pa.struct(list(fields))
    for step in steps:
        found = _field(step, kind, any_case=any_case)[0] if pa.types.is_struct(kind) else None
        if found is None:
            return None
        kind = plain_type(found.type)
    return kind


def _field(name: str, fields: Iterable[pa.Field], *, any_case: bool) -> tuple[pa.Field | None, list[str]]:
    fold = str.casefold if any_case else str
    listed = list(fields)
    return next((each for each in listed if fold(each.name) == fold(name)), None), [each.name for each in listed]


def _decides(kind: pa.DataType) -> bool:
    of = pa.types
    tests = (of.is_string, of.is_large_string, of.is_integer, of.is_boolean, of.is_decimal)
    return any(test(kind) for test in tests)
