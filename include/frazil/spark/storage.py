"""Storage of a catalog as Iceberg's Java side names it: the settings have PyIceberg's names, Spark gets both."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_ALIKE: Final = {
    "s3.region": "client.region",
    "adls.account-name": "adls.auth.shared-key.account.name",
    "adls.account-key": "adls.auth.shared-key.account.key",
}
"""PyIceberg's name -> Java's, where they differ; all others of `s3.`, `gcs.` and `adls.` are the same or PyIceberg's own."""

_IO: Final = "io-impl"
_RESOLVING: Final = "org.apache.iceberg.io.ResolvingFileIO"
"""Takes the file-io that an address's scheme asks for. Without it a catalog in a database takes Hadoop's, which knows no s3://."""

OBJECT_STORES: Final = ("s3", "s3a", "s3n", "gs", "abfs", "abfss", "wasb", "wasbs")
"""Schemes of addresses in object stores."""


def storage_properties(warehouse: str | None, properties: Mapping[str, str]) -> dict[str, str]:
    """What a catalog's Spark side needs beside the properties of the settings, which go before these.

    Args:
        warehouse: Where tables are stored, or its name on a server.
        properties: Those of the settings.
    """
    found = {java: properties[name] for name, java in _ALIKE.items() if name in properties}
    if scheme_of(warehouse) in OBJECT_STORES:
        found[_IO] = _RESOLVING
    # PyArrow puts the bucket into the path wherever an endpoint is given, unless told otherwise; Java wherever it is told to.
    if "s3.endpoint" in properties:
        virtual = properties.get("s3.force-virtual-addressing", "false").lower()
        found["s3.path-style-access"] = "false" if virtual in ("true", "1", "yes") else "true"
    if (token := properties.get("adls.sas-token")) is not None and (account := properties.get("adls.account-name")):
        found[f"adls.sas-token.{account}.dfs.core.windows.net"] = token
    return {name: of for name, of in found.items() if name not in properties}


def scheme_of(warehouse: str | None) -> str:
    """Scheme of an address; empty for a path or a name."""
    scheme, found, _ = (warehouse or "").partition("://")
    return scheme if found else ""
