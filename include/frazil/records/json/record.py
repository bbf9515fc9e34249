"""The exact decoder: makes one row of one JSON record, or the reason why it has none. Faster decoders must agree with it, also about
what a `variant` column takes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection
from decimal import Decimal
from enum import Enum
from typing import Final

import pyarrow as pa

from frazil.error_codes import FIELDS_UNFIT
from frazil.records.json.convert import build_array, converter, missing_value, wrong_type
from frazil.records.json.exact import fold_fields, parse_document, parse_object
from frazil.records.model.cells import CellCount, json_cell_counter
from frazil.records.model.column import ColumnSpec, type_name
from frazil.records.model.dead_letter import DeadCode, Reason, Rejection
from frazil.records.model.json_number import (
    SHOWN_CHARACTERS,
    ExactNumber,
    JsonValue,
    Number,
    describe,
    document,
    exact_value,
)
from frazil.records.model.spec import RecordSpec

# `parse_json` of Spark 4.1 keeps a number as a 64-bit integer, else as a decimal of up to 38 digits if it is written without
# an exponent, else as a double, whatever that loses: 1e400 becomes Infinity, a 39-digit integer loses its last digits. Half a
# surrogate pair becomes a question mark. It fails the whole job where its parser (Jackson) has a bound: 1,000 levels, numbers
# of 1,000 characters, names of 50,000, texts of 20,000,000; and where the encoded value is longer than 128 MiB. So values that it
# would change, or fail on, must not reach it. A test compares this rule with Spark.

LONGEST_TEXT: Final = 16 * 2**20
"""Bytes of a text whose variant surely has less than 128 MiB: it is at most 3.25 times as long (that of a list of `1e0`)."""

LONGEST_NUMBER: Final = 1_000
"""Characters of a number."""

LONGEST_NAME: Final = 50_000
"""Bytes of a field's name, with its escapes. Jackson counts UTF-16 units, of which there are never more."""

DEEPEST: Final = 1_000
"""Levels of objects and lists."""

_DECIMAL_DIGITS: Final = 38
_TOKEN: Final = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"(?:\s*:)?|-?[0-9][0-9.eE+-]*|[\[{]|[\]}]')
_MAYBE_HALF: Final = re.compile(r"\\u[dD][89abAB]|\\u[dD][c-fC-F]")
_PLAIN_NUMBER: Final = re.compile(r"-?[0-9]{1,18}(?:\.[0-9]{1,18})?|-?[0-9]{1,9}(?:\.[0-9]{1,6})?[eE][+-]?[0-9]{1,2}")
"""A number of at most 36 digits, 18 of them after the point, surely is an integer or decimal that keeps them all. One with a small
exponent and at most 15 digits is the shortest text of its nearest double."""


def variant_refusal(text: str) -> Reason | None:
    """Return why a JSON text can't be stored as variant without loss; None if it can.

    The text is one that `json_number.document` writes, so no object repeats a name.
    """
    if len(text) * 4 > LONGEST_TEXT and (size := len(text.encode("utf-8", "surrogatepass"))) > LONGEST_TEXT:
        return Reason(DeadCode.OUT_OF_RANGE, f"expected at most {LONGEST_TEXT:,} bytes for a variant, found {size:,}")
    depth = 0
    for match in _TOKEN.finditer(text):
        token = match[0]
        first = token[0]
        if first in "[{":
            depth += 1
            if depth > DEEPEST:
                return Reason(DeadCode.TOO_DEEP, f"expected at most {DEEPEST:,} levels for a variant")
        elif first in "]}":
            depth -= 1
        elif (reason := _text_refusal(token) if first == '"' else _number_refusal(token)) is not None:
            return reason
    return None


def _text_refusal(token: str) -> Reason | None:
    quoted = token[: token.rindex('"') + 1]
    is_name = quoted != token
    if is_name and len(quoted) * 4 > LONGEST_NAME and len(quoted[1:-1].encode()) > LONGEST_NAME:
        return Reason(
            DeadCode.OUT_OF_RANGE, f"expected names of at most {LONGEST_NAME:,} bytes, found {_shown(quoted)}"
        )
    if _MAYBE_HALF.search(quoted) and re.search("[\ud800-\udfff]", json.loads(quoted)):
        return Reason(DeadCode.LONE_SURROGATE, f"expected whole characters, found half of a pair in {_shown(quoted)}")
    return None


def _number_refusal(token: str) -> Reason | None:
    if _PLAIN_NUMBER.fullmatch(token) or (len(token) <= LONGEST_NUMBER and _keeps_number(token)):
        return None
    message = f"expected a number that 38 digits or a double hold exactly, found {_shown(token)}"
    return Reason(DeadCode.LOSSY_CAST, message)


