"""Starts Spark while the process of a job still reads its modules: seconds each, and on different cores.

Little but pyspark is imported here, or that would have to be read first.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from frazil.garbage import collect_rarely
from frazil.spark.job_environment import ENGINE_VARIABLE
from frazil.spark.unzipped import prefer_unzipped

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

_STARTED: Final[list[Future[SparkSession]]] = []
"""At most one: a process has one Spark."""


def start(*, workers: bool) -> None:
    """Begin to start this process's own Spark, if it is to have one, for `started` to take.

    Args:
        workers: Whether batches follow: then as many Python workers as there are cores get ready, too.
    """
    collect_rarely()
    prefer_unzipped()
    if ENGINE_VARIABLE in os.environ:  # its session is on a server
        return
    import pyspark.sql  # noqa: F401 - here, or both threads would wait for each other's imports

    thread = ThreadPoolExecutor(1, "spark-start")
    _STARTED.append(thread.submit(_session))
    if workers:
        thread.submit(_wake_workers)
    thread.shutdown(wait=False)


def started() -> SparkSession:
    """The session of this process, once Spark has started; it is started here if nobody did before.

    Raises:
        SPARK_FAILED: Spark does not start.
    """
    return _STARTED[0].result() if _STARTED else _session()


def _session() -> SparkSession:
    from pyspark.sql import SparkSession

    return SparkSession.builder.getOrCreate()


def _wake_workers() -> None:
    """It only saves time: what is wrong the first batch tells."""
    from frazil.spark.faults import SPARK_FAILED

    with suppress(*SPARK_FAILED):
        spark = started()
        count = spark.sparkContext.defaultParallelism
        spark.range(0, count, 1, count).mapInArrow(_as_they_are, "id long").collect()


def _as_they_are(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
    yield from batches
