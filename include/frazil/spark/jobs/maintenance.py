"""The job of a maintenance run: it calls Iceberg's procedures through Spark."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from frazil.error_codes import MAINTENANCE_FAILED
from frazil.errors import Retryable
from frazil.maintain.need import Order
from frazil.maintain.procedures import Argument, Conflict
from frazil.maintain.run import maintain
from frazil.project import Project
from frazil.run.state.context import RunContext
from frazil.spark.errors import SPARK_FAILED, error_text
from frazil.spark.jobs.driver import carry_out, say, session
from frazil.spark.submit.configuration import open_catalog
from frazil.spark.writes.rows import literal, prepare_writer, quote_name, quote_text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


_VIEW: Final = "frazil_listed_files"

_RIVALS: Final = ("ValidationException", "CommitFailedException", "Cannot commit")
"""Texts of Iceberg's errors for files that another commit replaced, or deleted rows from, meanwhile."""


class SparkProcedures:
    """Calls procedures with one session, in which the catalogs are open."""

    def __init__(self, spark: SparkSession) -> None:
        prepare_writer(spark)
        self._spark: Final = spark

    def call(self, catalog: str, procedure: str, arguments: Mapping[str, Argument]) -> Iterator[dict[str, Any]]:
        """Call a procedure of a catalog, and return its rows, which are read lazily.

        Raises:
            Conflict: Another commit changed the same files meanwhile.
            Retryable: Spark, the catalog or the storage is not available now.
        """
        arguments_text = ", ".join(f"{name} => {literal(value)}" for name, value in arguments.items())
        what = f"{procedure} of {arguments['table']}"
        with _translated(what):
            frame = self._spark.sql(f"CALL {quote_name(catalog)}.system.{procedure}({arguments_text})")
        return _rows(frame, what)

    @contextmanager
    def listed(self, paths: Iterable[str]) -> Iterator[str]:
        """While the block runs, a view lists these files with an old time. It is dropped, because a server keeps sessions."""
        old = datetime(1970, 1, 2, tzinfo=UTC)
        rows = [(path, old) for path in paths]
        with _translated("the list of orphans"):
            files = self._spark.createDataFrame(rows, "file_path string, last_modified timestamp")
            files.createOrReplaceTempView(_VIEW)
        try:
            yield _VIEW
        finally:
            with suppress(*SPARK_FAILED):  # the views of a dead Spark are gone
                self._spark.catalog.dropTempView(_VIEW)

    def note(self, catalog: str, table: str, key: str, value: str) -> None:
        """Set a property of a table."""
        name = quote_name(catalog, *table.split("."))
        with _translated(f"{key} of {table}"):
            self._spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ({quote_text(key)} = {quote_text(value)})")


def _rows(frame: DataFrame, what: str) -> Iterator[dict[str, Any]]:
    with _translated(what):
        for row in frame.toLocalIterator():
            yield row.asDict()


@contextmanager
def _translated(what: str) -> Iterator[None]:
    try:
        yield
    except SPARK_FAILED as error:
        kind = Conflict if any(word in str(error) for word in _RIVALS) else Retryable
        raise kind(f"{what}: Spark failed: {error_text(error)}", code=MAINTENANCE_FAILED) from error


def main(argv: list[str]) -> int:
    """Maintain the tables of a pipeline. A failed step is in the result, and does not change the exit code."""
    return carry_out("maintain", argv, _run)


def _run(project: Project, name: str, order: str) -> str:
    due, context = Order.from_json(order), RunContext.open(project, project.pipeline(name), say)
    with session(project, writes=True) as spark:
        for catalog in context.pipeline.catalogs:
            open_catalog(spark, catalog, project.settings.catalogs[catalog])
        return maintain(context, due, SparkProcedures(spark)).to_json()
