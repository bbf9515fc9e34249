"""The tables of pipelines as Airflow assets, so that other DAGs can be scheduled on new data."""

from __future__ import annotations

from airflow.sdk import Asset

from frazil.pipeline.model import Pipeline


def announced(pipeline: Pipeline) -> dict[str, Asset]:
    """Return the tables that a pipeline announces new data of, as assets: the destinations in the order of the file.

    Of tables that records name, none is known before they do: their pipeline's ledger, which has a row per batch and
    table, comes first and stands for all of them.

    Its name is the table's as Spark SQL writes it, catalog first: asset names are unique in Airflow, table names only
    in their catalog. Asset ``lake.rpc.pizzas`` has the URI ``iceberg://lake/rpc/pizzas`` and the group ``lake``.
    """
    ledger = {} if pipeline.create is None else {pipeline.ledger_table: pipeline.home_catalog}
    tables = {of.table: of.catalog or pipeline.catalog for of in pipeline.destinations}
    return {table: _asset(catalog, table) for table, catalog in (ledger | tables).items()}


def _asset(catalog: str, table: str) -> Asset:
    path = table.replace(".", "/")
    return Asset(name=f"{catalog}.{table}", uri=f"iceberg://{catalog}/{path}", group=catalog)
