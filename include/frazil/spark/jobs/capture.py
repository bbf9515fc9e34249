"""The job of one capture run: sends new rows of a table or query to a topic."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from py4j.protocol import Py4JError  # type: ignore[import-untyped]

from frazil import shutdown
from frazil.capture.position import CaptureOrder, CapturePosition, Row
from frazil.capture.run import (
    CaptureResult,
    RowsTask,
    capture_context,
    initial_state_maker,
    is_done,
    next_rows,
    open_capture,
    utc_now,
)
from frazil.error_codes import BAD_HANDOVER, CAPTURE_FILE_INVALID, DATABASE_REFUSED
from frazil.errors import Retryable, Terminal, error_from_json, error_to_json
from frazil.pipeline.settings.capture import JdbcCapture
from frazil.pipeline.settings.catalogs import DatabaseSettings
from frazil.project import Project
from frazil.spark.errors import SPARK_FAILED, fetch_rows
from frazil.spark.jobs.driver import carry_out, say, session
from frazil.spark.jobs.stage import cancel_of
from frazil.spark.writes.rows import quote_name

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


_FETCHED: Final = "10000"
"""Rows that the JDBC driver fetches at once. PostgreSQL's driver would hold the whole answer in memory otherwise."""

_JSON: Final = {
    "ignoreNullFields": "false",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
"""Options of Spark's JSON, so that nothing is left out: nulls, and the microseconds of times."""

_TASK_RESULT: Final = pa.schema([pa.field(name, pa.string()) for name in ("rows", "position", "failure")])
"""Columns that the task returns to the driver: the number of sent rows and the position after them, or its error."""

_TASK_COLUMNS: Final = ", ".join(f"{name} string" for name in _TASK_RESULT.names)
"""The columns of `_TASK_RESULT` in Spark's types."""


def rows_of(spark: SparkSession, capture: JdbcCapture, database: DatabaseSettings) -> DataFrame:
    """The table or query of a capture as a lazy data frame.

    Raises:
        Terminal: A column that orders the rows does not exist, or has a type without order.
        SPARK_FAILED: The database does not answer, or does not know the table.
    """
    source = capture.table or f"({capture.query}) frazil_rows"
    options = {**database.options, "dbtable": source, "fetchsize": _FETCHED}
    frame = spark.read.format("jdbc").options(**options).load()
    kinds = {name.lower(): kind for name, kind in frame.dtypes}
    if capture.timestamp_column is not None:
        _require_type(capture, "timestamp_column", kinds.get(capture.timestamp_column.lower()), ("timestamp",))
    if capture.incrementing_column is not None:
        numbers = ("tinyint", "smallint", "int", "bigint", "decimal")
        _require_type(capture, "incrementing_column", kinds.get(capture.incrementing_column.lower()), numbers)
    for column in capture.key:
        if column.lower() not in kinds:
            raise _missing_column(capture, "key", column)
    return frame


def largest_number(frame: DataFrame, capture: JdbcCapture) -> int | None:
    """The largest value of the incrementing column; None if there is no row."""
    from pyspark.sql import functions

    column = functions.max(quote_name(str(capture.incrementing_column))).alias("largest")
    (row,) = fetch_rows(frame.select(column), "the largest number").to_pylist()
    return None if row["largest"] is None else int(row["largest"])


def send_rows(frame: DataFrame, task: RowsTask, condition: str | None) -> tuple[int, CapturePosition]:
    """Send the next rows, which one query reads and one task sends.

    Returns:
        The number of sent rows, and the position after them.

    Raises:
        Retryable, Terminal: The task failed.
        SPARK_FAILED: Spark itself failed, or the database did.
    """
    from pyspark.sql import functions

    capture = task.capture
    chosen = frame if condition is None else frame.where(condition)
    null = functions.lit(None).cast("string")
    key = _json(chosen.select(*map(quote_name, capture.key))) if capture.key else null
    time, number = capture.timestamp_column, capture.incrementing_column
    rows = chosen.select(
        _json(chosen).alias("value"),
        key.alias("key"),
        (functions.date_format(quote_name(time), "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX") if time else null).alias("time"),
        (functions.col(quote_name(number)).cast("decimal(38,0)") if number else null).alias("number"),
    )
    # A JDBC query without bounds has one partition, which one task reads and sorts, on disk if memory is too small.
    ordered = rows.sortWithinPartitions("time", "number") if capture.order else rows

    def send(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        yield _send_task(task, batches)

    (answer,) = fetch_rows(ordered.mapInArrow(send, _TASK_COLUMNS), f"capture {capture.name}").to_pylist()
    if answer["failure"] is not None:
        raise error_from_json(answer["failure"])
    return int(answer["rows"]), CapturePosition.from_json(answer["position"])


def _send_task(task: RowsTask, batches: Iterable[pa.RecordBatch]) -> pa.RecordBatch:
    """The work of the task, in a Python worker of an executor."""
    try:
        count, position = task.send(_rows(task.capture, batches))
        columns = {"rows": [str(count)], "position": [position.to_json()], "failure": [None]}
    except (Retryable, Terminal) as error:
        columns = {"rows": [None], "position": [None], "failure": [error_to_json(error)]}
    return pa.RecordBatch.from_pydict(columns, schema=_TASK_RESULT)


def _rows(capture: JdbcCapture, batches: Iterable[pa.RecordBatch]) -> Iterator[Row]:
    names = [
        name for name, column in (("time", capture.timestamp_column), ("number", capture.incrementing_column)) if column
    ]
    for batch in batches:
        places = [batch.column(name).to_pylist() for name in names]
        places = [[int(number) if isinstance(number, Decimal) else number for number in column] for column in places]
        for number, (value, key) in enumerate(
            zip(batch.column("value").to_pylist(), batch.column("key").to_pylist(), strict=True)
        ):
            place = tuple(column[number] for column in places)
            yield Row(None if key is None else key.encode(), value.encode(), place)


def _json(frame: DataFrame) -> Column:
    """All columns as one JSON object. Decimals become numbers with all their digits, which Frazil's pipelines read exactly."""
    from pyspark.sql import functions

    return functions.to_json(functions.struct(*(functions.col(quote_name(name)) for name in frame.columns)), _JSON)


def _require_type(capture: JdbcCapture, key: str, kind: str | None, expected: tuple[str, ...]) -> None:
    column = str(getattr(capture, key))
    if kind is None:
        raise _missing_column(capture, key, column)
    if kind.partition("(")[0] not in expected or (kind.startswith("decimal") and not kind.endswith(",0)")):
        raise CAPTURE_FILE_INVALID.terminal(
            f"capture {capture.name}: {key} {column!r} can't order rows: expected {' or '.join(expected)}, found {kind}",
            next_step="choose another column, or let a query cast it",
        )


def _missing_column(capture: JdbcCapture, key: str, column: str) -> Terminal:
    return CAPTURE_FILE_INVALID.terminal(
        f"capture {capture.name}: {key} names column {column!r}, which {capture.table or 'the query'} does not have",
        next_step="correct the capture file",
    )


_REFUSED = ("password authentication failed", "Access denied for user", "ORA-01017", "Login failed for user")
"""Texts of refused passwords, for errors without SQLSTATE: PostgreSQL, MySQL, Oracle, SQL Server."""

_CAUSES: Final = 20
"""Bounds the search for the database's exception among the causes of Spark's: some exceptions are their own cause."""


def main(argv: list[str]) -> int:
    """Capture the new rows of a database."""
    return carry_out("capture", argv, _run)


def _run(project: Project, name: str, order: str) -> str:
    capture = project.capture(name)
    if not isinstance(capture, JdbcCapture):
        raise BAD_HANDOVER.terminal(f"capture {capture.name} reads files, which needs no Spark")
    return capture_rows(project, capture, CaptureOrder.from_json(order)).to_json()


def capture_rows(project: Project, capture: JdbcCapture, order: CaptureOrder) -> CaptureResult:
    """Capture the new rows, from the position on.

    Raises:
        Terminal: The position is lost or does not fit, the database refuses the query, or another thing needs a person.
        Retryable: Kafka or the database is not available now, or another run began.
        Stopped: A signal requested a stop. Committed transactions stay.
    """
    database, ground, now = project.database(capture.database), capture_context(project, capture), utc_now()
    with shutdown.handled(say), session(project) as spark, shutdown.cancelling(cancel_of(spark)):
        try:
            frame = rows_of(spark, capture, database)
            begin = initial_state_maker(capture, now, partial(largest_number, frame, capture))
            with open_capture(ground, order, begin, now) as (_, position):
                chosen = next_rows(capture, position, now)
            count, behind = 0, position
            if not is_done(capture, position, order.run):
                count, behind = send_rows(frame, RowsTask(ground, capture, order.run, position), chosen)
        except SPARK_FAILED as error:
            if shutdown.requester():
                raise shutdown.stopped(f"capture {capture.name}: what was committed stays") from error
            if (terminal := refusal_of(capture, str(error), sql_state(error))) is not None:
                raise terminal from error
            raise
    return CaptureResult(capture.name, order.run, capture.topic, count, behind.n - position.n, behind.n)


def sql_state(error: BaseException) -> str:
    """SQLSTATE of the database's exception among the causes of Spark's; empty if there is none."""
    thrown = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    for _ in range(_CAUSES):
        if thrown is None:
            break
        with suppress(Py4JError):  # only exceptions of JDBC have it
            return thrown.getSQLState() or ""
        thrown = thrown.getCause()
    return ""


def refusal_of(capture: JdbcCapture, detail: str, state: str = "") -> Terminal | None:
    """The error for a person, if the text of Spark's error or the database's SQLSTATE shows one; None otherwise."""
    if state.startswith("42"):  # ISO/IEC 9075: a syntax error or a missing permission
        return DATABASE_REFUSED.terminal(
            f"capture {capture.name}: database {capture.database} refuses the query: SQLSTATE {state}",
            next_step="read its message in the log of the job; correct the capture file, or let the user read it",
        )
    # 28 is a failed login.
    if state.startswith("28") or any(phrase in detail for phrase in _REFUSED):
        return DATABASE_REFUSED.terminal(
            f"capture {capture.name}: database {capture.database} did not accept user and password",
            next_step=f"correct databases.{capture.database} of the settings",
        )
    if "ClassNotFoundException" in detail or "No suitable driver" in detail:
        return DATABASE_REFUSED.terminal(
            f"capture {capture.name}: the JDBC driver of database {capture.database} is missing",
            next_step=f"name its jar: databases.{capture.database}.jars of the settings; and its class: driver",
        )
    return None
