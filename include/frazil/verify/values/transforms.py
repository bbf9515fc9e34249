"""The short transforms, one record at a time: a second, simple implementation by the promises of docs/transforms.md."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from math import isfinite
from struct import Struct
from typing import Any, Final

from frazil.pipeline.syntax.patterns import matches
from frazil.pipeline.transforms.transform_step import HasHeaderKey, Step, TopicNameMatches
from frazil.verify.values.json_document import Unfit
from frazil.verify.values.native import BARE, UNKNOWN, Fields, Json, LineText, UnjudgedError


@dataclass(frozen=True)
class Record:
    """A record on its way through transforms.

    Attributes:
        value: Fields of the value.
        key: Fields of the key; None without one.
        topic: Its topic.
        partition: Its partition.
        offset: Its offset.
        micros: Kafka's timestamp.
        headers: Names of its headers.
    """

    value: Fields
    key: Fields | None
    topic: str
    partition: int
    offset: int
    micros: int | None
    headers: frozenset[str] = field(default_factory=frozenset)


Apply = Callable[[Any, Record], Record | None]
"""What a step makes of a record; None: it leaves it out. Raises Unfit where the record is a dead letter."""


def transformed(record: Record, steps: Sequence[Step]) -> Record | None:
    """A record behind all steps; None if one leaves it out."""
    found: Record | None = record
    for step in steps:
        if found is not None and _is_meant(step, found):
            found = APPLIED[step.name](step, found)
    return found


def unread_steps(steps: Sequence[Step]) -> tuple[str, ...]:
    """Names of the steps that are not implemented here."""
    return tuple(step.name for step in steps if step.name not in APPLIED)


def _is_meant(step: Step, record: Record) -> bool:
    match step.when:
        case None:
            return True
        case TopicNameMatches(pattern=pattern, negate=negate):
            return matches(pattern, record.topic) != negate
        case HasHeaderKey(name=name, negate=negate):
            return (name in record.headers) != negate
    return True  # RecordIsTombstone is only allowed negated, and none gets here


def _half(step: Any, record: Record) -> Fields | None:
    return record.key if step.target == "key" else record.value


def _with(step: Any, record: Record, fields: Fields) -> Record:
    return replace(record, key=fields) if step.target == "key" else replace(record, value=fields)


def _insert_field(step: Any, record: Record) -> Record:
    fields = _half(step, record)
    if fields is None:
        return record
    instant = None if record.micros is None else _EPOCH + timedelta(microseconds=record.micros)
    facts = (
        (step.topic_field, record.topic),
        (step.partition_field, record.partition),
        (step.offset_field, record.offset),
        (step.timestamp_field, instant),
        (step.static_field, step.static_value),
    )
    found = dict(fields)
    for name, fact in facts:
        if name is not None:
            if fact is None and name.endswith("!"):
                raise Unfit("a fact that is not there")
            found[name.rstrip("!?")] = fact
    return _with(step, record, found)


def _replace_field(step: Any, record: Record) -> Record:
    fields = _half(step, record)
    if fields is None:
        return record
    kept = [name for name in fields if name not in step.exclude and (not step.include or name in step.include)]
    return _with(step, record, {step.renames.get(name, name): fields[name] for name in kept})


def _cast(step: Any, record: Record) -> Record:
    fields = _half(step, record)
    if fields is None:
        return record
    spec = {BARE: step.spec} if isinstance(step.spec, str) else step.spec
    cast = {name: _cast_to(of, fields[name]) for name, of in spec.items() if fields.get(name) is not None}
    return _with(step, record, {**fields, **cast})


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_WHOLE: Final = re.compile(r"-?[0-9]{1,18}")
_FRACTION: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_SINGLE: Final = Struct("<f")


def _cast_to(kind: str, value: Any) -> Any:
    value = str(value) if isinstance(value, LineText) else value
    if value is UNKNOWN or isinstance(value, Json):
        raise UnjudgedError("Cast of a value that is not read here")
    if kind == "string":
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, str | int):
            return str(value)
    elif kind == "boolean":
        if isinstance(value, bool | int | float | Decimal) and isfinite(value):
            return int(value) != 0
        if value in ("true", "false"):
            return value == "true"
    elif kind.startswith("int"):
        return _cast_to_int(value, int(kind.removeprefix("int")))
    elif isinstance(value, bool | int | float | Decimal) or (isinstance(value, str) and _FRACTION.fullmatch(value)):
        number = float(value)
        return number if kind == "float64" else _SINGLE.unpack(_SINGLE.pack(number))[0]
    raise UnjudgedError(f"Cast to {kind}")


def _cast_to_int(value: Any, bits: int) -> int:
    if isinstance(value, str) and not any(map(str.isnumeric, value)):
        raise Unfit("no number")
    if isinstance(value, str) and not _WHOLE.fullmatch(value):
        raise UnjudgedError("Cast of a text that is no whole number")
    if isinstance(value, datetime) and value.tzinfo is not None:
        value = (value - _EPOCH) // timedelta(milliseconds=1)
    if not isinstance(value, bool | int | float | Decimal | str):
        raise UnjudgedError("Cast to a whole number")
    if isinstance(value, float | Decimal) and not isfinite(value):
        raise Unfit("no number")
    number = int(value)
    if not -(1 << bits - 1) <= number < 1 << bits - 1:
        raise Unfit("out of range")
    return number


def _extract_field(step: Any, record: Record) -> Record:
    fields = _half(step, record)
    if fields is None:
        return record
    found = _at(fields, step.field, is_path=step.field_syntax_version == "V2")
    return _with(step, record, found if isinstance(found, dict) else {BARE: found})


def _at(fields: Fields, name: str, *, is_path: bool) -> Any:
    if name in fields:
        return fields[name]
    if not is_path or "`" in name:
        raise UnjudgedError("a field that is not there")
    here: Any = fields
    for part in name.split("."):
        if here is None:
            return None
        if not isinstance(here, dict) or part not in here:
            raise UnjudgedError("a field that is not there")
        here = here[part]
    return here


def _hoist_field(step: Any, record: Record) -> Record:
    fields = _half(step, record)
    if fields is None:
        return record
    return _with(step, record, {step.field: fields[BARE] if fields.keys() == {BARE} else fields})


def _value_to_key(step: Any, record: Record) -> Record:
    if lacking := [name for name in step.fields if name not in record.value]:
        raise Unfit(f"no field {lacking[0]}")
    return replace(record, key={name: record.value[name] for name in step.fields})


def _copy_value(step: Any, record: Record) -> Record:
    if step.source_field not in record.value:
        raise UnjudgedError("a field that is not there")
    return replace(record, value={**record.value, step.target_field: record.value[step.source_field]})


def _header_from(step: Any, record: Record) -> Record:
    fields = _half(step, record) or {}
    left = fields if step.operation == "copy" else {name: of for name, of in fields.items() if name not in step.fields}
    there = replace(record, headers=record.headers | {*step.headers})
    return there if _half(step, record) is None else _with(step, there, dict(left))


APPLIED: Final[Mapping[str, Apply]] = {
    "InsertField": _insert_field,
    "ReplaceField": _replace_field,
    "Cast": _cast,
    "ExtractField": _extract_field,
    "HoistField": _hoist_field,
    "ValueToKey": _value_to_key,
    "CopyValue": _copy_value,
    "Filter": lambda _, __: None,
    "HeaderFrom": _header_from,
    "InsertHeader": lambda step, record: replace(record, headers=record.headers | {step.header}),
    "DropHeaders": lambda step, record: replace(record, headers=record.headers - {*step.headers}),
    "SetSchemaMetadata": lambda _, record: record,
}
"""By name: the steps that are implemented here."""
