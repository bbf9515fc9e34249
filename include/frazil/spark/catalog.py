"""A catalog of the settings as Spark knows it: under the same name, as PyIceberg reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from frazil.pipeline.catalogs import CatalogSettings
from frazil.pipeline.settings import Settings
from frazil.spark.storage import scheme_of, storage_properties

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXTENSIONS: Final = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
"""Needed for branches. A static setting: it must be there when the session is made."""


_S3: Final = "s3."
"""Begins the properties of a catalog whose tables lie in S3, where no more than its address tells."""


def jar_sets(settings: Settings) -> tuple[str, ...]:
    """Sets of jars that Spark needs for the catalogs of the settings; what reaches S3 is 69 MB, so only where one needs it."""
    catalogs = settings.catalogs.values()
    needed = {"s3": any(map(_is_in_s3, catalogs)), "postgres": any(map(_is_in_postgres, catalogs))}
    return ("spark", *(name for name, is_needed in needed.items() if is_needed))


def _is_in_s3(catalog: CatalogSettings) -> bool:
    return scheme_of(catalog.warehouse).startswith("s3") or any(name.startswith(_S3) for name in catalog.properties)


def _is_in_postgres(catalog: CatalogSettings) -> bool:
    return catalog.type == "jdbc" and catalog.uri.startswith("postgresql")


def catalog_properties(settings: CatalogSettings) -> dict[str, str]:
    """Properties of Iceberg's Spark catalog. Some are secrets: they go into the session, never into an argument."""
    storage = storage_properties(settings.warehouse, settings.properties)
    common = {"type": settings.type, "cache-enabled": "false", **storage, **settings.properties}
    if settings.warehouse is not None:
        common["warehouse"] = settings.warehouse
    return common | ({"uri": settings.uri} if settings.type == "rest" else _database(settings.uri))


def _database(uri: str) -> dict[str, str]:
    """An address of SQLAlchemy as JDBC has it: user, password and all options are properties there, none is in the address.

    The options of PostgreSQL's two drivers that matter have the same names (`sslmode`, `sslrootcert`).
    """
    from sqlalchemy.engine import make_url

    url = make_url(uri)
    kind = url.get_backend_name()
    if kind == "sqlite":
        return {"uri": f"jdbc:sqlite:{url.database}", "jdbc.schema-version": "V1"}
    port = f":{url.port}" if url.port else ""
    host = f"[{url.host}]" if ":" in (url.host or "") else url.host or ""
    found: dict[str, str | None] = {
        **{f"jdbc.{name}": str(value) for name, value in url.query.items()},
        "uri": f"jdbc:{kind}://{host}{port}/{quote(url.database or '')}",
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
