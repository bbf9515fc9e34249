"""The bytes of a value as one JSON object, its names, and JSON text of a part of it."""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from functools import lru_cache
from itertools import accumulate
from typing import Any, NoReturn

from frazil.verify.figures import Figure, Unfit

MAX_DEPTH = 50
"""Values nested deeper are dead letters (TOO_DEEP)."""

_BRACKETS = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}]', re.DOTALL)
_STEP = {"{": 1, "[": 1, "}": -1, "]": -1}
_HALF = re.compile("[\ud800-\udfff]")


def _refuse_constant(name: str) -> NoReturn:
    raise Unfit(f"{name} is not JSON")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise Unfit("a field is named twice")
    return found


def _latest(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The fields from the last to the first, each as it was sent last; then in the order of sending again."""
    from_behind: dict[str, Any] = {}
    for name, item in reversed(pairs):
        from_behind.setdefault(name, item)
    return dict(reversed(from_behind.items()))


LAST_COUNTS = json.JSONDecoder(parse_int=Figure, parse_float=Figure, parse_constant=_refuse_constant)
"""Of fields with the same name the last one counts."""

EACH_ONCE = json.JSONDecoder(
    parse_int=Figure, parse_float=Figure, parse_constant=_refuse_constant, object_pairs_hook=_once
)
"""An object that names a field twice is unfit, at any level."""

LATEST_LAST = json.JSONDecoder(
    parse_int=Figure, parse_float=Figure, parse_constant=_refuse_constant, object_pairs_hook=_latest
)
"""Of fields with the same name the last one counts, and stands where it was sent: names that differ in case only may
come in between."""


def decoder_of(*, once: bool, any_case: bool) -> json.JSONDecoder:
    """What reads values whose fields may be named once only, or in any case."""
    if once:
        return EACH_ONCE
    return LATEST_LAST if any_case else LAST_COUNTS


def object_of(raw: bytes, decoder: json.JSONDecoder = LAST_COUNTS) -> dict[str, Any]:
    """The one JSON object that a value is.

    Raises:
        Unfit: It is none.
    """
    document = document_of(raw, decoder)
    if not isinstance(document, dict):
        raise Unfit("not a JSON object")
    return document


@lru_cache(maxsize=2)
def document_of(raw: bytes, decoder: json.JSONDecoder = LAST_COUNTS) -> Any:
    """The one JSON value that a value is, of whatever kind. Not to be changed: the last ones are remembered.

    A record is asked for its route and for its row, of every destination, one after the other.

    Raises:
        Unfit: It is none.
    """
    try:
        text = raw.decode("utf-8-sig")
        if text.count("[") + text.count("{") > MAX_DEPTH and _depth(text) > MAX_DEPTH:
            raise Unfit(f"nested deeper than {MAX_DEPTH} levels")
        return decoder.decode(text)
    except UnicodeDecodeError as error:
        raise Unfit("not UTF-8") from error
    except json.JSONDecodeError as error:
        raise Unfit("not one JSON document") from error


def _depth(text: str) -> int:
    return max(accumulate(_STEP.get(part, 0) for part in _BRACKETS.findall(text)), default=0)


def without_case(fields: dict[str, Any], wanted: Collection[str], *, once: bool) -> dict[str, Any]:
    """The wanted fields, whatever their case. Of those that differ in case only the last one counts.

    Args:
        fields: An object.
        wanted: Names of fields, case-folded.
        once: Whether two of the same name, but for its case, are unfit.
    """
    found: dict[str, Any] = {}
    for name, item in fields.items():
        if (folded := name.casefold()) in wanted:
            if once and folded in found:
                raise Unfit("a field is named twice, but for its case")
            found[folded] = item
    return found


def compact(value: Any) -> str:
    """JSON without blanks, numbers as they were sent."""
    parts: list[str] = []
    _write(value, parts)
    return "".join(parts)


def storable(value: Any) -> str:
    """The same, with halves of surrogate pairs as escapes, which a table can store."""
    text = compact(value)
    return text if text.isascii() else _HALF.sub(lambda half: json.dumps(half[0])[1:-1], text)


def _write(value: Any, parts: list[str]) -> None:
    if isinstance(value, dict):
        for at, (key, item) in enumerate(value.items()):
            parts += ["," if at else "{", json.dumps(key, ensure_ascii=False), ":"]
            _write(item, parts)
        parts.append("}" if value else "{}")
    elif isinstance(value, list):
        for at, item in enumerate(value):
            parts.append("," if at else "[")
            _write(item, parts)
        parts.append("]" if value else "[]")
    else:
        parts.append(value if isinstance(value, Figure) else json.dumps(value, ensure_ascii=False))
