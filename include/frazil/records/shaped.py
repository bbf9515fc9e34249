"""Values that bring their own columns: decoded by a format, transformed, and fitted to the declared columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from frazil.records.block import Block, in_order, no_rows
from frazil.records.dead import DeadCode, Reason
from frazil.records.fit.fitter import Fitter
from frazil.records.formats.port import Format, Shaped
from frazil.records.frame import Frame, Transform
from frazil.records.kafka import KAFKA_SCHEMA
from frazil.records.outcome import FilterReason
from frazil.records.spec import RecordSpec
from frazil.records.transforms.chain import chain

Dead = dict[int, Reason]

LeftOut = dict[FilterReason, list[int]]
"""Positions of records that were left out on purpose."""


class ShapedDecoder:
    """Takes the values of a batch through format, transforms and columns.

    Args:
        spec: What is wanted of the records.
        values: The format.

    Raises:
        Terminal: a default does not fit its column.
    """

    def __init__(self, spec: RecordSpec, values: Format) -> None:
        self._format: Final = values
        self._transforms: Final[Sequence[Transform]] = spec.transforms
        self._schema: Final = spec.columns
        self._filters_nulls: Final = spec.tombstone == "filter"
        self._fitter: Final = Fitter(
            spec.column_specs,
            spec.columns,
            unknown_fields=spec.unknown_fields,
            rescued_column=spec.rescued_column,
            case_insensitive=spec.field_names == "case_insensitive",
            text_casts=spec.format.is_text,
        )

    def decode(self, records: pa.RecordBatch, present: pa.Int64Array) -> tuple[Block, Dead, LeftOut]:
        """Decode the values of some records.

        Args:
            records: The consumed batch, of `KAFKA_SCHEMA`.
            present: Positions of the records to decode, ascending; they have a value.

        Returns:
            Rows with the positions of their records, which repeat where a list was exploded; reasons of dead records; and
            positions of the records that were left out on purpose. Each record of `present` is in exactly one of them.

        Raises:
            Retryable: a writer schema can't be had now.
            Terminal: the registry refuses, or a transform does not fit the fields that it gets.
        """
        decoded = self._format.decode(_values(records, present))
        places = present.to_pylist() if decoded.dead else []
        dead: Dead = {places[at]: reason for at, reason in decoded.dead.items()}
        # A format may have a null of its own: an envelope without payload is a tombstone as well.
        nulls = [at for at, of in dead.items() if of.code is DeadCode.NULL_VALUE] if self._filters_nulls else []
        for at in nulls:
            del dead[at]
        filtered: list[int] = []
        blocks = [self._block(records, present, group, dead, filtered) for group in decoded.groups]
        left_out = {FilterReason.TOMBSTONE: nulls, FilterReason.TRANSFORM: sorted(filtered)}
        return in_order(blocks, self._schema), dead, left_out

    def problems(self, shape: pa.Schema) -> list[str]:
        """Return what can't become a column, and why, where all values have one shape before transforms.

        Raises:
            Terminal: a transform does not fit the fields that it gets.
        """
        nothing = pa.RecordBatch.from_arrays([pa.nulls(1, field.type) for field in shape], schema=_nullable(shape))
        records = pa.RecordBatch.from_arrays([_sample(field) for field in KAFKA_SCHEMA], schema=KAFKA_SCHEMA)
        done = chain(self._transforms, Frame.of(records, pa.array([0], pa.int64()), nothing))
        return self._fitter.check(done.frame.value.schema) if len(done.frame) else []

    def _block(
        self, records: pa.RecordBatch, present: pa.Int64Array, group: Shaped, dead: Dead, filtered: list[int]
    ) -> Block:
        positions = present.take(group.positions)
        done = chain(self._transforms, Frame.of(records.take(positions), positions, group.columns))
        dead |= done.dead
        filtered += done.filtered
        if not len(done.frame):
            return Block(no_rows(self._schema), pa.array([], pa.int64()))
        fitted = self._fitter.fit(done.frame.value)
        kept = Block(fitted.rows, done.frame.positions.take(fitted.kept))
        if not fitted.dead:
            return kept
        places = done.frame.positions.to_pylist()
        for row, reason in fitted.dead.items():
            dead.setdefault(places[row], reason)
        # Of an exploded record no row may land if one of them can't.
        good = pc.invert(pc.is_in(kept.positions, value_set=pa.array({places[row] for row in fitted.dead}, pa.int64())))
        return Block(kept.rows.filter(good), kept.positions.filter(good))


def _nullable(shape: pa.Schema) -> pa.Schema:
    return pa.schema([field.with_nullable(nullable=True) for field in shape])


def _sample(field: pa.Field) -> pa.Array:
    """One value of a column of a consumed record: of a text or number some, else null."""
    if field.nullable and field.name != "value":
        return pa.nulls(1, field.type)
    return pa.array([b"" if field.name == "value" else "topic" if field.name == "topic" else 0], field.type)


def _values(records: pa.RecordBatch, present: pa.Int64Array) -> pa.BinaryArray:
    values = records.column("value")
    return values if len(present) == len(values) else values.take(present)
