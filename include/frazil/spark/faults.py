"""What Spark raises, what it means, and as much of its words as may be repeated: they quote rows, keys and statements."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.logger import PySparkLogger

from frazil.errors import Retryable
from frazil.spark.error_names import names_in

SPARK_FAILED: Final = (PySparkException, Py4JError, ConnectionError)
"""What a statement of Spark raises, also one that was cancelled, or whose JVM is gone.

None of it proves that a commit did not land."""

_GIVEN_UP: Final = "stopped SparkContext"
"""What is heard of a context that stopped itself because no master answered; why it did is only in the log of the job."""

_TABLE_NAMES: Final = ("objectName", "relationName", "tableName", "catalogName", "configKey")
"""Parameters of Spark's messages that a table owner or the settings chose, never a record."""


def shown(error: BaseException | None) -> str:
    """What an error says without the values that its message may quote: its class, its condition, the names of its causes."""
    if error is None:
        return "no error"
    names = [type(error).__name__]
    with suppress(Py4JError, ConnectionError):  # the JVM, which knows more, may be gone
        if isinstance(error, PySparkException) and (condition := error.getCondition()) is not None:
            names.append(f"[{condition}]")
            parameters = error.getMessageParameters() or {}
            names += [parameters[name] for name in _TABLE_NAMES if name in parameters]
    return ", ".join(dict.fromkeys([*names, *names_in(str(error))]))


def quiet() -> None:
    """Have pyspark log no error that it raises: the log would have the message, and with it values of records."""
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).disabled = True


def not_started(error: BaseException) -> Retryable:
    """What becomes of an error over which Spark did not start."""
    said = " ".join(str(error).split())
    if _GIVEN_UP in said:
        return Retryable(
            "Spark did not start: no master took the job within a minute",
            next_step="is the engine's `master` in the settings right, up, and reachable from here? `frazil doctor --spark` asks it",
        )
    return Retryable(f"Spark did not start: {type(error).__name__}: {said[:500]}")
