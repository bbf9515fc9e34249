"""The catalog of the settings file, as PyIceberg sees it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from urllib.parse import urlparse

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchTableError, TableAlreadyExistsError
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table

from frazil.errors import Terminal
from frazil.iceberg.faults import translated


class Lake:
    """One catalog and its tables.

    Args:
        name: Its name in the settings file. SQL catalogs use it as a key column, so Spark must use the same.
        uri: SQLAlchemy URI of the catalog's database.
        warehouse: Where new tables are stored.
        properties: Further catalog and file-io properties.
    """

    def __init__(self, name: str, uri: str, warehouse: str, properties: Mapping[str, str]) -> None:
        self.name = name
        self.uri = uri
        self.warehouse = warehouse
        self.properties = properties

    def __repr__(self) -> str:
        return f"Lake({self.name!r})"

    @cached_property
    def _catalog(self) -> SqlCatalog:
        if self.uri.startswith("sqlite:///"):
            Path(self.uri.removeprefix("sqlite:///")).parent.mkdir(parents=True, exist_ok=True)
        if urlparse(self.warehouse).scheme == "file":
            Path(urlparse(self.warehouse).path).mkdir(parents=True, exist_ok=True)
        with translated(f"opening catalog {self.name}"):
            return SqlCatalog(self.name, uri=self.uri, warehouse=self.warehouse, **dict(self.properties))

    def find_table(self, name: str) -> Table | None:
        """The table as it is now, or None if there is none.

        Raises:
            Retryable: The catalog can't be reached.
        """
        with translated(f"loading table {name} of catalog {self.name}"):
            try:
                return self._catalog.load_table(name)
            except NoSuchTableError:
                return None

    def load_table(self, name: str) -> Table:
        """The table as it is now.

        Raises:
            Terminal: There is no such table.
            Retryable: The catalog can't be reached.
        """
        table = self.find_table(name)
        if table is None:
            raise Terminal(
                f"there is no table {name} in catalog {self.name}",
                next_step=f"its tables: {', '.join(self.tables()) or 'none yet'}",
            )
        return table

    def create_table(self, name: str, schema: Schema, spec: PartitionSpec, properties: Mapping[str, str]) -> Table:
        """Create a table, and its namespaces, unless somebody else did it first.

        Raises:
            Retryable: The catalog can't be reached.
        """
        namespace = tuple(name.split(".")[:-1])
        with translated(f"creating table {name} in catalog {self.name}"):
            for depth in range(1, len(namespace) + 1):
                self._catalog.create_namespace_if_not_exists(namespace[:depth])
            try:
                return self._catalog.create_table(name, schema, partition_spec=spec, properties=dict(properties))
            except TableAlreadyExistsError:
                return self._catalog.load_table(name)

    def tables(self) -> list[str]:
        """Names of all tables, sorted."""
        with translated(f"listing catalog {self.name}"):
            names = {".".join(table) for space in self._namespaces() for table in self._catalog.list_tables(space)}
        return sorted(names)

    def _namespaces(self, within: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
        for namespace in self._catalog.list_namespaces(within):
            yield namespace
            yield from self._namespaces(namespace)
