"""Many delimited values at once, only where the reader of single lines would say the same.

pyarrow.csv is more tolerant than this format: text behind a closing quote, a quote that never ends, a byte order mark. So it sees
only values that are proven to have the form of one line with the right number of fields.
"""

from __future__ import annotations

import re
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from frazil.records.formats.scalar.scalar import split_texts

_END: Final = r"(?:\r\n|\n|\r)$"
_MOST_BYTES: Final = (1 << 31) - 2
"""Of a block: its size is an int32."""


def read_block(
    values: pa.BinaryArray, width: int, delimiter: str, quote: str | None, null_text: str | None, escape: str | None
) -> tuple[list[pa.StringArray], pa.Int64Array]:
    """Return the columns of values that may be parsed as a block, and their positions; no columns if there are no such values.

    Args:
        values: Any bytes, none null.
        width: Number of fields.
        delimiter: One ASCII character, not NUL.
        quote: One ASCII character, not NUL, or None.
        null_text: What stands for null without quotes, or None.
        escape: One ASCII character, not NUL, or None. A line may have it in the null text alone.
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
    if chosen.nbytes > _MOST_BYTES:  # counts the place of each line too, so that the line breaks are in
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
    """Return which lines have the form that both readers read alike."""
    not_empty = pc.greater(pc.binary_length(texts), 0)
    bare = pc.invert(pc.match_substring_regex(lines, "^\ufeff|[\r\n]"))
    fields = lines
    if quote is not None and pc.any(pc.match_substring(lines, quote)).as_py():
        bare = pc.and_(bare, pc.match_substring_regex(lines, _line_pattern(delimiter, quote)))
        # In this form a quote within a quoted field ends one run and begins the next.
        mark = _escaped_character(quote)
        fields = pc.replace_substring_regex(lines, f"{mark}[^{mark}]*{mark}", "")
    counted = pc.equal(pc.count_substring(fields, delimiter), width - 1)
    return pc.and_(pc.and_(not_empty, bare), counted)


def _line_pattern(delimiter: str, quote: str) -> str:
    delimiter_sign, mark = _escaped_character(delimiter), _escaped_character(quote)
    field_pattern = f"(?:{mark}[^{mark}]*(?:{mark}{mark}[^{mark}]*)*{mark}|[^{mark}{delimiter_sign}]*)"
    return f"^{field_pattern}(?:{delimiter_sign}{field_pattern})*$"


def _null_escape_pattern(delimiter: str, quote: str | None, null_text: str | None, escape: str) -> str:
    """Return the pattern of lines without quotes that have the escape character only in fields that are the null text."""
    signs = "".join(map(_escaped_character, f"{escape}{delimiter}{quote or ''}"))
    text = null_text or ""
    mark = re.escape(escape)
    # Only a text of whole pairs, without delimiter and quote, is one field to both readers.
    pairs = re.fullmatch(f"(?:[^{mark}]|{mark}.)*", text, re.DOTALL)
    is_field = pairs is not None and not {delimiter, quote} & set(text)
    null = "".join(map(_escaped_character, text)) if is_field else ""
    field_pattern = f"(?:{null}|[^{signs}]*)"
    return f"^{field_pattern}(?:{_escaped_character(delimiter)}{field_pattern})*$"


def _escaped_character(character: str) -> str:
    # RE2, which Arrow searches with, refuses a backslash before some characters.
    return f"\\x{{{ord(character):x}}}"


def _joined(lines: pa.StringArray) -> pa.Buffer:
    # The last line has its end too: without, pyarrow.csv takes an empty last field for one in quotes, behind a quoted one.
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
