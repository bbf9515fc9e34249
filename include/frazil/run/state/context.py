"""The context that every step of a run needs, and the apply interface, by which an engine writes what PyIceberg can't."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Protocol

from frazil.batch.manifest import Operation
from frazil.error_codes import SPARK_UNAVAILABLE
from frazil.errors import Retryable
from frazil.extras import require
from frazil.iceberg.catalog.catalog import Lake
from frazil.iceberg.catalog.table import Table
from frazil.iceberg.commit.commit import Change
from frazil.iceberg.commit.expiry import Retention
from frazil.iceberg.commit.pipeline_catalog import PipelineCatalog
from frazil.iceberg.commit.summary_state import made_tables
from frazil.kafka.client.cluster import Cluster
from frazil.pipeline.models.pipeline_file import Pipeline
from frazil.project import Project
from frazil.run.state.merge_key import with_merge_keys

if TYPE_CHECKING:
    from frazil.registry.client import RegistrySchemas


class Apply(Protocol):
    """An engine that writes a part's rows to a temporary branch, which then becomes main in one step."""

    def __call__(self, lake: Lake, change: Change, operation: Operation, branch: str) -> int:
        """Land a change, once, and return the id of the snapshot that carries its summary.

        The files of the change hold rows, in columns of their names. Attempts after the first get branch names of their
        own.

        Raises:
            Refused: The table contains something else than planned, or is not the one the rows were staged for.
        """


class EngineNeeded(Retryable):
    """A decided batch waits for an engine, and this process has none. The ingest step has one and finishes it first."""

    @classmethod
    def for_batch(cls, pipeline: str, n: int, table: str) -> EngineNeeded:
        """The error for one batch and table."""
        return cls(
            f"batch {n} of pipeline {pipeline} is decided; table {table} needs Spark for its part, and Spark does not run here",
            code=SPARK_UNAVAILABLE,
            next_step=f"frazil run {pipeline} (or the pipeline's next run in Airflow) finishes it first",
        )


Report = Callable[[str], None]
"""Takes one line for people who watch."""

Clock = Callable[[], datetime]
"""Tells the time, UTC."""


def utc_now() -> datetime:
    """The clock of production."""
    return datetime.now(UTC)


def no_report(_: str) -> None:
    """A report function that drops its lines."""


@dataclass(frozen=True)
class RunContext:
    """A pipeline with its catalog, its cluster, a report for people who watch, the clock, and the engine if there is one."""

    project: Project
    pipeline: Pipeline
    lake: PipelineCatalog
    cluster: Cluster
    report: Report = no_report
    clock: Clock = utc_now
    apply: Apply | None = None

    @classmethod
    def open(
        cls,
        project: Project,
        pipeline: Pipeline,
        report: Report = no_report,
        clock: Clock = utc_now,
        apply: Apply | None = None,
    ) -> RunContext:
        """Open the catalog and the cluster that the pipeline names.

        Raises:
            Terminal: The settings don't know them.
        """
        pipeline = project.with_auto_created(pipeline)
        lake, cluster = project.lake_of(pipeline), project.cluster(pipeline.source.cluster)
        return cls(project, with_merge_keys(lake, pipeline), lake, cluster, report, clock, apply)

    def with_ledger_tables(self, ledger: Table) -> RunContext:
        """A copy with the tables that this ledger lists as auto-created."""
        return self.with_created_tables(made_tables(ledger.metadata, self.pipeline.name, self.pipeline.ledger_table))

    def with_created_tables(self, table_names: Iterable[str]) -> RunContext:
        """A copy with these auto-created tables added."""
        pipeline = self.pipeline.with_made(table_names)
        if pipeline.auto_created == self.pipeline.auto_created:
            return self
        return replace(self, pipeline=pipeline, lake=self.project.lake_of(pipeline))

    @property
    def schemas(self) -> dict[str, RegistrySchemas]:
        """The Schema Registries that the pipeline names, by name: one for values, another for keys, or one for both.

        Raises:
            Terminal: The settings don't know it, or the client's libraries are not installed.
        """
        record_formats = (self.pipeline.value, self.pipeline.key)
        names = {
            record_format.registry
            for record_format in record_formats
            if record_format is not None and record_format.registry is not None
        }
        if not names:
            return {}
        require("registry", f"pipeline {self.pipeline.name}, with a Schema Registry,")
        from frazil.registry.client import shared_schemas

        return {name: shared_schemas(self.project.registry(name)) for name in sorted(names)}

    def retention(self, table: str) -> Retention | None:
        """Which old snapshots of a table its batches expire; None: none, because maintenance is off or done elsewhere."""
        rules = self.pipeline.maintenance.for_table(table)
        return None if rules is None or rules.expiry is False else Retention.from_rules(rules.expiry)

    def stamp(self) -> str:
        """The time as manifests and plans write it."""
        return self.clock().isoformat(timespec="milliseconds")
