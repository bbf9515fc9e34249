"""The client of a session on a spark connect server: it comes back in bounded time, whatever becomes of the server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.connect.client.reattach import ExecutePlanResponseReattachableIterator as Answers
from pyspark.sql.connect.client.retries import DefaultPolicy

if TYPE_CHECKING:
    from pyspark.sql.connect.session import SparkSession

_RETRIES: Final = 6
"""Attempts to reach a server that went away, 20 s in all. Spark's own fifteen take ten minutes; Airflow tries again, too."""

_LONGEST_WAIT_MILLISECONDS: Final = 5_000


def bound(spark: SparkSession) -> None:
    """Bound what a session waits for. A clone has a client of its own, which knows nothing of that of its origin."""
    spark.client.set_retry_policies([DefaultPolicy(max_retries=_RETRIES, max_backoff=_LONGEST_WAIT_MILLISECONDS)])
    Answers.shutdown = classmethod(_let_go)  # type: ignore[assignment, method-assign]


def _let_go(answers: Any) -> None:
    """End the threads that tell servers which answers were read. Every session that is closed or collected calls it.

    Spark 4.1 waits for them with its lock held (SPARK-55362). Such a thread may happen to collect another session, as a clone
    whose merge failed, which wants the lock, too: then neither goes on, and no session of the process does.
    """
    with answers._lock:  # noqa: SLF001 - it stands for a method of the class
        threads = answers._release_thread_pool_instance  # noqa: SLF001
        answers._release_thread_pool_instance = None  # noqa: SLF001
    if threads is not None:
        threads.shutdown()
