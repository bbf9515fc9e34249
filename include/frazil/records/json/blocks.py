"""Many values to many rows at once, and only those of which the exact decoder would say the same.

pyarrow.json parses several times faster than values can be decoded one by one, but it reads a
stream of documents and does not know where a value ends. Two broken values may be one good document
together (`{"a":1` and `,"b":2}`), and one value may hold two. So each value gets a last field that
no value has: its closing brace becomes `,"<mark>":true}`. If as many rows come out as values went
in, and each row has the mark, then each value was one object of its own:

- the text holds the mark once per value, directly before a closing brace; a repeated field fails
  the block, so a row has at most one mark, and n rows with n marks have one each, in order;
- so every row ends where its value ends, hence begins where its value begins;
- `X,"<mark>":true}` being one object, so is `X}`, the value.

The mark is random: a value can only hold it by guessing 128 bits. Line feeds need no care: between
documents and tokens they are blanks, inside a text they are an error here as in the exact decoder.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from frazil.records.block import Block, concat_blocks
from frazil.records.cells import StepSize, width_per_element
from frazil.records.column import ColumnSpec
from frazil.records.dead import MAX_CELLS
from frazil.records.json.carriers import Carrier, Settled, any_of, carrier, settle_field
from frazil.records.json.exact import parse_object
from frazil.records.json.fields import NOT_COUNTED, field_at, fields_read, key_count
from frazil.records.json.screen import Screen
from frazil.records.spec import RecordSpec
from frazil.records.unknown import NOTHING_UNKNOWN, UnknownAt

_QUESTION: Final = "SELECT json_keys(value) AS keys FROM records"


class OtherKeys:
    """Finds the fields at the top of values that are not among the ones taken.

    DuckDB lists the names of a value in a quarter of the time that decoding it takes. It refuses halves of surrogate pairs:
    then the exact parser lists the names of the whole block.

    Args:
        taken: Names of the others.
    """

    def __init__(self, taken: Iterable[str]) -> None:
        self._taken: Final = frozenset(taken)
        self._set: Final = pa.array(sorted(self._taken), pa.string())

    def of(self, texts: pa.StringArray) -> UnknownAt:
        """Return the other names and the places of their values in `texts`, each of which is one JSON object."""
        import duckdb

        from frazil.records.transforms.sql_engine import run

        try:
            listed = run(_QUESTION, pa.table({"value": texts}))
        except duckdb.Error:
            return self._one_by_one(texts)
        keys = listed.column("keys").combine_chunks()
        names = keys.flatten()
        others = pc.invert(pc.is_in(names, value_set=self._set))
        return UnknownAt(keys.value_parent_indices().cast(pa.int64()).filter(others), names.filter(others))

    def _one_by_one(self, texts: pa.StringArray) -> UnknownAt:
        found = {at: parse_object(text.encode()).keys() - self._taken for at, text in enumerate(texts.to_pylist())}
        return UnknownAt.of(found)


SEGMENT_BYTES: Final = 32 << 20
"""About this much is parsed at once: bounds the memory of a batch of large values, far above a
usual batch."""

SEGMENT_CELLS: Final = 4_000_000
"""So many cells of lists are parsed at once, at most: bounds the memory of values whose elements have many columns."""

SMALL: Final = 8
"""A failed block of this many values is not parsed again in parts: the exact decoder is as fast."""

WASTE: Final = 2
"""How much may be parsed in vain, in multiples of the batch, before the rest is left to the exact
decoder. That one costs about six times as much per value, so it bounds the worst batch to a third
more time than without blocks. Some failed blocks are granted to a batch of any size."""

_GRANTED_BLOCKS: Final = 8

_PER_BLOCK: Final = 256
_PER_VALUE: Final = 32
"""What a failed block costs beside the values parsed: as much as parsing so many values for the
calls, and a part of its values for copying them."""

_UTF8_PARTS: Final = 64
_UTF8_ONE_BY_ONE: Final = 256
"""Into so many parts values are split to find those that are not UTF-8; so few are tried one by one."""

_ROW_OF_ERROR: Final = re.compile(r" in row ([0-9]+)$")
_KEY: Final = '":'
_MOST: Final = 0.8
"""If so many have another number of keys than a text that failed, those of the same number are suspects."""

_UNEXPECTED: Final = "unexpected field"
"""What pyarrow says of a field that is not read, if such fields are errors."""

_BLANKS: Final = " \t\n\r"
_END: Final = (1 << 31) - 1


class _NotPlainError(Exception):
    """The marks of a parsed block don't fit: some value is not one object."""


def block_decoder(spec: RecordSpec) -> BlockDecoder | None:
    """Return a decoder for `spec`, or None if only the exact decoder can read a column of it."""
    columns = spec.column_specs
    carriers = [carrier(column.type, column.reading) for column in columns]
    found = [each for each in carriers if each is not None]
    if not found or len(found) < len(columns):
        return None
    read = fields_read((column.steps, each.type) for column, each in zip(columns, found, strict=True))
    if read is None or (_counts_keys(spec) and key_count(read) is None):
        return None
    return BlockDecoder(spec, found, read)


