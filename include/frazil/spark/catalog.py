"""A catalog of the settings as Spark knows it: under the same name, as PyIceberg reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from frazil.pipeline.settings import CatalogSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXTENSIONS: Final = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
"""Needed for branches. A static setting: it must be there when the session is made."""


def catalog_properties(settings: CatalogSettings) -> dict[str, str]:
    """Properties of Iceberg's Spark catalog. Some are secrets: they go into the session, never into an argument."""
    common = {"type": settings.type, "cache-enabled": "false", **settings.properties}
    if settings.warehouse is not None:
        common["warehouse"] = settings.warehouse
    return common | ({"uri": settings.uri} if settings.type == "rest" else _database(settings.uri))


def _database(uri: str) -> dict[str, str]:
    """An address of SQLAlchemy as JDBC has it: user and password are properties there."""
    from sqlalchemy.engine import make_url

    url = make_url(uri)
    kind = url.get_backend_name()
    if kind == "sqlite":
        return {"uri": f"jdbc:sqlite:{url.database}", "jdbc.schema-version": "V1"}
    port = f":{url.port}" if url.port else ""
    query = "&".join(f"{name}={value}" for name, value in url.query.items())
    found: dict[str, str | None] = {
        "uri": f"jdbc:{kind}://{url.host or ''}{port}/{url.database or ''}" + (f"?{query}" if query else ""),
        "jdbc.schema-version": "V1",
        "jdbc.user": url.username,
        "jdbc.password": str(url.password) if url.password is not None else None,
    }
    return {name: value for name, value in found.items() if value is not None}


def open_catalog(spark: SparkSession, name: str, settings: CatalogSettings) -> None:
    """Make a catalog of the settings known to a session."""
    spark.conf.set(f"spark.sql.catalog.{name}", "org.apache.iceberg.spark.SparkCatalog")
    for key, value in catalog_properties(settings).items():
        spark.conf.set(f"spark.sql.catalog.{name}.{key}", value)
