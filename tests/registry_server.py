"""The stack's Schema Registry in a folder of its own, in memory, for tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from frazil.devstack import schema_registry
from frazil.registry.registry import Registry
from frazil.runtime.home import Home
from frazil.runtime.process import Processes
from tests.servers import with_ports


@dataclass(frozen=True, slots=True)
class RegistryServer:
    """A server that answers.

    Attributes:
        url: Root of the API that Confluent's clients speak.
    """

    url: str

    @property
    def registry(self) -> Registry:
        """The server as the product knows it."""
        return Registry("test", self.url)


@contextmanager
def registry_server(root: Path, port: int) -> Iterator[RegistryServer]:
    """Start the server in a folder of its own, wait until it answers, stop it in the end."""
    home = with_ports(replace(Home.resolve(), root=root), registry=port)
    processes = Processes(home.run, home.logs, home.root)
    try:
        schema_registry.start(home, processes, print)
        yield RegistryServer(schema_registry.url(home))
    finally:
        schema_registry.stop(processes)
