"""Headers of records, and the columns that take them.

A header is bytes. Columns of type binary and fixed take them as they are; all others read them as UTF-8, and cast that text as
a field of a delimited value. Names of headers differ by case; of several headers of one name the last one counts.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from frazil.records.casting.fitter import Fitted, Fitter
from frazil.records.casting.source import Kind, kind_of
from frazil.records.formats.scalar.scalar import split_texts
from frazil.records.model.cells import STEP_BYTES, too_many_rows, wide_repeats
from frazil.records.model.column import ColumnSpec
from frazil.records.model.dead_letter import DeadCode, Reason, Stage
from frazil.records.model.frame import take_repeated_rows, values_by_row
from frazil.records.model.kafka_schema import last_header
from frazil.records.model.spec import RecordSpec

_HEADER: Final = "header"
"""Where the paths of reasons about headers begin."""

Dead = dict[int, Reason]


class HeaderColumns:
    """Fits headers to the columns that take them.

    Args:
        spec: How records become rows; some columns are of headers.
        deletes: Whether the rows are to be deleted: a header is then required only where changes are ordered by it.

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
        # In an optional column a header without value is null: only one that is not there becomes the default.
        self._defaults: Final = {
            column.name: self._default(column) for column in self._columns if column.has_default and not column.required
        }
        # Paths of reasons about columns, as far as they are shown -> the header.
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
        """Return fitted rows with the columns that come from headers; rows of unfit headers are dead.

        Args:
            fitted: Rows of the other columns; one record may have several.
            headers: The headers of all records that were fitted.

        Raises:
            StepTooWide: records make so many rows that their headers, repeated in each, take too many bytes together.
        """
        own = self._fit(headers)
        # A value that can't be read is told of first; a record that changes no row needs no header.
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
        # A header that is not UTF-8 is null here, which a required column refuses, too: the first reason is the better one.
        unfit = {
            row: replace(reason, path="").with_parent(self._headers[reason.path]) for row, reason in fitted.dead.items()
        }
        dead = unfit | dead
        alive = pc.invert(pc.is_in(fitted.input_rows, value_set=pa.array(dead, pa.int64())))
        rows, input_rows = fitted.rows.filter(alive), fitted.input_rows.filter(alive)
        for name, default in self._defaults.items():
            index = rows.schema.get_field_index(name)
            # Not every type can be chosen from by a mask.
            chosen = pc.if_else(absent[name].take(input_rows), len(rows), pa.arange(0, len(rows)))
            filled = pa.concat_arrays([rows.column(index), default]).take(chosen)
            rows = rows.set_column(index, rows.schema.field(index), filled)
        return Fitted(rows, input_rows, {row: dead[row].with_parent(_HEADER) for row in sorted(dead)}, fitted.ignored)


def _too_many(input_rows: pa.Int64Array, own: Fitted) -> Dead:
    """Return the records that are so many rows that their headers take too many bytes.

    Raises:
        StepTooWide: all others together take more.
    """
    if own.rows.nbytes * len(input_rows) <= STEP_BYTES or pc.count_distinct(input_rows).as_py() == len(input_rows):
        return {}
    counted = input_rows.value_counts()
    records, counts = counted.field("values"), counted.field("counts").to_numpy()
    own_rows = pc.index_in(records, value_set=own.input_rows).to_pylist()
    sizes = [0 if row is None else own.rows.slice(row, 1).nbytes for row in own_rows]
    is_wide = wide_repeats(counts, np.array(sizes, np.int64))
    return {records[index].as_py(): too_many_rows(int(counts[index])) for index in np.flatnonzero(is_wide)}
