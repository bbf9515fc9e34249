"""A spark connect server as Frazil manages it, small, for all tests of a session; and settings that name it."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from frazil.project import SETTINGS_VARIABLE, Project
from frazil.runtime import spark_server
from frazil.runtime.home import Home
from frazil.runtime.process import Processes
from frazil.spark.submit.server import managed_engine, start_server

_ENGINE = {
    "type": "connect",
    "managed": True,
    "driver_memory": "768m",
    "conf": {
        # Statements of a few rows, each compiled anew: the second compiler takes as long as all the rest.
        "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
        "spark.sql.shuffle.partitions": "2",
    },
}


@dataclass(frozen=True)
class WarmSpark:
    """A server in a home of its own.

    Attributes:
        env: Variables that make a process see its home.
    """

    env: Mapping[str, str]

    @property
    def home(self) -> Home:
        """Its home."""
        return Home.resolve(self.env)

    @property
    def processes(self) -> Processes:
        """Where its process is on record."""
        return Processes(self.home.run, self.home.logs, self.home.root)

    @property
    def pid(self) -> int:
        """The server's process."""
        running = self.processes.running(spark_server.NAME)
        assert running is not None, self.processes.last_lines(spark_server.NAME)
        return running.pid

    def start(self) -> None:
        """Start it unless it runs."""
        project = Project.load(self.env)
        engine = managed_engine(project)
        assert engine is not None
        start_server(project, engine, print)

    def kill(self) -> None:
        """End it as a crash would."""
        os.kill(self.pid, signal.SIGKILL)

    def down(self) -> None:
        """Stop it."""
        spark_server.stop(self.processes)

    @property
    def managed(self) -> dict[str, Any]:
        """The engine as the settings of its home have it."""
        return dict(_ENGINE)

    def engines(self, **foreign: Any) -> dict[str, Any]:
        """Engines of a settings file: `warm` is this server as somebody else's, with what the test asks for."""
        token = spark_server.token(self.home)
        return {"warm": {"type": "connect", "url": spark_server.url(self.home), "token": token, **foreign}}


def started(root: Path, port: int) -> WarmSpark:
    """A server that was started in a folder."""
    settings = root / "settings.yaml"
    catalog = {"uri": f"sqlite:///{root}/catalog.db", "warehouse": f"file://{root}/warehouse"}
    settings_body = {"clusters": {"local": {"bootstrap_servers": "${local:kafka}"}}, "catalogs": {"lake": catalog}}
    settings.write_text(json.dumps(settings_body | {"engines": {"warm": _ENGINE}}))
    own = {"FRAZIL_HOME": str(root), "FRAZIL_JARS": str(Home.resolve().jars), "FRAZIL_SPARK_CONNECT_PORT": str(port)}
    warm_spark = WarmSpark(os.environ | own | {SETTINGS_VARIABLE: str(settings)})
    warm_spark.start()
    return warm_spark
