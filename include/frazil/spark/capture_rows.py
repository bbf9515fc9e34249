"""Rows of a database by Spark's JDBC source, in their order, as JSON; one task sends them, so there is one producer."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from decimal import Decimal
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from frazil.capture.position import CapturePosition
from frazil.capture.rows import Row
from frazil.capture.run_rows import RowsTask
from frazil.errors import Retryable, Terminal
from frazil.pipeline.capture import JdbcCapture
from frazil.pipeline.databases import DatabaseSettings
from frazil.spark.answer import answered
from frazil.spark.quoting import quoted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_FETCHED: Final = "10000"
"""Rows that a driver asks its database for at once. PostgreSQL's would else hold the whole answer in memory."""

_JSON: Final = {
    "ignoreNullFields": "false",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
"""Nothing is left out: nulls are there, times have their microseconds."""

_TOLD: Final = pa.schema([pa.field(name, pa.string()) for name in ("rows", "position", "failure")])
"""What the task tells the driver: what it sent and how far it got, or why it could not."""


def rows_of(spark: SparkSession, capture: JdbcCapture, database: DatabaseSettings) -> DataFrame:
    """The table or query of a capture, not asked yet.

    Raises:
        Terminal: Columns that order it are not there, or of types that can't.
        SPARK_FAILED: The database does not answer, or does not know it.
    """
    asked = capture.table or f"({capture.query}) frazil_rows"
    options = {**database.options, "dbtable": asked, "fetchsize": _FETCHED}
    frame = spark.read.format("jdbc").options(**options).load()
    kinds = {name.lower(): kind for name, kind in frame.dtypes}
    if capture.timestamp_column is not None:
        _require(capture, "timestamp_column", kinds.get(capture.timestamp_column.lower()), ("timestamp",))
    if capture.incrementing_column is not None:
        numbers = ("tinyint", "smallint", "int", "bigint", "decimal")
        _require(capture, "incrementing_column", kinds.get(capture.incrementing_column.lower()), numbers)
    for column in capture.key:
        if column.lower() not in kinds:
            raise _missing(capture, "key", column)
    return frame


def largest(frame: DataFrame, capture: JdbcCapture) -> int | None:
    """The largest number of the incrementing column; None if there is no row."""
    from pyspark.sql import functions

    column = functions.max(quoted(str(capture.incrementing_column))).alias("largest")
    (found,) = answered(frame.select(column), "the largest number").to_pylist()
    return None if found["largest"] is None else int(found["largest"])


def send_rows(frame: DataFrame, task: RowsTask, condition: str | None) -> tuple[int, CapturePosition]:
    """Ask the database for the rows that come next, in one query, and send them from one task.

    Returns:
        How many rows were sent, and the position behind them.

    Raises:
        Retryable, Terminal: What the task met.
        SPARK_FAILED: Spark itself failed, or the database did.
    """
    from pyspark.sql import functions

    capture = task.capture
    chosen = frame if condition is None else frame.where(condition)
    key = _json(chosen.select(*map(quoted, capture.key))) if capture.key else functions.lit(None).cast("string")
    time, number = capture.timestamp_column, capture.incrementing_column
    nothing = functions.lit(None).cast("string")
    rows = chosen.select(
        _json(chosen).alias("value"),
        key.alias("key"),
        (functions.date_format(quoted(time), "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX") if time else nothing).alias("time"),
        (functions.col(quoted(number)).cast("decimal(38,0)") if number else nothing).alias("number"),
    )
    # A query without bounds is one partition, which one task reads and sorts, on disk where memory does not do.
    ordered = rows.sortWithinPartitions("time", "number") if capture.order else rows

    def send(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        yield _sent(task, batches)

    (told,) = answered(ordered.mapInArrow(send, _TOLD_TYPE), f"capture {capture.name}").to_pylist()
    if told["failure"] is not None:
        code, message, next_step = json.loads(told["failure"])
        raise (Terminal if code == Terminal.exit_code else Retryable)(message, next_step=next_step)
    return int(told["rows"]), CapturePosition.from_json(told["position"])


_TOLD_TYPE: Final = ", ".join(f"{name} string" for name in _TOLD.names)


def _sent(task: RowsTask, batches: Iterable[pa.RecordBatch]) -> pa.RecordBatch:
    """The work of the task, in a Python worker of an executor."""
    try:
        count, position = task.send(_rows(task.capture, batches))
        told = {"rows": [str(count)], "position": [position.to_json()], "failure": [None]}
    except (Retryable, Terminal) as error:
        said = json.dumps([error.exit_code, error.message, error.next_step])
        told = {"rows": [None], "position": [None], "failure": [said]}
    return pa.RecordBatch.from_pydict(told, schema=_TOLD)


def _rows(capture: JdbcCapture, batches: Iterable[pa.RecordBatch]) -> Iterator[Row]:
    names = [name for name, of in (("time", capture.timestamp_column), ("number", capture.incrementing_column)) if of]
    for batch in batches:
        places = [batch.column(name).to_pylist() for name in names]
        places = [[int(of) if isinstance(of, Decimal) else of for of in column] for column in places]
        for number, (value, key) in enumerate(
            zip(batch.column("value").to_pylist(), batch.column("key").to_pylist(), strict=True)
        ):
            place = tuple(column[number] for column in places)
            yield Row(None if key is None else key.encode(), value.encode(), place)


def _json(frame: DataFrame) -> Column:
    """All columns as one JSON object. Decimals are numbers with all their digits, as Frazil's pipelines read them."""
    from pyspark.sql import functions

    return functions.to_json(functions.struct(*(functions.col(quoted(name)) for name in frame.columns)), _JSON)


def _require(capture: JdbcCapture, key: str, found: str | None, expected: tuple[str, ...]) -> None:
    column = str(getattr(capture, key))
    if found is None:
        raise _missing(capture, key, column)
    if found.partition("(")[0] not in expected or (found.startswith("decimal") and not found.endswith(",0)")):
        raise Terminal(
            f"capture {capture.name}: {key} {column!r} can't order rows: expected {' or '.join(expected)}, found {found}",
            next_step="choose another column, or let a query cast it",
        )


def _missing(capture: JdbcCapture, key: str, column: str) -> Terminal:
    return Terminal(
        f"capture {capture.name}: {key} names column {column!r}, which {capture.table or 'the query'} does not have",
        next_step="correct the capture file",
    )
