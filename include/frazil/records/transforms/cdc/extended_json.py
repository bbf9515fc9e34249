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

from frazil.records.model.dead_letter import DeadCode, Rejection
from frazil.records.model.json_number import EXPONENT_LIMIT, Number, exact_value
from frazil.records.model.json_text import JsonValue, describe

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_UUID_BYTES: Final = 16
_UUID_SUBTYPES: Final = {"04", "4"}
_MILLIS_DIGITS: Final = 15
"""Digits of the last millisecond of the year 9999."""


class ExtendedJsonReader:
    """Converts parsed Extended JSON to plain JSON values.

    Decimal128 becomes text, as in the sink's transform, or a number; arrays stay, or become objects with the names
    `_0`, `_1` ….
    """

    def __init__(self, *, decimals: str = "text", arrays: str = "array") -> None:
        self._decimals: Final = decimals
        self._arrays: Final = arrays

    def value(self, extended: JsonValue) -> JsonValue:
        """Return the plain value.

        Raises:
            Rejection: a wrapper such as `$date` has invalid content.
        """
        # One Python frame per level: nesting up to MAX_DEPTH must fit into the recursion limit.
        if isinstance(extended, list):
            items: list[JsonValue] = []
            for item in extended:
                items.append(self.value(item))  # noqa: PERF401 - a comprehension is a frame more in some Pythons
            return items if self._arrays == "array" else {f"_{index}": item for index, item in enumerate(items)}
        if not isinstance(extended, dict):
            return extended
        if (
            extended
            and (name := next(iter(extended))).startswith("$")
            and (convert := self._wrapper_converter(name, extended)) is not None
        ):
            return convert(extended)
        plain: dict[str, JsonValue] = {}
        for name, item in extended.items():
            plain[name] = self.value(item)
        return plain

    def _wrapper_converter(
        self, name: str, wrapper: dict[str, JsonValue]
    ) -> Callable[[dict[str, JsonValue]], JsonValue] | None:
        if name == "$numberDecimal" and self._decimals == "number":
            return _double
        names, convert = _WRAPPERS.get(name, (frozenset(), None))
        return convert if wrapper.keys() <= names else None


def _first_value(wrapper: dict[str, JsonValue]) -> JsonValue:
    return next(iter(wrapper.values()))


def _text(wrapper: dict[str, JsonValue]) -> JsonValue:
    value = _first_value(wrapper)
    if isinstance(value, str):
        return str(value)
    raise _wrong_content("text", wrapper)


def _integer(wrapper: dict[str, JsonValue]) -> JsonValue:
    return Number(_whole_digits(_first_value(wrapper), wrapper))


def _whole_digits(value: JsonValue, wrapper: dict[str, JsonValue]) -> str:
    if isinstance(value, str) and (value.removeprefix("-").isascii() and value.removeprefix("-").isdigit()):
        sign, digits = "-" * value.startswith("-"), value.removeprefix("-").lstrip("0")
        return f"{sign}{digits}" if digits else "0"
    raise _wrong_content("a whole number", wrapper)


def _double(wrapper: dict[str, JsonValue]) -> JsonValue:
    value = _first_value(wrapper)
    if isinstance(value, str):
        if value in {"NaN", "Infinity", "-Infinity"}:
            return str(value)
        try:
            exact = exact_value(Number(value))
        except ValueError as e:
            raise _wrong_content("a number", wrapper) from e
        if abs(exact.exponent) < EXPONENT_LIMIT:
            return Number(_json_number(value))
    raise _wrong_content("a number", wrapper)


def _json_number(text: str) -> str:
    # Leading zeros are no JSON; every other form that was let in is.
    sign, rest = "-" * text.startswith("-"), text.removeprefix("-").lstrip("0")
    return f"{sign}{rest if rest[:1].isdigit() else f'0{rest}'}"


def _date(wrapper: dict[str, JsonValue]) -> JsonValue:
    value = _first_value(wrapper)
    if isinstance(value, dict) and value.keys() == {"$numberLong"}:
        value = Number(_whole_digits(_first_value(value), wrapper))
    return _instant(value, wrapper) if isinstance(value, Number) else _text(wrapper)


def _instant(millis: Number, wrapper: dict[str, JsonValue]) -> str:
    whole = _whole_digits(millis, wrapper)
    if len(whole.removeprefix("-")) <= _MILLIS_DIGITS:
        try:
            instant = _EPOCH + timedelta(milliseconds=int(whole))
        except OverflowError as e:
            raise _wrong_content("a time of the years 1 to 9999", wrapper) from e
        return f"{instant.replace(tzinfo=None).isoformat(timespec='milliseconds')}Z"
    raise _wrong_content("a time of the years 1 to 9999", wrapper)


def _timestamp(wrapper: dict[str, JsonValue]) -> JsonValue:
    value = _first_value(wrapper)
    if isinstance(value, dict) and isinstance(seconds := value.get("t"), Number):
        return _instant(Number(_whole_digits(seconds, wrapper) + "000"), wrapper)
    raise _wrong_content('{"t": seconds, "i": number}', wrapper)


def _binary(wrapper: dict[str, JsonValue]) -> JsonValue:
    inner = wrapper.get("$binary")
    content, kind = (
        (inner.get("base64"), inner.get("subType")) if isinstance(inner, dict) else (inner, wrapper.get("$type"))
    )
    if not isinstance(content, str):
        raise _wrong_content("base64 text", wrapper)
    try:
        raw = base64.b64decode(content.encode("ascii"), validate=True)
    except (binascii.Error, UnicodeEncodeError) as e:
        raise _wrong_content("base64 text", wrapper) from e
    return str(UUID(bytes=raw)) if kind in _UUID_SUBTYPES and len(raw) == _UUID_BYTES else str(content)


def _regex(wrapper: dict[str, JsonValue]) -> JsonValue:
    inner = wrapper.get("$regularExpression", wrapper)
    if not isinstance(inner, dict):
        raise _wrong_content('{"pattern": text, "options": text}', wrapper)
    pattern, options = inner.get("pattern", inner.get("$regex")), inner.get("options", inner.get("$options", ""))
    if not isinstance(pattern, str) or not isinstance(options, str):
        raise _wrong_content('{"pattern": text, "options": text}', wrapper)
    return {"regex": str(pattern), "options": str(options)}


def _wrong_content(expected: str, wrapper: dict[str, JsonValue]) -> Rejection:
    name = next(iter(wrapper))
    return Rejection(DeadCode.WRONG_TYPE, f"expected {expected} in {name}, found {describe(wrapper[name])}")


_WrapperConverter = Callable[[dict[str, JsonValue]], JsonValue]
_WRAPPERS: Final[dict[str, tuple[frozenset[str], _WrapperConverter]]] = {
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
"""Wrappers by the first name of an object: names that it may have, and its converter."""
