"""What a record must have become: an own reading of its value, column by column.

Written from the promises of the pipeline reference and docs/dead-letters.md, not from the code that writes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, NoReturn

from frazil.pipeline.model import Column
from frazil.verify.readers import Figure, Read, Unfit, reader

MAX_DEPTH = 500
"""Values nested deeper are dead letters (TOO_DEEP)."""


@dataclass(frozen=True, slots=True)
class Bad:
    """A value that must be a dead letter, or a cell that can't be its column's."""

    why: str


def _refuse_constant(name: str) -> NoReturn:
    raise Unfit(f"{name} is not JSON")


_JSON = json.JSONDecoder(parse_int=Figure, parse_float=Figure, parse_constant=_refuse_constant)
_BRACKETS = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}]', re.DOTALL)
_STEP = {"{": 1, "[": 1, "}": -1, "]": -1}


class Expectation:
    """Reads values into the declared columns.

    Args:
        columns: Name -> column, in the order in which values are returned.
    """

    def __init__(self, columns: Mapping[str, Column]) -> None:
        self._columns = [(name, column.required, reader(column.parsed)) for name, column in columns.items()]

    def row(self, raw: bytes) -> tuple[Any, ...] | Bad:
        """The canonical values of the row that this record must be, or why it must be a dead letter."""
        try:
            document = _document(raw)
            return tuple([_cell(document.get(name), required, read) for name, required, read in self._columns])
        except Unfit as unfit:
            return Bad(str(unfit))

    def cells(self, raw: bytes) -> tuple[Any, ...] | Bad:
        """Like `row`, and a cell that can't be its column's is one `Bad` among good ones."""
        try:
            document = _document(raw)
        except Unfit as unfit:
            return Bad(str(unfit))
        return tuple(_tolerant(document.get(name), required, read) for name, required, read in self._columns)


def _cell(value: Any, required: bool, read: Read) -> Any:  # noqa: FBT001 - a column's property
    if value is not None:
        return read(value)
    if required:
        raise Unfit("a required field is missing or null")
    return None


def _tolerant(value: Any, required: bool, read: Read) -> Any:  # noqa: FBT001
    try:
        return _cell(value, required, read)
    except Unfit as unfit:
        return Bad(str(unfit))


def _document(raw: bytes) -> dict[str, Any]:
    try:
        text = raw.decode("utf-8-sig")
        if text.count("[") + text.count("{") > MAX_DEPTH and _depth(text) > MAX_DEPTH:
            raise Unfit(f"nested deeper than {MAX_DEPTH} levels")
        document = _JSON.decode(text)
    except UnicodeDecodeError as error:
        raise Unfit("not UTF-8") from error
    except json.JSONDecodeError as error:
        raise Unfit("not one JSON document") from error
    if not isinstance(document, dict):
        raise Unfit("not a JSON object")
    return document


def _depth(text: str) -> int:
    return max(accumulate(_STEP.get(part, 0) for part in _BRACKETS.findall(text)), default=0)
