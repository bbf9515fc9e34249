"""What Spark raises."""

from __future__ import annotations

from typing import Final

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

SPARK_FAILED: Final = (PySparkException, Py4JError, ConnectionError)
"""What a statement of Spark raises, also one that was cancelled, or whose JVM is gone.

None of it proves that a commit did not land."""
