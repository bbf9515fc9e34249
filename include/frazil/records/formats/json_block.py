"""Decodes many JSON values of one schema at once, if the outcome is surely that of reading them one by one; and finds the fields that
the schema does not name.

The schema's intermediate types tell how columns are read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final, Literal

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from frazil.records.json.intermediate_types import IntermediateType
from frazil.records.json.typed import TypedDecoder, typed_decoder
from frazil.records.model.cells import StepSize
from frazil.records.model.json_number import JsonValue
from frazil.records.model.rows import Block, UnknownFieldPairs, take_distinct
from frazil.records.model.spec import RecordSpec

UnknownFieldFinder = Callable[[JsonValue], Iterator[str]]
"""Yields the names of a value's unknown fields; for nested ones their path."""


def unknown_field_finder(data_type: pa.DataType) -> UnknownFieldFinder | None:
    """Return the finder of fields that a type does not name; None for a type without structs."""
    if pa.types.is_struct(data_type):
        return partial(_find_in_struct, {field.name: unknown_field_finder(field.type) for field in data_type})
    if pa.types.is_list(data_type):
        item = unknown_field_finder(data_type.value_type)
        return item and partial(_find_in_items, item)
    if pa.types.is_map(data_type):
        item = unknown_field_finder(data_type.item_type)
        return item and partial(_find_in_map, item)
    return None


def _find_in_struct(finders: dict[str, UnknownFieldFinder | None], value: JsonValue) -> Iterator[str]:
    if not isinstance(value, dict):
        return
    for name, field_value in value.items():
        if name not in finders:
            yield name
        elif (find_in_field := finders[name]) is not None and field_value is not None:
            for path in find_in_field(field_value):
                yield f"{name}.{path}"


def _find_in_items(find_in_item: UnknownFieldFinder, value: JsonValue) -> Iterator[str]:
    for item in value if isinstance(value, list) else ():
        yield from find_in_item(item)


def _find_in_map(find_in_item: UnknownFieldFinder, value: JsonValue) -> Iterator[str]:
    """Find unknown fields in the values of a map: an object, or a list of entries `[key, value]` or `{"key": …, "value": …}`."""
    if isinstance(value, dict):
        for item in value.values():
            yield from find_in_item(item)
    for entry in value if isinstance(value, list) else ():
        if isinstance(entry, dict):
            yield from find_in_item(entry.get("value"))
        elif isinstance(entry, list):
            yield from find_in_item(entry[-1])


Allow = Callable[[bytes], bool]
"""Returns whether a value surely keeps the other rules of its schema."""

_read: Final[Callable[[bytes], JsonValue]] = msgspec.json.Decoder(float_hook=str).decode


def block_decoder(
    columns: pa.Schema,
    intermediates: Sequence[IntermediateType | None],
    find_unknown_fields: UnknownFieldFinder | None = None,
    allow: Allow | None = None,
    *,
    closed: bool = False,
) -> BlockDecoder | None:
    """Return a decoder of objects to these columns; None if they can only be read one by one.

    Args:
        columns: Names and types of the columns, which are those of the fields.
        intermediates: The intermediate type of each column; None if it has none.
        find_unknown_fields: Finds the fields of an object that no column takes.
        allow: Returns whether a value may become a row.
        closed: Whether objects with other fields than the columns get no row; objects inside them may have other fields.
    """
    unknown_fields: Literal["fail", "ignore"] = "fail" if closed else "ignore"
    decoder = typed_decoder(RecordSpec(columns, unknown_fields=unknown_fields, kafka_columns=None), intermediates)
    return None if decoder is None else BlockDecoder(decoder, find_unknown_fields, allow)


class BlockDecoder:
    """Decodes blocks of values; made by `block_decoder`."""

    def __init__(self, decoder: TypedDecoder, find_unknown: UnknownFieldFinder | None, allow: Allow | None) -> None:
        self._decoder: Final = decoder
        self._find_unknown_fields: Final = find_unknown
        self._allow: Final = allow

    def decode(self, values: pa.BinaryArray, step: StepSize) -> Block:
        """Return rows of those values that surely have the same outcome one by one; the others get no row here.

        Raises:
            StepTooWide: the lists of the values make too many cells.
        """
        block = self._decoder.decode(values, step)
        refused: list[int] = []
        if self._allow is not None:
            raws = take_distinct(values, block.positions).to_pylist()
            allowed = pa.array(list(map(self._allow, raws)), pa.bool_())
            refused = block.positions.filter(pc.invert(allowed)).to_pylist()
        names: dict[int, tuple[str, ...]] = {}
        if self._find_unknown_fields is not None:
            # `fully_read` may name values without a row, so the rows are the ones to choose from.
            partly_read = block.positions.filter(pc.invert(pc.is_in(block.positions, value_set=block.fully_read)))
            for position, raw in zip(partly_read.to_pylist(), values.take(partly_read).to_pylist(), strict=True):
                try:
                    names[position] = tuple(self._find_unknown_fields(_read(raw)))
                except msgspec.DecodeError:  # a number of thousands of digits
                    refused.append(position)
        rows, positions = block.rows, block.positions
        if refused:
            is_good = pc.invert(pc.is_in(positions, value_set=pa.array(refused, pa.int64())))
            rows, positions = rows.filter(is_good), positions.filter(is_good)
        return Block(rows, positions, UnknownFieldPairs.from_names(names).at_positions(positions))
