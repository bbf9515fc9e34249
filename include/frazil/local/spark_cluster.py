"""A Spark standalone cluster on this machine: a master, and workers with a core each."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from frazil.errors import Retryable
from frazil.local import port
from frazil.local.files import private_folder
from frazil.local.home import LOOPBACK, Home, inherited_environment, interpreter_bin
from frazil.local.java import ensure_java
from frazil.local.process import Processes, Spec

MASTER: Final = "spark-master"
GRACE_SECONDS: Final = 15.0
"""A worker that is asked to end ends its executors first, 1-3 s."""

_START_SECONDS: Final = 60.0
"""Bounds the way from the processes to workers that are registered; 4 s on two cores."""

_REGISTERED: Final = "Successfully registered with master"
"""A worker's own word, from which on executors start on it."""


def worker(number: int) -> str:
    """Name of a worker's process."""
    return f"spark-worker-{number}"


def url(port_of_master: int) -> str:
    """What `master:` of an engine is set to."""
    return f"spark://{LOOPBACK}:{port_of_master}"


def start(home: Home, port_of_master: int, workers: int, *, memory: str = "1g") -> None:
    """Start the master and its workers.

    Args:
        home: Whose processes they are.
        port_of_master: Where the master listens; its page and the workers listen on any free ports.
        workers: How many, with one core each.
        memory: What executors on a worker may have together, such as ``1g``.

    Raises:
        Retryable: One of them ended, or the workers are not registered in time; the message quotes its log.
    """
    processes = Processes(home.run, home.logs, home.root)
    spark_class = str(interpreter_bin() / "spark-class")
    env = inherited_environment() | {
        "JAVA_HOME": str(ensure_java().home),
        "PYSPARK_DRIVER_PYTHON": str(interpreter_bin() / "python"),  # by it Spark's scripts find Spark
        "SPARK_LOCAL_IP": LOOPBACK,
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    }
    listening = ("--host", LOOPBACK, "--webui-port", "0")
    master = (spark_class, "org.apache.spark.deploy.master.Master", *listening, "--port", str(port_of_master))
    processes.start(Spec(MASTER, master, env, url(port_of_master), GRACE_SECONDS))
    _wait(processes, MASTER, lambda: port.answers(port_of_master))
    one = (spark_class, "org.apache.spark.deploy.worker.Worker", *listening, "--cores", "1", "--memory", memory)
    for number in range(workers):
        folder = private_folder(home.run / worker(number))
        command = (*one, "--work-dir", str(folder), url(port_of_master))
        processes.start(Spec(worker(number), command, env, "", GRACE_SECONDS))
    for number in range(workers):
        _wait(processes, worker(number), partial(_is_registered, processes.log(worker(number))))


def stop(processes: Processes, workers: int) -> None:
    """Stop the cluster; does nothing with what does not run."""
    processes.stop(*((worker(number), GRACE_SECONDS) for number in range(workers)), (MASTER, GRACE_SECONDS))


def _is_registered(log: Path) -> bool:
    return _REGISTERED in log.read_text(encoding="utf-8", errors="replace")


def _wait(processes: Processes, name: str, is_ready: Callable[[], bool]) -> None:
    what = processes.not_ready(name, is_ready, _START_SECONDS)
    if what is not None:
        raise Retryable(
            f"{name}: it {what}; its log ends with\n{processes.last_lines(name)}",
            next_step=f"read {processes.log(name)}",
        )
