"""OpenLineage: the topics and tables that an ingest task reads and writes, and the same for captures.

If a transport is configured, Airflow's OpenLineage provider calls the operator's methods when the task begins and when it
ends, in a process of its own. It only logs their errors, so lineage never fails a task.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from frazil.batch.plan import RunPlan
from frazil_airflow.project.secrets import load_project

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage

    from frazil.report.lineage import Lineage, TableWritten, TopicRead


_FOR_SPARK = "airflow.providers.openlineage.utils.spark"


@contextmanager
def not_loaded_if_off() -> Iterator[None]:
    """Let the imports inside this context skip OpenLineage, if no transport is configured.

    Airflow's Spark operator always loads the whole OpenLineage provider: 0.8 of the second that a task of a Spark pipeline
    spends on imports. No setting prevents that. The operator works without the provider, so here it looks not installed.
    """
    if _FOR_SPARK in sys.modules or _is_on():
        yield
        return
    sys.modules[_FOR_SPARK] = None  # type: ignore[assignment]  # so that Python raises ImportError for it
    try:
        yield
    finally:
        del sys.modules[_FOR_SPARK]


def _is_on() -> bool:
    try:
        from airflow.providers.openlineage import conf
    except ImportError:
        return False
    return not conf.is_disabled()


class IngestLineage:
    """Lineage of operators that run a plan. `pipeline`: name of the pipeline; `plan_json`: the plan."""

    pipeline: str
    plan_json: str

    def get_openlineage_facets_on_start(self) -> OperatorLineage[Any, Any]:
        """Return the topics of the plan and the existing destinations."""
        return self._lineage(has_landed=False)

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> OperatorLineage[Any, Any]:  # noqa: ARG002, the provider's signature
        """Return the topics and tables with counts, also after a failure: finished batches stay."""
        return self._lineage(has_landed=True)

    def _lineage(self, *, has_landed: bool) -> OperatorLineage[Any, Any]:
        from frazil.report.lineage import run_lineage

        project, plan = load_project(), RunPlan.from_json(self.plan_json)
        return operator_lineage(run_lineage(project, project.pipeline(self.pipeline), plan, has_landed=has_landed))


class CaptureLineage:
    """Lineage of operators that run a capture. `capture`: name of the capture."""

    capture: str

    def get_openlineage_facets_on_start(self) -> OperatorLineage[Any, Any]:
        """Return the files or the table that the capture reads, and its topic."""
        from airflow.providers.openlineage.extractors import OperatorLineage
        from openlineage.client.event_v2 import InputDataset, OutputDataset

        from frazil.report.lineage import capture_names

        project = load_project()
        names, topic = capture_names(project, project.capture(self.capture))
        return OperatorLineage(
            inputs=[InputDataset(name.namespace, name.name) for name in names],
            outputs=[OutputDataset(topic.namespace, topic.name)],
        )

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> OperatorLineage[Any, Any]:  # noqa: ARG002, the provider's signature
        """Return the same datasets as at the start, without counts: those are in the run's result."""
        return self.get_openlineage_facets_on_start()


def operator_lineage(lineage: Lineage) -> OperatorLineage[Any, Any]:
    """Return lineage as the provider's class."""
    from airflow.providers.openlineage.extractors import OperatorLineage

    return OperatorLineage(
        inputs=[_input(topic) for topic in lineage.topics], outputs=[_output(table) for table in lineage.tables]
    )


def _input(topic: TopicRead) -> Any:
    from openlineage.client.event_v2 import InputDataset
    from openlineage.client.facet_v2 import input_statistics_input_dataset as statistics

    counts = statistics.InputStatisticsInputDatasetFacet(rowCount=topic.records, size=topic.bytes)
    facets: dict[str, Any] = {} if topic.records is None else {"inputStatistics": counts}
    return InputDataset(topic.name.namespace, topic.name.name, inputFacets=facets)


def _output(table: TableWritten) -> Any:
    from openlineage.client.event_v2 import OutputDataset
    from openlineage.client.facet_v2 import (
        dataset_version_dataset,
        output_statistics_output_dataset,
        schema_dataset,
        storage_dataset,
        symlinks_dataset,
    )

    catalog_name = symlinks_dataset.Identifier(table.known_as.namespace, table.known_as.name, type="TABLE")
    facets: dict[str, Any] = {
        "schema": schema_dataset.SchemaDatasetFacet(fields=_fields(table.columns)),
        "storage": storage_dataset.StorageDatasetFacet(storageLayer="iceberg"),
        "symlinks": symlinks_dataset.SymlinksDatasetFacet(identifiers=[catalog_name]),
    }
    if table.snapshot_id is not None:
        facets["version"] = dataset_version_dataset.DatasetVersionDatasetFacet(str(table.snapshot_id))
    counts = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(
        rowCount=table.rows, size=table.bytes, fileCount=table.files
    )
    output_facets: dict[str, Any] = {} if table.rows is None else {"outputStatistics": counts}
    return OutputDataset(table.name.namespace, table.name.name, facets=facets, outputFacets=output_facets)


def _fields(columns: Iterable[Any]) -> list[Any]:
    """Facets of columns with their Iceberg types; a struct contains the facets of its fields."""
    from openlineage.client.facet_v2 import schema_dataset

    facets = []
    for number, column in enumerate(columns, 1):
        inner = getattr(column.field_type, "fields", ())
        facets.append(
            schema_dataset.SchemaDatasetFacetFields(
                name=column.name,
                type="struct" if inner else str(column.field_type),
                description=column.doc,
                ordinal_position=number,
                fields=_fields(inner),
            )
        )
    return facets
