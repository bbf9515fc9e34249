"""The tables of pipelines as Airflow assets, so that other DAGs can be scheduled on new data."""

from __future__ import annotations

from airflow.sdk import Asset

from frazil.pipeline.model import Pipeline


def table_asset(pipeline: Pipeline) -> Asset:
    """Return the destination of a pipeline as an asset.

    Its name is the table's as Spark SQL writes it, catalog first: asset names are unique in Airflow, table names only
    in their catalog. Asset ``lake.rpc.pizzas`` has the URI ``iceberg://lake/rpc/pizzas`` and the group ``lake``.
    """
    table = pipeline.destinations[0].table
    path = table.replace(".", "/")
    return Asset(name=f"{pipeline.catalog}.{table}", uri=f"iceberg://{pipeline.catalog}/{path}", group=pipeline.catalog)
