"""A second, simple implementation of the built-in transforms, one record at a time, by docs/transforms.md."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from decimal import Decimal
from math import isfinite
from struct import Struct
from typing import Any, Final

from frazil.pipeline.syntax.patterns import matches
from frazil.pipeline.transforms import Step
from frazil.verify.values.header_cells import Headers
from frazil.verify.values.json_document import EPOCH, Unfit
from frazil.verify.values.native import BARE, UNKNOWN, Fields, Json, LineText, UnjudgedError
from frazil.verify.values.readers import NUMBER


@dataclass(frozen=True)
class Record:
    """A record between transforms.

    Attributes:
        value: Fields of the value.
        key: Fields of the key; None without one.
        micros: Kafka's timestamp.
        headers: Its headers by name, of several the last one.
    """

    value: Fields
    key: Fields | None
    topic: str
    partition: int
    offset: int
    micros: int | None
    headers: Headers = field(default_factory=dict)


Apply = Callable[[Any, Record], Record | None]
"""Applies a step to a record; None: the step filters it. Raises Unfit where the record is a dead letter."""


def transform(record: Record, steps: Sequence[Step]) -> Record | None:
    """The record after all steps; None if one filters it."""
    current: Record | None = record
    for step in steps:
        if current is not None and _applies(step, current):
            current = APPLIED[step.name](step, current)
    return current


def unread_steps(steps: Sequence[Step]) -> tuple[str, ...]:
    """Names of the steps that are not implemented here."""
    return tuple(step.name for step in steps if step.name not in APPLIED)


def _applies(step: Step, record: Record) -> bool:
    when: Any = step.when
    match when and when.predicate:
        case "TopicNameMatches":
            return matches(when.pattern, record.topic) != bool(when.negate)
        case "HasHeaderKey":
            return (when.name in record.headers) != bool(when.negate)
        case "HeaderMatches":
            return _header_matches(when, record) != bool(when.negate)
    return True  # RecordIsTombstone is only allowed negated, and none gets here


def _on_target(change: Callable[[Any, Fields, Record], Fields]) -> Apply:
    """A step that changes fields of the value or of the key, as it says. A record without key stays as it is."""

    def apply(step: Any, record: Record) -> Record:
        fields = record.key if step.target == "key" else record.value
        if fields is None:
            return record
        changed = change(step, fields, record)
        return replace(record, key=changed) if step.target == "key" else replace(record, value=changed)

    return apply


def _header_matches(when: Any, record: Record) -> bool:
    content = record.headers.get(when.name)
    if isinstance(content, UnjudgedError):
        raise content
    try:
        return content is not None and matches(when.pattern, content.decode())
    except UnicodeDecodeError:
        return False


def _insert_field(step: Any, fields: Fields, record: Record) -> Fields:
    instant = None if record.micros is None else EPOCH + timedelta(microseconds=record.micros)
    facts = (
        (step.topic_field, record.topic),
        (step.partition_field, record.partition),
        (step.offset_field, record.offset),
        (step.timestamp_field, instant),
        (step.static_field, step.static_value),
    )
    extended = dict(fields)
    for name, fact in facts:
        if name is not None:
            if fact is None and name.endswith("!"):
                raise Unfit("a fact that is not there")
            extended[name.rstrip("!?")] = fact
    return extended


def _replace_field(step: Any, fields: Fields, _: Record) -> Fields:
    names = [name for name in fields if name not in step.exclude and (not step.include or name in step.include)]
    return {step.renames.get(name, name): fields[name] for name in names}


def _cast(step: Any, fields: Fields, _: Record) -> Fields:
    spec = {BARE: step.spec} if isinstance(step.spec, str) else step.spec
    cast = {name: _cast_to(kind, fields[name]) for name, kind in spec.items() if fields.get(name) is not None}
    return {**fields, **cast}


_WHOLE: Final = re.compile(r"-?[0-9]{1,18}")
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
    elif isinstance(value, bool | int | float | Decimal) or (isinstance(value, str) and NUMBER.fullmatch(value)):
        number = float(value)
        return number if kind == "float64" else _SINGLE.unpack(_SINGLE.pack(number))[0]
    raise UnjudgedError(f"Cast to {kind}")


def _cast_to_int(value: Any, bits: int) -> int:
    if isinstance(value, str) and not any(map(str.isnumeric, value)):
        raise Unfit("no number")
    if isinstance(value, str) and not _WHOLE.fullmatch(value):
        raise UnjudgedError("Cast of a text that is no whole number")
    if isinstance(value, datetime) and value.tzinfo is not None:
        value = (value - EPOCH) // timedelta(milliseconds=1)
    if not isinstance(value, bool | int | float | Decimal | str):
        raise UnjudgedError("Cast to a whole number")
    if isinstance(value, float | Decimal) and not isfinite(value):
        raise Unfit("no number")
    number = int(value)
    if not -(1 << bits - 1) <= number < 1 << bits - 1:
        raise Unfit("out of range")
    return number


def _extract_field(step: Any, fields: Fields, _: Record) -> Fields:
    value = _nested_field(fields, step.field, is_path=step.field_syntax_version == "V2")
    return value if isinstance(value, dict) else {BARE: value}


def _nested_field(fields: Fields, name: str, *, is_path: bool) -> Any:
    if name in fields:
        return fields[name]
    if not is_path or "`" in name:
        raise UnjudgedError("a field that is not there")
    value: Any = fields
    for part in name.split("."):
        if value is None:
            return None
        if not isinstance(value, dict) or part not in value:
            raise UnjudgedError("a field that is not there")
        value = value[part]
    return value


def _value_to_key(step: Any, record: Record) -> Record:
    if lacking := [name for name in step.fields if name not in record.value]:
        raise Unfit(f"no field {lacking[0]}")
    return replace(record, key={name: record.value[name] for name in step.fields})


def _copy_value(step: Any, record: Record) -> Record:
    if step.source_field not in record.value:
        raise UnjudgedError("a field that is not there")
    return replace(record, value={**record.value, step.target_field: record.value[step.source_field]})


_drop_fields = _on_target(
    lambda step, fields, _: {name: value for name, value in fields.items() if name not in step.fields}
)


def _header_from(step: Any, record: Record) -> Record | None:
    fields = record.key if step.target == "key" else record.value
    if fields is None:
        return record
    names = zip(step.headers, step.fields, strict=True)
    added = {header: _header_content(fields.get(name)) for header, name in names}
    with_headers = replace(record, headers={**record.headers, **added})
    return with_headers if step.operation == "copy" else _drop_fields(step, with_headers)


def _header_content(value: Any) -> bytes | UnjudgedError | None:
    return value.encode() if type(value) is str else None if value is None else UnjudgedError("a header of a field")


APPLIED: Final[Mapping[str, Apply]] = {
    "InsertField": _on_target(_insert_field),
    "ReplaceField": _on_target(_replace_field),
    "Cast": _on_target(_cast),
    "ExtractField": _on_target(_extract_field),
    "HoistField": _on_target(
        lambda step, fields, _: {step.field: fields.get(BARE) if fields.keys() == {BARE} else fields}
    ),
    "ValueToKey": _value_to_key,
    "CopyValue": _copy_value,
    "Filter": lambda _, __: None,
    "HeaderFrom": _header_from,
    "InsertHeader": lambda step, record: replace(
        record, headers={**record.headers, step.header: step.value_literal.encode()}
    ),
    "DropHeaders": lambda step, record: replace(
        record, headers={name: content for name, content in record.headers.items() if name not in step.headers}
    ),
    "SetSchemaMetadata": lambda _, record: record,
}
"""Name -> implementation of the steps that verify can apply."""
