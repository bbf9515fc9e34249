"""The catalog: properties of Iceberg's Java catalogs as those of the settings file."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import quote

from frazil.connect.findings import ConnectorKeys, Secrets

_PREFIX = "iceberg.catalog."
_REST = "org.apache.iceberg.rest.RESTCatalog"
_JDBC = "org.apache.iceberg.jdbc.JdbcCatalog"
_REST_INSTEAD = {
    "hadoop": "move the tables to a catalog: register_table of a REST catalog keeps their files",
    "nessie": "Nessie speaks Iceberg's REST protocol: http://<host>:19120/iceberg",
}
_ADDRESSES = {"rest": "address of the REST catalog", "hive": "address of the metastore", "glue": "endpoint of Glue"}
_ELSEWHERE = "name a catalog that speaks Iceberg's REST protocol under catalogs"
_DIALECTS = {"postgresql": "postgresql+psycopg2", "sqlite": "sqlite"}
_JVM = ("io-impl", "clients", "client.pool.", "client.factory", "cache-enabled", "cache.", "metrics-reporter-impl")
"""Beginnings of properties that only Java's catalogs read; Spark gets them, PyIceberg passes over them."""


def catalog(keys: ConnectorKeys, secrets: Secrets) -> tuple[str, dict[str, Any]]:
    """The catalog's name, and its entry in the settings file. A kind without counterpart becomes a REST catalog whose address comes from the environment."""
    properties = keys.below(_PREFIX)
    written = keys.get("iceberg.catalog")
    if not properties:
        by_hand = "give the properties iceberg.catalog.*"
        keys.say(
            "iceberg.catalog", "refused", "the sink refuses a configuration without properties of its catalog", by_hand
        )
        return "iceberg", {}
    is_class = written is not None and re.fullmatch(r"(\w+\.){2,}[A-Z]\w*", written) is not None
    name = "iceberg" if written is None or is_class else written
    if written is not None:
        message = (
            "catalogs: type (an old release's way to name the class)" if is_class else "catalogs: the entry's name"
        )
        keys.say("iceberg.catalog", "carried", message)
    kind = _kind(properties, written if is_class else None)
    for option in ("type", "catalog-impl"):
        if option in properties:
            keys.say(_PREFIX + option, "carried", f"catalogs: type: {kind}")
    if kind in _ADDRESSES:
        return name, _server(keys, properties, kind, secrets)
    if kind == "jdbc":
        return name, _jdbc(keys, properties, secrets)
    return name, _other(keys, properties, kind, secrets)


def _kind(properties: dict[str, str], old_class: str | None) -> str:
    kinds = {_REST: "rest", _JDBC: "jdbc"}
    catalog_class = properties.get("catalog-impl") or old_class
    if catalog_class is not None:
        short = catalog_class.rpartition(".")[2].removesuffix("Catalog").lower()
        return kinds.get(catalog_class, short)
    return properties.get("type", "hive").lower()


def _server(keys: ConnectorKeys, properties: dict[str, str], kind: str, secrets: Secrets) -> dict[str, Any]:
    what, entry = _ADDRESSES[kind], {"type": kind}
    if "uri" in properties:
        entry["uri"] = secrets.value("uri", properties["uri"], what)
    elif kind != "glue":
        entry["uri"] = secrets.hide("uri", None, what)
    _say_carried(keys, properties, "uri")
    if kind != "rest":
        properties = {"warehouse": "", **properties}
    return {**entry, **_warehouse(keys, properties, secrets), **_rest_of(keys, properties, secrets)}


def _jdbc(keys: ConnectorKeys, properties: dict[str, str], secrets: Secrets) -> dict[str, Any]:
    entry: dict[str, Any] = {"type": "jdbc", "uri": _sqlalchemy(keys, properties, secrets)}
    version = properties.get("jdbc.schema-version", "V0").upper()
    if "jdbc.schema-version" in properties and version == "V1":
        keys.say(f"{_PREFIX}jdbc.schema-version", "carried", "Spark and PyIceberg use V1")
    elif version != "V1":
        message = (
            "Frazil's Spark uses schema version V1 of the catalog's tables; the sink's are V0 unless told otherwise"
        )
        keys.say(
            f"{_PREFIX}jdbc.schema-version", "changed", message, "set jdbc.schema-version=V1 once, which adds a column"
        )
        keys.note(message + ".")
    if "warehouse" not in properties:
        properties = {**properties, "warehouse": ""}
    entry |= _warehouse(keys, properties, secrets)
    without_driver = {name: value for name, value in properties.items() if not name.startswith("jdbc.")}
    for name in properties.keys() - without_driver.keys() - {"jdbc.schema-version"}:
        keys.say(_PREFIX + name, "not_supported", "a property of Java's database driver", "write it into the uri")
    return {**entry, **_rest_of(keys, without_driver, secrets)}


