"""Decodes values to columns of their own schema: a format decodes them, transforms change them, and fitters cast them to tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from frazil.records.casting.fitter import Dead, Fitted, Fitter
from frazil.records.casting.nested import unmatched_fields
from frazil.records.cdc.rows import ChangeFitter, EvolvingChanges
from frazil.records.evolution.fitter import EvolvingFitter
from frazil.records.evolution.schema_requests import SchemaRequests
from frazil.records.formats.keys_and_headers import DecodedKeys, KeyColumns, PayloadDecoder, decode_keys
from frazil.records.model.cells import MIN_CELL_BYTES, STEP_BYTES, too_many_rows, wide_repeats
from frazil.records.model.dead_letter import DeadCode
from frazil.records.model.format import Decoded, Frame, Shaped, Transform
from frazil.records.model.rows import FilterReason, UnknownFieldPairs, distinct_positions, take_distinct, take_records
from frazil.records.model.spec import RecordSpec
from frazil.records.transforms.chain import chain, drop_dead_records
from frazil.records.transforms.missing_fields import certain_outputs

LeftOut = dict[FilterReason, list[int]]
"""Positions of the records that are filtered out."""


@dataclass(frozen=True, slots=True)
class TypedRows:
    """Decoded and transformed rows of one schema.

    Attributes:
        positions: int64, per row the position of its record, ascending; rows of one record share it.
        value: The fields of the values.
        key: The fields of the keys; None if there are none.
        topic: The topics that transforms made; None: those of the records.
        headers: The headers that transforms made; None if no column and no route reads headers.
        raw: The bytes of the values; None if no table reads them.
    """

    positions: pa.Int64Array
    value: pa.RecordBatch
    key: pa.RecordBatch | None = None
    topic: pa.StringArray | None = None
    headers: pa.ListArray | None = None
    raw: pa.BinaryArray | None = None

    def take(self, rows: pa.Int64Array) -> TypedRows:
        """Return some of the rows."""
        parts = (self.positions, self.value, self.key, self.topic, self.headers, self.raw)
        return TypedRows(*(None if part is None else part.take(rows) for part in parts))


class ShapedDecoder:
    """Decodes the values of a batch, and their keys, to columns of their own schema, and transforms them.

    Args:
        specs: How records become rows, per group of tables. Format, keys and transforms are the same for all.
        values: Decodes values.
        keys: Decodes keys; None if none are decoded.
        reads_headers: Whether a column or the route reads headers.
    """

    def __init__(
        self, specs: Sequence[RecordSpec], values: PayloadDecoder, keys: PayloadDecoder | None, *, reads_headers: bool
    ) -> None:
        spec = specs[0]
        self._reads_headers: Final = reads_headers
        self._values: Final = values
        self._keys: Final = keys
        self._transforms: Final[Sequence[Transform]] = spec.transforms
        self._is_inferred: Final = spec.infers
        self._row_bytes: Final = MIN_CELL_BYTES * len(spec.block_schema)
        self._refuses_unknown: Final = spec.unknown_fields == "fail"
        self._filters_nulls: Final = spec.tombstone != "dead_letter"
        self._reads_raw: Final = any(_reads_raw(each) for each in specs)

    def decode(
        self, records: pa.RecordBatch, present: pa.Int64Array
    ) -> tuple[list[TypedRows], Dead, LeftOut, UnknownFieldPairs]:
        """Decode and transform the values of some records.

        Args:
            records: The consumed batch, of `KAFKA_SCHEMA`.
            present: Positions of the records to decode, ascending; they have a value.

        Returns:
            Rows, at least one of each schema; reasons of dead records; positions of the records that are filtered out; and the
            unknown fields that the format found. Each record of `present` is in exactly one of the first three.

        Raises:
            Retryable: a writer schema can't be had now.
            Terminal: the registry refuses, or a transform does not fit the fields that it gets.
        """
        keys = None if self._keys is None else decode_keys(self._keys, records, present)
        decoded = self._without_unknown(self._values.decode(records, present if keys is None else keys.alive))
        dead: Dead = dict(decoded.dead)
        # A format may have a null of its own: an envelope without payload is a tombstone, too.
        null_codes = {DeadCode.NULL_VALUE} if self._filters_nulls else set()
        nulls = [position for position, reason in dead.items() if reason.code in null_codes]
        for position in nulls:
            del dead[position]
        dead |= {} if keys is None else keys.dead
        filtered: list[int] = []
        if keys is None and not self._transforms and not self._reads_raw:  # frames of whole records are not needed
            headers = records.column("headers")
            rows = [
                TypedRows(
                    group.positions,
                    group.columns,
                    headers=take_distinct(headers, group.positions) if self._reads_headers else None,
                )
                for group in decoded.groups
                if len(group.positions)
            ]
        else:
            frames = self._frames(records, decoded, keys, dead, filtered)
            rows = [
                TypedRows(
                    frame.positions,
                    frame.value,
                    frame.key,
                    frame.topic,
                    frame.headers if self._reads_headers else None,
                    frame.records.column("value"),
                )
                for frame in frames
            ]
        left_out = {FilterReason.TOMBSTONE: nulls, FilterReason.TRANSFORM: filtered}
        return rows, dead, left_out, decoded.unknown_fields

    def _frames(
        self, records: pa.RecordBatch, decoded: Decoded, keys: DecodedKeys | None, dead: Dead, filtered: list[int]
    ) -> list[Frame]:
        """Return the transformed frames, none of them empty; adds to `dead` and `filtered`."""
        frames: list[Frame] = []
        for group in decoded.groups:
            for frame in _frames_with_keys(records, group, keys):
                transformed = chain(self._transforms, frame, is_inferred=self._is_inferred)
                dead.update(transformed.dead)
                filtered += transformed.filtered
                frames += transformed.frames
        too_many = {position: reason for frame in frames for position, reason in self._too_many(frame).items()}
        dead.update(too_many)
        return [frame for frame in (drop_dead_records(frame, too_many) for frame in frames) if len(frame)]

    def _too_many(self, frame: Frame) -> Dead:
        """Return the reasons of records that became too many rows for the number of the table's columns.

        Raises:
            StepTooWide: the other records together have too many rows.
        """
        if len(frame) * self._row_bytes <= STEP_BYTES:
            return {}
        counted = frame.positions.value_counts()
        positions, row_counts = counted.field("values"), counted.field("counts").to_numpy()
        if len(positions) == len(frame):  # no record was exploded, and the batch has a size that fits its records
            return {}
        is_wide = wide_repeats(row_counts, np.full(len(row_counts), self._row_bytes))
        return {positions[index].as_py(): too_many_rows(int(row_counts[index])) for index in np.flatnonzero(is_wide)}

    def _without_unknown(self, decoded: Decoded) -> Decoded:
        """Return the decoded values. Those with unknown fields are dead if the pipeline refuses unknown fields."""
        if not (self._refuses_unknown and len(decoded.unknown_fields)):
            return decoded
        refused = {position: unmatched_fields(names).reason for position, names in decoded.unknown_fields.by_position()}
        refused_positions = pa.array(list(refused), pa.int64())
        good = [(group, pc.invert(pc.is_in(group.positions, value_set=refused_positions))) for group in decoded.groups]
        groups = tuple(
            Shaped(group.columns.filter(is_good), group.positions.filter(is_good)) for group, is_good in good
        )
        return Decoded(groups, dict(sorted({**refused, **decoded.dead}.items())))

    def problems(self, fitter: RowFitter, shape: pa.Schema | None, key_shape: pa.Schema | None) -> list[str]:
        """Return a message for each column that no record could ever fill.

        Args:
            fitter: Fits the rows of the tables.
            shape: Fields of all values before transforms; None if values differ.
            key_shape: Fields of all keys before transforms; None if keys differ, or are not decoded.

        Raises:
            Terminal: a transform does not fit the fields that it gets.
        """
        if shape is None:
            return [] if self._transforms else fitter.key_problems(key_shape)
        problems = [
            fitter.problems(frame.value.schema, None if frame.key is None else frame.key.schema)
            for frame in certain_outputs(self._transforms, shape, key_shape) or ()
        ]
        return problems[0] if problems and all(problems) else []


class RowFitter:
    """Fits decoded rows to the columns of a group of tables."""

    def __init__(self, spec: RecordSpec, requests: SchemaRequests, *, blocks: bool) -> None:
        reads_raw = _reads_raw(spec)
        self._key_columns: Final = KeyColumns(spec) if spec.of_key else None
        self._evolving_changes: Final = EvolvingChanges(spec, requests, blocks=blocks) if reads_raw else None
        self._changes: Final = ChangeFitter(spec, requests) if spec.tells_changes and not reads_raw else None
        self._explodes: Final = bool(spec.transforms)
        self._fitter: Final[Fitter | EvolvingFitter] = (
            Fitter.for_spec(spec.of_value, text_casts=spec.format.is_text)
            if spec.evolution is None
            else EvolvingFitter(spec.of_value, requests)
        )

    def fit(self, rows: TypedRows) -> Fitted:
        """Fit fields to the columns."""
        if self._evolving_changes is not None:
            return self._evolving_changes.fit(rows.raw, rows.key)
        if self._changes is not None:
            return self._changes.fit(rows.value, rows.key)
        is_several = self._explodes and len(distinct_positions(rows.positions)) < len(rows.positions)
        fitted = self._fitter.fit(rows.value, rows.positions if is_several else None)
        if self._key_columns is None:
            return fitted
        return self._key_columns.join_keys(fitted, rows.key, len(rows.positions))

    def problems(self, shape: pa.Schema, key_shape: pa.Schema | None) -> list[str]:
        """Return a message for each column that values, and keys, of these fields could never fill."""
        if self._evolving_changes is not None:
            problems = self._evolving_changes.check()
        else:
            problems = self._fitter.check(shape) if self._changes is None else self._changes.check(shape)
        return problems + self.key_problems(key_shape)

    def key_problems(self, key_shape: pa.Schema | None) -> list[str]:
        """Return a message for each column that keys of these fields could never fill."""
        return [] if key_shape is None or self._key_columns is None else self._key_columns.check(key_shape)


def _reads_raw(spec: RecordSpec) -> bool:
    """Return whether change events are read from the bytes of values, rather than from decoded fields."""
    return spec.merge is not None and spec.merge.shape is not None


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
