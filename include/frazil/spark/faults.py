"""What Spark raises, and what it means."""

from __future__ import annotations

from typing import Final

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from frazil.errors import Retryable

SPARK_FAILED: Final = (PySparkException, Py4JError, ConnectionError)
"""What a statement of Spark raises, also one that was cancelled, or whose JVM is gone.

None of it proves that a commit did not land."""

_GIVEN_UP: Final = "stopped SparkContext"
"""What is heard of a context that stopped itself because no master answered; why it did is only in the log of the job."""


def not_started(error: BaseException) -> Retryable:
    """What becomes of an error over which Spark did not start."""
    said = " ".join(str(error).split())
    if _GIVEN_UP in said:
        return Retryable(
            "Spark did not start: no master took the job within a minute",
            next_step="is the engine's `master` in the settings right, up, and reachable from here? `frazil doctor --spark` asks it",
        )
    return Retryable(f"Spark did not start: {type(error).__name__}: {said[:500]}")
