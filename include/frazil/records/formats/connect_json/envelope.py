"""Kafka Connect's JSON with the schema in each record: `{"schema": …, "payload": …}`.

JsonConverter writes it with `schemas.enable=true`. The schema tells what the texts, numbers and objects of the payload mean
(`frazil.records.formats.connect_json.types`): so numbers keep every digit, and dates, times, decimals and bytes get their types.

- An object with other fields than these two is no envelope, as for JsonConverter. Of a repeated key the last one wins.
- A payload of another kind than its schema declares (text for a number, null or nothing for a required field) is INVALID_ENVELOPE. If
  the kind is right but the type can't hold the value, the code is that of the value, such as OUT_OF_RANGE.
- With `"schema": null` a text, a number or a boolean has its own type. An object or list without schema has no types: its format is
  `json` with declared columns.
- A payload of null is a tombstone in an envelope.

Producers send the same schema thousands of times, and it is longer than the payload (Debezium's has some 10 KB). So the text before
the payload is cached with the compiled schema. A record that begins with a cached text is parsed from the payload on, and records of a
batch that begin with the same text are parsed in one block. The outcome is the same, since JSON is read from left to right. A record
with anything unusual behind the cached text is parsed whole.
"""

from __future__ import annotations

import json
import re
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from frazil.records.formats.connect_json.types import Slot, compile_slot, to_text
from frazil.records.formats.json_block import BlockDecoder, UnknownFieldFinder, block_decoder, unknown_field_finder
from frazil.records.formats.registered import reading_schema
from frazil.records.json.convert import build_array, to_bool, to_float64, to_int
from frazil.records.json.exact import parse_object
from frazil.records.model.cells import CellCount, CountCells, StepSize, json_cell_counter
from frazil.records.model.dead_letter import DeadCode, Reason, Rejection
from frazil.records.model.format import BARE, Decoded, Shaped
from frazil.records.model.json_number import JsonValue, Number, compact, describe, exact_value
from frazil.records.model.rows import Block, UnknownFieldPairs, complement, take_distinct

MAX_CACHED: Final = 256
"""Schemas that are cached. A topic has one or a few; a pattern of topics has some per table."""

MAX_CACHED_CHARACTERS: Final = 1 << 18
"""Characters of a schema's text that is cached: 256 of them take at most 64 MB. A longer schema is compiled for each record."""

MAX_BLOCK_CHARACTERS: Final = 1 << 16
"""Characters of a schema's text whose payloads are decoded in blocks: some 1,300 fields. The block decoder takes as much memory again."""

_BEFORE_SCHEMA: Final = re.compile(r'[ \t\r\n]*\{[ \t\r\n]*"schema"[ \t\r\n]*:[ \t\r\n]*')
_BEFORE_PAYLOAD: Final = re.compile(r'[ \t\r\n]*,[ \t\r\n]*"payload"[ \t\r\n]*:')
_PAYLOAD: Final = b'{"payload":'
"""Replaces the text before a payload whose schema is cached."""

_MIN_BLOCKS: Final = 16
"""Different beginnings of records that are searched in any batch."""

_MIN_BLOCK_VALUES: Final = 64
"""Values that are decoded in blocks for each further beginning that is searched."""

_SKIPPED: Final = json.JSONDecoder(parse_int=Number, parse_float=Number)


