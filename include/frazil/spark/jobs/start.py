"""Starts Spark while the process of a job still reads its modules: seconds each, and on different cores.

Little but pyspark is imported here, or that would have to be read first.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from concurrent.futures import Future
from contextlib import suppress
from threading import Thread
from typing import TYPE_CHECKING, Final

from frazil.gc_tuning import collect_rarely
from frazil.spark.jobs.imports import prefer_unzipped, restore_pandas
from frazil.spark.submit.configuration import LOCAL_VARIABLE

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark import SparkContext
    from pyspark.sql import SparkSession


_CONTEXT: Final[Future[SparkContext]] = Future()
"""Of this process, if it was begun: a process has one Spark."""


def start() -> None:
    """Prepare imports, and begin to start this process's Spark, which `started_session` returns.

    Not on a cluster: there a job that fails at once, because of its plan, would leave a running application behind.
    """
    collect_rarely()
    prefer_unzipped()
    restore_pandas()  # Spark's client insists on it
    if LOCAL_VARIABLE in os.environ:
        import pyspark.sql  # noqa: F401 - here, or both threads would wait for each other's imports

        _CONTEXT.set_running_or_notify_cancel()
        # A process that ends does not wait for it.
        Thread(target=_start_context, name="spark-start", daemon=True).start()


def started_session() -> SparkSession:
    """The Spark session of this process; starts Spark if it is not running yet."""
    from pyspark.sql import SparkSession

    if _CONTEXT.running() or _CONTEXT.done():
        _CONTEXT.result()
    # By the thread that will use it: Spark's functions look for the session of their thread.
    return SparkSession.builder.getOrCreate()


def wake_workers(spark: SparkSession, count: int) -> None:
    """Start Python workers in advance, while the job still loads its tables.

    It only saves time: errors show in the first batch.
    """
    if LOCAL_VARIABLE in os.environ:
        Thread(target=_wake_workers, args=(spark, count), name="spark-workers", daemon=True).start()


def _start_context() -> None:
    from pyspark import SparkContext

    try:
        _CONTEXT.set_result(SparkContext.getOrCreate())
    except BaseException as error:  # noqa: BLE001 - whoever asks for it meets it
        _CONTEXT.set_exception(error)


def _wake_workers(spark: SparkSession, count: int) -> None:
    from frazil.spark.errors import SPARK_FAILED

    with suppress(*SPARK_FAILED):
        spark.sparkContext.setJobDescription("Python workers start")
        spark.range(0, count, 1, count).mapInArrow(_as_they_are, "id long").collect()


def _as_they_are(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
    yield from batches
