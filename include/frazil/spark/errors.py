"""Errors of Spark, and their texts without values of records; and complete results of queries."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.logger import PySparkLogger

from frazil.error_codes import RUN_FAILED, SPARK_UNAVAILABLE
from frazil.errors import Retryable
from frazil.spark.submit.job_process import names_in

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


SPARK_FAILED: Final = (PySparkException, Py4JError, ConnectionError)
"""Exceptions of a Spark statement that failed, was cancelled, or lost its JVM. None of them proves that a commit did not land."""

_GIVEN_UP: Final = "stopped SparkContext"
"""Text in the error of a context that stopped itself because no master answered; only the job's log has the reason."""

_TABLE_NAMES: Final = ("objectName", "relationName", "tableName", "catalogName", "configKey")
"""Parameters of Spark's messages whose values come from table owners or settings, never from records."""


def error_text(error: BaseException | None) -> str:
    """An error as text without values of records: its class, its condition, the names of its causes."""
    if error is None:
        return "no error"
    names = [type(error).__name__]
    with suppress(Py4JError, ConnectionError):  # the JVM, which knows more, may be gone
        if isinstance(error, PySparkException) and (condition := error.getCondition()) is not None:
            names.append(f"[{condition}]")
            parameters = error.getMessageParameters() or {}
            names += [parameters[name] for name in _TABLE_NAMES if name in parameters]
    return ", ".join(dict.fromkeys([*names, *names_in(str(error))]))


def silence_error_log() -> None:
    """Stop pyspark from logging the errors that it raises: their messages quote values of records."""
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).disabled = True


def not_started(error: BaseException) -> Retryable:
    """The error for a failed start of Spark."""
    detail = " ".join(str(error).split())
    if _GIVEN_UP in detail:
        return SPARK_UNAVAILABLE.retryable(
            "Spark did not start: no master took the job within a minute",
            next_step="check that the engine's `master` in the settings is right, running and reachable from here: `frazil doctor --spark`"
            " tests it",
        )
    return SPARK_UNAVAILABLE.retryable(f"Spark did not start: {type(error).__name__}: {detail[:500]}")


def fetch_rows(query: DataFrame, what: str) -> pa.Table:
    """Fetch all rows of a query. Not by `collect`, which returns part of the rows without an error if the JVM dies meanwhile.

    Raises:
        Retryable: The answer was cut off.
        SPARK_FAILED: Spark itself failed.
    """
    try:
        return query.toArrow()
    except (pa.ArrowInvalid, EOFError) as error:
        raise RUN_FAILED.retryable(f"{what}: Spark's answer was cut off: {error}") from error