@dataclass(frozen=True, eq=False)
class _Shape:
    """Columns and converter of the payloads of one schema."""

    slot: Slot
    columns: pa.Schema
    find_unknown_fields: UnknownFieldFinder | None = None
    count: CountCells | None = None

    @classmethod
    def from_slot(cls, slot: Slot) -> _Shape:
        if not pa.types.is_struct(slot.type):
            column = slot.field(BARE).with_nullable(False)  # noqa: FBT003 (Arrow's own signature)
            return cls(slot, pa.schema([column]), count=json_cell_counter(slot.type))
        if not slot.type.num_fields:
            raise Rejection(DeadCode.UNUSABLE_SCHEMA, "expected a struct with fields, found one without")
        return cls(slot, pa.schema(list(slot.type)), unknown_field_finder(slot.type), json_cell_counter(slot.type))

    def value(self, payload: JsonValue, cells: CellCount) -> object:
        """Return the payload as what `pa.array` takes for the slot's type."""
        if self.count is not None:
            cells.add(self.count(payload))
        value = self.slot.convert(payload)
        if value is None:
            raise _tombstone()
        return value

    @cached_property
    def blocks(self) -> BlockDecoder | None:
        """The decoder of blocks of `{"payload": …}`; None if values can only be decoded one by one."""
        payload = pa.schema([pa.field("payload", self.slot.type, nullable=False)])
        find = None if self.find_unknown_fields is None else partial(_find_in_payload, self.find_unknown_fields)
        return block_decoder(payload, [self.slot.intermediate], find, closed=True)

    def to_group(self, rows: list[object], positions: list[int]) -> Shaped:
        """Return the columns of converted payloads, with their positions."""
        return Shaped(self.to_columns(build_array(rows, self.slot.type)), pa.array(positions, pa.int64()))

    def to_columns(self, payloads: pa.Array) -> pa.RecordBatch:
        """Return the columns of payloads, none of them null."""
        columns = payloads.flatten() if pa.types.is_struct(self.slot.type) else [payloads]
        return pa.RecordBatch.from_arrays(columns, schema=self.columns)


class _Shapes:
    """Caches shapes by their schema, and by the text before the payload. An executor begins with an empty cache."""

    def __init__(self) -> None:
        self._by_schema: Final[OrderedDict[str, _Shape | Reason]] = OrderedDict()
        self._by_beginning: Final[OrderedDict[bytes, _Shape | Reason]] = OrderedDict()

    def __reduce__(self) -> tuple[type[_Shapes], tuple[()]]:
        return _Shapes, ()

    def lookup(self, raw: bytes) -> tuple[_Shape | Reason, JsonValue] | None:
        """Return shape and payload of a record that begins with a cached text; None if the record must be parsed whole."""
        beginning = self.beginning(raw)
        if beginning is None:
            return None
        try:
            rest = parse_object(_PAYLOAD + raw[len(beginning) :])
        except Rejection:
            return None  # parsing the whole record finds the same error, at its position in the record
        return (self._by_beginning[beginning], rest["payload"]) if len(rest) == 1 else None

    def beginning(self, raw: bytes) -> bytes | None:
        """Return the cached text that a record begins with, or None."""
        for beginning in reversed(self._by_beginning):
            if raw.startswith(beginning):
                self._by_beginning.move_to_end(beginning)
                return beginning
        return None

    def blocks(self, beginning: bytes) -> tuple[_Shape, BlockDecoder] | None:
        """Return the shape behind a cached text, with its block decoder; None if it has none."""
        shape = self._by_beginning[beginning]
        if isinstance(shape, Reason) or len(beginning) > MAX_BLOCK_CHARACTERS or shape.blocks is None:
            return None
        return shape, shape.blocks

    def shape(self, schema: JsonValue, raw: bytes) -> _Shape | Reason:
        """Return the shape of a schema, or the reason why it has none. `raw` is the record with the schema, as valid JSON."""
        text = compact(schema)
        shape = self._by_schema.get(text) or self._compile(schema)
        if len(text) <= MAX_CACHED_CHARACTERS:
            _cache(self._by_schema, text, shape)
            beginning = _text_before_payload(raw)
            if beginning is not None and len(beginning) <= MAX_CACHED_CHARACTERS and _schema_in(beginning) == text:
                _cache(self._by_beginning, beginning, shape)
        return shape

    def _compile(self, schema: JsonValue) -> _Shape | Reason:
        try:
            with reading_schema():
                return _Shape.from_slot(compile_slot(schema))
        except Rejection as e:
            reason = e.reason.with_parent("schema")
            return Reason(DeadCode.UNUSABLE_SCHEMA, reason.message, reason.path)


