r"""Parses the bytes of one record as JSON, by RFC 8259. Faster decoders must agree with it.

- The bytes are UTF-8. One byte order mark at the start is ignored, as section 8.1 allows: editors and .NET producers send it.
- Numbers keep their text (`Number`). NaN and Infinity are not JSON.
- Of a repeated key the last one wins, as in JavaScript, Python and most parsers. If the caller wants so, a repeated key is refused, at
  any level.
- Raw control characters inside texts are refused. Between tokens only blank, tab, line feed and carriage return may stand.
- Half a surrogate pair (an escaped `\ud800`) is legal JSON. It is refused later, and only where it would be stored.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from typing import Final, Literal, NoReturn

import pyarrow as pa

from frazil.records.model.dead_letter import MAX_DEPTH, DeadCode, Rejection
from frazil.records.model.json_number import JsonValue, Number, describe

Fold = Literal["last", "dead_letter"]
"""The policy for fields whose names differ in case only: the last one counts, or the record is a dead letter."""


def fold_fields(value: dict[str, JsonValue], names: Collection[str], policy: Fold) -> dict[str, JsonValue]:
    """Return fields by their case-folded names, only those in `names`.

    Raises:
        Rejection: DUPLICATE_KEY, if the policy is `dead_letter` and two fields have one folded name.
    """
    fields: dict[str, JsonValue] = {}
    for name, item in value.items():
        key = name.casefold()
        if key not in names:
            continue
        if policy == "dead_letter" and key in fields:
            raise repeated_name(name)
        fields[key] = item
    return fields


def _keep_last_place(pairs: list[tuple[str, JsonValue]]) -> dict[str, JsonValue]:
    """Return an object with each repeated field at its last place.

    A dict keeps the first place of a name. `fold_fields` needs the last: of names that differ in case only the last one counts.
    """
    value = dict(pairs)
    if len(value) < len(pairs):
        value.clear()
        for name, item in pairs:
            value.pop(name, None)
            value[name] = item
    return value


def _refuse_repeated_names(pairs: list[tuple[str, JsonValue]]) -> dict[str, JsonValue]:
    """Return an object, which must name each field once.

    Raises:
        Rejection: DUPLICATE_KEY.
    """
    value = dict(pairs)
    if len(value) == len(pairs):
        return value
    names: set[str] = set()
    for name, _ in pairs:
        if name in names:
            raise repeated_name(name)
        names.add(name)
    return value


def repeated_name(name: str) -> Rejection:
    """Return the rejection of an object that names a field twice."""
    return Rejection(DeadCode.DUPLICATE_KEY, f"expected each field once, found {describe(name)} again")


_TEXTS: Final = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"?', re.DOTALL)
_NOT_BRACKETS: Final = re.compile(r"[^\[\]{}]+")


def _refuse_constant(name: str) -> NoReturn:
    raise Rejection(DeadCode.INVALID_JSON, f"expected a JSON value, found {name}, which JSON does not have")


_DECODER, _STRICT, _IN_ORDER = (
    json.JSONDecoder(
        parse_int=Number, parse_float=Number, parse_constant=_refuse_constant, object_pairs_hook=make_object
    )
    for make_object in (None, _refuse_repeated_names, _keep_last_place)
)


def parse_object(raw: bytes, *, repeated_keys: bool = True, in_order: bool = False) -> dict[str, JsonValue]:
    """Return the JSON object that `raw` holds.

    Args:
        raw: The value.
        repeated_keys: Whether an object may name a field twice.
        in_order: Whether a repeated field stands at its last place in the object, not at its first.

    Raises:
        Rejection: NOT_AN_OBJECT, or a code of `parse_document`.
    """
    document = parse_document(raw, repeated_keys=repeated_keys, in_order=in_order)
    if not isinstance(document, dict):
        raise Rejection(DeadCode.NOT_AN_OBJECT, f"expected a JSON object, found {describe(document)}")
    return document


def parse_document(raw: bytes, *, repeated_keys: bool = True, in_order: bool = False) -> JsonValue:
    """Return the JSON value of any kind that `raw` holds. The arguments are those of `parse_object`.

    Raises:
        Rejection: EMPTY_VALUE, INVALID_UTF8, TOO_DEEP, INVALID_JSON or DUPLICATE_KEY.
    """
    if not raw:
        raise Rejection(DeadCode.EMPTY_VALUE, "expected a JSON document, found a value of 0 bytes")
    text = decode_utf8(raw, "utf-8-sig")
    _check_depth(text)
    decoder = _IN_ORDER if in_order else _DECODER
    try:
        document: JsonValue = (decoder if repeated_keys else _STRICT).decode(text)
    except json.JSONDecodeError as e:
        message = f"expected one JSON document: {e.msg.removesuffix(' at')} at line {e.lineno} column {e.colno}"
        raise Rejection(DeadCode.INVALID_JSON, message) from e
    return document


def decode_utf8(raw: bytes, codec: Literal["utf-8", "utf-8-sig"] = "utf-8") -> str:
    """Return the text of bytes.

    Raises:
        Rejection: INVALID_UTF8.
    """
    try:
        return raw.decode(codec)
    except UnicodeDecodeError as e:
        # The codec counts from behind a byte order mark; the message counts from the first byte of `raw`.
        position = len(raw) - len(e.object) + e.start
        message = f"expected UTF-8, found byte 0x{raw[position]:02x} at position {position}: {e.reason}"
        raise Rejection(DeadCode.INVALID_UTF8, message) from e


def _check_depth(text: str) -> None:
    if text.count("{") + text.count("[") <= MAX_DEPTH:
        return
    if (depth := nesting(text)) > MAX_DEPTH:
        raise Rejection(DeadCode.TOO_DEEP, f"expected at most {MAX_DEPTH} nested levels, found {depth}")


def nesting(text: str) -> int:
    """Return how many levels of objects and lists a document has; it may be cut off or invalid."""
    depth = deepest = 0
    for bracket in _NOT_BRACKETS.sub("", _TEXTS.sub("", text)):
        depth += 1 if bracket in "{[" else -1
        deepest = max(deepest, depth)
    return deepest


_UTF8_PARTS: Final = 64
"""Values of which some are not UTF-8 are split into so many parts, and such parts again."""

_UTF8_ONE_BY_ONE: Final = 256
"""So many values, or fewer, are not split but tried one by one."""


def utf8_texts(values: pa.BinaryArray) -> pa.StringArray:
    """Return the values as text, null where they are null or not UTF-8."""
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        if len(values) <= _UTF8_ONE_BY_ONE:
            return pa.array([_utf8_or_none(value) for value in values.to_pylist()], pa.string())
        part = -(-len(values) // _UTF8_PARTS)
        return pa.concat_arrays([utf8_texts(values.slice(low, part)) for low in range(0, len(values), part)])


def _utf8_or_none(value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return None
