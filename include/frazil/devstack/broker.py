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
"""A clean stop writes the log's recovery points; 2 s were measured, a busy disk takes longer."""

_START_SECONDS = 60.0
"""Bounds the way from the process to its first answer; 3 s were measured, recovery after a kill
reads the logs."""

_FORMAT_SECONDS = 60
"""Bounds the formatting of the data folder, one short JVM run."""

_STARTED = "Kafka Server started"
"""The broker's own word, after it caught up with the metadata log, was unfenced and took up its
listeners."""

_JVM = (
    "-Xms256m",
    "-Xmx512m",
    "-XX:+UseSerialGC",  # one small heap on few cores
    "-XX:TieredStopAtLevel=1",  # no second compiler beside Spark and Airflow on two cores
    "-Djava.awt.headless=true",
    "-Djava.net.preferIPv4Stack=true",
    # Kafka's own remote management stays off: it would listen on every interface.
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

    A killed broker starts again on the same data. The first start formats the data folder with a random cluster id. One that is
    not `secured` is open to who reaches the port.

    Raises:
        Terminal: A port is taken, or there is no fitting Java.
        Retryable: It ended or did not answer in time; the end of its log is quoted.
    """
    if processes.running(NAME) is None:
        fetch(home, "broker", report=report)
        processes.stop((NAME, GRACE_SECONDS))  # what a crash may have left of its session
        require_free(home.ports.kafka, PORT_VARIABLES["kafka"], "the Kafka broker")
        require_free(home.ports.controller, PORT_VARIABLES["controller"], "the Kafka controller")
        if secured is not None:
            require_free(secured.sasl, PORT_VARIABLES["kafka_sasl"], "the Kafka broker's listener SASL_SSL")
            require_free(secured.ssl, PORT_VARIABLES["kafka_ssl"], "the Kafka broker's listener SSL")
        _start(home, processes, ensure_java(report), secured)
    _wait(home, processes)


def stop(processes: Processes) -> None:
    """Stop the broker; does nothing when it does not run."""
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
        # One broker holds the only copy of everything, internal topics included.
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "4",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "transaction.state.log.num.partitions": "4",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
        # A stack that was down for a fortnight must still hold what no pipeline has read.
        "log.retention.ms": "-1",
        "log.cleaner.dedupe.buffer.size": str(16 * 1024 * 1024),  # the default is a quarter of the heap
        "num.network.threads": "2",
        "num.io.threads": "4",
    }


def new_cluster_id() -> str:
    """Return a random cluster id in Kafka's form: a UUID in 22 characters of URL-safe base64."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not text.startswith("-"):  # it would be read as an option of the command line
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
    write_atomically(path, written, mode=PRIVATE_FILE)  # a secured one has passwords
    write_atomically(home.kafka / "log4j2.properties", _LOG4J)
    return path


def _format(home: Home, processes: Processes, java: Java, config: Path) -> None:
    tool = [
        "kafka.tools.StorageTool",
        "format",
        "--cluster-id",
        new_cluster_id(),
        "--config",
        str(config),
    ]
    command = [*_java_command(home, java), *tool, "--ignore-formatted"]
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
    def started() -> bool:
        has_started = _STARTED in processes.log(NAME).read_text(encoding="utf-8", errors="replace")
        return has_started and answers(home.ports.kafka)

    who = f"kafka: the broker at {bootstrap_servers(home)}"
    processes.wait_ready(NAME, who, started, _START_SECONDS, advice=", then start it again")
