"""Tables for sides that do not make their own: the columns of the workload, and files as Frazil's are."""

from __future__ import annotations

from typing import Final

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from frazil.iceberg.schema.schema import declared_schema
from frazil.project import Project
from tests.bench.side_by_side.workloads import Workload

FILES: Final = {
    "write.format.default": "parquet",
    "write.parquet.compression-codec": "zstd",
    "write.parquet.compression-level": "1",
}
"""Of the table or the writer. The level is PyArrow's own, which Frazil's files have; Java's would be 3."""


def made_table(project: Project, workload: Workload, name: str, catalog: SqlCatalog | None = None) -> Table:
    """Make the table of a workload.

    Args:
        project: The project that has the workload's pipeline.
        workload: What is landed.
        name: Of the table.
        catalog: Where; without, the project's own.
    """
    pipeline = project.pipeline(workload.name)
    (destination,) = pipeline.destinations
    schema = declared_schema(destination.model_copy(update={"kafka_columns": False}))
    if catalog is None:
        home = project.home.root
        home.mkdir(parents=True, exist_ok=True)
        catalog = SqlCatalog("lake", uri=f"sqlite:///{home}/catalog.db", warehouse=f"file://{home}/warehouse")
    catalog.create_namespace_if_not_exists(name.partition(".")[0])
    return catalog.create_table(name, schema, properties={"format-version": "2", **FILES})
