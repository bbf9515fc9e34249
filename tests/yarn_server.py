"""A YARN in a JVM of its own, for tests: ResourceManager and NodeManagers of the Hadoop whose client PySpark brings, on the loopback.

Storage is the local file system, which all nodes share as they would HDFS. Containers are real processes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from xml.sax.saxutils import escape

from py4j.java_gateway import JavaGateway

from frazil.runtime.home import LOOPBACK, Home
from frazil.runtime.jars import fetch, jar_paths
from tests.java_gateway import java_gateway, spark_jars

_CONNECT_MS: Final = 60_000
"""Bounds the wait for the nodes; they are there at once on an idle machine."""

ADDRESSES: Final = (
    "yarn.resourcemanager.address",
    "yarn.resourcemanager.scheduler.address",
    "yarn.resourcemanager.resource-tracker.address",
    "yarn.resourcemanager.admin.address",
    "yarn.resourcemanager.webapp.address",
)
"""Where the ResourceManager listens: as many free ports are needed."""

CLOSED: Final = "closed"
"""A queue in which applications wait for ever."""

_NODE_ADDRESSES: Final = (
    "yarn.nodemanager.address",
    "yarn.nodemanager.localizer.address",
    "yarn.nodemanager.webapp.address",
    "yarn.nodemanager.collector-service.address",
)

_SETTINGS: Final = {
    "yarn.minicluster.fixed.ports": "true",  # else it listens where the machine's name leads
    "yarn.resourcemanager.hostname": LOOPBACK,
    "yarn.resourcemanager.bind-host": LOOPBACK,
    "yarn.nodemanager.hostname": LOOPBACK,
    "yarn.nodemanager.bind-host": LOOPBACK,
    "yarn.nodemanager.vmem-check-enabled": "false",
    "yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage": "99.9",
    "yarn.scheduler.minimum-allocation-mb": "128",
    "yarn.scheduler.capacity.root.queues": f"default,{CLOSED}",
    "yarn.scheduler.capacity.root.default.capacity": "100",
    f"yarn.scheduler.capacity.root.{CLOSED}.capacity": "0",
    f"yarn.scheduler.capacity.root.{CLOSED}.maximum-capacity": "0",
    f"yarn.scheduler.capacity.root.{CLOSED}.maximum-applications": "9",
    "yarn.scheduler.capacity.maximum-am-resource-percent": "1.0",
    "yarn.nm.liveness-monitor.expiry-interval-ms": "5000",
    "yarn.log-aggregation-enable": "true",
}


@dataclass(frozen=True)
class Yarn:
    """A running cluster.

    Attributes:
        conf: Folder with the files of a client, for HADOOP_CONF_DIR.
        jars: Spark's jars, which are on every node.
    """

    conf: Path
    jars: Path
    _nodes: int
    _cluster: Any
    _gateway: JavaGateway

    def applications(self) -> dict[str, str]:
        """What became of each application, by its id: its final status, else its state."""
        states = {
            str(app.getApplicationId()): (str(app.getFinalApplicationStatus()), str(app.getState()))
            for app in self._apps()
        }
        return {name: state if status == "UNDEFINED" else status for name, (status, state) in states.items()}

    def kill(self, application: str) -> None:
        """What `yarn application -kill` does."""
        (app,) = [app for app in self._apps() if str(app.getApplicationId()) == application]
        records = self._gateway.jvm.org.apache.hadoop.yarn.api.protocolrecords
        request = records.KillApplicationRequest.newInstance(app.getApplicationId())
        self._cluster.getResourceManager().getClientRMService().forceKillApplication(request)

    def lose_driver_node(self, application: str) -> None:
        """Part the ResourceManager from the NodeManager that an application's driver runs on: its containers go on."""
        (app,) = [app for app in self._apps() if str(app.getApplicationId()) == application]
        node = str(app.getCurrentAppAttempt().getMasterContainer().getNodeId())
        managers = [self._cluster.getNodeManager(number) for number in range(self._nodes)]
        next(
            manager for manager in managers if str(manager.getNMContext().getNodeId()) == node
        ).getNodeStatusUpdater().stop()

    def _apps(self) -> list[Any]:
        return list(self._cluster.getResourceManager().getRMContext().getRMApps().values())


@contextmanager
def yarn_cluster(root: Path, ports: list[int], nodes: int = 1) -> Iterator[Yarn]:
    """Start the cluster in a folder of its own, wait until its nodes are there, stop it in the end."""
    home = Home.resolve()
    fetch(home, "yarn")
    settings = _SETTINGS | _places(root, ports)
    options = (
        "-XX:+UseSerialGC",
        "-Dlog4j2.level=WARN",
        f"-Dtest.build.data={root}/cluster",
        "--add-opens=java.base/java.lang=ALL-UNNAMED",
    )
    with java_gateway(root / "yarn.log", options, jar_paths(home, "yarn")) as gateway:
        conf = gateway.jvm.org.apache.hadoop.yarn.conf.YarnConfiguration()
        for name, value in settings.items():
            conf.set(name, value)
        for name in _NODE_ADDRESSES:
            conf.set(name, f"{LOOPBACK}:0")
        cluster = gateway.jvm.org.apache.hadoop.yarn.server.MiniYARNCluster("frazil", nodes, 1, 1)
        cluster.init(conf)
        cluster.start()
        assert cluster.waitForNodeManagersToConnect(_CONNECT_MS)
        yield Yarn(_client_files(root / "conf", settings), spark_jars(), nodes, cluster, gateway)
        cluster.stop()


def _places(root: Path, ports: list[int]) -> dict[str, str]:
    return {
        "fs.defaultFS": "file:///",
        "hadoop.tmp.dir": f"{root}/hadoop",
        "yarn.nodemanager.remote-app-log-dir": f"{root}/logs",
        **{name: f"{LOOPBACK}:{port}" for name, port in zip(ADDRESSES, ports, strict=True)},
    }


def _client_files(folder: Path, settings: dict[str, str]) -> Path:
    folder.mkdir()
    properties = "".join(
        f"<property><name>{name}</name><value>{escape(value)}</value></property>\n" for name, value in settings.items()
    )
    for name in ("core-site.xml", "yarn-site.xml"):
        (folder / name).write_text(f"<configuration>\n{properties}</configuration>\n")
    return folder
