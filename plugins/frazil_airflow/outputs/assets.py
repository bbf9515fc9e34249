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
"""Group of the assets that are no tables."""

THROUGH = "complete_through"
"""Key of the instant in the extra of an event that tells through when a pipeline is complete."""


def destination_assets(pipeline: Pipeline) -> dict[str, Asset]:
    """Return the tables that a pipeline announces new data of, as assets: the destinations in the order of the file.

    Tables that records name are unknown beforehand. The pipeline's ledger, which has a row per batch and table, comes first and represents all of them.

    Its name is the table's as Spark SQL writes it, catalog first: asset names are unique in Airflow, table names only
    in their catalog. Asset ``lake.rpc.pizzas`` has the URI ``iceberg://lake/rpc/pizzas`` and the group ``lake``.
    """
    ledger = {} if pipeline.create is None else {pipeline.ledger_table: pipeline.home_catalog}
    tables = {destination.table: destination.catalog or pipeline.catalog for destination in pipeline.destinations}
    return {table: _asset(catalog, table) for table, catalog in (ledger | tables).items()}


def completeness_asset(pipeline: str) -> Asset:
    """Return the asset whose events carry the instant through which a pipeline is complete, even without new records.

    A run that lands records says it in the snapshot. One that finds nothing new commits nothing: only this event shows it.
    One per pipeline, whichever tables it writes: asset ``pizzas/complete`` has the URI ``frazil://pizzas/complete``. Its
    events come at every interval; those of the tables only with data.
    """
    name = f"{pipeline}/complete"
    return Asset(name=name, uri=f"frazil://{name}", group=PER_PIPELINE)


def completeness_alias(pipeline: str) -> AssetAlias:
    """Return the outlet of tasks that may emit such events: unlike an asset, an alias emits none unless the run adds one."""
    return AssetAlias(name=f"{pipeline}/completeness", group=PER_PIPELINE)


def landings_alias(pipeline: str) -> AssetAlias:
    """Return the outlet of a task that lands dead letters: which tables got rows is known when it has run."""
    return AssetAlias(name=f"{pipeline}/landed", group=PER_PIPELINE)


def emit_completeness(events: OutletEventAccessors, extra: Mapping[str, Any]) -> None:
    """Add the event to those of a task with that outlet. The extra has ``pipeline`` and ``complete_through`` in it."""
    pipeline = extra["pipeline"]
    events[completeness_alias(pipeline)].add(completeness_asset(pipeline), extra=dict(extra))


def waiting_asset(pipeline: Pipeline, dag_id: str, trigger: Trigger) -> Asset:
    """Return the asset whose events start a run early: one each time that enough waits in Kafka."""
    from frazil_airflow.project.lag_trigger import LagTrigger

    looks = LagTrigger(pipeline.name, dag_id, trigger.records, trigger.bytes, trigger.pause.total_seconds())
    name = f"{pipeline.name}/waiting"
    return Asset(
        name=name, uri=f"frazil://{name}", group=PER_PIPELINE, watchers=[AssetWatcher(name=name, trigger=looks)]
    )


def _asset(catalog: str, table: str) -> Asset:
    path = table.replace(".", "/")
    return Asset(name=f"{catalog}.{table}", uri=f"iceberg://{catalog}/{path}", group=catalog)
