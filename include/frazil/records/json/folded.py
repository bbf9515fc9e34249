"""Blocks of values whose fields are named in another case than the columns."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pyarrow as pa

from frazil.records.block import Block, no_rows
from frazil.records.cells import StepSize
from frazil.records.dead import Rejection
from frazil.records.json.blocks import BlockDecoder, block_decoder
from frazil.records.json.exact import parse_object
from frazil.records.spec import RecordSpec

_LOOKED_AT: Final = 8
"""Values of which the first good one tells the spelling."""


class FoldedBlockDecoder:
    """Decodes blocks by the spelling of the first value of a batch; values with another one are not decoded here.

    A producer spells its fields in one way. A value is only decoded if all its keys are spelled so (`KeyCount`), so
    that no field can be there twice, in two cases.

    Args:
        spec: What is wanted: with `field_names` of `case_insensitive`.
    """

    def __init__(self, spec: RecordSpec) -> None:
        self._spec: Final = spec
        self._spelling: dict[str, str] | None = None
        self._decoder: BlockDecoder | None = None

    def decode(self, values: pa.BinaryArray, step: StepSize | None = None) -> Block:
        """Return rows of the values that are plain beyond doubt, and of no other."""
        spelling = self._first_spelling(values)
        if spelling != self._spelling:
            self._spelling, self._decoder = spelling, self._spelled(spelling)
        if self._decoder is None:
            return Block(no_rows(self._spec.columns), pa.array([], pa.int64()))
        return self._decoder.decode(values, step)

    def _first_spelling(self, values: pa.BinaryArray) -> dict[str, str]:
        for value in values.slice(0, _LOOKED_AT):
            try:
                return {name.casefold(): name for name in parse_object(value.as_py())}
            except Rejection:
                continue
        return {}

    def _spelled(self, spelling: dict[str, str]) -> BlockDecoder | None:
        sources = {
            column.name: (spelling.get(column.steps[0].casefold(), column.steps[0]), *column.steps[1:])
            for column in self._spec.column_specs
            if column.steps
        }
        return block_decoder(replace(self._spec, sources={**self._spec.sources, **sources}))
