"""Decodes values that bring their own schema: a format decodes them, transforms change them, a fitter casts them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from frazil.records.casting.fitter import Fitted, Fitter
from frazil.records.casting.nested import unmatched_fields
from frazil.records.cdc.evolving import EvolvingChanges
from frazil.records.cdc.rows import ChangeFitter
from frazil.records.evolution.fitter import EvolvingFitter
from frazil.records.evolution.schema_requests import SchemaRequests
from frazil.records.formats.keys import DecodedKeys, KeyColumns, KeyDecoder
from frazil.records.formats.payload_decoder import PayloadDecoder
from frazil.records.model.cells import MIN_CELL_BYTES, STEP_BYTES, too_many_rows, wide_repeats
from frazil.records.model.dead_letter import DeadCode, Reason
from frazil.records.model.format import Decoded, Shaped
from frazil.records.model.frame import Frame, Transform
from frazil.records.model.outcome import FilterReason
from frazil.records.model.positions import distinct_positions, take_records
from frazil.records.model.rows import Block, drop_dead_rows, in_order
from frazil.records.model.spec import RecordSpec
from frazil.records.model.unknown_fields import UnknownFieldPairs
from frazil.records.transforms.chain import chain
from frazil.records.transforms.missing_fields import possible_outputs, sample

Dead = dict[int, Reason]

LeftOut = dict[FilterReason, list[int]]
"""Positions of records that were left out on purpose."""


class ShapedDecoder:
    """Decodes the values of a batch, transforms them, and fits them to the table's columns.

    Args:
        spec: How records become rows.
        requests: Collects the schema changes that they need.
        values: Decodes values.
        keys: Decodes keys; None if keys are not decoded.
        key_columns: Fits keys to the columns that take their fields; None if there are none.
        blocks: Whether JSON may be parsed as blocks where that is exact.

    Raises:
        Terminal: a default does not fit its column.
    """

    def __init__(
        self,
        spec: RecordSpec,
        requests: SchemaRequests,
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
        self._evolving_changes: Final = EvolvingChanges(spec, requests, blocks=blocks) if is_own else None
        self._changes: Final = ChangeFitter(spec, requests) if spec.tells_changes and not is_own else None
        self._tells_changes: Final = spec.tells_changes
        self._refuses_unknown: Final = spec.unknown_fields == "fail"
        self._filters_nulls: Final = spec.tombstone != "dead_letter"
        self._fitter: Final = _fitter(spec, requests)

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
        batch = self._decode_batch(records, present)
        if (
            self._keys is None and not self._transforms and self._evolving_changes is None
        ):  # only values matter: no frames with keys and topics are needed
            groups = batch.decoded.groups
            blocks = [self._block(self._fitted(group.columns, None), group.positions, batch.dead) for group in groups]
            filtered: list[int] = []
        else:
            frames, filtered = self._frames(records, batch)
            blocks = [self._block(self.fit(frame), frame.positions, batch.dead) for frame in frames]
        # A record with several rows lands whole or not at all.
        is_several = self._transforms or self._tells_changes
        landing = drop_dead_rows(in_order(blocks, self._schema), batch.dead if is_several else {})
        if self._tells_changes:
            filtered += _without_row(present, landing.positions, {*batch.dead, *batch.nulls, *filtered})
        # Of change events only unknown fields of rows count, not those of the envelope.
        outer = [] if self._tells_changes else [batch.decoded.unknown_fields]
        ignored = UnknownFieldPairs.concat([*(block.unknown_fields for block in blocks), *outer])
        return Block(landing.rows, landing.positions, ignored), batch.dead, batch.left_out(filtered)

    def frames(
        self, records: pa.RecordBatch, present: pa.Int64Array
    ) -> tuple[list[Frame], Dead, LeftOut, UnknownFieldPairs]:
        """Decode and transform the values of some records: `decode` without the columns. No frame is empty.

        The last value is what the format itself found of unknown fields.

        Raises:
            Retryable: a writer schema can't be had now.
            Terminal: the registry refuses, or a transform does not fit the fields that it gets.
        """
        batch = self._decode_batch(records, present)
        frames, filtered = self._frames(records, batch)
        return frames, batch.dead, batch.left_out(filtered), batch.decoded.unknown_fields

    def _decode_batch(self, records: pa.RecordBatch, present: pa.Int64Array) -> _DecodedBatch:
        keys = None if self._keys is None else self._keys.decode(records, present)
        decoded = self._without_unknown(self._values.decode(records, present if keys is None else keys.alive))
        dead: Dead = dict(decoded.dead)
        # A format may have a null of its own: an envelope without payload is a tombstone as well.
        nulls = (
            [position for position, reason in dead.items() if reason.code is DeadCode.NULL_VALUE]
            if self._filters_nulls
            else []
        )
        for position in nulls:
            del dead[position]
        return _DecodedBatch(decoded, keys, dead | ({} if keys is None else keys.dead), nulls)

    def _frames(self, records: pa.RecordBatch, batch: _DecodedBatch) -> tuple[list[Frame], list[int]]:
        """Return the transformed frames, none of them empty, and the positions that were filtered; adds to `batch.dead`."""
        filtered: list[int] = []
        transformed_frames: list[Frame] = []
        for group in batch.decoded.groups:
            for frame in _frames_with_keys(records, group, batch.keys):
                transformed = chain(self._transforms, frame, is_inferred=self._is_inferred)
                batch.dead.update(transformed.dead)
                filtered += transformed.filtered
                transformed_frames += transformed.frames
        return [self._bounded(frame, batch.dead) for frame in transformed_frames if len(frame)], filtered

    def _bounded(self, frame: Frame, dead: Dead) -> Frame:
        """Return the frame without records that became too many rows for a table of so many columns; adds to `dead`.

        Raises:
            StepTooWide: all others together have more.
        """
        row_bytes = MIN_CELL_BYTES * len(self._schema)
        if len(frame) * row_bytes <= STEP_BYTES:
            return frame
        counted = frame.positions.value_counts()
        positions, row_counts = counted.field("values"), counted.field("counts").to_numpy()
        if len(positions) == len(frame):  # one row per record: nothing was exploded, and the batch was sized for that
            return frame
        is_wide = wide_repeats(row_counts, np.full(len(row_counts), row_bytes))
        too_many = {
            positions[index].as_py(): too_many_rows(int(row_counts[index])) for index in np.flatnonzero(is_wide)
        }
        dead.update(too_many)
        is_kept = pc.invert(pc.is_in(frame.positions, value_set=pa.array(list(too_many), pa.int64())))
        return frame.take(pc.indices_nonzero(is_kept).cast(pa.int64())) if too_many else frame

    def fit(self, frame: Frame) -> Fitted:
        """Fit fields to the columns."""
        if self._evolving_changes is not None:
            return self._evolving_changes.fit(frame.records.column("value"), frame.key)
        is_several = len(distinct_positions(frame.positions)) < len(frame)
        return self._fitted(frame.value, frame.key, frame.positions if is_several else None)

    def _fitted(
        self, value: pa.RecordBatch, key: pa.RecordBatch | None, records: pa.Int64Array | None = None
    ) -> Fitted:
        if self._changes is not None:
            return self._changes.fit(value, key)
        fitted = self._fitter.fit(value, records)
        return fitted if self._key_columns is None else self._key_columns.join_keys(fitted, key, len(value))

    def _without_unknown(self, decoded: Decoded) -> Decoded:
        """Return the decoded values; those with unknown fields become dead if the pipeline refuses such."""
        if not (self._refuses_unknown and len(decoded.unknown_fields)):
            return decoded
        refused = {position: unmatched_fields(names).reason for position, names in decoded.unknown_fields.by_position()}
        refused_positions = pa.array(list(refused), pa.int64())
        good = [(group, pc.invert(pc.is_in(group.positions, value_set=refused_positions))) for group in decoded.groups]
        groups = tuple(
            Shaped(group.columns.filter(is_good), group.positions.filter(is_good)) for group, is_good in good
        )
        return Decoded(groups, dict(sorted({**refused, **decoded.dead}.items())))

    def problems(self, shape: pa.Schema | None, key_shape: pa.Schema | None) -> list[str]:
        """Return the columns that nothing could ever fill, and why, where all values, or keys, have one schema before transforms.

        Raises:
            Terminal: a transform does not fit the fields that it gets.
        """
        if shape is None:
            return [] if self._transforms else self._key_problems(key_shape)
        problems = [self._problems_of(frame) for frame in possible_outputs(self._transforms, sample(shape, key_shape))]
        return problems[0] if problems and all(problems) else []

    def _problems_of(self, frame: Frame) -> list[str]:
        shown = frame.value.schema
        if self._evolving_changes is not None:
            problems = self._evolving_changes.check()
        else:
            problems = self._fitter.check(shown) if self._changes is None else self._changes.check(shown)
        return problems + self._key_problems(None if frame.key is None else frame.key.schema)

    def _key_problems(self, key_shape: pa.Schema | None) -> list[str]:
        return [] if key_shape is None or self._key_columns is None else self._key_columns.check(key_shape)

    def _block(self, fitted: Fitted, positions: pa.Int64Array, dead: Dead) -> Block:
        """Return fitted rows as a block; `positions` are those of their records; adds to `dead`."""
        ignored = fitted.ignored.map_positions(positions)
        if not fitted.dead and not self._tells_changes:
            return Block(fitted.rows, positions, ignored)
        failed = {positions[row].as_py(): reason for row, reason in reversed(fitted.dead.items())}
        dead |= failed | dead  # the first reason of a record stays
        return Block(fitted.rows, positions.take(fitted.input_rows), ignored)


def _without_row(present: pa.Int64Array, written: pa.Int64Array, outcomes: set[int]) -> list[int]:
    """Return positions of records without a row, such as DDL: neither written nor among the other outcomes."""
    rest = present.filter(pc.invert(pc.is_in(present, value_set=written)))
    return [position for position in rest.to_pylist() if position not in outcomes]


def _fitter(spec: RecordSpec, requests: SchemaRequests) -> Fitter | EvolvingFitter:
    of_value = spec.of_value
    if spec.evolution is not None:
        return EvolvingFitter(of_value, requests)
    return Fitter(
        of_value.column_specs,
        of_value.columns,
        unknown_fields=spec.unknown_fields,
        rescued_column=spec.rescued_column,
        known_names=spec.of_key,
        case_insensitive=spec.field_names == "case_insensitive",
        text_casts=spec.format.is_text,
    )


@dataclass(frozen=True, slots=True)
class _DecodedBatch:
    """The decoded values and keys of a batch, reasons of dead records, and positions of values that are null to the format."""

    decoded: Decoded
    keys: DecodedKeys | None
    dead: Dead
    nulls: list[int]

    def left_out(self, filtered: list[int]) -> LeftOut:
        return {FilterReason.TOMBSTONE: self.nulls, FilterReason.TRANSFORM: sorted(filtered)}


def _frames_with_keys(records: pa.RecordBatch, group: Shaped, keys: DecodedKeys | None) -> Iterator[Frame]:
    """Yield the values of one schema as frames, one for each schema of keys."""
    positions = group.positions
    if keys is None:
        yield Frame.from_records(take_records(records, positions), positions, group.columns)
        return
    for rows, key in keys.select(positions):
        value = group.columns if len(rows) == len(positions) else group.columns.take(rows)
        key_positions = positions.take(rows)
        yield Frame.from_records(take_records(records, key_positions), key_positions, value, key)
