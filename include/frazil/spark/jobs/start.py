"""Starts Spark while the process of a job still imports its modules: each takes seconds, on another core.

Hardly anything but pyspark is imported here, because Spark starts only after these imports.
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
"""The Spark context of this process, once its start has begun; a process has only one."""


def start() -> None:
    """Prepare imports, and start this process's Spark in the background, for `started_session`.

    On a cluster Spark is not started yet: a job that fails at once, because of its plan, would leave a running application.
    """
    collect_rarely()
    prefer_unzipped()
    restore_pandas()  # which Spark's client requires
    if LOCAL_VARIABLE in os.environ:
        import pyspark.sql  # noqa: F401 - before the thread, or both would wait for each other's imports

        _CONTEXT.set_running_or_notify_cancel()
        # A daemon, so that the end of the process does not wait for it.
        Thread(target=_start_context, name="spark-start", daemon=True).start()


def started_session() -> SparkSession:
    """The Spark session of this process; starts Spark if it is not running yet."""
    from pyspark.sql import SparkSession

    if _CONTEXT.running() or _CONTEXT.done():
        _CONTEXT.result()
    # In the thread that will use it, because Spark's functions use their thread's session.
    return SparkSession.builder.getOrCreate()


def wake_workers(spark: SparkSession, count: int) -> None:
    """Start Python workers of a local Spark while the job loads its tables. Errors are ignored: the first batch meets them again."""
    if LOCAL_VARIABLE in os.environ:
        Thread(target=_run_tasks, args=(spark, count), name="spark-workers", daemon=True).start()


def _start_context() -> None:
    from pyspark import SparkContext

    try:
        _CONTEXT.set_result(SparkContext.getOrCreate())
    except BaseException as error:  # noqa: BLE001 - `started_session` raises it
        _CONTEXT.set_exception(error)


def _run_tasks(spark: SparkSession, count: int) -> None:
    from frazil.spark.errors import SPARK_FAILED

    with suppress(*SPARK_FAILED):
        spark.sparkContext.setJobDescription("Python workers start")
        spark.range(0, count, 1, count).mapInArrow(_pass_through, "id long").collect()


def _pass_through(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
    yield from batches
