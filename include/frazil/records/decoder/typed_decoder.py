"""Values that bring their own columns: decoded by a format, transformed, and fitted to the declared columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from frazil.records.casting.fitter import Fitted, Fitter
from frazil.records.casting.nested import unknown
from frazil.records.cdc.evolving import EvolvingChanges
from frazil.records.cdc.rows import ChangeFitter
from frazil.records.evolution.fitter import EvolvingFitter
from frazil.records.evolution.schema_requests import Asked
from frazil.records.formats.keys import DecodedKeys, KeyColumns, KeyDecoder
from frazil.records.formats.payload_decoder import PayloadDecoder
from frazil.records.model.cells import CELL_BYTES, STEP_BYTES, too_many_rows, wide_repeats
from frazil.records.model.dead_letter import DeadCode, Reason
from frazil.records.model.format import Decoded, Shaped
from frazil.records.model.frame import Frame, Transform
from frazil.records.model.outcome import FilterReason
from frazil.records.model.positions import at, distinct
from frazil.records.model.rows import Block, in_order, without
from frazil.records.model.spec import RecordSpec
from frazil.records.model.unknown_fields import UnknownAt
from frazil.records.transforms.chain import chain
from frazil.records.transforms.missing_fields import possible_outputs, sample

Dead = dict[int, Reason]

LeftOut = dict[FilterReason, list[int]]
"""Positions of records that were left out on purpose."""


class ShapedDecoder:
    """Takes the values of a batch through format, transforms and columns.

    Args:
        spec: What is wanted of the records.
        asked: Takes what they need that the table does not have.
        values: Decodes values.
        keys: Decodes keys; None leaves them.
        key_columns: Fits keys to the columns that take their fields; None if there are none.
        blocks: Whether JSON may be parsed as blocks where that is exact.

    Raises:
        Terminal: a default does not fit its column.
    """

    def __init__(
        self,
        spec: RecordSpec,
        asked: Asked,
        values: PayloadDecoder,
        keys: KeyDecoder | None = None,
        key_columns: KeyColumns | None = None,
        *,
        blocks: bool = True,
    ) -> None:
        self._values: Final = values
        self._keys: Final = keys
        self._key_columns: Final = key_columns
        self._transforms: Final[Sequence[Transform]] = spec.transforms
        self._is_inferred: Final = spec.infers
        self._schema: Final = spec.block_schema
        is_own = spec.merge is not None and spec.merge.shape is not None
        self._own: Final = EvolvingChanges(spec, asked, blocks=blocks) if is_own else None
        self._changes: Final = ChangeFitter(spec, asked) if spec.tells_changes and not is_own else None
        self._tells_changes: Final = spec.tells_changes
        self._refuses_unknown: Final = spec.unknown_fields == "fail"
        self._filters_nulls: Final = spec.tombstone != "dead_letter"
        self._fitter: Final = _fitter(spec, asked)

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
        read = self._read(records, present)
        if (
            self._keys is None and not self._transforms and self._own is None
        ):  # nothing else of the records is looked at
            groups = read.decoded.groups
            blocks = [self._block(self._fitted(of.columns, None), of.positions, read.dead) for of in groups]
            filtered: list[int] = []
        else:
            frames, filtered = self._frames(records, read)
            blocks = [self._block(self.fit(frame), frame.positions, read.dead) for frame in frames]
        # Of a record of several rows none may land if one of them can't.
        is_several = self._transforms or self._tells_changes
        whole = without(in_order(blocks, self._schema), read.dead if is_several else {})
        if self._tells_changes:
            filtered += _neither(present, whole.positions, {*read.dead, *read.nulls, *filtered})
        # Of changes the fields of rows count, not those of their envelope.
        outer = [] if self._tells_changes else [read.decoded.unknown]
        ignored = UnknownAt.together([*(block.unknown for block in blocks), *outer])
        return Block(whole.rows, whole.positions, ignored), read.dead, read.left_out(filtered)

    def frames(self, records: pa.RecordBatch, present: pa.Int64Array) -> tuple[list[Frame], Dead, LeftOut, UnknownAt]:
        """Decode and transform the values of some records: `decode` without the columns. No frame is empty.

        At last comes what the format itself found of fields that have no place.

        Raises:
            Retryable: a writer schema can't be had now.
            Terminal: the registry refuses, or a transform does not fit the fields that it gets.
        """
        read = self._read(records, present)
        frames, filtered = self._frames(records, read)
        return frames, read.dead, read.left_out(filtered), read.decoded.unknown

    def _read(self, records: pa.RecordBatch, present: pa.Int64Array) -> _Read:
        keys = None if self._keys is None else self._keys.decode(records, present)
        decoded = self._checked(self._values.decode(records, present if keys is None else keys.alive))
        dead: Dead = dict(decoded.dead)
        # A format may have a null of its own: an envelope without payload is a tombstone as well.
        nulls = [place for place, of in dead.items() if of.code is DeadCode.NULL_VALUE] if self._filters_nulls else []
        for place in nulls:
            del dead[place]
        return _Read(decoded, keys, dead | ({} if keys is None else keys.dead), nulls)

    def _frames(self, records: pa.RecordBatch, read: _Read) -> tuple[list[Frame], list[int]]:
        """Return what transforms left, no frame empty, and the positions of what they filtered; adds to the dead."""
        filtered: list[int] = []
        done: list[Frame] = []
        for group in read.decoded.groups:
            for frame in _beside(records, group, read.keys):
                transformed = chain(self._transforms, frame, is_inferred=self._is_inferred)
                read.dead.update(transformed.dead)
                filtered += transformed.filtered
                done += transformed.frames
        return [self._bounded(frame, read.dead) for frame in done if len(frame)], filtered

    def _bounded(self, frame: Frame, dead: Dead) -> Frame:
        """Return the frame without records that became more rows than the columns of the table bear; adds to the dead.

        Raises:
            StepTooWide: all others together have more.
        """
        row_bytes = CELL_BYTES * len(self._schema)
        if len(frame) * row_bytes <= STEP_BYTES:
            return frame
        counted = frame.positions.value_counts()
        places, rows = counted.field("values"), counted.field("counts").to_numpy()
        if len(places) == len(frame):  # as many as there are records: they are a step's worth
            return frame
        wide = wide_repeats(rows, np.full(len(rows), row_bytes))
        lost = {places[at].as_py(): too_many_rows(int(rows[at])) for at in np.flatnonzero(wide)}
        dead.update(lost)
        kept = pc.invert(pc.is_in(frame.positions, value_set=pa.array(list(lost), pa.int64())))
        return frame.take(pc.indices_nonzero(kept).cast(pa.int64())) if lost else frame

    def fit(self, frame: Frame) -> Fitted:
        """Fit fields to the columns."""
        if self._own is not None:
            return self._own.fit(frame.records.column("value"), frame.key)
        is_several = len(distinct(frame.positions)) < len(frame)
        return self._fitted(frame.value, frame.key, frame.positions if is_several else None)

    def _fitted(
        self, value: pa.RecordBatch, key: pa.RecordBatch | None, records: pa.Int64Array | None = None
    ) -> Fitted:
        if self._changes is not None:
            return self._changes.fit(value, key)
        fitted = self._fitter.fit(value, records)
        return fitted if self._key_columns is None else self._key_columns.join_keys(fitted, key, len(value))

    def _checked(self, decoded: Decoded) -> Decoded:
        """Return what was decoded, less the values with fields that have no place where these are refused."""
        if not (self._refuses_unknown and len(decoded.unknown)):
            return decoded
        refused = {place: unknown(names).reason for place, names in decoded.unknown.by_position()}
        places = pa.array(list(refused), pa.int64())
        good = [(group, pc.invert(pc.is_in(group.positions, value_set=places))) for group in decoded.groups]
        groups = tuple(Shaped(of.columns.filter(kept), of.positions.filter(kept)) for of, kept in good)
        return Decoded(groups, dict(sorted({**refused, **decoded.dead}.items())))

    def problems(self, shape: pa.Schema | None, key_shape: pa.Schema | None) -> list[str]:
        """Return what can't become a column, and why, where all values, or keys, have one shape before transforms.

        Raises:
            Terminal: a transform does not fit the fields that it gets.
        """
        if shape is None:
            return [] if self._transforms else self._key_problems(key_shape)
        problems = [self._problems_of(frame) for frame in possible_outputs(self._transforms, sample(shape, key_shape))]
        return problems[0] if problems and all(problems) else []

    def _problems_of(self, frame: Frame) -> list[str]:
        shown = frame.value.schema
        if self._own is not None:
            found = self._own.check()
        else:
            found = self._fitter.check(shown) if self._changes is None else self._changes.check(shown)
        return found + self._key_problems(None if frame.key is None else frame.key.schema)

    def _key_problems(self, key_shape: pa.Schema | None) -> list[str]:
        return [] if key_shape is None or self._key_columns is None else self._key_columns.check(key_shape)

    def _block(self, fitted: Fitted, positions: pa.Int64Array, dead: Dead) -> Block:
        """Take rows that were fitted to the columns; `positions` are those of their records."""
        ignored = fitted.ignored.among(positions)
        if not fitted.dead and not self._tells_changes:
            return Block(fitted.rows, positions, ignored)
        failed = {positions[row].as_py(): reason for row, reason in reversed(fitted.dead.items())}
        dead |= failed | dead  # the first reason of a record stays
        return Block(fitted.rows, positions.take(fitted.kept), ignored)


def _neither(present: pa.Int64Array, written: pa.Int64Array, others: set[int]) -> list[int]:
    """Positions of records that tell of no row, such as DDL: they are neither written nor anything else."""
    rest = present.filter(pc.invert(pc.is_in(present, value_set=written)))
    return [place for place in rest.to_pylist() if place not in others]


def _fitter(spec: RecordSpec, asked: Asked) -> Fitter | EvolvingFitter:
    of_value = spec.of_value
    if spec.evolution is not None:
        return EvolvingFitter(of_value, asked)
    return Fitter(
        of_value.column_specs,
        of_value.columns,
        unknown_fields=spec.unknown_fields,
        rescued_column=spec.rescued_column,
        others=spec.of_key,
        case_insensitive=spec.field_names == "case_insensitive",
        text_casts=spec.format.is_text,
    )


@dataclass(frozen=True, slots=True)
class _Read:
    """Decoded values beside their keys, and what became of the others."""

    decoded: Decoded
    keys: DecodedKeys | None
    dead: Dead
    nulls: list[int]

    def left_out(self, filtered: list[int]) -> LeftOut:
        return {FilterReason.TOMBSTONE: self.nulls, FilterReason.TRANSFORM: sorted(filtered)}


def _beside(records: pa.RecordBatch, group: Shaped, keys: DecodedKeys | None) -> Iterator[Frame]:
    """Frames of one shape of values, one per shape of keys."""
    positions = group.positions
    if keys is None:
        yield Frame.of(at(records, positions), positions, group.columns)
        return
    for rows, key in keys.select(positions):
        value = group.columns if len(rows) == len(positions) else group.columns.take(rows)
        places = positions.take(rows)
        yield Frame.of(at(records, places), places, value, key)
