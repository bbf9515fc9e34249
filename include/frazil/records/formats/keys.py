"""Keys beside the values: which record has which, and the columns that take their fields."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from frazil.records.casting.fitter import Fitted, Fitter
from frazil.records.formats.payload_decoder import PayloadDecoder
from frazil.records.model.column import WHOLE_VALUE
from frazil.records.model.dead_letter import DeadCode, Reason
from frazil.records.model.spec import RecordSpec

_KEY: Final = "key"
"""Where the paths of reasons about keys begin."""


@dataclass(frozen=True, slots=True)
class RecordKeys:
    """Keys of one shape, and the positions of their records, ascending; None where the records have no key."""

    columns: pa.RecordBatch | None
    positions: pa.Int64Array


@dataclass(frozen=True, slots=True)
class DecodedKeys:
    """Decoded keys of some records: each record is in one group, or dead."""

    groups: tuple[RecordKeys, ...]
    dead: dict[int, Reason]

    @property
    def alive(self) -> pa.Int64Array:
        """Positions of the records whose key is good, or null; ascending."""
        positions = pa.chunked_array([group.positions for group in self.groups], pa.int64()).combine_chunks()
        return positions.take(pc.array_sort_indices(positions))

    def select(self, positions: pa.Int64Array) -> Iterator[tuple[pa.Int64Array, pa.RecordBatch | None]]:
        """Yield, per shape of keys, the rows of `positions` that have such a key, and their keys."""
        for group in self.groups:
            key_index = pc.index_in(positions, value_set=group.positions)
            rows = pc.indices_nonzero(key_index.is_valid()).cast(pa.int64())
            if len(rows):
                yield rows, None if group.columns is None else group.columns.take(key_index.take(rows))


class KeyDecoder:
    """Decodes the keys of records.

    Args:
        payload_decoder: Decodes the keys that are not null.
    """

    def __init__(self, payload_decoder: PayloadDecoder) -> None:
        self._payload_decoder: Final = payload_decoder

    def decode(self, records: pa.RecordBatch, present: pa.Int64Array) -> DecodedKeys:
        """Decode the keys of the records at `present`, ascending positions. No key makes this fail.

        Records without key are a group of their own, whatever the others are: what becomes of one must not depend on who
        is next to it. A format may have a null of its own, such as an envelope without payload.

        Raises:
            Retryable: a writer schema can't be had now.
            Terminal: the registry refuses to answer.
        """
        has_key = records.column("key").take(present).is_valid()
        decoded = self._payload_decoder.decode(records, present.filter(has_key))
        nulls = [position for position, reason in decoded.dead.items() if reason.code is DeadCode.NULL_VALUE]
        absent = pa.concat_arrays([present.filter(pc.invert(has_key)), pa.array(nulls, pa.int64())])
        absent = absent.take(pc.array_sort_indices(absent))
        groups = [RecordKeys(group.columns, group.positions) for group in decoded.groups if len(group.positions)]
        keyless = [RecordKeys(None, absent)] if len(absent) else []
        dead = {
            position: _of_key(reason)
            for position, reason in decoded.dead.items()
            if reason.code is not DeadCode.NULL_VALUE
        }
        return DecodedKeys((*groups, *keyless), dead)


class KeyColumns:
    """Fits keys to the columns that take their fields.

    Args:
        spec: What is wanted of the records; some columns are of the key.

    Raises:
        Terminal: a default does not fit its column.
    """

    def __init__(self, spec: RecordSpec) -> None:
        columns = tuple(column for column in spec.column_specs if column.name in spec.of_key)
        self.schema: Final = pa.schema([column for column in spec.columns if column.name in spec.of_key])
        self._rows: Final = spec.columns
        is_text = spec.key is not None and spec.key.is_text
        any_case = spec.field_names == "case_insensitive"
        self._fitter: Final = Fitter(columns, self.schema, case_insensitive=any_case, text_casts=is_text)
        # Of no key each field is null, rather than missing; so is the whole.
        named = tuple(replace(column, source=("",)) if column.source == WHOLE_VALUE else column for column in columns)
        self._null_fitter: Final = Fitter(named, self.schema)
        self._null_schema: Final = pa.schema(
            [pa.field(name, pa.null()) for name in dict.fromkeys(column.steps[0] for column in named)]
        )

    def fit(self, key: pa.RecordBatch | None, size: int) -> Fitted:
        """Fit the keys of `size` rows; None is no key in any of them."""
        if key is None:
            nulls = pa.RecordBatch.from_arrays([pa.nulls(size)] * len(self._null_schema), schema=self._null_schema)
            fitted = self._null_fitter.fit(nulls)
        else:
            fitted = self._fitter.fit(key)
        return replace(fitted, dead={row: reason.with_parent(_KEY) for row, reason in fitted.dead.items()})

    def check(self, shape: pa.Schema) -> list[str]:
        """Return, for keys of one shape, each column that none of them could ever fill, and why."""
        return self._fitter.check(shape)

    def joined(self, value: pa.RecordBatch, key: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows of both, in the order of the declared columns."""
        halves = [key if name in self.schema.names else value for name in self._rows.names]
        columns = [batch.column(name) for batch, name in zip(halves, self._rows.names, strict=True)]
        return pa.RecordBatch.from_arrays(columns, schema=self._rows)

    def join_keys(self, value: Fitted, key: pa.RecordBatch | None, size: int) -> Fitted:
        """Fit the keys of `size` rows and join them with the fitted values; a row needs both."""
        fitted = self.fit(key, size)
        # Row of each value's key; null where the key did not fit, which drops the row.
        key_index = pc.index_in(value.input_rows, value_set=fitted.input_rows)
        good = key_index.is_valid()
        rows = self.joined(value.rows.filter(good), fitted.rows.take(key_index.filter(good)))
        dead = dict(sorted((value.dead | fitted.dead).items()))
        return Fitted(rows, value.input_rows.filter(good), dead, value.ignored)


def _of_key(reason: Reason) -> Reason:
    return Reason(DeadCode.INVALID_KEY, f"{reason.code}: {reason.message}", reason.path).with_parent(_KEY)
