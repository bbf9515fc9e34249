"""MongoDB's Extended JSON to plain JSON values: canonical, relaxed, and the older strict form that Debezium writes.

ObjectIds, symbols, code and uuids become text, Decimal128 too (or numbers), integers and doubles numbers with every digit, dates and
timestamps ISO 8601 texts in UTC, binary base64 text, regular expressions `{"regex", "options"}`, undefined null, the smallest
and largest key `MinKey` and `MaxKey`. The forms are those of MongoDB's specification "Extended JSON" (v2).
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final
from uuid import UUID

from frazil.records.dead import DeadCode, Rejection
from frazil.records.json.number import EXPONENT_LIMIT, Number, scaled
from frazil.records.json.text import JsonValue, describe

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_UUID_BYTES: Final = 16
_UUID_SUBTYPES: Final = {"04", "4"}
_MILLIS_DIGITS: Final = 15
"""Digits of the last millisecond of the year 9999."""


class Plain:
    """Makes plain values of parsed Extended JSON.

    Args:
        decimals: Whether Decimal128 becomes text, as in the sink's transform, or a number.
        arrays: Whether arrays stay arrays, or become objects with the names `_0`, `_1` ….
    """

    def __init__(self, *, decimals: str = "text", arrays: str = "array") -> None:
        self._decimals: Final = decimals
        self._arrays: Final = arrays

    def value(self, found: JsonValue) -> JsonValue:
        """Return the plain value.

        Raises:
            Rejection: a wrapper such as `$date` holds what it can't.
        """
        # One Python frame per level: nesting up to MAX_DEPTH must fit into the recursion limit.
        if isinstance(found, list):
            items: list[JsonValue] = []
            for item in found:
                items.append(self.value(item))  # noqa: PERF401 - a comprehension is a frame more in some Pythons
            return items if self._arrays == "array" else {f"_{at}": item for at, item in enumerate(items)}
        if not isinstance(found, dict):
            return found
        if found and (name := next(iter(found))).startswith("$") and (write := self._wrapper(name, found)) is not None:
            return write(found)
        plain: dict[str, JsonValue] = {}
        for name, item in found.items():
            plain[name] = self.value(item)
        return plain

    def _wrapper(self, name: str, found: dict[str, JsonValue]) -> Callable[[dict[str, JsonValue]], JsonValue] | None:
        if name == "$numberDecimal" and self._decimals == "number":
            return _double
        names, write = _WRAPPERS.get(name, (frozenset(), None))
        return write if found.keys() <= names else None


def _inner(found: dict[str, JsonValue]) -> JsonValue:
    return next(iter(found.values()))


def _text(found: dict[str, JsonValue]) -> JsonValue:
    value = _inner(found)
    if isinstance(value, str):
        return str(value)
    raise _wrong("text", found)


def _integer(found: dict[str, JsonValue]) -> JsonValue:
    return Number(_whole(_inner(found), found))


def _whole(value: JsonValue, found: dict[str, JsonValue]) -> str:
    if isinstance(value, str) and (value.removeprefix("-").isascii() and value.removeprefix("-").isdigit()):
        sign, digits = "-" * value.startswith("-"), value.removeprefix("-").lstrip("0")
        return f"{sign}{digits}" if digits else "0"
    raise _wrong("a whole number", found)


def _double(found: dict[str, JsonValue]) -> JsonValue:
    value = _inner(found)
    if isinstance(value, str):
        if value in {"NaN", "Infinity", "-Infinity"}:
            return str(value)
        try:
            exact = scaled(Number(value))
        except ValueError as e:
            raise _wrong("a number", found) from e
        if abs(exact.exponent) < EXPONENT_LIMIT:
            return Number(_json_number(value))
    raise _wrong("a number", found)


def _json_number(text: str) -> str:
    # Leading zeros are no JSON; every other form that was let in is.
    sign, rest = "-" * text.startswith("-"), text.removeprefix("-").lstrip("0")
    return f"{sign}{rest if rest[:1].isdigit() else f'0{rest}'}"


def _date(found: dict[str, JsonValue]) -> JsonValue:
    value = _inner(found)
    if isinstance(value, dict) and value.keys() == {"$numberLong"}:
        value = Number(_whole(_inner(value), found))
    return _instant(value, found) if isinstance(value, Number) else _text(found)


def _instant(millis: Number, found: dict[str, JsonValue]) -> str:
    whole = _whole(millis, found)
    if len(whole.removeprefix("-")) <= _MILLIS_DIGITS:
        try:
            at = _EPOCH + timedelta(milliseconds=int(whole))
        except OverflowError as e:
            raise _wrong("a time of the years 1 to 9999", found) from e
        return f"{at.replace(tzinfo=None).isoformat(timespec='milliseconds')}Z"
    raise _wrong("a time of the years 1 to 9999", found)


def _timestamp(found: dict[str, JsonValue]) -> JsonValue:
    value = _inner(found)
    if isinstance(value, dict) and isinstance(seconds := value.get("t"), Number):
        return _instant(Number(_whole(seconds, found) + "000"), found)
    raise _wrong('{"t": seconds, "i": number}', found)


def _binary(found: dict[str, JsonValue]) -> JsonValue:
    inner = found.get("$binary")
    content, kind = (
        (inner.get("base64"), inner.get("subType")) if isinstance(inner, dict) else (inner, found.get("$type"))
    )
    if not isinstance(content, str):
        raise _wrong("base64 text", found)
    try:
        raw = base64.b64decode(content.encode("ascii"), validate=True)
    except (binascii.Error, UnicodeEncodeError) as e:
        raise _wrong("base64 text", found) from e
    return str(UUID(bytes=raw)) if kind in _UUID_SUBTYPES and len(raw) == _UUID_BYTES else str(content)


def _regex(found: dict[str, JsonValue]) -> JsonValue:
    inner = found.get("$regularExpression", found)
    if not isinstance(inner, dict):
        raise _wrong('{"pattern": text, "options": text}', found)
    pattern, options = inner.get("pattern", inner.get("$regex")), inner.get("options", inner.get("$options", ""))
    if not isinstance(pattern, str) or not isinstance(options, str):
        raise _wrong('{"pattern": text, "options": text}', found)
    return {"regex": str(pattern), "options": str(options)}


def _wrong(expected: str, found: dict[str, JsonValue]) -> Rejection:
    name = next(iter(found))
    return Rejection(DeadCode.WRONG_TYPE, f"expected {expected} in {name}, found {describe(found[name])}")


_Wrapper = Callable[[dict[str, JsonValue]], JsonValue]
_WRAPPERS: Final[dict[str, tuple[frozenset[str], _Wrapper]]] = {
    "$oid": (frozenset({"$oid"}), _text),
    "$numberDecimal": (frozenset({"$numberDecimal"}), _text),
    "$numberInt": (frozenset({"$numberInt"}), _integer),
    "$numberLong": (frozenset({"$numberLong"}), _integer),
    "$numberDouble": (frozenset({"$numberDouble"}), _double),
    "$date": (frozenset({"$date"}), _date),
    "$timestamp": (frozenset({"$timestamp"}), _timestamp),
    "$binary": (frozenset({"$binary", "$type"}), _binary),
    "$type": (frozenset({"$binary", "$type"}), _binary),
    "$uuid": (frozenset({"$uuid"}), _text),
    "$regularExpression": (frozenset({"$regularExpression"}), _regex),
    "$regex": (frozenset({"$regex", "$options"}), _regex),
    "$symbol": (frozenset({"$symbol"}), _text),
    "$code": (frozenset({"$code", "$scope"}), _text),
    "$undefined": (frozenset({"$undefined"}), lambda _: None),
    "$minKey": (frozenset({"$minKey"}), lambda _: "MinKey"),
    "$maxKey": (frozenset({"$maxKey"}), lambda _: "MaxKey"),
}
"""By the first name of an object: which names it may have, and what it is."""
