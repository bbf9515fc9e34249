"""What all sides share: a broker, a workload in its topic, a registry if the records need one, and a folder."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from frazil.kafka.client.cluster import Cluster
from frazil.project import Project
from frazil.runtime import spark_server
from frazil.runtime.home import PORT_VARIABLES, Home, bootstrap_servers, is_free
from frazil.runtime.process import Processes
from tests.bench.side_by_side.workloads import Workload
from tests.bench.stack import broker_pid, environment, running_broker
from tests.registry_server import registry_server

MARK: Final = "FRAZIL_BENCH"
"""Environment variable by which the processes of a side are known."""

SETTINGS: Final = """
clusters: {{local: {{bootstrap_servers: "${{local:kafka}}"}}}}
catalogs:
  lake: {{type: jdbc, uri: "sqlite:///${{local:home}}/catalog.db", warehouse: "file://${{local:home}}/warehouse"}}
registries: {{main: {{url: "{registry}"}}}}
engines:
  submit: {{master: "local[{cores}]"}}
  connect: {{type: connect, managed: true, master: "local[{cores}]"}}
auto: {{engine: submit}}
"""

SCRATCH_RECORDS: Final = 200_000
"""What a process that runs all the time lands before it is measured: its JVM has compiled what it needs by then."""


@dataclass(frozen=True)
class Bench:
    """The ground on which sides are measured.

    Attributes:
        root: Folder of the bench.
        broker: The stack whose broker it is.
        workload: What is landed.
        registry: Address of the registry; empty where the records need none.
    """

    root: Path
    broker: Home
    workload: Workload
    registry: str = ""

    @property
    def cluster(self) -> Cluster:
        """The broker."""
        return Cluster("local", {"bootstrap.servers": bootstrap_servers(self.broker)})

    @property
    def broker_pid(self) -> int:
        """Id of the broker's process."""
        return broker_pid(self.broker)

    @property
    def scratch(self) -> Bench:
        """The same ground with a topic and tables to warm up with, whose records are the workload's."""
        return replace(self, workload=replace(self.workload, name="scratch"))

    def environment(self, folder: str, **keys: object) -> dict[str, str]:
        """Make a project in a folder of its own: what names it.

        Args:
            folder: Name of the folder.
            keys: Further keys of the pipeline file.
        """
        root = self.root / folder
        root.mkdir()
        registry = self.registry or "http://127.0.0.1:1"
        settings = SETTINGS.format(registry=registry, cores=os.cpu_count() or 1)
        named = environment(root, self.broker, self.workload.name, self.workload.pipeline_with(**keys), settings)
        return named | {PORT_VARIABLES["spark_connect"]: str(free_port(24_000))}

    def project(self, folder: str, **keys: object) -> Project:
        """A project in a folder of its own."""
        return Project.load(self.environment(folder, **keys))


@contextmanager
def bench(root: Path, workload: Workload) -> Iterator[Bench]:
    """Start what a workload needs, in a folder of its own, and stop it in the end."""
    root.mkdir()
    with ExitStack() as stack:
        home = stack.enter_context(running_broker(root / "broker"))
        url = ""
        if workload.schema is not None:
            url = stack.enter_context(registry_server(root / "registry", free_port(22_000))).url
        yield Bench(root, home, workload, url)


@contextmanager
def server_ended(env: Mapping[str, str]) -> Iterator[None]:
    """A run within the block may start the server of an engine of type connect: it ends with the block."""
    try:
        yield
    finally:
        home = Home.resolve(env)
        spark_server.stop(Processes(home.run, home.logs, home.root))


def free_port(first: int) -> int:
    """A port that nobody has, from one on."""
    return next(port for port in range(first, first + 1_000) if is_free(port))