@dataclass(frozen=True)
class EnvelopeFormat:
    """Decodes JSON of Kafka Connect with schemas.

    Attributes:
        blocks: False parses each value alone: the outcome is the same, but takes longer.
    """

    blocks: bool = True
    _shapes: _Shapes = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_shapes", _Shapes())

    def decode(self, values: pa.BinaryArray) -> Decoded:
        """Decode values. Those of one schema make one group, or a few. See `frazil.records.model.format.Format`."""
        step = StepSize(len(values))
        read_blocks = self._read_blocks(values, step) if self.blocks else []
        done = [Shaped(shape.to_columns(block.rows.column(0)), block.positions) for shape, block in read_blocks]
        block_positions = pa.chunked_array([block.positions for _, block in read_blocks], pa.int64()).combine_chunks()
        remaining = complement(len(values), block_positions.sort())
        groups: dict[_Shape, tuple[list[object], list[int]]] = {}
        dead: dict[int, Reason] = {}
        unknown_fields: dict[int, tuple[str, ...]] = {}
        cells = CellCount()
        for position, raw in zip(remaining.to_pylist(), take_distinct(values, remaining).to_pylist(), strict=True):
            try:
                shape, value, names = self._value(raw, cells)
            except Rejection as e:
                dead[position] = e.reason
                continue
            rows, positions = groups.setdefault(shape, ([], []))
            if names:
                unknown_fields[position] = names
            rows.append(value)
            positions.append(position)
            if step.add_cells(cells.total):
                done += (shape.to_group(*group) for shape, group in groups.items())
                for shaped in done[-len(groups) :]:
                    step.hold(shaped.columns)
                groups = {}
        done += (shape.to_group(*group) for shape, group in groups.items())
        names_of_blocks = [block.unknown_fields for _, block in read_blocks]
        unknown_pairs = UnknownFieldPairs.concat([*names_of_blocks, UnknownFieldPairs.from_names(unknown_fields)])
        return Decoded(tuple(done), dead, unknown_pairs)

    def _read_blocks(self, values: pa.BinaryArray, step: StepSize) -> list[tuple[_Shape, Block]]:
        """Return a block for each cached text with which values begin: of those that surely have the same outcome one by one."""
        results: list[tuple[_Shape, Block]] = []
        is_open, most, searches = np.ones(len(values), np.bool_), _MIN_BLOCKS, 0
        while is_open.any() and searches < most:
            searches += 1
            first_open = int(is_open.argmax())
            first = values[first_open].as_py()
            beginning = self._shapes.beginning(first) or self._learn(first)
            if beginning is None or (read := self._shapes.blocks(beginning)) is None:
                is_open[first_open] = False
                continue
            shape, blocks = read
            is_alike = pc.starts_with(values, beginning).to_numpy(zero_copy_only=False) & is_open
            is_open &= ~is_alike
            positions = pa.array(np.flatnonzero(is_alike), pa.int64())
            payloads = pc.binary_replace_slice(take_distinct(values, positions), 0, len(beginning), _PAYLOAD)
            block = blocks.decode(payloads, step)
            if len(block.positions):
                rows, unknown_fields = block.rows, block.unknown_fields.map_positions(positions)
                results.append((shape, Block(rows, positions.take(block.positions), unknown_fields)))
                most += len(block.positions) // _MIN_BLOCK_VALUES
        return results

    def _learn(self, raw: bytes) -> bytes | None:
        """Parse a record with an unknown schema, and return its text before the payload; None if that can't be cached."""
        try:
            self._parse_envelope(raw)
        except Rejection:
            return None
        return self._shapes.beginning(raw)

    def _value(self, raw: bytes, cells: CellCount) -> tuple[_Shape, object, tuple[str, ...]]:
        """Return a record's shape, its converted payload, and the names of fields that the schema does not have."""
        cells.begin(len(raw))
        shape, payload = self._shapes.lookup(raw) or self._parse_envelope(raw)
        if isinstance(shape, Reason):
            raise Rejection(shape.code, shape.message, shape.path)
        try:
            value = shape.value(payload, cells)
            return shape, value, () if shape.find_unknown_fields is None else tuple(shape.find_unknown_fields(payload))
        except Rejection as e:
            raise _as_envelope_rejection(e) from e

    def _parse_envelope(self, raw: bytes) -> tuple[_Shape | Reason, JsonValue]:
        document = parse_object(raw)
        if document.keys() != {"schema", "payload"}:
            raise Rejection(DeadCode.INVALID_ENVELOPE, f"expected schema and payload, found {_named(document)}")
        schema, payload = document["schema"], document["payload"]
        if schema is None:
            return _schemaless(payload), payload
        if not isinstance(schema, dict):
            message = f"expected a schema as object or null, found {describe(schema)}"
            raise Rejection(DeadCode.INVALID_ENVELOPE, message, "schema")
        return self._shapes.shape(schema, raw), payload


