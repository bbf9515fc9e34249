"""The tables of pipelines as Airflow assets, so that other DAGs can be scheduled on new data."""

from __future__ import annotations

from airflow.sdk import Asset

from frazil.pipeline.model import Pipeline


def table_assets(pipeline: Pipeline) -> list[Asset]:
    """Return the destinations of a pipeline as assets, in the order of the file.

    Its name is the table's as Spark SQL writes it, catalog first: asset names are unique in Airflow, table names only
    in their catalog. Asset ``lake.rpc.pizzas`` has the URI ``iceberg://lake/rpc/pizzas`` and the group ``lake``.
    """
    return [_asset(of.catalog or pipeline.catalog, of.table) for of in pipeline.destinations]


def _asset(catalog: str, table: str) -> Asset:
    path = table.replace(".", "/")
    return Asset(name=f"{catalog}.{table}", uri=f"iceberg://{catalog}/{path}", group=catalog)
