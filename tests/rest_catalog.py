"""The stack's REST catalog in a folder of its own, over SQLite, for tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from frazil.devstack import rest_catalog
from frazil.iceberg.catalog.catalog import Lake
from frazil.runtime.home import Home
from frazil.runtime.process import Processes
from tests.servers import with_ports


@dataclass(frozen=True, slots=True)
class RestServer:
    """A server that answers.

    Attributes:
        port: Its port on the loopback interface.
        uri: Root of its API.
        warehouse: Where it puts tables.
    """

    port: int
    uri: str
    warehouse: Path

    def lake(self, uri: str | None = None) -> Lake:
        """The catalog, straight or by way of another address."""
        return Lake("lake", uri or self.uri, None, {}, kind="rest")

    def empty(self) -> None:
        """Forget every table."""
        lake = self.lake()
        for table in lake.tables():
            lake._catalog.drop_table(table)


@contextmanager
def rest_catalog_server(root: Path, port: int) -> Iterator[RestServer]:
    """Start the server in a folder of its own, wait until it answers, stop it in the end."""
    home = with_ports(replace(Home.resolve(), root=root), catalog=port)
    home.warehouse.mkdir(parents=True)
    processes = Processes(home.run, home.logs, home.root)
    try:
        rest_catalog.start(home, processes, print, rest_catalog.Backing.folder(home))
        yield RestServer(port, rest_catalog.url(home), home.warehouse)
    finally:
        rest_catalog.stop(processes)
