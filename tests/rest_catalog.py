"""Iceberg's own REST catalog server in one small JVM, for tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from http.client import HTTPConnection, HTTPException
from pathlib import Path

from frazil.iceberg.catalog import Lake
from frazil.local.home import LOOPBACK, Home, inherited_environment
from frazil.local.jars import fetch, jar_paths
from frazil.local.java import ensure_java
from frazil.local.process import Processes, Spec
from frazil.local.waiting import until

NAME = "rest-catalog"
_CONFIGURATION = Path(__file__).with_suffix(".xml")
_START_SECONDS = 60.0
"""Bounds the way from the process to its first answer; 1 s was measured."""

_JVM = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.awt.headless=true")


@dataclass(frozen=True, slots=True)
class RestServer:
    """A server that answers.

    Attributes:
        port: Its port on the loopback interface.
        warehouse: Where it puts tables.
    """

    port: int
    warehouse: Path

    @property
    def uri(self) -> str:
        """Root of its API."""
        return f"http://{LOOPBACK}:{self.port}"

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
    home = replace(Home.resolve(), root=root)
    fetch(home, "rest", report=print)
    server = RestServer(port, root / "warehouse")
    server.warehouse.mkdir(parents=True)
    processes = Processes(home.run, home.logs, home.root)
    try:
        processes.start(Spec(NAME, _command(home, server), inherited_environment(), server.uri))
        running = until(lambda: _answers(port) or processes.running(NAME) is None, _START_SECONDS)
        assert running and _answers(port), f"the REST catalog did not start:\n{processes.last_lines(NAME)}"  # noqa: PT018
        yield server
    finally:
        processes.stop((NAME, 10.0))


def _command(home: Home, server: RestServer) -> list[str]:
    properties = {
        "port": server.port,
        "warehouse": server.warehouse,
        "database": f"jdbc:sqlite:{home.root / 'catalog.db'}",
    }
    classpath = ":".join(map(str, jar_paths(home, "rest")))
    main = "org.eclipse.jetty.xml.XmlConfiguration"
    given = [f"{name}={value}" for name, value in properties.items()]
    return [str(ensure_java().command), *_JVM, "-cp", classpath, main, *given, str(_CONFIGURATION)]


def _answers(port: int) -> bool:
    connection = HTTPConnection(LOOPBACK, port, timeout=5)
    try:
        connection.request("GET", "/v1/config")
        return connection.getresponse().status == 200
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()
