"""A standalone Spark cluster on this machine: a master, and workers with one core each."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from frazil.runtime.home import (
    LOOPBACK,
    PORT_VARIABLES,
    Home,
    answers,
    inherited_environment,
    interpreter_bin,
    private_folder,
    require_free,
)
from frazil.runtime.java import ensure_java
from frazil.runtime.process import Processes, Spec

MASTER: Final = "spark-master"
GRACE_SECONDS: Final = 15.0
"""Time to end: a worker ends its executors first, which takes 1 to 3 s."""

_START_SECONDS: Final = 60.0
"""Bounds the time until the workers are registered: 4 s on two cores."""

SECRET_VARIABLE: Final = "_SPARK_AUTH_SECRET"  # noqa: S105 - a name
"""Variable from which Spark's processes take the secret (`SecurityManager.ENV_AUTH_SECRET`): everybody can read arguments."""

_CLEANUP: Final = "-Dspark.worker.cleanup.enabled=true -Dspark.worker.cleanup.appDataTtl=86400"
"""A worker's option: it removes the folder of an application, with the logs of its executors, after a day."""

_REGISTERED: Final = "Successfully registered with master"
"""Line in a worker's log when executors can start on it."""


def worker(number: int) -> str:
    """Name of a worker's process."""
    return f"spark-worker-{number}"


def url(port_of_master: int) -> str:
    """The master's address, for `master:` of an engine."""
    return f"spark://{LOOPBACK}:{port_of_master}"


def start(
    home: Home,
    processes: Processes,
    report: Callable[[str], None],
    workers: int,
    *,
    secret: str | None = None,
) -> None:
    """Start the master and the workers unless they run, and wait until the workers are registered.

    The master's web page and the workers listen on free ports. The executors of a worker have 1 GiB together. Drivers must have
    the secret (`SECRET_VARIABLE`); without a secret, every client that reaches the port can run code.

    Raises:
        Terminal: The port is taken, or there is no fitting Java.
        Retryable: A process ended, or a worker did not register in time; the message quotes its log.
    """
    spark_class, env = str(interpreter_bin() / "spark-class"), _environment(secret, report)
    listening = ("--host", LOOPBACK, "--webui-port", "0")
    master_url = url(home.ports.spark_master)
    if processes.running(MASTER) is None:
        stop(processes, workers)  # workers of an ended master would wait for it forever
        require_free(home.ports.spark_master, PORT_VARIABLES["spark_master"], "Spark's master")
        port_option = ("--port", str(home.ports.spark_master))
        master = (spark_class, "org.apache.spark.deploy.master.Master", *listening, *port_option)
        processes.start(Spec(MASTER, master, env, master_url, GRACE_SECONDS))
    _wait(processes, MASTER, lambda: answers(home.ports.spark_master), secret)
    size = ("--cores", "1", "--memory", "1g")
    worker_command = (spark_class, "org.apache.spark.deploy.worker.Worker", *listening, *size)
    for number in range(workers):
        if processes.running(worker(number)) is None:
            processes.stop((worker(number), GRACE_SECONDS))  # executors that a crash may have left
            folder = private_folder(home.run / worker(number))
            command = (*worker_command, "--work-dir", str(folder), master_url)
            processes.start(Spec(worker(number), command, env, "", GRACE_SECONDS))
    for number in range(workers):
        _wait(processes, worker(number), partial(_is_registered, processes.log(worker(number))), secret)


def stop(processes: Processes, workers: int) -> None:
    """Stop the cluster's running processes."""
    processes.stop(*((worker(number), GRACE_SECONDS) for number in range(workers)), (MASTER, GRACE_SECONDS))


def _environment(secret: str | None, report: Callable[[str], None]) -> dict[str, str]:
    options = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
    env = {
        **inherited_environment(),
        "JAVA_HOME": str(ensure_java(report).home),
        "PYSPARK_DRIVER_PYTHON": str(interpreter_bin() / "python"),  # Spark's scripts find Spark by this Python
        "SPARK_LOCAL_IP": LOOPBACK,
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": options,
        "SPARK_WORKER_OPTS": _CLEANUP,
    }
    if secret is None:
        return env
    return env | {SECRET_VARIABLE: secret, "SPARK_DAEMON_JAVA_OPTS": f"{options} -Dspark.authenticate=true"}


def _is_registered(log: Path) -> bool:
    return _REGISTERED in log.read_text(encoding="utf-8", errors="replace")


def _wait(processes: Processes, name: str, is_ready: Callable[[], bool], secret: str | None) -> None:
    processes.wait_ready(name, f"{name}: it", is_ready, _START_SECONDS, [secret] if secret is not None else ())