def _sqlalchemy(keys: ConnectorKeys, properties: dict[str, str], secrets: Secrets) -> str:
    what = "SQLAlchemy address of the catalog's database, such as postgresql+psycopg2://user:password@host/db"
    uri = properties.get("uri", "")
    dialect, _, address = uri.removeprefix("jdbc:").partition(":")
    if dialect not in _DIALECTS:
        if "uri" in properties:
            keys.say(
                f"{_PREFIX}uri", "not_supported", "a database whose address is not known here", f"catalogs: uri: {what}"
            )
        return secrets.hide("uri", None, what)
    user, password = properties.get("jdbc.user"), properties.get("jdbc.password")
    for name in ("jdbc.user", "jdbc.password"):
        if name in properties:
            keys.say(_PREFIX + name, "carried", "catalogs: uri, from the environment")
    if dialect == "sqlite":
        keys.say(f"{_PREFIX}uri", "carried", "catalogs: uri")
        return secrets.value("uri", f"sqlite:///{address.removeprefix('file:')}", what)
    keys.say(f"{_PREFIX}uri", "changed", "catalogs: uri, in SQLAlchemy's form; its driver must be installed")
    if user is None and password is None:
        return secrets.value("uri", f"{_DIALECTS[dialect]}:{address}", what)
    login = ":".join(quote(part, safe="") for part in (user or "", password or ""))
    return secrets.hide("uri", f"{_DIALECTS[dialect]}://{login}@{address.removeprefix('//')}", what)


def _other(keys: ConnectorKeys, properties: dict[str, str], kind: str, secrets: Secrets) -> dict[str, Any]:
    written = next((name for name in ("catalog-impl", "type") if name in properties), None)
    by_hand = _REST_INSTEAD.get(kind, _ELSEWHERE)
    name = _PREFIX + written if written else "iceberg.catalog"
    keys.say(name, "not_supported", "catalogs are reached by Iceberg's REST protocol, or in a SQL database", by_hand)
    if "uri" in properties:
        keys.say(f"{_PREFIX}uri", "not_supported", "address of a catalog type that is not supported", by_hand)
    entry = {"type": "rest", "uri": secrets.hide("uri", None, "address of a REST catalog that has these tables")}
    return {**entry, **_warehouse(keys, properties, secrets), **_rest_of(keys, properties, secrets)}


def _warehouse(keys: ConnectorKeys, properties: dict[str, str], secrets: Secrets) -> dict[str, Any]:
    if "warehouse" not in properties:
        return {}
    _say_carried(keys, properties, "warehouse")
    what = "where table data is stored"
    written = properties["warehouse"]
    return {
        "warehouse": secrets.value("warehouse", written, what) if written else secrets.hide("warehouse", None, what)
    }


def _rest_of(keys: ConnectorKeys, properties: dict[str, str], secrets: Secrets) -> dict[str, Any]:
    """Pass all other properties on to Spark's catalog and to PyIceberg's."""
    shared_properties = {}
    for name, value in properties.items():
        if name in ("type", "catalog-impl", "uri", "warehouse"):
            continue
        key = _PREFIX + name
        shared_properties[name] = secrets.value(name, value, f"property {name} of the catalog")
        if name.startswith(_JVM):
            keys.say(key, "changed", "catalogs: properties; Spark's catalog reads it, PyIceberg has its own way")
        else:
            place = "catalogs: properties" + (", from the environment" if shared_properties[name] != value else "")
            keys.say(key, "carried", place)
    if (
        any(name.startswith(("s3.", "client.region")) for name in properties)
        and "s3.region" not in properties
        and "client.region" in properties
    ):
        shared_properties["s3.region"] = shared_properties["client.region"]
    return {"properties": shared_properties} if shared_properties else {}


def _say_carried(keys: ConnectorKeys, properties: dict[str, str], name: str) -> None:
    if name in properties:
        keys.say(_PREFIX + name, "carried", f"catalogs: {name}")


def hadoop(keys: ConnectorKeys) -> None:
    """Hadoop's configuration, which PyIceberg has no use for."""
    by_hand = "give storage under catalogs: properties (s3.*, gcs.*, adls.*), and Spark's own under engines: conf (spark.hadoop.*)"
    for option in keys.below("iceberg.hadoop."):
        keys.say(f"iceberg.hadoop.{option}", "not_supported", "Hadoop's configuration reaches only Spark", by_hand)
    if "iceberg.hadoop-conf-dir" in keys:
        keys.say("iceberg.hadoop-conf-dir", "not_supported", "Hadoop's configuration reaches only Spark", by_hand)
