"""SQL expressions over decoded records, run by DuckDB on the Arrow batch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from frazil.errors import Terminal
from frazil.records.dead import Reason
from frazil.records.frame import Frame, Lack, Transformed
from frazil.records.transforms.fields import batch_of, columns_of, failure, none_survive, repeated
from frazil.records.transforms.selection import select as select_rows
from frazil.records.transforms.sql_engine import MEMORY_BYTES, forget_connection, run, said_of_row
from frazil.records.transforms.sql_plan import ADDED, ROW, Plan, UnfitShape, named_columns, plan, refuse_names

_HEARD: Final = 4
"""Of this many failing rows of a batch DuckDB is asked what is wrong, one by one: each question takes milliseconds."""

_UNHEARD: Final = "Sql: an expression fails on this row, as on others of its batch whose letters quote DuckDB"


@dataclass(frozen=True, slots=True)
class Sql:
    """Makes the fields of each record by expressions of DuckDB's SQL: one row in, one row out.

    The expressions see the fields, and beside them `_kafka_topic` (as routed so far), `_kafka_partition`, `_kafka_offset`,
    `_kafka_timestamp` and `_kafka_key` (text, null if it is not UTF-8), which `*` does not stand for. Fields that are merely
    named keep their type. Times are in UTC. A row on which an expression fails becomes a dead letter; records of a shape that
    the expressions don't fit fail. Whole numbers wider than 64 bits become decimal(38, 0).

    Attributes:
        select: What stands between SELECT and FROM. No aggregates, windows, subqueries, nor functions with another result
            each time, such as the time of day.
        where: A condition; rows where it is not true are filtered. It is asked before `select`, its parts from left to right:
            what stands behind one that decides is not asked.
        memory_bytes: Memory that DuckDB may take for it in a task; nothing is spilled to disk.
    """

    select: str = "*"
    where: str | None = None
    memory_bytes: int = MEMORY_BYTES

    def check(self, fields: pa.Schema) -> pa.Schema:
        """Return the fields that the expressions give for values with `fields`.

        Raises:
            Terminal: they can't be parsed, hold what is not allowed or don't fit the fields; with DuckDB's message.
        """
        return plan(self.select, self.where, fields).schema

    def lacks(self, frame: Frame) -> Iterator[Lack]:
        """Say which columns DuckDB does not find, and what else does not fit the fields."""
        if self._is_idle:
            return
        fields = frame.value.schema
        try:
            plan(self.select, None, fields)
        except Terminal as e:
            yield Lack("select", e.message)
            return
        try:
            plan(self.select, self.where, fields)
        except Terminal as e:
            yield Lack("where", e.message)

    def named(self) -> frozenset[str] | None:
        """Return the folded names that the expressions know; None if any field matters to them."""
        return named_columns(self.select, self.where)

    @property
    def _is_idle(self) -> bool:
        return self.select.strip() == "*" and self.where is None

    def apply(self, frame: Frame) -> Transformed:
        """Run the expressions.

        Raises:
            Terminal: the expressions are not allowed, or change the number of rows.
        """
        if self._is_idle:
            return Transformed(frame)
        named = self.named()
        whole = columns_of(frame.value)
        seen = whole if named is None else [column for column in whole if column[0].name.casefold() in named]
        try:
            refuse_names(frame.value.schema)
            asked = plan(self.select, self.where, pa.schema([field for field, _ in seen]), with_star=named is None)
        except UnfitShape as e:
            return none_survive(frame, e.message)
        found, failed = _answers(asked, _rows(frame, seen), self.memory_bytes)
        order = found.column(ROW).combine_chunks()
        self._refuse_other_rows(order, len(frame) - len(failed))
        at = pc.index_in(pa.array(range(len(frame)), pa.int64()), value_set=order)
        columns = [
            (
                declared,
                _placed(found.column(index), at, declared.type) if source is None else frame.value.column(source),
            )
            for index, (declared, source) in enumerate(zip(asked.schema, asked.sources, strict=True), start=1)
        ]
        if asked.star is not None:
            columns[asked.star : asked.star] = whole
            if twice := repeated([declared.name.lower() for declared, _ in columns]):
                raise Terminal(f"Sql: two columns are named {twice}", next_step="give them names with AS")
        changed = frame.with_value(batch_of(columns, len(frame), like=frame.value))
        return select_rows(changed, at.is_valid(), failed)

    def _refuse_other_rows(self, order: pa.Int64Array, expected: int) -> None:
        same = pc.count_distinct(order, mode="all").as_py() == len(order)
        if not same or len(order) > expected or (self.where is None and len(order) != expected):
            raise Terminal(
                f"Sql: {self.select!r} makes {len(order)} rows of {expected}",
                next_step="use Explode for several rows per record, where for fewer",
            )


def _placed(found: pa.ChunkedArray, at: pa.Int32Array, kind: pa.DataType) -> pa.Array:
    """Return values in the order of `at`, null where it is null."""
    # No chunks: Arrow can't combine them for every type.
    return found.combine_chunks().take(at).cast(kind) if found.num_chunks else pa.nulls(len(at), kind)


def _rows(frame: Frame, seen: list[tuple[pa.Field, pa.Array]]) -> pa.Table:
    records = frame.records
    added = [
        frame.topic,
        records.column("partition"),
        records.column("offset"),
        records.column("timestamp"),
        _text(records.column("key")),
        pa.array(range(len(frame)), pa.int64()),
    ]
    columns = [*seen, *zip(ADDED, added, strict=True)]
    return pa.Table.from_batches([batch_of(columns, len(frame))])


def _text(keys: pa.BinaryArray) -> pa.StringArray:
    try:
        return keys.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([_utf8(key) for key in keys.to_pylist()], pa.string())


def _utf8(key: bytes | None) -> str | None:
    try:
        return None if key is None else key.decode()
    except UnicodeDecodeError:
        return None


def _answers(asked: Plan, rows: pa.Table, memory: int) -> tuple[pa.Table, dict[int, Reason]]:
    """Return what the statement gives, without the rows on which it fails."""
    import duckdb

    with suppress(duckdb.Error):
        return run(asked.statement, rows, memory), {}
    suspects = _suspects(asked, rows, memory)
    if not len(suspects):
        return _halved(asked.statement, rows, memory)
    suspected = pc.is_in(rows.column(ROW), value_set=suspects)
    found, failed = _halved(asked.statement, rows.filter(pc.invert(suspected)), memory)
    failed |= dict.fromkeys(suspects.slice(_HEARD).to_pylist(), failure(_UNHEARD))
    heard = rows.filter(suspected)
    answers = [found]
    for at in range(min(_HEARD, len(heard))):
        told, reasons = _halved(asked.statement, heard.slice(at, 1), memory)
        answers.append(told)
        failed |= reasons
    return pa.concat_tables(answers), failed


def _suspects(asked: Plan, rows: pa.Table, memory: int) -> pa.Int64Array:
    import duckdb

    # Some functions can't be tried (error(…)); then nobody is suspected.
    with suppress(duckdb.Error):
        if asked.trial is not None:
            return run(asked.trial, rows, memory).column(ROW).combine_chunks()
    return pa.array([], pa.int64())


def _halved(statement: str, rows: pa.Table, memory: int) -> tuple[pa.Table, dict[int, Reason]]:
    """Ask for all rows at once, and for halves where that fails, until the failing rows stand alone."""
    import duckdb

    answers: list[pa.Table] = []
    failed: dict[int, Reason] = {}
    waiting = [rows]
    while waiting:
        part = waiting.pop()
        try:
            answers.append(run(statement, part, memory))
        except duckdb.Error as e:
            if isinstance(e, duckdb.FatalException | duckdb.InternalException):
                forget_connection()
            if len(part) == 1:
                failed[part.column(ROW)[0].as_py()] = failure(f"Sql: {said_of_row(e)}")
                continue
            middle = len(part) // 2
            waiting += [part.slice(middle), part.slice(0, middle)]
    return pa.concat_tables(answers or [run(statement, rows.slice(0, 0), memory)]), failed