def _counts_keys(spec: RecordSpec) -> bool:
    """Return whether keys that no column takes, or that repeat, make a difference."""
    return spec.unknown_fields != "ignore" or spec.duplicate_keys != "last" or spec.field_names != "exact"


class BlockDecoder:
    """Decodes blocks of values; made by `block_decoder`.

    Args:
        spec: What is wanted.
        carriers: One per column.
        read: The fields that hold the columns, as their carriers.
    """

    def __init__(self, spec: RecordSpec, carriers: list[Carrier], read: list[pa.Field]) -> None:
        self._schema: Final = spec.columns
        self._columns: Final = {
            column.name: (column, each) for column, each in zip(spec.column_specs, carriers, strict=True)
        }
        self._keys: Final = key_count(read) if _counts_keys(spec) else None
        self._mark: Final = f"_{secrets.token_hex(16)}"
        self._tail: Final = f',"{self._mark}":true}}\n'.encode()
        self._screen: Final = Screen(read, [NOT_COUNTED] if self._keys else [])
        self._per_element: Final = width_per_element(pa.struct(read))
        schema = pa.schema([*read, pa.field(self._mark, pa.bool_())])
        self._options: Final = pa.json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
        self._nothing_else: Final = pa.json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="error")
        self._others: Final = OtherKeys(each.name for each in read) if self._keys is None else None
        self._of_key: Final = spec.key_names
        self._met = False  # others in the block before: a guess for the next one that costs time if wrong, nothing else

    def decode(self, values: pa.BinaryArray, step: StepSize | None = None) -> Block:
        """Return rows of the values that are plain beyond doubt, and of no other.

        Raises:
            StepTooWide: their lists make too many cells.
        """
        texts = pc.ascii_rtrim(_utf8(values), characters=_BLANKS)
        is_plain = self._screen.plain(texts)
        if self._per_element > 1:
            is_plain = pc.and_(is_plain, pc.less_equal(self._cells(texts), MAX_CELLS))
        plain = pc.indices_nonzero(is_plain).cast(pa.int64())
        candidates = texts if len(plain) == len(texts) else texts.take(plain)
        blocks = list(self._blocks(candidates, plain, step or StepSize(len(values))))
        if len(blocks) == 1:
            return blocks[0]
        return concat_blocks(blocks, self._schema)

    def _cells(self, texts: pa.StringArray) -> pa.Int64Array:
        """Return how many cells the lists of each text make at most: between two elements stands a comma."""
        commas = pc.count_substring(texts, ",").cast(pa.int64())
        return pc.multiply(pc.add(pc.fill_null(commas, 0), 1), self._per_element)

    def _segments(self, texts: pa.StringArray) -> list[tuple[int, int]]:
        return _segments(texts, self._cells(texts) if self._per_element > 1 else None)

    def _blocks(self, texts: pa.StringArray, positions: pa.Int64Array, step: StepSize) -> Iterator[Block]:
        """Decode in order, split where a block fails, end when too much was parsed in vain."""
        pending, looked = self._segments(texts), False
        waste = WASTE * len(texts) + _GRANTED_BLOCKS * _PER_BLOCK
        while pending and waste > 0:
            low, high = pending.pop()
            size = high - low
            try:
                block = self._block(texts.slice(low, size), positions.slice(low, size))
                step.hold(block.rows)
                yield block
            except (pa.ArrowInvalid, _NotPlainError) as e:
                failed = _failed_row(e, size)
                waste -= _PER_BLOCK + size // _PER_VALUE + (size if failed is None else failed)
                if failed is not None and not looked:
                    looked = True
                    if (alike := _alike(texts, low, low + failed)) is not None:
                        texts, positions = texts.take(alike), positions.take(alike)
                        pending = self._segments(texts)
                        continue
                pending.extend(_split(low, high, failed))

    def _block(self, texts: pa.StringArray, positions: pa.Int64Array) -> Block:
        rows, unknown, is_plain = self._read(texts)
        unknown = unknown.among(positions)
        plain = positions if is_plain else positions[:0]
        settled = [self._settled(field, rows) for field in self._schema]
        batch = pa.RecordBatch.from_arrays([array for array, _ in settled], schema=self._schema)
        doubts = [each for _, each in settled]
        if self._keys is not None:
            fields = rows.select(range(rows.num_columns - 1))  # all but the mark
            doubts.append(pc.invert(self._keys.only(texts, fields)))
        doubt = any_of(doubts)
        if doubt is None:
            return Block(batch, positions, unknown, plain)
        certain = pc.invert(doubt)
        return Block(batch.filter(certain), positions.filter(certain), unknown, plain)

    def _settled(self, field: pa.Field, rows: pa.RecordBatch) -> Settled:
        if field.name not in self._columns:  # rescued fields: rows of a block have none
            return pa.nulls(len(rows), field.type), None
        column, each = self._columns[field.name]
        return _settle(column, field, each, field_at(rows, column.steps))

    def _read(self, texts: pa.StringArray) -> tuple[pa.RecordBatch, UnknownAt, bool]:
        """Return one row of carriers per text, the fields that are in none of them, and whether there surely are none.

        Where there are no such fields, as a rule, the parser says so by the way; who has any pays for a second look.
        """
        if self._others is None:  # rows with others are not certain
            return self._parse(texts, self._options), NOTHING_UNKNOWN, False
        if not self._met:
            try:
                return self._parse(texts, self._nothing_else), NOTHING_UNKNOWN, True
            except pa.ArrowInvalid as e:
                if _UNEXPECTED not in str(e):
                    raise
        rows = self._parse(texts, self._options)
        unknown = self._others.of(texts)
        self._met = len(unknown) > 0
        return rows, unknown.without(self._of_key), False

    def _parse(self, texts: pa.StringArray, options: pa.json.ParseOptions) -> pa.RecordBatch:
        """Return one row of carriers per text.

        Raises:
            pa.ArrowInvalid: some text is not JSON, or does not fit the types.
            _NotPlainError: some text is not one object.
        """
        marked = pc.binary_replace_slice(texts.cast(pa.binary()), start=-1, stop=_END, replacement=self._tail)
        stream = _bytes_of(marked)
        at_once = pa.json.ReadOptions(use_threads=False, block_size=stream.size + 1)
        table = pa.json.read_json(pa.BufferReader(stream), at_once, options)
        if table.num_rows != len(texts) or table.column(self._mark).null_count:
            raise _NotPlainError
        return table.combine_chunks().to_batches()[0]


