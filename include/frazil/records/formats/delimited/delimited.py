"""Values that are one line of CSV or the like, by RFC 4180, with columns of text. Many lines are parsed in a block where the outcome is
surely that of parsing them one by one.

- A field that begins with the quote ends with one; a quote within it is written twice. It may hold delimiters and line breaks.
- In a field that does not begin with a quote, a quote is a character like others: RFC 4180 forbids it, and everyone reads it so.
- With an escape character, the character behind it stands for itself, in quoted and other fields.
- One line break (CRLF, LF or CR) may end the value. More lines would be more records, and a value is one record.
- Blanks belong to the field. One byte order mark at the start of the value is dropped, as for JSON.
- A field without quotes that is exactly the null text is null. With quotes it never is, so `""` is an empty text.

The texts are cast to the declared types later, by `frazil.records.casting`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from frazil.error_codes import BAD_TRANSFORM
from frazil.records.formats.scalar.scalar import split_texts
from frazil.records.json.exact import decode_utf8
from frazil.records.model.dead_letter import DeadCode, Reason, Rejection
from frazil.records.model.format import Decoded, Shaped
from frazil.records.model.json_number import describe
from frazil.records.model.rows import complement

# pyarrow.csv is more tolerant than this format: it takes text behind a closing quote, a quote that never ends, a byte order mark. So it
# gets only values that surely are one line with the right number of fields.

_END: Final = r"(?:\r\n|\n|\r)$"
_MAX_BLOCK_BYTES: Final = (1 << 31) - 2
"""Bytes of a block, whose size is an int32."""


def read_block(
    values: pa.BinaryArray, width: int, delimiter: str, quote: str | None, null_text: str | None, escape: str | None
) -> tuple[list[pa.StringArray], pa.Int64Array]:
    """Return the columns of values that may be parsed in a block, and their positions; no columns if there are no such values.

    Args:
        values: Any bytes, none null.
        width: Number of fields.
        delimiter: One ASCII character, not NUL.
        quote: One ASCII character, not NUL, or None.
        null_text: The text that means null if it has no quotes, or None.
        escape: One ASCII character, not NUL, or None. Lines that have it elsewhere than in the null text are not parsed here.
    """
    nothing: tuple[list[pa.StringArray], pa.Int64Array] = ([], pa.array([], pa.int64()))
    texts, text_positions, _ = split_texts(values)
    lines = _without_end(texts)
    plain = _plain(texts, lines, width, delimiter, quote)
    if escape is not None and pc.any(escaped := pc.match_substring(lines, escape)).as_py():
        pattern = _null_escape_pattern(delimiter, quote, null_text, escape)
        plain = pc.and_(plain, pc.or_(pc.invert(escaped), pc.match_substring_regex(lines, pattern)))
    positions = pc.indices_nonzero(plain).cast(pa.int64())
    if not len(positions):
        return nothing
    chosen = lines if len(positions) == len(lines) else lines.take(positions)
    if (
        chosen.nbytes > _MAX_BLOCK_BYTES
    ):  # `nbytes` counts four bytes of offset per line, so there is room for line breaks
        return nothing
    block = _joined(chosen)
    columns = _parse(block, width, delimiter, quote, null_text)
    return (columns, text_positions.take(positions)) if columns and len(columns[0]) == len(positions) else nothing


def _without_end(texts: pa.StringArray) -> pa.StringArray:
    ends = pc.or_(pc.ends_with(texts, "\n"), pc.ends_with(texts, "\r"))
    return pc.replace_substring_regex(texts, _END, "") if pc.any(ends).as_py() else texts


def _plain(
    texts: pa.StringArray, lines: pa.StringArray, width: int, delimiter: str, quote: str | None
) -> pa.BooleanArray:
    """Return which lines pyarrow.csv reads as `_Line` does: they are not empty, have all fields, and quotes only in regular places."""
    not_empty = pc.greater(pc.binary_length(texts), 0)
    is_regular = pc.invert(pc.match_substring_regex(lines, "^\ufeff|[\r\n]"))
    without_quoted = lines
    if quote is not None and pc.any(pc.match_substring(lines, quote)).as_py():
        is_regular = pc.and_(is_regular, pc.match_substring_regex(lines, _line_pattern(delimiter, quote)))
        # Two quotes within a quoted field end one quoted run and begin the next: both runs are removed.
        mark = _escaped_character(quote)
        without_quoted = pc.replace_substring_regex(lines, f"{mark}[^{mark}]*{mark}", "")
    has_all_fields = pc.equal(pc.count_substring(without_quoted, delimiter), width - 1)
    return pc.and_(pc.and_(not_empty, is_regular), has_all_fields)


def _line_pattern(delimiter: str, quote: str) -> str:
    delimiter_sign, mark = _escaped_character(delimiter), _escaped_character(quote)
    field_pattern = f"(?:{mark}[^{mark}]*(?:{mark}{mark}[^{mark}]*)*{mark}|[^{mark}{delimiter_sign}]*)"
    return f"^{field_pattern}(?:{delimiter_sign}{field_pattern})*$"


def _null_escape_pattern(delimiter: str, quote: str | None, null_text: str | None, escape: str) -> str:
    """Return the pattern of lines without quotes that have the escape character only in fields that are the null text."""
    signs = "".join(map(_escaped_character, f"{escape}{delimiter}{quote or ''}"))
    text = null_text or ""
    mark = re.escape(escape)
    # Both readers take a null text for one field only if it has no delimiter and no quote, and no escape at its end.
    pairs = re.fullmatch(f"(?:[^{mark}]|{mark}.)*", text, re.DOTALL)
    is_field = pairs is not None and not {delimiter, quote} & set(text)
    null = "".join(map(_escaped_character, text)) if is_field else ""
    field_pattern = f"(?:{null}|[^{signs}]*)"
    return f"^{field_pattern}(?:{_escaped_character(delimiter)}{field_pattern})*$"


def _escaped_character(character: str) -> str:
    # Arrow searches with RE2, which refuses a backslash before some characters.
    return f"\\x{{{ord(character):x}}}"


def _joined(lines: pa.StringArray) -> pa.Buffer:
    # The last line ends with a line feed, too. Else pyarrow.csv takes an empty last field for a quoted one if the field before it is quoted.
    ended = pa.concat_arrays([lines, pa.array([""], pa.string())])
    whole = pa.ListArray.from_arrays(pa.array([0, len(ended)], pa.int32()), ended)
    return pc.binary_join(whole, "\n")[0].as_buffer()


def _parse(
    block: pa.Buffer, width: int, delimiter: str, quote: str | None, null_text: str | None
) -> list[pa.StringArray]:
    names = [str(index) for index in range(width)]
    try:
        table = csv.read_csv(
            pa.BufferReader(block),
            csv.ReadOptions(use_threads=False, block_size=block.size + 1, column_names=names),
            csv.ParseOptions(delimiter=delimiter, quote_char=quote or False, ignore_empty_lines=False),
            csv.ConvertOptions(
                check_utf8=False,
                column_types=dict.fromkeys(names, pa.string()),
                null_values=[] if null_text is None else [null_text],
                strings_can_be_null=null_text is not None,
                quoted_strings_can_be_null=False,
            ),
        )
    except pa.ArrowInvalid:
        return []
    return [column.combine_chunks() for column in table.columns]


Row = Sequence[str | None]

_BREAKS: Final = ("\r\n", "\n", "\r")
_BYTE_ORDER_MARK: Final = "\ufeff"
_NEVER: Final = "(?!)"
"""An expression that matches nothing."""

_MAX_COUNTED: Final = 1_000
"""Fields that are counted, for a message, beyond the declared ones."""


@dataclass(frozen=True, slots=True)
class DelimitedFormat:
    """Decodes lines of fields.

    Attributes:
        fields: Names of the fields, in the order of the line.
        delimiter: One character between fields.
        quote: One character around a field; None: no field is quoted.
        escape: One character before another one that then has no special meaning; None, or the quote: there is none.
        null_text: The text that means null; None: no text does.
        header: Whether each value begins with a line of the names, in any order.
        blocks: False parses each value alone: the outcome is the same, but takes longer.

    Raises:
        Terminal: there are no fields, a name repeats, or the delimiter is also quote or escape.
    """

    fields: tuple[str, ...]
    delimiter: str = ","
    quote: str | None = '"'
    escape: str | None = None
    null_text: str | None = ""
    header: bool = False
    blocks: bool = True
    _line: _Line = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _check(self)
        escape = None if self.escape == self.quote else self.escape
        line = _Line(self.delimiter, self.quote, escape, self.null_text, len(self.fields))
        object.__setattr__(self, "_line", line)

    def decode(self, values: pa.BinaryArray) -> Decoded:
        """Decode values. See `frazil.records.model.format.Format`."""
        rows, positions = self._block(values)
        line_rows: list[Row] = []
        line_positions: list[int] = []
        dead: dict[int, Reason] = {}
        for position in complement(len(values), positions).to_pylist():
            try:
                line_rows.append(self._row(values[position].as_py()))
                line_positions.append(position)
            except Rejection as e:
                dead[position] = e.reason
        return Decoded(
            _merge_groups(
                Shaped(rows, positions), Shaped(self._batch(line_rows), pa.array(line_positions, pa.int64()))
            ),
            dead,
        )

    def _block(self, values: pa.BinaryArray) -> tuple[pa.RecordBatch, pa.Int64Array]:
        """Return the rows of values that may be parsed in a block, and their positions."""
        escape = None if self.escape == self.quote else self.escape
        signs = self.delimiter + (self.quote or "") + (escape or "")
        if self.blocks and signs.isascii() and "\0" not in signs and not self.header:
            width = len(self.fields)
            columns, positions = read_block(values, width, self.delimiter, self.quote, self.null_text, escape)
            if columns:
                return pa.RecordBatch.from_arrays(columns, schema=self._schema), positions
        return self._batch([]), pa.array([], pa.int64())

    @property
    def _schema(self) -> pa.Schema:
        return pa.schema([pa.field(name, pa.string()) for name in self.fields])

    def _batch(self, rows: list[Row]) -> pa.RecordBatch:
        columns = zip(*rows, strict=True) if rows else [() for _ in self.fields]
        arrays = [pa.array(column, pa.string()) for column in columns]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _row(self, raw: bytes) -> Row:
        if not raw:
            raise Rejection(DeadCode.EMPTY_VALUE, "expected a line of fields, found a value of 0 bytes")
        text = decode_utf8(raw).removeprefix(_BYTE_ORDER_MARK)
        row, end = self._line.read(text, 0)
        if self.header:
            names, (row, end) = row, self._line.read(text, end)
            row = self._in_declared_order(names, row)
        if len(row) != len(self.fields):
            raise _invalid(f"expected {len(self.fields)} fields, found {_count_text(len(row), len(self.fields))}")
        if end < len(text):
            raise _invalid(f"expected one line, found behind it {describe(text[end : end + 81])}")
        return row

    def _in_declared_order(self, names: Row, row: Row) -> Row:
        if len(names) != len(self.fields) or set(names) != set(self.fields):
            raise _invalid(f"expected a line of the declared names, found {self._difference(names)}")
        if len(row) != len(names):
            return row
        by_name = dict(zip(names, row, strict=True))
        return [by_name[name] for name in self.fields]

    def _difference(self, names: Row) -> str:
        """Describe the first missing and the first unexpected name; there may be hundreds."""
        missing = [f"no {describe(name)}" for name in self.fields if name not in names]
        unexpected = [f"{describe(str(name))}, which is none of them" for name in names if name not in self.fields]
        return ", and ".join(missing[:1] + unexpected[:1]) or "one of them twice"


class _Line:
    """Reads one line, field by field. Parsing in blocks must agree with it."""

    def __init__(
        self, delimiter: str, quote: str | None, escape: str | None, null_text: str | None, limit: int
    ) -> None:
        skip = re.escape(escape) if escape else ""
        pair = f"{skip}." if skip else _NEVER
        self._bare: Final = re.compile(_unrolled(rf"[^{re.escape(delimiter)}\r\n{skip}]", pair), re.DOTALL)
        self._quoted: Final = None if quote is None else _between(re.escape(quote), skip, pair)
        self._pairs: Final = _pairs([sign for sign in (quote, escape) if sign])
        self._escaped: Final = _pairs([escape]) if escape else None
        self._delimiter: Final = delimiter
        self._quote: Final = quote
        self._null_text: Final = null_text
        self._limit: Final = limit

    def read(self, text: str, start: int) -> tuple[Row, int]:
        """Return the fields of the line at `start`, up to 1,000 more than declared, and where the next line begins.

        Raises:
            Rejection: INVALID_DELIMITED.
        """
        fields: list[str | None] = []
        position = start
        while True:
            value, position = self._field(text, position)
            fields.append(value)
            if len(fields) >= self._limit + _MAX_COUNTED:
                return fields, position
            if not text.startswith(self._delimiter, position):
                break
            position += 1
        line_end = next((line_break for line_break in _BREAKS if text.startswith(line_break, position)), "")
        if position < len(text) and not line_end:
            raise _unexpected(text, position)
        return fields, position + len(line_end)

    def _field(self, text: str, position: int) -> tuple[str | None, int]:
        if self._quoted is not None and self._quote is not None and text.startswith(self._quote, position):
            match = self._quoted.match(text, position)
            if match is None:
                raise _invalid(
                    f"expected the quote at position {position} to end, found {describe(text[position : position + 81])}"
                )
            return self._pairs.sub(_second, match[1]), match.end()
        match = self._bare.match(text, position)
        raw = match[0] if match else ""
        value = raw if self._escaped is None else self._escaped.sub(_second, raw)
        return None if raw == self._null_text else value, position + len(raw)


def _between(mark: str, skip: str, pair: str) -> re.Pattern[str]:
    return re.compile(f"{mark}({_unrolled(f'[^{mark}{skip}]', f'{mark}{mark}|{pair}')}){mark}", re.DOTALL)


def _pairs(first: list[str]) -> re.Pattern[str]:
    """Return a pattern of two characters, the first of which escapes the second."""
    return re.compile(f"[{re.escape(''.join(first))}](.)" if first else _NEVER, re.DOTALL)


def _second(pair: re.Match[str]) -> str:
    return pair[1]


def _unrolled(plain: str, special: str) -> str:
    """Return the pattern of any number of plain and special parts, which makes no choice per character, so it never backtracks far."""
    return f"{plain}*(?:(?:{special}){plain}*)*"


def _unexpected(text: str, position: int) -> Rejection:
    return _invalid(
        f"expected a delimiter or the end at position {position}, found {describe(text[position : position + 81])}"
    )


def _count_text(count: int, limit: int) -> str:
    return str(count) if count < limit + _MAX_COUNTED else f"at least {count}"


def _invalid(message: str) -> Rejection:
    return Rejection(DeadCode.INVALID_DELIMITED, message)


def _merge_groups(from_block: Shaped, from_lines: Shaped) -> tuple[Shaped, ...]:
    """Return the rows of both as one group, in the order of their positions."""
    if not len(from_block.positions) or not len(from_lines.positions):
        return tuple(shaped for shaped in (from_block, from_lines) if len(shaped.positions))
    positions = pa.concat_arrays([from_block.positions, from_lines.positions])
    order = pc.sort_indices(positions)
    rows = pa.concat_batches([from_block.columns, from_lines.columns])
    return (Shaped(rows.take(order), positions.take(order)),)


def _check(options: DelimitedFormat) -> None:
    named = {"delimiter": options.delimiter, "quote": options.quote, "escape": options.escape}
    for name, mark in named.items():
        if mark is not None and (len(mark) != 1 or mark in "\r\n"):
            _refuse(f"expected {name} as one character and no line break, found {mark!r}")
    if options.delimiter in {options.quote, options.escape}:
        _refuse(f"expected a delimiter other than quote and escape, found {options.delimiter!r}")
    if not options.fields or len(set(options.fields)) < len(options.fields):
        _refuse(f"expected one or more fields, each name once, found {', '.join(options.fields) or 'none'}")


def _refuse(message: str) -> None:
    raise BAD_TRANSFORM.terminal(
        f"delimited format: {message}", next_step="correct the value format of the pipeline file"
    )
