"""One record to one row, or a reason: the decoder that decides."""

from __future__ import annotations

import json
from decimal import Decimal
from enum import Enum
from typing import Final

import pyarrow as pa

from frazil.errors import Terminal
from frazil.records.convert import wrong_type
from frazil.records.convert_nested import converter, missing, storage_type
from frazil.records.dead import Rejection
from frazil.records.json_exact import parse_object
from frazil.records.json_number import Number
from frazil.records.json_text import JsonValue
from frazil.records.spec import ColumnSpec, RecordSpec

Row = list[object]


class _Field(Enum):
    ABSENT = "told apart from null"


class _Column:
    """One column of the exact decoder: finds its field and converts it."""

    def __init__(self, column: ColumnSpec) -> None:
        self._steps: Final = column.steps
        self._required: Final = column.required
        self._has_default: Final = column.has_default
        self._expected: Final = str(column.type)
        self._convert: Final = converter(column.type)
        self._default: Final = self._converted_default(column) if column.has_default else None

    def take(self, document: dict[str, JsonValue]) -> object:
        """Return the column's value.

        Raises:
            Rejection: the field can't become the column's type; its path starts at the document's
            root.
        """
        value = self._find(document)
        try:
            if value is None or value is _Field.ABSENT:
                return self._without_value(absent=value is _Field.ABSENT)
            return self._convert(value)
        except Rejection as e:
            raise _from_root(e, self._steps) from e

    def _find(self, document: dict[str, JsonValue]) -> JsonValue | _Field:
        found: JsonValue | _Field = document
        for depth, step in enumerate(self._steps):
            if found is None or found is _Field.ABSENT:
                return _Field.ABSENT
            if not isinstance(found, dict):
                raise _from_root(wrong_type("object", found), self._steps[:depth])
            found = found.get(step, _Field.ABSENT)
        return found

    def _without_value(self, *, absent: bool) -> object:
        if self._has_default and (absent or self._required):
            return self._default
        if self._required:
            raise missing(self._expected)
        return None

    def _converted_default(self, column: ColumnSpec) -> object:
        value = _as_json(column.default)
        if value is None and not column.required:
            return None
        try:
            return self._convert(value)
        except Rejection as e:
            raise Terminal(
                f"column {column.name}: the default does not fit its type: {e.reason.message}",
                next_step="write the default as a JSON record would carry it",
            ) from e


class ExactDecoder:
    """Decodes records one by one.

    Args:
        spec: What is wanted.

    Raises:
        Terminal: a type without a JSON form, or a default that does not fit its column.
    """

    def __init__(self, spec: RecordSpec) -> None:
        self._schema: Final = spec.columns
        self._columns: Final = tuple(_Column(column) for column in spec.column_specs)

    def row(self, raw: bytes) -> Row:
        """Return one row in the order of the columns.

        Raises:
            Rejection: the record can't become a row.
        """
        document = parse_object(raw)
        return [column.take(document) for column in self._columns]

    def table(self, rows: list[Row]) -> pa.RecordBatch:
        """Return rows as Arrow, in exactly the schema of the declared columns."""
        arrays = [
            pa.array([row[index] for row in rows], storage_type(field.type)).cast(field.type)
            for index, field in enumerate(self._schema)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def _from_root(verdict: Rejection, steps: tuple[str, ...]) -> Rejection:
    for step in reversed(steps):
        verdict = verdict.within(step)
    return verdict


def _as_json(default: object) -> JsonValue:
    """Return a declared default (from YAML, say) as the value that a JSON record would carry."""
    text = str(default) if isinstance(default, Decimal) else json.dumps(default, default=str)
    value: JsonValue = json.loads(text, parse_int=Number, parse_float=Number)
    return value
