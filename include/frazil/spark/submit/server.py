"""Chooses between a Spark Connect server and a Spark of the job's own, and starts the managed server. Imports no pyspark."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Final, TypeVar

from frazil.errors import Retryable, Terminal, Unavailable
from frazil.pipeline.settings.settings import EngineSettings
from frazil.project import Project
from frazil.runtime import spark_server
from frazil.runtime.home import LOOPBACK, inherited_environment, interpreter_bin
from frazil.runtime.jars import fetch, jar_paths
from frazil.runtime.java import ensure_java
from frazil.runtime.spark_server import Server
from frazil.spark.submit.class_archive import archive_options
from frazil.spark.submit.configuration import (
    WORKERS,
    conf_arguments,
    digest,
    jar_sets,
    properties_text,
    ui_settings,
    with_extensions,
)

TOKEN_VARIABLE: Final = "SPARK_CONNECT_AUTHENTICATE_TOKEN"  # noqa: S105 - the name of a variable
"""Spark's variable for the token, in server and client: so a token is in no argument and in no address."""

JVM_OPTIONS: Final = "spark.driver.extraJavaOptions"
"""An engine's `conf` replaces Frazil's options, but for the archive of classes: a JVM with two collectors does not start."""

_SERVER_JVM: Final = "-XX:+UseParallelGC -XX:+ExitOnOutOfMemoryError"
"""Options of the server's JVM. Without memory it would go on with some threads missing; once dead, it is started again."""

_MAIN: Final = "org.apache.spark.sql.connect.service.SparkConnectServer"

_CLIENT_GONE: Final = {
    # A killed client leaves its work on the server. The server notices when the client does not reattach to its stream of answers,
    # which is due every two minutes by default, and waits five more minutes: with these settings half a minute in all.
    "spark.connect.execute.reattachable.senderMaxStreamDuration": "10s",
    "spark.connect.execute.manager.detachedTimeout": "15s",
    "spark.connect.execute.manager.maintenanceInterval": "5s",
    # Long enough for a daily run to find its session and its Python workers' daemon, see `frazil.spark.connect`.
    "spark.connect.session.manager.defaultSessionTimeout": "25h",
}


def address(project: Project, engine: EngineSettings) -> str:
    """Address of an engine's Spark Connect server."""
    return engine.url or spark_server.url(project.home)


def client_environment(project: Project, engine: EngineSettings) -> dict[str, str]:
    """Environment variables of a process that opens a session: the token, if there is one."""
    token = spark_server.token(project.home) if engine.managed else engine.token
    return {} if token is None else {TOKEN_VARIABLE: token}


T = TypeVar("T")

_OWN_SPARK: Final = "this run starts a Spark of its own"


def run_on_engine(
    project: Project, engine: EngineSettings, report: Callable[[str], None], run: Callable[[bool], T]
) -> T:
    """Run a job, with or without a Spark Connect server. A managed server stays up while the job runs.

    If a managed server is not up, opens no session, or can't be restarted with the present release, the job starts a Spark of its
    own: to wait for a person would cost more.

    Raises:
        Retryable: A server that Frazil does not manage opens no session; or the job's error.
        Terminal, OutcomeUnknown, Stopped: The job's error.
    """
    with ExitStack() as stack:
        if engine.type != "connect" or (engine.managed and not _holds_server(stack, project, engine, report)):
            return run(False)  # noqa: FBT003
        try:
            return run(True)  # noqa: FBT003
        except Unavailable as error:
            if not engine.managed:
                raise Retryable(error.message, code=error.code, next_step=error.next_step) from error
            spark_server.replace_when_idle(project.home)
            report(f"warning: {error.message_with_code}; {_OWN_SPARK}")
    return run(False)  # noqa: FBT003 - after the block: the server may be replaced while this runs


def _holds_server(stack: ExitStack, project: Project, engine: EngineSettings, report: Callable[[str], None]) -> bool:
    """Keep the managed server up until the stack is closed, and return whether it is up."""
    if not spark_server.is_started(project.home):
        return False
    try:
        server = managed_server(project, engine)
        stack.enter_context(spark_server.serving(project.home, server, report, if_started=True))
    except (Retryable, Terminal) as error:
        report(f"warning: {error.message_with_code}; {_OWN_SPARK}")
        return False
    return True


def start_server(project: Project, engine: EngineSettings, report: Callable[[str], None]) -> None:
    """Start the server of a managed engine, unless it is up with the present release."""
    with spark_server.serving(project.home, managed_server(project, engine), report):
        pass


def managed_engine(project: Project) -> EngineSettings | None:
    """The engine whose server Frazil manages, if the settings have one."""
    return next((engine for engine in project.settings.engines.values() if engine.managed), None)


def managed_server(project: Project, engine: EngineSettings) -> Server:
    """The present release of a managed engine's server."""
    home = project.home
    sets = jar_sets(project.settings)
    fetch(home, *sets)
    java, python = ensure_java(), str(interpreter_bin() / "python")
    # Without the caller's PYTHONPATH, which differs between Airflow's tasks and a terminal: both use the same server.
    sources = str(project.root / "include")
    jvm = (archive_options(home, java), engine.conf.get(JVM_OPTIONS, _SERVER_JVM))
    conf = {
        "spark.connect.grpc.binding.address": LOOPBACK,
        "spark.connect.grpc.binding.port": str(home.ports.spark_connect),
        "spark.connect.grpc.port.maxRetries": "0",
        "spark.driver.host": LOOPBACK,
        "spark.driver.bindAddress": LOOPBACK,
        "spark.log.level": "WARN",
        **ui_settings(engine),
        "spark.pyspark.python": python,
        "spark.python.daemon.module": WORKERS,
        "spark.executorEnv.PYTHONPATH": sources,
        **_CLIENT_GONE,
    }
    conf = {key: setting for key, setting in conf.items() if key not in engine.conf}
    conf[JVM_OPTIONS] = " ".join(filter(None, jvm))
    conf["spark.sql.extensions"] = with_extensions(engine.conf)
    private = {key: setting for key, setting in engine.conf.items() if key not in conf}
    command = [str(interpreter_bin() / "spark-submit"), "--master", engine.master, "--class", _MAIN]
    command += ["--name", "frazil spark connect", "--driver-memory", engine.driver_memory]
    command += ["--jars", ",".join(str(path) for name in sets for path in jar_paths(home, name))]
    command += conf_arguments(conf)
    if private:
        command += ["--properties-file", str(spark_server.properties_file(home))]
    command.append("spark-internal")
    variables = {
        "PYTHONPATH": sources,
        "PYSPARK_PYTHON": python,
        "JAVA_HOME": str(java.home),
        "SPARK_LOCAL_IP": LOOPBACK,
    }
    env = inherited_environment() | variables | {TOKEN_VARIABLE: spark_server.token(home)}
    text = properties_text(private) if private else None
    return Server(tuple(command), env, _release(command, private, variables), text)


def _release(command: list[str], *settings: Mapping[str, str]) -> str:
    description = json.dumps([command, *(sorted(pairs.items()) for pairs in settings), digest()])
    return hashlib.sha256(description.encode()).hexdigest()[:16]