def _keeps_number(text: str) -> bool:
    """Return whether `parse_json` keeps a number: as a decimal, or as a double that equals it or has it as its shortest text."""
    if "e" not in text and "E" not in text:
        whole, _, fraction = text.lstrip("-").partition(".")
        if len(fraction) <= _DECIMAL_DIGITS and len((whole + fraction).lstrip("0")) <= _DECIMAL_DIGITS:
            return True
    nearest = float(text)
    if nearest in {float("inf"), float("-inf")}:
        return False
    exact = _absolute(exact_value(Number(text)))
    return exact in (
        _absolute(exact_value(Number(f"{decimal:f}"))) for decimal in (Decimal(repr(nearest)), Decimal(nearest))
    )


def _absolute(number: ExactNumber) -> tuple[str, int]:
    """Return digits and exponent of a number. The sign does not count, since -0 equals 0."""
    return number.digits, number.exponent


def _shown(token: str) -> str:
    return token if len(token) <= SHOWN_CHARACTERS else f"{token[:SHOWN_CHARACTERS]}…"


Row = dict[int, object]
"""Values by the index of their column. A column without an entry has its default, or else null."""


class _Field(Enum):
    """Marks a field that a value does not have: unlike null, it gets the default."""

    ABSENT = "absent"


class _Column:
    """One column of the exact decoder: finds its field and converts it.

    Attributes:
        field: First name of the path to its field, case-folded where names ignore case.
        default: The column's value if the field is missing; None without a default.
        refuses_absent: Whether a value without the field has no row.
    """

    def __init__(self, column: ColumnSpec, cells: CellCount) -> None:
        fold = column.reading.fold
        self._cells: Final = cells
        self._count: Final = json_cell_counter(column.type, any_case=fold is not None)
        self._path: Final = column.steps
        self._steps: Final = column.steps if fold is None else tuple(step.casefold() for step in column.steps)
        self._fold: Final = fold
        self._required: Final = column.required
        self._has_default: Final = column.has_default
        self._expected: Final = type_name(column.type)
        self._convert: Final = converter(column.type, column.reading)
        self.default: Final = self._converted_default(column) if column.has_default else None
        self.field: Final = self._steps[0]
        self.refuses_absent: Final = column.required and not column.has_default

    def take(self, fields: dict[str, JsonValue], _whole: dict[str, JsonValue]) -> object:
        """Return the column's value.

        Raises:
            Rejection: the field can't become the column's type; its path begins at the root of the value.
        """
        value = self._find(fields)
        try:
            if value is None or value is _Field.ABSENT:
                return self._without_value(absent=value is _Field.ABSENT)
            if self._count is not None:
                self._cells.add(self._count(value))
            return self._convert(value)
        except Rejection as e:
            raise _from_root(e, self._path) from e

    def _find(self, fields: dict[str, JsonValue]) -> JsonValue | _Field:
        node: JsonValue | _Field = fields
        for depth, step in enumerate(self._steps):
            if node is None or node is _Field.ABSENT:
                return _Field.ABSENT
            if not isinstance(node, dict):
                raise _from_root(wrong_type("object", node), self._path[:depth])
            # The names at the root are folded already, once for all columns.
            inner = node if self._fold is None or not depth else fold_fields(node, (step,), self._fold)
            node = inner.get(step, _Field.ABSENT)
        return node

    def _without_value(self, *, absent: bool) -> object:
        if self._has_default and (absent or self._required):
            return self.default
        if self._required:
            raise missing_value(self._expected)
        return None

    def _converted_default(self, column: ColumnSpec) -> object:
        value = _as_json(column.default)
        if value is None and not column.required:
            return None
        try:
            return self._convert(value)
        except Rejection as e:
            raise FIELDS_UNFIT.terminal(
                f"column {column.name}: the default does not fit its type: {e.reason.message}",
                next_step="write the default as a JSON record would carry it",
            ) from e


class _WholeValue:
    """The column that takes the whole value."""

    def __init__(self, column: ColumnSpec) -> None:
        self._variant: Final = column.variant

    def take(self, _fields: dict[str, JsonValue], whole: JsonValue) -> object:
        """Return the value, which may be any document, as JSON text.

        Raises:
            Rejection: the column is a variant, which can't hold the value.
        """
        text = document(whole)
        if self._variant and (reason := variant_refusal(text)) is not None:
            raise Rejection(reason.code, reason.message)
        return text


class _RescuedFields:
    """The column that takes the fields without a column of their own."""

    def __init__(self, find_unknown_fields: Callable[[dict[str, JsonValue]], dict[str, JsonValue]]) -> None:
        self._unknown_fields: Final = find_unknown_fields

    def take(self, _fields: dict[str, JsonValue], whole: dict[str, JsonValue]) -> object:
        """Return the fields as JSON text, or None if there are none."""
        unknown_fields = self._unknown_fields(whole)
        return document(unknown_fields) if unknown_fields else None