def _named(document: dict[str, JsonValue]) -> str:
    if not document:
        return "an object without fields"
    # There may be many names, and long ones.
    return f"fields {describe([name[:80] for name in list(document)[:20]]).removeprefix('list ')}"


_CODES: Final = {
    DeadCode.WRONG_TYPE: DeadCode.INVALID_ENVELOPE,
    DeadCode.MISSING_REQUIRED: DeadCode.INVALID_ENVELOPE,
}
"""Code of a value -> code of the record: a payload that contradicts its own schema has nothing to do with the pipeline's columns."""


def _find_in_payload(find: UnknownFieldFinder, document: JsonValue) -> Iterator[str]:
    return find(document["payload"])  # type: ignore[call-overload,index]  # the block decoder takes nothing else


def _as_envelope_rejection(rejection: Rejection) -> Rejection:
    reason = rejection.reason.with_parent("payload")
    return Rejection(_CODES.get(reason.code, reason.code), reason.message, reason.path)


def _tombstone() -> Rejection:
    return Rejection(DeadCode.NULL_VALUE, "expected a payload, found null (a tombstone in an envelope)")


def _cache(
    cache: OrderedDict[str, _Shape | Reason] | OrderedDict[bytes, _Shape | Reason], key: object, shape: _Shape | Reason
) -> None:
    cache[key] = shape  # type: ignore[index]
    cache.move_to_end(key)  # type: ignore[arg-type]
    if len(cache) > MAX_CACHED:
        cache.popitem(last=False)


def _text_before_payload(raw: bytes) -> bytes | None:
    """Return the text before the payload, if it is the schema and nothing else, not even a byte order mark; else None."""
    text = raw.decode()
    if (schema_start := _BEFORE_SCHEMA.match(text)) is None:
        return None
    _, end = _SKIPPED.raw_decode(text, schema_start.end())
    before = _BEFORE_PAYLOAD.match(text, end)
    return None if before is None else text[: before.end()].encode()


def _schema_in(beginning: bytes) -> str:
    """Return the schema in the text before a payload. If a record has two schemas, the later one counts, which this is not."""
    return compact(parse_object(beginning + b"null}")["schema"])


def _exact_double(value: JsonValue) -> float:
    """Convert a number that a double holds with every digit that was sent."""
    number = to_float64(value)
    if isinstance(value, Number) and exact_value(Number(repr(number))) != exact_value(value):
        raise Rejection(DeadCode.LOSSY_CAST, f"expected a number that a double holds, found {describe(value)}")
    return number


_BOOLEAN: Final = _Shape.from_slot(Slot(pa.bool_(), nullable=False, convert=to_bool))
_TEXT: Final = _Shape.from_slot(Slot(pa.string(), nullable=False, convert=to_text))
_INTEGER: Final = _Shape.from_slot(Slot(pa.int64(), nullable=False, convert=lambda value: to_int(64, value)))
_DOUBLE: Final = _Shape.from_slot(Slot(pa.float64(), nullable=False, convert=_exact_double))


def _schemaless(payload: JsonValue) -> _Shape:
    """Return the shape that JsonConverter gives a payload without schema."""
    if payload is None:
        raise _tombstone()
    if isinstance(payload, bool):
        return _BOOLEAN
    if isinstance(payload, Number):
        return _INTEGER if payload.lstrip("-").isdecimal() else _DOUBLE
    if isinstance(payload, str):
        return _TEXT
    message = f"expected a schema, found null before {describe(payload)}; without schemas the format is json"
    raise Rejection(DeadCode.UNUSABLE_SCHEMA, message, "schema")
