"""The apply port: an engine gives a table that PyIceberg can't write its part of a decided batch."""

from __future__ import annotations

from typing import Protocol

from frazil.batch.manifest import Operation
from frazil.errors import Retryable
from frazil.iceberg.catalog import Lake
from frazil.iceberg.commit import Change


class Apply(Protocol):
    """An engine that brings rows in: on a branch nobody reads, which then becomes main in one step."""

    def __call__(self, lake: Lake, change: Change, operation: Operation, branch: str) -> int:
        """Land a change, once, and return the id of the snapshot that carries its summary.

        Args:
            lake: The catalog, as PyIceberg reads it.
            change: What lands, and how to tell whether it did, and may. Its files hold rows, in columns of their names.
            operation: What to do with them.
            branch: Name of the first attempt's branch; further ones get names of their own.

        Raises:
            Refused: The table holds something else than planned, or is not the one the rows were staged for.
            Retryable: The engine, the catalog or the storage is not available now.
        """


class EngineNeeded(Retryable):
    """A decided batch waits for an engine, and this process has none. The ingest step has one and finishes it first."""

    @classmethod
    def of(cls, pipeline: str, n: int, table: str) -> EngineNeeded:
        """The message for people."""
        return cls(
            f"batch {n} of pipeline {pipeline} is decided; table {table} gets its part by Spark, which does not run here",
            next_step=f"frazil run {pipeline} (or the pipeline's next run in Airflow) finishes it first",
        )
