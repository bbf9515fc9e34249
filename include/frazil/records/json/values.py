"""JSON values straight to the declared columns: as blocks where that is exact, one by one otherwise."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Final

import pyarrow as pa

from frazil.records.json.exact import parse_object
from frazil.records.json.record import ExactDecoder, Row
from frazil.records.json.typed import TypedDecoder, typed_decoder
from frazil.records.model.cells import StepSize
from frazil.records.model.dead_letter import Reason, Rejection
from frazil.records.model.format import Decoded, Shaped
from frazil.records.model.rows import Block, UnknownFieldPairs, complement, in_order, no_rows
from frazil.records.model.spec import RecordSpec

_SAMPLED_VALUES: Final = 8
"""Values at the start of a batch among which the first valid one gives the spelling."""


class FoldedDecoder:
    """Decodes blocks by the spelling of the first value of a batch; values with another one are not decoded here.

    A producer spells its fields in one way. A value is only decoded if all its names are spelled so: then no field can be there
    twice, in two cases.
    """

    def __init__(self, spec: RecordSpec) -> None:
        self._spec: Final = spec
        self._spelling: dict[str, str] | None = None
        self._decoder: TypedDecoder | None = None

    def decode(self, values: pa.BinaryArray, step: StepSize | None = None) -> Block:
        """Return rows of the values that surely decode as the exact decoder would; all other values get no row."""
        spelling = self._first_spelling(values)
        if spelling != self._spelling:
            self._spelling, self._decoder = spelling, self._decoder_for(spelling)
        if self._decoder is None:
            return Block(no_rows(self._spec.columns), pa.array([], pa.int64()))
        return self._decoder.decode(values, step)

    def _first_spelling(self, values: pa.BinaryArray) -> dict[str, str]:
        for value in values.slice(0, _SAMPLED_VALUES):
            try:
                return {name.casefold(): name for name in parse_object(value.as_py())}
            except Rejection:
                continue
        return {}

    def _decoder_for(self, spelling: dict[str, str]) -> TypedDecoder | None:
        sources = {
            column.name: (spelling.get(column.steps[0].casefold(), column.steps[0]), *column.steps[1:])
            for column in self._spec.column_specs
            if column.steps
        }
        return typed_decoder(replace(self._spec, sources={**self._spec.sources, **sources}))


Dead = dict[int, Reason]
"""Reasons by the position of the value, ascending."""


class JsonValues:
    """Decodes JSON objects; a `frazil.records.model.format.Format` too. Keeps nothing from call to call.

    Without `blocks`, parsing values as blocks where that is exact, the outcome is the same, later.

    Raises:
        Terminal: the spec can't be met: a type without a JSON form, a default that does not fit.
    """

    def __init__(self, spec: RecordSpec, *, blocks: bool = True) -> None:
        self._exact: Final = ExactDecoder(spec)
        self._blocks: Final = _block_decoder(spec) if blocks else None

    def decode(self, values: pa.BinaryArray) -> Decoded:
        """Decode values, none of them null, into one shape: the columns."""
        block, dead = self.rows(values)
        return Decoded((Shaped(block.rows, block.positions),), dead, block.unknown_fields)

    def rows(self, values: pa.BinaryArray) -> tuple[Block, Dead]:
        """Return rows, and reasons for the other values, none of which is null. No value makes this fail."""
        step = StepSize(len(values))
        blocks = [self._blocks.decode(values, step) if self._blocks is not None else self._block([], [], {})]
        rows: list[Row] = []
        positions: list[int] = []
        unknown_names: dict[int, Collection[str]] = {}
        dead: Dead = {}
        for position in complement(len(values), blocks[0].positions).to_pylist():
            try:
                row, left_out = self._exact.read(values[position].as_py())
                rows.append(row)
                positions.append(position)
                if left_out:
                    unknown_names[position] = left_out
            except Rejection as verdict:
                dead[position] = verdict.reason
                continue
            if step.is_full(self._exact.cells.total):
                blocks.append(self._block(rows, positions, unknown_names))
                step.hold(blocks[-1].rows)
                rows, positions, unknown_names = [], [], {}
        return in_order([*blocks, self._block(rows, positions, unknown_names)], blocks[0].rows.schema), dead

    def _block(self, rows: list[Row], positions: list[int], unknown_names: dict[int, Collection[str]]) -> Block:
        return Block(
            self._exact.table(rows), pa.array(positions, pa.int64()), UnknownFieldPairs.from_names(unknown_names)
        )


def _block_decoder(spec: RecordSpec) -> TypedDecoder | FoldedDecoder | None:
    return FoldedDecoder(spec) if spec.field_names == "case_insensitive" else typed_decoder(spec)
