"""Hands the bytes of a record's value or key to their format, with the schema id that a header may have; and fits keys and headers to
the columns that take them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from frazil.records.casting.fitter import Dead, Fitted, Fitter
from frazil.records.casting.source import Kind, kind_of
from frazil.records.formats.framing import PayloadName, unframe
from frazil.records.formats.registered import remap_positions
from frazil.records.formats.scalar.scalar import split_texts
from frazil.records.model.cells import STEP_BYTES, too_many_rows, wide_repeats
from frazil.records.model.column import WHOLE_VALUE, ColumnSpec
from frazil.records.model.dead_letter import DeadCode, Reason, Stage
from frazil.records.model.format import Decoded, Format, FormatSpec, take_repeated_rows, values_by_row
from frazil.records.model.rows import last_header, mask_without, take_distinct
from frazil.records.model.spec import RecordSpec


class PayloadDecoder:
    """Decodes values, or keys, of consumed records.

    Args:
        name: Whether values or keys are decoded.
        spec: Declaration of their format.
        payload_format: The opened format.
    """

    def __init__(self, name: PayloadName, spec: FormatSpec, payload_format: Format) -> None:
        self._name: Final = name
        self._spec: Final = spec
        self._format: Final = payload_format

    def decode(self, records: pa.RecordBatch, present: pa.Int64Array) -> Decoded:
        """Decode some records; positions are those in `records`. No bytes make this fail.

        Args:
            records: The consumed batch, of `KAFKA_SCHEMA`.
            present: Positions of the records to decode, ascending; their value, or key, is not null.

        Raises:
            Retryable: a writer schema can't be had now.
            Terminal: the registry refuses to answer.
        """
        data = take_distinct(records.column(self._name), present)
        if self._spec.source is None:
            return remap_positions(self._format.decode(data), present)
        headers = take_distinct(records.column("headers"), present)
        framed, dead = unframe(self._spec.framing, data, headers, self._name, has_path=self._spec.has_path)
        rows = pa.arange(0, len(framed)).filter(mask_without(len(framed), dead))
        decoded = remap_positions(self._format.decode(take_distinct(framed, rows)), rows)
        return remap_positions(Decoded(decoded.groups, dead | dict(decoded.dead), decoded.unknown_fields), present)


_KEY: Final = "key"
"""The first step of paths in keys."""


@dataclass(frozen=True, slots=True)
class RecordKeys:
    """Keys of one shape (None: the records have no key), and the positions of their records, ascending."""

    columns: pa.RecordBatch | None
    positions: pa.Int64Array


@dataclass(frozen=True, slots=True)
class DecodedKeys:
    """Decoded keys of some records: each record is in one group, or dead."""

    groups: tuple[RecordKeys, ...]
    dead: dict[int, Reason]

    @property
    def alive(self) -> pa.Int64Array:
        """Positions of the records with a good key, or without a key; ascending."""
        positions = pa.chunked_array([group.positions for group in self.groups], pa.int64()).combine_chunks()
        return positions.take(pc.array_sort_indices(positions))

    def select(self, positions: pa.Int64Array) -> Iterator[tuple[pa.Int64Array, pa.RecordBatch | None]]:
        """Yield for each shape of keys the indexes of those `positions` whose records have such a key, and the keys."""
        for group in self.groups:
            key_index = pc.index_in(positions, value_set=group.positions)
            rows = pc.indices_nonzero(key_index.is_valid()).cast(pa.int64())
            if len(rows):
                yield rows, None if group.columns is None else group.columns.take(key_index.take(rows))


def decode_keys(decoder: PayloadDecoder, records: pa.RecordBatch, present: pa.Int64Array) -> DecodedKeys:
    """Decode the keys of the records at `present`, ascending positions; some may be null. No key makes this fail.

    Records without key are a group of their own: the outcome of a record must not depend on its neighbours. A format may have a null
    of its own, such as an envelope without payload.

    Raises:
        Retryable: a writer schema can't be had now.
        Terminal: the registry refuses to answer.
    """
    has_key = records.column("key").take(present).is_valid()
    decoded = decoder.decode(records, present.filter(has_key))
    groups = [RecordKeys(group.columns, group.positions) for group in decoded.groups if len(group.positions)]
    nulls: list[int] = []
    dead: dict[int, Reason] = {}
    for position, reason in decoded.dead.items():
        if reason.code is DeadCode.NULL_VALUE:
            nulls.append(position)
        else:
            key_reason = Reason(DeadCode.INVALID_KEY, f"{reason.code}: {reason.message}", reason.path)
            dead[position] = key_reason.with_parent(_KEY)
    absent = pa.concat_arrays([present.filter(pc.invert(has_key)), pa.array(nulls, pa.int64())])
    keyless = [RecordKeys(None, absent.take(pc.array_sort_indices(absent)))] if len(absent) else []
    return DecodedKeys((*groups, *keyless), dead)


class KeyColumns:
    """Fits keys to the columns that take their fields.

    Args:
        spec: How records become rows; some of its columns take the key.

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
        # Where there is no key, each of its fields is null rather than absent, and so is the whole key.
        named = tuple(replace(column, source=("",)) if column.source == WHOLE_VALUE else column for column in columns)
        self._null_fitter: Final = Fitter(named, self.schema)
        self._null_schema: Final = pa.schema(
            [pa.field(name, pa.null()) for name in dict.fromkeys(column.steps[0] for column in named)]
        )

    def fit(self, key: pa.RecordBatch | None, size: int) -> Fitted:
        """Fit the keys of `size` rows; None if no row has a key."""
        if key is None:
            nulls = pa.RecordBatch.from_arrays([pa.nulls(size)] * len(self._null_schema), schema=self._null_schema)
            fitted = self._null_fitter.fit(nulls)
        else:
            fitted = self._fitter.fit(key)
        return replace(fitted, dead={row: reason.with_parent(_KEY) for row, reason in fitted.dead.items()})

    def check(self, shape: pa.Schema) -> list[str]:
        """Return a message for each column that keys of these fields could never fill."""
        return self._fitter.check(shape)

    def joined(self, value: pa.RecordBatch, key: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows with the columns of both, in the declared order."""
        columns = [(key if name in self.schema.names else value).column(name) for name in self._rows.names]
        return pa.RecordBatch.from_arrays(columns, schema=self._rows)

    def join_keys(self, value: Fitted, key: pa.RecordBatch | None, size: int) -> Fitted:
        """Fit the keys of `size` rows and join them with the fitted values; a row needs both."""
        fitted = self.fit(key, size)
        # Null where the key did not fit: such rows are dropped.
        key_index = pc.index_in(value.input_rows, value_set=fitted.input_rows)
        good = key_index.is_valid()
        rows = self.joined(value.rows.filter(good), fitted.rows.take(key_index.filter(good)))
        dead = dict(sorted((value.dead | fitted.dead).items()))
        return Fitted(rows, value.input_rows.filter(good), dead, value.ignored)


# The value of a header is bytes. Columns of type binary and fixed take them as they are. All others read them as UTF-8, and cast that
# text as they would a field of a delimited value. Names of headers that differ in case are different; of several headers of one name
# the last one counts.

_HEADER: Final = "header"
"""The first step of paths in headers."""


class HeaderColumns:
    """Fits headers to the columns that take them.

    Args:
        spec: How records become rows; some of its columns take headers.
        deletes: Whether these are rows to delete: then only the header that orders changes may be required.

    Raises:
        Terminal: a default does not fit its column.
    """

    def __init__(self, spec: RecordSpec, *, deletes: bool = False) -> None:
        order = None if spec.merge is None else spec.merge.order_by
        self._columns: Final = [
            replace(column, required=column.required and not (deletes and column.name != order))
            for column in spec.column_specs
            if column.name in spec.of_header
        ]
        self._types: Final = {column.name: spec.columns.field(column.name) for column in self._columns}
        self._schema: Final = spec.change_schema if deletes else spec.block_schema
        self._fitter: Final = self._make_fitter(self._columns)
        # In an optional column a header without value is null; only an absent header becomes the default.
        self._defaults: Final = {
            column.name: self._default(column) for column in self._columns if column.has_default and not column.required
        }
        # Path of a reason, which shortens a long column name -> the name of the header.
        self._headers: Final = {
            Reason(DeadCode.MISSING_REQUIRED, "").with_parent(column.name).path: column.steps[0]
            for column in self._columns
        }

    def _make_fitter(self, columns: list[ColumnSpec]) -> Fitter:
        # Each column has a field of its own: two may read one header, as text and as bytes.
        fields = [self._types[column.name].with_nullable(not column.required) for column in columns]
        return Fitter(
            tuple(replace(column, source=(column.name,)) for column in columns), pa.schema(fields), text_casts=True
        )

    def _default(self, column: ColumnSpec) -> pa.Array:
        absent = pa.RecordBatch.from_arrays([pa.nulls(1)], [f"not {column.name}"])
        return self._make_fitter([column]).fit(absent).rows.column(0)

    def join(self, fitted: Fitted, headers: pa.ListArray) -> Fitted:
        """Return fitted rows with the columns that take headers; rows whose headers do not fit are dead.

        Args:
            fitted: Rows of the other columns; one record may have several.
            headers: The headers of all records that were fitted.

        Raises:
            StepTooWide: records make so many rows that their headers, repeated in each, take too many bytes together.
        """
        own = self._fit(headers)
        # A record that changes no row needs no header. The reason of a value that can't be decoded outranks that of a header.
        with_rows = {*pc.unique(fitted.input_rows).to_pylist()} if own.dead else set()
        unfit = {row: reason for row, reason in own.dead.items() if row in with_rows}
        unreadable = {row: reason for row, reason in fitted.dead.items() if reason.code.stage is Stage.DECODE}
        dead = fitted.dead | unfit | _too_many(fitted.input_rows, own) | unreadable
        rows, input_rows = fitted.rows, fitted.input_rows
        if dead:
            good = pc.invert(pc.is_in(input_rows, value_set=pa.array(dead, pa.int64())))
            rows, input_rows = rows.filter(good), input_rows.filter(good)
        header_rows = take_repeated_rows(own.rows, pc.index_in(input_rows, value_set=own.input_rows))
        arrays = [(header_rows if name in self._types else rows).column(name) for name in self._schema.names]
        joined = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        return Fitted(joined, input_rows, dict(sorted(dead.items())), fitted.ignored)

    def _fit(self, headers: pa.ListArray) -> Fitted:
        size, dead, arrays, absent = len(headers), dict[int, Reason](), [], {}
        for column in self._columns:
            header = column.steps[0]
            rows, values = last_header(headers, header)
            absent[column.name] = pc.invert(pc.is_in(pa.arange(0, size), value_set=rows))
            if kind_of(column.type) is not Kind.BYTES:
                rows, values = rows.filter(values.is_valid()), values.drop_null()
                values, positions, not_text = split_texts(values)
                dead |= {
                    rows[index].as_py(): Reason(DeadCode.INVALID_TEXT, reason.message).with_parent(header)
                    for index, reason in not_text.items()
                }
                rows = rows.take(positions)
            arrays.append(values_by_row(values, rows, size))
        fitted = self._fitter.fit(pa.RecordBatch.from_arrays(arrays, list(self._types)))
        # A header that is not UTF-8 is null here, which a required column refuses as well. The reason that it is not UTF-8 says more.
        unfit = {
            row: replace(reason, path="").with_parent(self._headers[reason.path]) for row, reason in fitted.dead.items()
        }
        dead = unfit | dead
        alive = pc.invert(pc.is_in(fitted.input_rows, value_set=pa.array(dead, pa.int64())))
        rows, input_rows = fitted.rows.filter(alive), fitted.input_rows.filter(alive)
        for name, default in self._defaults.items():
            index = rows.schema.get_field_index(name)
            # `pc.if_else` does not take every type, so rows are chosen by index.
            chosen = pc.if_else(absent[name].take(input_rows), len(rows), pa.arange(0, len(rows)))
            filled = pa.concat_arrays([rows.column(index), default]).take(chosen)
            rows = rows.set_column(index, rows.schema.field(index), filled)
        return Fitted(rows, input_rows, {row: dead[row].with_parent(_HEADER) for row in sorted(dead)}, fitted.ignored)


def _too_many(input_rows: pa.Int64Array, own: Fitted) -> Dead:
    """Return the reasons of records with so many rows that their headers, repeated in each row, take too many bytes.

    Raises:
        StepTooWide: the headers of the other records together take too many bytes.
    """
    if own.rows.nbytes * len(input_rows) <= STEP_BYTES or pc.count_distinct(input_rows).as_py() == len(input_rows):
        return {}
    counted = input_rows.value_counts()
    records, counts = counted.field("values"), counted.field("counts").to_numpy()
    own_rows = pc.index_in(records, value_set=own.input_rows).to_pylist()
    sizes = [0 if row is None else own.rows.slice(row, 1).nbytes for row in own_rows]
    is_wide = wide_repeats(counts, np.array(sizes, np.int64))
    return {records[index].as_py(): too_many_rows(int(counts[index])) for index in np.flatnonzero(is_wide)}