class ExactDecoder:
    """Decodes records one by one.

    Raises:
        Terminal: a type without a JSON form, or a default that does not fit its column.
    """

    def __init__(self, spec: RecordSpec) -> None:
        self._schema: Final = spec.columns
        self.cells: Final = CellCount()
        specs = spec.column_specs
        columns: dict[str, _Column | _WholeValue | _RescuedFields] = {
            column.name: _Column(column, self.cells) if column.steps else _WholeValue(column) for column in specs
        }
        self._repeated_keys: Final = spec.duplicate_keys == "last"
        self._fold: Final = spec.fold
        self._column_fields: Final = frozenset(self._key(column.steps[0]) for column in specs if column.steps)
        self._known_fields: Final = self._column_fields | {self._key(name) for name in spec.known_names}
        self._checks: Final = not spec.whole_columns
        self._wholes: Final = [column for column in columns.values() if isinstance(column, _WholeValue)]
        self._takes_any: Final = len(self._wholes) == len(spec.columns)
        self._ignores: Final = spec.unknown_fields == "ignore"
        self._fails: Final = spec.unknown_fields == "fail"
        if (rescued := spec.rescues) is not None:
            columns[rescued] = _RescuedFields(self._unknown_fields)
        self._columns: Final = tuple(columns[name] for name in spec.columns.names)
        # The cost of a record must follow its fields, not the columns of the table: columns without a field are not visited.
        self._empty_row: Final = [column.default if isinstance(column, _Column) else None for column in self._columns]
        self._visited: Final = [
            index
            for index, column in enumerate(self._columns)
            if not isinstance(column, _Column) or column.refuses_absent
        ]
        self._by_field: Final[dict[str, list[int]]] = {}
        for index, column in enumerate(self._columns):
            if isinstance(column, _Column):
                self._by_field.setdefault(column.field, []).append(index)

    def row(self, raw: bytes) -> Row:
        """Return the row of `read`."""
        return self.read(raw)[0]

    def read(self, raw: bytes) -> tuple[Row, Collection[str]]:
        """Return one row, and the names of the fields that no column takes.

        Raises:
            Rejection: the record can't become a row.
        """
        self.cells.begin(len(raw))
        if self._takes_any:
            value = parse_document(raw, repeated_keys=self._repeated_keys, in_order=self._fold is not None)
            return {index: column.take({}, value) for index, column in enumerate(self._wholes)}, ()
        whole = parse_object(raw, repeated_keys=self._repeated_keys, in_order=self._fold is not None)
        fields = whole if self._fold is None else fold_fields(whole, self._column_fields, self._fold)
        if self._fails and (unknown_fields := self._unknown_fields(whole)):
            raise unknown_field(list(unknown_fields))
        return self._fill(fields, whole), self._unknown_fields(whole) if self._ignores else ()

    def _fill(self, fields: dict[str, JsonValue], whole: dict[str, JsonValue]) -> Row:
        """Return the row. If several fields do not fit, the rejection is that of the first column."""
        indexes = self._visited.copy()
        for name in fields:
            indexes += self._by_field.get(name, ())
        return {index: self._columns[index].take(fields, whole) for index in sorted(set(indexes))}

    def _key(self, name: str) -> str:
        return name if self._fold is None else name.casefold()

    def _unknown_fields(self, whole: dict[str, JsonValue]) -> dict[str, JsonValue]:
        """Return the fields that no column takes; none if a column takes the whole value."""
        if not self._checks:
            return {}
        return {name: value for name, value in whole.items() if self._key(name) not in self._known_fields}

    def table(self, rows: list[Row]) -> pa.RecordBatch:
        """Return rows as an Arrow batch of exactly the declared columns."""
        columns: dict[int, list[object]] = {}
        for position, row in enumerate(rows):
            for index, value in row.items():
                if (column := columns.get(index)) is None:
                    column = columns[index] = [self._empty_row[index]] * len(rows)
                column[position] = value
        arrays = [
            build_array(columns[index], field.type) if index in columns else self._unfilled(index, len(rows))
            for index, field in enumerate(self._schema)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _unfilled(self, index: int, size: int) -> pa.Array:
        """Return a column whose field no record has."""
        value, data_type = self._empty_row[index], self._schema.field(index).type
        return pa.nulls(size, data_type) if value is None else build_array([value] * size, data_type)


def unknown_field(names: list[str]) -> Rejection:
    """Return the rejection of a record that has fields, of these names, without a column."""
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    message = f"expected a column for each field, found field {describe(names[0])}{more}"
    return Rejection(DeadCode.UNKNOWN_FIELD, message).with_parent(names[0])


def _from_root(verdict: Rejection, steps: tuple[str, ...]) -> Rejection:
    for step in reversed(steps):
        verdict = verdict.with_parent(step)
    return verdict


def _as_json(default: object) -> JsonValue:
    """Return a declared default, from YAML say, as the value that a JSON record would have."""
    text = str(default) if isinstance(default, Decimal) else json.dumps(default, default=str)
    value: JsonValue = json.loads(text, parse_int=Number, parse_float=Number)
    return value
