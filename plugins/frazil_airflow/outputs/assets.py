"""The tables of pipelines as Airflow assets, so that other DAGs can be scheduled on new data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from airflow.sdk import Asset, AssetAlias, AssetWatcher

from frazil.pipeline.models.pipeline_file import Pipeline
from frazil.pipeline.syntax.interval import Trigger

if TYPE_CHECKING:
    from airflow.sdk.execution_time.context import OutletEventAccessors

PER_PIPELINE = "pipelines"
"""Group of assets that stand for a pipeline, not for a table."""

THROUGH = "complete_through"
"""Key, in the extra of an event, of the instant through which a pipeline is complete."""


def destination_assets(pipeline: Pipeline) -> dict[str, Asset]:
    """Return table -> asset for the destinations of a pipeline, in the order of its file.

    If records name tables, the ledger comes first and stands for all of them, since they are not known beforehand.

    An asset is named as Spark SQL names the table, catalog first: asset names are unique in Airflow, table names only in
    their catalog. Asset ``lake.rpc.pizzas`` has the URI ``iceberg://lake/rpc/pizzas`` and the group ``lake``.
    """
    ledger = {} if pipeline.create is None else {pipeline.ledger_table: pipeline.home_catalog}
    tables = {destination.table: destination.catalog or pipeline.catalog for destination in pipeline.destinations}
    return {table: _asset(catalog, table) for table, catalog in (ledger | tables).items()}


def completeness_asset(pipeline: str) -> Asset:
    """Return the asset whose events carry the instant through which a pipeline is complete, even without new records.

    A run that lands records also writes the instant into the snapshot. A run without new records commits nothing: only this event
    shows the instant. There is one such asset per pipeline: ``pizzas/complete`` has the URI ``frazil://pizzas/complete``.
    """
    name = f"{pipeline}/complete"
    return Asset(name=name, uri=f"frazil://{name}", group=PER_PIPELINE)


def completeness_alias(pipeline: str) -> AssetAlias:
    """Return the outlet of tasks that may emit completeness events. Unlike an asset, an alias emits none by itself."""
    return AssetAlias(name=f"{pipeline}/completeness", group=PER_PIPELINE)


def landings_alias(pipeline: str) -> AssetAlias:
    """Return the outlet of the task that lands dead letters, which adds an event for each table that got rows."""
    return AssetAlias(name=f"{pipeline}/landed", group=PER_PIPELINE)


def emit_completeness(events: OutletEventAccessors, extra: Mapping[str, Any]) -> None:
    """Add a completeness event to the events of a task. The extra has the keys ``pipeline`` and ``complete_through``."""
    pipeline = extra["pipeline"]
    events[completeness_alias(pipeline)].add(completeness_asset(pipeline), extra=dict(extra))


def waiting_asset(pipeline: Pipeline, dag_id: str, trigger: Trigger) -> Asset:
    """Return the asset whose events start a run early. An event comes whenever enough records wait in Kafka."""
    from frazil_airflow.project.lag_trigger import LagTrigger

    lag_trigger = LagTrigger(pipeline.name, dag_id, trigger.records, trigger.bytes, trigger.pause.total_seconds())
    name = f"{pipeline.name}/waiting"
    return Asset(
        name=name, uri=f"frazil://{name}", group=PER_PIPELINE, watchers=[AssetWatcher(name=name, trigger=lag_trigger)]
    )


def _asset(catalog: str, table: str) -> Asset:
    path = table.replace(".", "/")
    return Asset(name=f"{catalog}.{table}", uri=f"iceberg://{catalog}/{path}", group=catalog)
