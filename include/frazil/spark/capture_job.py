"""The job of a capture of a database: what spark-submit runs. Arguments in, exit code and a result file out."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import Final

from py4j.protocol import Py4JError  # type: ignore[import-untyped]

from frazil import stopping
from frazil.capture.order import CaptureOrder
from frazil.capture.run import CaptureResult, ground_of, utc_now
from frazil.capture.run_rows import RowsTask, beginning, is_done, next_rows
from frazil.capture.standing import standing
from frazil.errors import Terminal
from frazil.pipeline.capture import JdbcCapture
from frazil.project import Project
from frazil.spark.capture_rows import largest, rows_of, send_rows
from frazil.spark.driver import end_with_parent, exit_code, say, session
from frazil.spark.faults import SPARK_FAILED
from frazil.spark.handover import Handover
from frazil.spark.stage import cancel_of

_REFUSED = ("password authentication failed", "Access denied for user", "ORA-01017", "Login failed for user")
"""How databases refuse a password, in English: PostgreSQL, MySQL, Oracle, SQL Server; where no SQLSTATE tells it."""

_CAUSES: Final = 20
"""Bounds how deep the database's exception may lie in those of Spark; some are their own cause."""


def main(argv: list[str]) -> int:
    """Capture what is new in a database.

    Returns:
        See `frazil.spark.driver.exit_code`.
    """
    end_with_parent()
    handover = Handover.of("capture", argv)

    def work() -> None:
        project = Project.load()
        capture = project.capture(handover.pipeline)
        if not isinstance(capture, JdbcCapture):
            raise Terminal(f"capture {capture.name} is of files, which need no Spark")
        order = CaptureOrder.from_json(handover.asked())
        handover.hand_back(capture_rows(project, capture, order).to_json())

    return exit_code(work)


def capture_rows(project: Project, capture: JdbcCapture, order: CaptureOrder) -> CaptureResult:
    """Capture the rows that are new, from the position on.

    Raises:
        Terminal: The position is lost or does not fit, the database refuses, or a person must act otherwise.
        Retryable: Kafka or the database is not available now, or another run began.
        Stopped: A signal asked it to stop. Transactions that were committed stay.
    """
    database, ground, now = project.database(capture.database), ground_of(project, capture), utc_now()
    with stopping.heeded(say), session(project) as spark, stopping.cancelling(cancel_of(spark)):
        try:
            frame = rows_of(spark, capture, database)
            begin = beginning(capture, now, partial(largest, frame, capture))
            with standing(ground, order, begin, now) as (_, position):
                chosen = next_rows(capture, position, now)
            count, behind = 0, position
            if not is_done(capture, position, order.run):
                count, behind = send_rows(frame, RowsTask(ground, capture, order.run, position), chosen)
        except SPARK_FAILED as error:
            if stopping.asked():
                raise stopping.stopped(f"capture {capture.name}: what was committed stays") from error
            if (terminal := refused(capture, str(error), sql_state(error))) is not None:
                raise terminal from error
            raise
    return CaptureResult(capture.name, order.run, capture.topic, count, behind.n - position.n, behind.n)


def sql_state(error: BaseException) -> str:
    """SQLSTATE of the database's exception that is the cause of one of Spark's; empty if there is none."""
    thrown = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    for _ in range(_CAUSES):
        if thrown is None:
            break
        with suppress(Py4JError):  # only those of JDBC have it
            return thrown.getSQLState() or ""
        thrown = thrown.getCause()
    return ""


def refused(capture: JdbcCapture, said: str, state: str = "") -> Terminal | None:
    """What a person must mend, if an error of Spark says so.

    Args:
        capture: The capture.
        said: The error.
        state: SQLSTATE of the database. Classes of ISO/IEC 9075: 28 is the authorization, 42 what is asked, or who may ask it.
    """
    if state.startswith("42"):
        return Terminal(
            f"capture {capture.name}: database {capture.database} refuses the query: SQLSTATE {state}",
            next_step="read its words in the log of the job; correct the capture file, or let the user read it",
        )
    if state.startswith("28") or any(of in said for of in _REFUSED):
        return Terminal(
            f"capture {capture.name}: database {capture.database} did not accept user and password",
            next_step=f"correct databases.{capture.database} of the settings",
        )
    if "ClassNotFoundException" in said or "No suitable driver" in said:
        return Terminal(
            f"capture {capture.name}: the JDBC driver of database {capture.database} is not there",
            next_step=f"name its jar: databases.{capture.database}.jars of the settings; and its class: driver",
        )
    return None
