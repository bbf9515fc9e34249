"""Runs SQL expressions on the rows of a frame; if one fails, finds the rows on which it does."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from frazil.error_codes import BAD_TRANSFORM
from frazil.records.json.exact import utf8_texts
from frazil.records.model.dead_letter import Reason
from frazil.records.model.format import Frame, Transformed, take_repeated
from frazil.records.transforms.fields import batch_of, columns_of, failure, first_duplicate, reject_all, select
from frazil.records.transforms.header_lists import text_maps
from frazil.records.transforms.sql.engine import forget_connections, row_message, run
from frazil.records.transforms.sql.plan import (
    EXTRA_COLUMNS,
    HEADERS,
    ROW,
    Plan,
    UnfitShape,
    plan,
    reads_headers,
    refuse_names,
)

if TYPE_CHECKING:
    from frazil.records.transforms.kinds.sql import Sql

_EXPLAINED_ROWS: Final = 4
"""How many failing rows of a batch are run one by one to get DuckDB's message: each run takes milliseconds."""

_UNEXPLAINED: Final = "Sql: an expression fails on this row; DuckDB's message is in other dead letters of the batch"


def apply_expressions(sql: Sql, frame: Frame) -> Transformed:
    """Run the expressions on a frame.

    Raises:
        Terminal: The expressions are not allowed, or change the number of rows.
    """
    named = sql.referenced_names()
    all_columns = columns_of(frame.value)
    input_columns = (
        all_columns if named is None else [column for column in all_columns if column[0].name.casefold() in named]
    )
    try:
        refuse_names(frame.value.schema)
        sql_plan = plan(
            sql.select, sql.where, pa.schema([field for field, _ in input_columns]), with_star=named is None
        )
    except UnfitShape as e:
        return reject_all(frame, e.message)
    has_headers = reads_headers(sql.select, sql.where)
    rows = _rows(frame, input_columns, has_headers=has_headers)
    result, failed = _run(sql_plan, rows, sql.memory_bytes)
    result_rows = result.column(ROW).combine_chunks()
    _check_rows(sql, result_rows, len(frame) - len(failed))
    row_indices = pc.index_in(pa.arange(0, len(frame)), value_set=result_rows)
    columns = [
        (
            declared,
            _reorder(result.column(index), row_indices, declared.type)
            if source is None
            else frame.value.column(source),
        )
        for index, (declared, source) in enumerate(zip(sql_plan.schema, sql_plan.sources, strict=True), start=1)
    ]
    if sql_plan.star is not None:
        columns[sql_plan.star : sql_plan.star] = all_columns
        if duplicate := first_duplicate([declared.name.lower() for declared, _ in columns]):
            raise BAD_TRANSFORM.terminal(f"Sql: two columns are named {duplicate}", next_step="give them names with AS")
    changed = frame.with_value(batch_of(columns, len(frame), like=frame.value))
    return select(changed, row_indices.is_valid(), failed)


def _check_rows(sql: Sql, rows: pa.Int64Array, expected: int) -> None:
    """Refuse a result with repeated rows, with more rows than expected, or with fewer although `where` filters none."""
    is_distinct = pc.count_distinct(rows, mode="all").as_py() == len(rows)
    if not is_distinct or len(rows) > expected or (sql.where is None and len(rows) != expected):
        raise BAD_TRANSFORM.terminal(
            f"Sql: {sql.select!r} makes {len(rows)} rows of {expected}",
            next_step="for more rows per record use Explode, for fewer `where`",
        )


def _reorder(values: pa.ChunkedArray, indices: pa.Int32Array, data_type: pa.DataType) -> pa.Array:
    """Return values in the order of `indices`, null where an index is null."""
    if not values.num_chunks:  # Arrow can't combine no chunks for every type
        return pa.nulls(len(indices), data_type)
    return take_repeated(values.combine_chunks(), indices).cast(data_type)


def _rows(frame: Frame, input_columns: list[tuple[pa.Field, pa.Array]], *, has_headers: bool) -> pa.Table:
    """Return the columns that the statement reads: some fields, and `EXTRA_COLUMNS`."""
    records = frame.records
    added = [
        frame.topic,
        records.column("partition"),
        records.column("offset"),
        records.column("timestamp"),
        utf8_texts(records.column("key")),
        text_maps(frame.headers) if has_headers else pa.nulls(len(frame), EXTRA_COLUMNS.field(HEADERS).type),
        pa.arange(0, len(frame)),
    ]
    columns = [*input_columns, *zip(EXTRA_COLUMNS, added, strict=True)]
    return pa.Table.from_batches([batch_of(columns, len(frame))])


def _run(sql_plan: Plan, rows: pa.Table, memory: int) -> tuple[pa.Table, dict[int, Reason]]:
    """Return the result of the statement, and the reasons of rows on which it fails."""
    import duckdb

    with suppress(duckdb.Error):
        return run(sql_plan.statement, rows, memory), {}
    suspects = _suspects(sql_plan, rows, memory)
    if not len(suspects):
        return _run_bisecting(sql_plan.statement, rows, memory)
    is_suspect = pc.is_in(rows.column(ROW), value_set=suspects)
    result, failed = _run_bisecting(sql_plan.statement, rows.filter(pc.invert(is_suspect)), memory)
    failed |= dict.fromkeys(suspects.slice(_EXPLAINED_ROWS).to_pylist(), failure(_UNEXPLAINED))
    suspect_rows = rows.filter(is_suspect)
    results = [result]
    for index in range(min(_EXPLAINED_ROWS, len(suspect_rows))):
        row_result, reasons = _run_bisecting(sql_plan.statement, suspect_rows.slice(index, 1), memory)
        results.append(row_result)
        failed |= reasons
    return pa.concat_tables(results), failed


def _suspects(sql_plan: Plan, rows: pa.Table, memory: int) -> pa.Int64Array:
    """Return the numbers of rows on which the trial fails; none if it can't tell."""
    import duckdb

    # TRY does not catch the errors of all functions, such as error(…).
    with suppress(duckdb.Error):
        if sql_plan.trial is not None:
            return run(sql_plan.trial, rows, memory).column(ROW).combine_chunks()
    return pa.array([], pa.int64())


def _run_bisecting(statement: str, rows: pa.Table, memory: int) -> tuple[pa.Table, dict[int, Reason]]:
    """Run all rows at once; if that fails, run halves, until each failing row is alone."""
    import duckdb

    results: list[pa.Table] = []
    failed: dict[int, Reason] = {}
    pending = [rows]
    while pending:
        part = pending.pop()
        try:
            results.append(run(statement, part, memory))
        except duckdb.Error as e:
            if isinstance(e, duckdb.FatalException | duckdb.InternalException):
                forget_connections()
            if len(part) == 1:
                failed[part.column(ROW)[0].as_py()] = failure(f"Sql: {row_message(e)}")
                continue
            middle = len(part) // 2
            pending += [part.slice(middle), part.slice(0, middle)]
    return pa.concat_tables(results or [run(statement, rows.slice(0, 0), memory)]), failed
