"""Many JSON values of one schema at once, only where the reader of single values would say the same.

The schema's carriers say how columns are read. Fields that the schema does not name are found in the values that have such.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Literal

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from frazil.records.formats.json_schema.unknown_fields import UnknownFieldFinder
from frazil.records.json.intermediate_types import Carrier
from frazil.records.json.typed import TypedDecoder, typed_decoder
from frazil.records.model.cells import StepSize
from frazil.records.model.json_text import JsonValue
from frazil.records.model.positions import take_distinct
from frazil.records.model.rows import Block
from frazil.records.model.spec import RecordSpec
from frazil.records.model.unknown_fields import UnknownFieldPairs

Allow = Callable[[bytes], bool]
"""Returns whether a value surely keeps further rules of its schema."""

_read: Final[Callable[[bytes], JsonValue]] = msgspec.json.Decoder(float_hook=str).decode


def block_decoder(
    columns: pa.Schema,
    carriers: Sequence[Carrier | None],
    find_unknown_fields: UnknownFieldFinder | None = None,
    allow: Allow | None = None,
    *,
    closed: bool = False,
) -> BlockDecoder | None:
    """Return a decoder of objects with these columns; None if only single values can be read.

    Args:
        columns: Names and types of the columns, which are those of the fields.
        carriers: One per column.
        find_unknown_fields: Finds the fields of an object that no column takes.
        allow: Says which values a row may be made of.
        closed: Whether an object with other fields than the columns is left out; objects within it may have others.
    """
    unknown_fields: Literal["fail", "ignore"] = "fail" if closed else "ignore"
    decoder = typed_decoder(RecordSpec(columns, unknown_fields=unknown_fields, kafka_columns=None), carriers)
    return None if decoder is None else BlockDecoder(decoder, find_unknown_fields, allow)


class BlockDecoder:
    """Decodes blocks of values; made by `block_decoder`."""

    def __init__(self, decoder: TypedDecoder, find_unknown: UnknownFieldFinder | None, allow: Allow | None) -> None:
        self._decoder: Final = decoder
        self._find_unknown_fields: Final = find_unknown
        self._allow: Final = allow

    def decode(self, values: pa.BinaryArray, step: StepSize) -> Block:
        """Return rows of the values that surely decode as one by one; all other values get no row.

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
            # A value that was read with all of its fields may have no row all the same.
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
