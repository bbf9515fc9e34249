"""A real Kafka broker in one JVM: KRaft, broker and controller in one process, loopback only."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path

from frazil.devstack.secured import Secured
from frazil.error_codes import STACK_FAILED
from frazil.runtime.home import (
    LOOPBACK,
    PORT_VARIABLES,
    PRIVATE_FILE,
    Home,
    answers,
    bootstrap_servers,
    inherited_environment,
    require_free,
    write_atomically,
)
from frazil.runtime.jars import fetch, jar_paths
from frazil.runtime.java import Java, ensure_java
from frazil.runtime.process import Processes, Spec

NAME = "kafka"
FORMAT = "kafka-format"
GRACE_SECONDS = 20.0
"""Time to end: the broker writes the log's recovery points, which takes 2 s, on a busy disk longer."""

_START_SECONDS = 60.0
"""Bounds the time until the broker answers: 3 s, after a kill longer, because it reads its logs."""

_FORMAT_SECONDS = 60
"""Bounds the formatting of the data folder, a short run of a JVM."""

_STARTED = "Kafka Server started"
"""Line in the broker's log when it has caught up with the metadata log, is unfenced and has opened its listeners."""

_JVM = (
    "-Xms256m",
    "-Xmx512m",
    "-XX:+UseSerialGC",  # one small heap on few cores
    "-XX:TieredStopAtLevel=1",  # without the second compiler, which would take time of two cores from Spark and Airflow
    "-Djava.awt.headless=true",
    "-Djava.net.preferIPv4Stack=true",
    # No options of Kafka's remote management (JMX): it would listen on every interface.
)

_LOG4J = """\
status = error
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d{ISO8601} %-5p %m (%c)%n
rootLogger.level = info
rootLogger.appenderRef.out.ref = out
"""


def start(
    home: Home,
    processes: Processes,
    report: Callable[[str], None],
    secured: Secured | None = None,
) -> None:
    """Start the broker unless it runs, and wait until it answers. Missing jars are fetched.

    A killed broker starts again on the same data. The first start formats the data folder with a random cluster id. Without
    `secured`, everybody who reaches the port may do everything.

    Raises:
        Terminal: A port is taken, or there is no fitting Java.
        Retryable: The broker ended or did not answer in time; the end of its log is quoted.
    """
    if processes.running(NAME) is None:
        fetch(home, "broker", report=report)
        processes.stop((NAME, GRACE_SECONDS))  # processes that a crash may have left
        require_free(home.ports.kafka, PORT_VARIABLES["kafka"], "the Kafka broker")
        require_free(home.ports.controller, PORT_VARIABLES["controller"], "the Kafka controller")
        if secured is not None:
            require_free(secured.sasl, PORT_VARIABLES["kafka_sasl"], "the Kafka broker's listener SASL_SSL")
            require_free(secured.ssl, PORT_VARIABLES["kafka_ssl"], "the Kafka broker's listener SSL")
        _start(home, processes, ensure_java(report), secured)
    _wait(home, processes)


def stop(processes: Processes) -> None:
    """Stop the broker if it runs."""
    processes.stop((FORMAT, GRACE_SECONDS), (NAME, GRACE_SECONDS))


def server_properties(home: Home) -> Mapping[str, str]:
    """Return the broker's configuration."""
    controller = f"{LOOPBACK}:{home.ports.controller}"
    return {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@{controller}",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "listeners": f"PLAINTEXT://{bootstrap_servers(home)},CONTROLLER://{controller}",
        "advertised.listeners": f"PLAINTEXT://{bootstrap_servers(home)}",
        "inter.broker.listener.name": "PLAINTEXT",
        "log.dirs": str(home.kafka / "data"),
        "auto.create.topics.enable": "false",
        # There is one broker, so internal topics can have only one replica.
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "4",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "transaction.state.log.num.partitions": "4",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
        # Retention must not delete what no pipeline has read, even if the stack was down for weeks.
        "log.retention.ms": "-1",
        "log.cleaner.dedupe.buffer.size": str(16 * 1024 * 1024),  # the default is a quarter of the heap
        "num.network.threads": "2",
        "num.io.threads": "4",
    }


def new_cluster_id() -> str:
    """Return a random cluster id in Kafka's form: a UUID in 22 characters of URL-safe base64."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not text.startswith("-"):  # the command line would take it for an option
            return text


def _start(home: Home, processes: Processes, java: Java, secured: Secured | None) -> None:
    config = _write_config(home, secured)
    if not (home.kafka / "data" / "meta.properties").is_file():
        _format(home, processes, java, config)
    options = secured.jvm if secured is not None else ()
    command = [*_java_command(home, java, options), "kafka.Kafka", str(config)]
    processes.start(Spec(NAME, command, _environment(java), bootstrap_servers(home), GRACE_SECONDS))


def _write_config(home: Home, secured: Secured | None) -> Path:
    path, properties = home.kafka / "server.properties", dict(server_properties(home))
    if secured is not None:
        properties |= secured.server_properties(home.ports.kafka, home.ports.controller)
    written = "".join(f"{key}={value}\n" for key, value in properties.items())
    write_atomically(path, written, mode=PRIVATE_FILE)  # a secured broker has passwords in it
    write_atomically(home.kafka / "log4j2.properties", _LOG4J)
    return path


def _format(home: Home, processes: Processes, java: Java, config: Path) -> None:
    arguments = ["format", "--cluster-id", new_cluster_id(), "--config", str(config), "--ignore-formatted"]
    command = [*_java_command(home, java), "kafka.tools.StorageTool", *arguments]
    status = processes.finish(Spec(FORMAT, command, _environment(java)), _FORMAT_SECONDS)
    if status != 0:
        raise STACK_FAILED.retryable(
            f"kafka: formatting {home.kafka} ended with {status}:\n{processes.last_lines(FORMAT)}"
        )


def _environment(java: Java) -> dict[str, str]:
    return {**inherited_environment(), "JAVA_HOME": str(java.home)}


def _java_command(home: Home, java: Java, options: tuple[str, ...] = ()) -> list[str]:
    log4j = f"-Dlog4j2.configurationFile={home.kafka / 'log4j2.properties'}"
    classpath = ":".join(str(path) for path in jar_paths(home, "broker"))
    return [str(java.command), *_JVM, log4j, "-cp", classpath, *options]


def _wait(home: Home, processes: Processes) -> None:
    def is_ready() -> bool:
        has_started = _STARTED in processes.log(NAME).read_text(encoding="utf-8", errors="replace")
        return has_started and answers(home.ports.kafka)

    title = f"kafka: the broker at {bootstrap_servers(home)}"
    processes.wait_ready(NAME, title, is_ready, _START_SECONDS, advice=", then start it again")
