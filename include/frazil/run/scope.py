"""What every step of a run needs, gathered once; and the apply port, by which an engine writes what PyIceberg can't."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Protocol

from frazil.batch.manifest import Operation
from frazil.errors import Retryable
from frazil.iceberg.catalog import Lake
from frazil.iceberg.commit import Change
from frazil.iceberg.expiry import Retention
from frazil.iceberg.holdings import made_tables
from frazil.iceberg.pipeline_lake import PipelineLake
from frazil.iceberg.table import Table
from frazil.kafka.cluster import Cluster
from frazil.pipeline.model import Pipeline
from frazil.project import Project
from frazil.run.identifier import identified

if TYPE_CHECKING:
    from frazil.registry.client import RegistrySchemas


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


Report = Callable[[str], None]
"""Takes one line for people who watch."""

Clock = Callable[[], datetime]
"""Tells the time, UTC."""


def utc_now() -> datetime:
    """The clock of production."""
    return datetime.now(UTC)


def unheard(_: str) -> None:
    """The report of a run that nobody watches."""


@dataclass(frozen=True)
class Scope:
    """A pipeline with the doors to its catalog and its cluster, who watches, the clock, and the engine if there is one."""

    project: Project
    pipeline: Pipeline
    lake: PipelineLake
    cluster: Cluster
    report: Report = unheard
    clock: Clock = utc_now
    apply: Apply | None = None

    @classmethod
    def of(
        cls,
        project: Project,
        pipeline: Pipeline,
        report: Report = unheard,
        clock: Clock = utc_now,
        apply: Apply | None = None,
    ) -> Scope:
        """Open the doors that the pipeline names.

        Raises:
            Terminal: The settings don't know them.
            Retryable: The catalog, which tells the tables that a pipeline made and the keys of merged ones, can't be reached.
        """
        pipeline = project.with_auto_created(pipeline)
        lake, cluster = project.lake_of(pipeline), project.cluster(pipeline.source.cluster)
        return cls(project, identified(lake, pipeline), lake, cluster, report, clock, apply)

    def told_by(self, ledger: Table) -> Scope:
        """The same, with the tables that the pipeline made by what this very ledger tells."""
        return self.grown(made_tables(ledger.metadata, self.pipeline.name, self.pipeline.ledger_table))

    def grown(self, made: Iterable[str]) -> Scope:
        """The same, with these tables made because records name them."""
        pipeline = self.pipeline.with_made(made)
        if pipeline.auto_created == self.pipeline.auto_created:
            return self
        return replace(self, pipeline=pipeline, lake=self.project.lake_of(pipeline))

    @property
    def schemas(self) -> dict[str, RegistrySchemas]:
        """The Schema Registries that the pipeline names, by name: one for values, another for keys, or one for both.

        Raises:
            Terminal: The settings don't know it.
        """
        from frazil.registry.client import shared_schemas

        halves = (self.pipeline.value, self.pipeline.key)
        names = {of.registry for of in halves if of is not None and of.registry is not None}
        return {name: shared_schemas(self.project.registry(name)) for name in sorted(names)}

    def retention(self, table: str) -> Retention | None:
        """What of a table's past its batches leave; None: all, as somebody else maintains it, or nobody expires it."""
        rules = self.pipeline.maintenance.for_table(table)
        return None if rules is None or rules.expiry is False else Retention.by(rules.expiry)

    def stamp(self) -> str:
        """The time as manifests and plans write it."""
        return self.clock().isoformat(timespec="milliseconds")
