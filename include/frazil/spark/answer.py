"""What Spark answers to a question whose rows decide something."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from frazil.errors import Retryable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def answered(asked: DataFrame, what: str) -> pa.Table:
    """All rows of an answer. Not collect: what a JVM leaves out of its answer that dies over it, collect takes for the end.

    Args:
        asked: The question.
        what: Coordinates for the error.

    Raises:
        Retryable: The answer was cut off.
        SPARK_FAILED: Spark itself failed.
    """
    try:
        return asked.toArrow()
    except (pa.ArrowInvalid, EOFError) as error:
        raise Retryable(f"{what}: Spark's answer was cut off: {error}") from error
