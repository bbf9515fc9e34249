"""What the properties of a table may do in this process: nothing but describe the table, unless the settings allow more.

PyIceberg takes a class to run from them (`write.py-location-provider.impl`, `py-io-impl`), and whatever else its file-io knows:
with `s3.endpoint` or `s3.proxy-uri` of its own, a table would have the store's credentials sent elsewhere. Whoever may alter a table
is not whoever runs Frazil. Rests on private names of PyIceberg 0.12; the tests pin them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from pyiceberg.table.metadata import TableMetadata

from frazil.error_codes import BAD_TABLE_PROPERTY

PYTHON_LOCATIONS: Final = "write.py-location-provider.impl"
"""A class that PyIceberg calls with the table's location, for each file that it writes."""

JAVA_LOCATIONS: Final = "write.location-provider.impl"
"""The same of Iceberg's Java side: the only class that it takes from a table. All others it takes from the catalog."""

TABLE_PROPERTIES = {
    "format-version": "2",
    "write.parquet.compression-codec": "zstd",
    # A catalog that is restored from a backup names an older metadata file: orphan removal takes those, days later.
    "write.metadata.delete-after-commit.enabled": "false",
    "write.metadata.previous-versions-max": "100",
    # A manifest per batch would make every scan slower with the table's age.
    "commit.manifest-merge.enabled": "true",
    # Foreign expiry jobs keep at least these, so that the position stays in the ancestry of main.
    "history.expire.min-snapshots-to-keep": "20",
}
"""Properties of every table Frazil creates: chosen for frequent commits."""


_FIRST_PROPERTIES = TABLE_PROPERTIES | {
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "50",
}
"""Those that the first Frazil gave its tables."""


def renewed_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """New properties for a table that the first version of Frazil created; none if somebody else created or changed it."""
    first = _FIRST_PROPERTIES.items() - {("format-version", "2")}  # no property of a table that is there
    return dict(TABLE_PROPERTIES.items() - _FIRST_PROPERTIES.items()) if first <= properties.items() else {}


LEDGER_PROPERTIES = {
    # Run ids begin alike for months ("scheduled__2026-"): cut bounds would open every file for the rows of one run.
    "write.metadata.metrics.column.run": "full",
}
"""Further properties of the ledger."""

PARTITIONED_LAYOUT = {"write.object-storage.enabled": "true", "write.object-storage.partitioned-paths": "false"}
"""Further properties of partitioned tables: values stay out of paths, so a long text is no failed file name, and object
stores see no hot prefixes."""


def without_code(metadata: TableMetadata, allowed: Collection[str]) -> TableMetadata:
    """Metadata without the class that PyIceberg would call. A commit in a SQL catalog leaves it out of the table, too."""
    if PYTHON_LOCATIONS not in metadata.properties or PYTHON_LOCATIONS in allowed:
        return metadata
    rest = {name: value for name, value in metadata.properties.items() if name != PYTHON_LOCATIONS}
    return metadata.model_copy(update={"properties": rest})


def for_storage(properties: Mapping[str, str], allowed: Collection[str]) -> dict[str, str]:
    """Those properties of a table that its file-io may see, beside the catalog's."""
    return {name: value for name, value in properties.items() if name in allowed}


def refuse_code(table: str, metadata: TableMetadata, allowed: Collection[str]) -> None:
    """Refuse a table to an engine, which would run a class that the table names.

    Raises:
        Terminal: It names one that the settings don't allow.
    """
    if JAVA_LOCATIONS in metadata.properties and JAVA_LOCATIONS not in allowed:
        raise BAD_TABLE_PROPERTY.terminal(
            f"table {table} has the property {JAVA_LOCATIONS}: Spark would run the class that it names",
            next_step="who set it, and what for? Remove it (ALTER TABLE … UNSET TBLPROPERTIES), or list it in the settings under"
            " table_properties of the catalog",
        )