def _settle(column: ColumnSpec, field: pa.Field, found: Carrier, array: pa.Array) -> Settled:
    values, doubt = settle_field(field, found, array)
    # A default depends on whether null was sent or nothing, which can't be seen here.
    nulls = array.is_null() if column.has_default and array.null_count else None
    return values, any_of([doubt, nulls])


def _utf8(values: pa.BinaryArray) -> pa.StringArray:
    """Return the values as text, null where they are not UTF-8."""
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        if len(values) <= _UTF8_ONE_BY_ONE:
            return pa.array([_text(value) for value in values.to_pylist()], pa.string())
        part = -(-len(values) // _UTF8_PARTS)
        return pa.concat_arrays([_utf8(values.slice(low, part)) for low in range(0, len(values), part)])


def _text(value: bytes) -> str | None:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None


def _bytes_of(values: pa.BinaryArray) -> pa.Buffer:
    """Return the bytes of all values in a row, without a copy."""
    _, offsets, data = values.buffers()
    places = memoryview(offsets).cast("i")
    first, last = places[values.offset], places[values.offset + len(values)]
    return data.slice(first, last - first)


def _segments(texts: pa.StringArray, cells: pa.Int64Array | None) -> list[tuple[int, int]]:
    """Return ranges of texts of about `SEGMENT_BYTES` and `SEGMENT_CELLS` or less, the first one last."""
    if cells is not None and (pc.sum(cells).as_py() or 0) > SEGMENT_CELLS:
        parts = cells.to_numpy() / SEGMENT_CELLS + pc.binary_length(texts).to_numpy() / SEGMENT_BYTES
        edges = np.flatnonzero(np.diff(np.cumsum(parts).astype(np.int64))) + 1
        return list(pairwise([0, *edges.tolist(), len(texts)]))[::-1]
    size = max(1, len(texts) // (1 + texts.nbytes // SEGMENT_BYTES))
    return [(low, min(low + size, len(texts))) for low in range(0, len(texts), size)][::-1]


def _failed_row(error: Exception, size: int) -> int | None:
    """Return the row that the parser stumbled over, if it says so: a hint where to split."""
    match = _ROW_OF_ERROR.search(str(error))
    row = int(match.group(1)) if match else size
    return row if row < size else None


def _alike(texts: pa.StringArray, low: int, failed: int) -> pa.Int64Array | None:
    """Return which texts from `low` on have another number of keys than a text that failed, if most have.

    What the screen lets through and the parser refuses is a repeated key, mostly, which shows in their number.
    """
    keys = pc.count_substring(texts.slice(low), _KEY)
    others = pc.indices_nonzero(pc.not_equal(keys, keys[failed - low]))
    if len(others) < _MOST * len(keys):
        return None
    return pc.add(others.cast(pa.int64()), low)


def _split(low: int, high: int, failed: int | None) -> list[tuple[int, int]]:
    """Return the ranges to try next, the first one last; what is in none is decoded exactly."""
    if high - low <= SMALL:
        return []
    middle = (low + high) // 2
    parts = [(low, middle), (middle, high)] if failed is None else [(low, low + failed), (low + failed + 1, high)]
    return [part for part in reversed(parts) if part[0] < part[1]]
