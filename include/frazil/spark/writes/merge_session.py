"""A second session that adds summary properties to the snapshots of its statements, which SQL alone can't do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_STAMP: Final = "spark.sql.iceberg.snapshot-property."
"""Prefix of settings that go into the summary of every snapshot that a session makes (Iceberg 1.11 and later)."""

_JOINS: Final = {
    "spark.sql.iceberg.planning.preserve-data-grouping": "true",
    "spark.sql.sources.v2.bucketing.enabled": "true",
    "spark.sql.sources.v2.bucketing.pushPartValues.enabled": "true",
    "spark.sql.sources.v2.bucketing.shuffle.enabled": "true",
    "spark.sql.requireAllClusterKeysForCoPartition": "false",
}
"""A table that is bucketed by its keys is joined bucket by bucket: only the changes are shuffled."""


class MergeSession:
    """Lends one session to one user at a time. Settings of the job's session, which others use, do not change."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark: Final = spark
        self._lock: Final = Lock()
        self._own: SparkSession | None = None

    @contextmanager
    def stamped(self, summary: Mapping[str, str]) -> Iterator[SparkSession]:
        """A session whose snapshots carry a summary."""
        with self._lock, self._second_session() as session:
            try:
                for key, value in summary.items():
                    session.conf.set(f"{_STAMP}{key}", value)
                yield session
            finally:
                for key in summary:
                    session.conf.unset(f"{_STAMP}{key}")

    @contextmanager
    def _second_session(self) -> Iterator[SparkSession]:
        if hasattr(self._spark, "cloneSession"):  # spark connect
            with _cloned(self._spark) as clone:
                yield _configured(clone)
            return
        self._own = self._own or _configured(_clone_session(self._spark))
        yield self._own


@contextmanager
def _cloned(spark: SparkSession) -> Iterator[SparkSession]:
    """A separate session on the server, closed at the end of the block."""
    from frazil.spark.connect.session import limit_waiting  # which only jobs beside a server need

    clone: Any = spark.cloneSession()  # type: ignore[attr-defined]  # of spark connect
    limit_waiting(clone)
    try:
        yield clone
    finally:
        clone.release_session_on_close = True  # which a clone lacks in Spark 4.1, and `stop` asks for
        clone.stop()


def _clone_session(spark: SparkSession) -> SparkSession:
    """Another session of the same application, with the same settings and catalogs."""
    session = spark.newSession()
    for key, value in spark.conf.getAll.items():
        if key.startswith("spark.sql.") and session.conf.get(key, None) != value:  # static ones are shared
            session.conf.set(key, value)
    return session


def _configured(session: SparkSession) -> SparkSession:
    for key, value in _JOINS.items():
        session.conf.set(key, value)
    return session
