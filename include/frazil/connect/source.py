"""Where a connector reads and writes: topics, cluster, first offset and interval; and the catalog, whose Java properties
become an entry of the settings file.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Any
from urllib.parse import quote

from frazil.connect.config import is_client_property, librdkafka_properties
from frazil.connect.findings import ConnectorKeys, Secrets
from frazil.connect.tables import UnusablePattern, python_regex
from frazil.kafka_properties import TOKEN_PROVIDER
from frazil.pipeline.syntax.interval import SHORTEST, SHORTEST_IN_SESSION

_COMMIT_INTERVAL_MS = 300_000
"""The sink's default."""

_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
"""Names that a topic may have."""

_SESSION = "10m"
"""Length of a session, for intervals that are too short for Airflow's schedule."""

_MILLISECONDS = re.compile(r"[0-9]{1,15}")
_RESET = "auto.offset.reset"
_OWN = ("group.id", "client.id")
"""Properties of a client that a worker file has for the worker itself."""

_ISOLATION = "isolation.level"
_TOKEN_CONFIG = "sasl.oauthbearer.config"  # noqa: S105 - a name
_AWS_REGION = re.compile(r"\.kafka(?:-serverless)?\.([a-z0-9-]+)\.amazonaws\.com")
"""The region in an address of a broker of Amazon MSK."""


def source(keys: ConnectorKeys) -> dict[str, Any]:
    """The key `source` of the pipeline file, without the cluster."""
    topics, pattern = keys.get("topics"), keys.get("topics.regex")
    if topics is not None and pattern is not None:
        keys.report("topics.regex", "refused", "topics and topics.regex exclude each other", "keep one")
        return {}
    if topics is not None:
        return _topics(keys, topics)
    if pattern is not None:
        try:
            keys.report("topics.regex", "carried", "source.topics_pattern")
            return {"topics_pattern": python_regex(pattern)}
        except UnusablePattern as error:
            keys.report("topics.regex", "refused", str(error), "write source.topics_pattern by hand")
            return {}
    keys.report("topics", "refused", "neither topics nor topics.regex says what to read", "name the topics")
    return {}


def _topics(keys: ConnectorKeys, topics: str) -> dict[str, Any]:
    names = list(dict.fromkeys(name.strip() for name in topics.split(",") if name.strip()))
    if not names or not all(map(_TOPIC.fullmatch, names)):
        keys.report("topics", "refused", "not the name of a topic", "letters, digits, '.', '_' and '-'")
    keys.report("topics", "carried", "source.topics")
    return {"topics": names}


def first_offset(keys: ConnectorKeys, worker: ConnectorKeys) -> str:
    """The start of the first run, if the connector's offsets are not taken over. Kafka Connect's default is `earliest`."""
    start = "earliest"
    for origin, name in ((worker, f"consumer.{_RESET}"), (keys, f"consumer.override.{_RESET}")):
        reset = origin.get(name)
        if reset in ("earliest", "latest"):
            start = reset
            origin.report(name, "carried", f"start: {reset}")
        elif reset is not None:
            message = "start is earliest, latest, a timestamp or offsets"
            origin.report(name, "not_supported", message, "write start by hand")
    return start


def start_remark(start: str) -> str:
    """A remark on the records that this start lands twice, or never."""
    effect = "lands again what the connector landed"
    if start == "latest":
        effect = "leaves out what came since the connector stopped"
    return f"start: {start} {effect}. --positions connect starts where it stopped."


def schedule(keys: ConnectorKeys) -> dict[str, str]:
    """The pipeline's interval, which is the sink's commit interval. Below a minute it needs a session, too."""
    name = "iceberg.control.commit.interval-ms"
    commit_interval = keys.get(name)
    milliseconds = _COMMIT_INTERVAL_MS
    if commit_interval is not None and not _MILLISECONDS.fullmatch(commit_interval):
        keys.report(name, "refused", "not a number of milliseconds")
    elif commit_interval is not None:
        milliseconds = int(commit_interval)
    every = max(timedelta(seconds=milliseconds // 1000), SHORTEST_IN_SESSION)
    seconds = every // timedelta(seconds=1)
    text = f"{seconds // 60}m" if seconds % 60 == 0 else f"{seconds}s"
    session = {"session_for": _SESSION} if every < SHORTEST else {}
    if session:
        message = (
            f"interval: {text} and session_for: {_SESSION}: each run lasts {_SESSION} and lands a batch every {text}"
        )
        keys.report(name, "changed", message)
    elif milliseconds % 1000:
        keys.report(name, "changed", f"interval: {text}, in whole seconds")
    keys.report(name, "carried", f"interval: {text}")
    return {"interval": text, **session}


def cluster(keys: ConnectorKeys, worker: ConnectorKeys, secrets: Secrets) -> dict[str, Any]:
    """The cluster's entry in the settings file, from the worker's properties of clients and the connector's overrides."""
    shared = {name: value for name, value in worker.below("").items() if is_client_property(name) and name not in _OWN}
    consumers = {**worker.below("consumer."), **keys.below("consumer.override.")}
    java_properties = {**shared, **consumers}
    for name in ("bootstrap.servers", _RESET, _ISOLATION):
        java_properties.pop(name, None)
    properties = librdkafka_properties(
        java_properties, secrets, lambda name, *finding: _report(keys, worker, name, *finding)
    )
    _isolation(keys, worker)
    entry: dict[str, Any] = {"bootstrap_servers": _bootstrap(keys, worker, secrets)}
    if TOKEN_PROVIDER in properties:
        entry["token_provider"] = properties.pop(TOKEN_PROVIDER)
        region = _AWS_REGION.search(entry["bootstrap_servers"])
        config = f"region={region[1]} " if region else ""
        if config := f"{config}{properties.get(_TOKEN_CONFIG, '')}".strip():
            properties[_TOKEN_CONFIG] = config
        if region is None:
            keys.note("Tasks need the variable AWS_REGION, or region=REGION in sasl.oauthbearer.config of the cluster.")
    return {**entry, "properties": properties} if properties else entry


def _report(
    keys: ConnectorKeys, worker: ConnectorKeys, name: str, outcome: Any, message: str, by_hand: str | None = None
) -> None:
    for origin, prefix in ((worker, ""), (worker, "consumer."), (keys, "consumer.override.")):
        if f"{prefix}{name}" in origin:
            origin.report(f"{prefix}{name}", outcome, message, by_hand)


def _isolation(keys: ConnectorKeys, worker: ConnectorKeys) -> None:
    for origin, name in ((worker, f"consumer.{_ISOLATION}"), (keys, f"consumer.override.{_ISOLATION}")):
        if origin.get(name) == "read_committed":
            origin.report(name, "carried", "Frazil always reads committed records only")
        elif name in origin:
            origin.report(name, "changed", "committed records only: those of aborted transactions never land")


def _bootstrap(keys: ConnectorKeys, worker: ConnectorKeys, secrets: Secrets) -> str:
    candidates: tuple[tuple[ConnectorKeys, str], ...] = (
        (keys, "consumer.override.bootstrap.servers"),
        (worker, "consumer.bootstrap.servers"),
        (worker, "bootstrap.servers"),
        (keys, "iceberg.kafka.bootstrap.servers"),
    )
    servers = [(origin, name, origin.get(name) or "") for origin, name in candidates if name in origin]
    for origin, name, _ in servers:
        origin.report(name, "carried", "clusters: bootstrap_servers")
    if servers:
        return secrets.value("bootstrap_servers", servers[0][2], "brokers, host:port with commas")
    keys.note(
        "No file names the brokers, so the settings take them from the environment. A worker file would name them."
    )
    return secrets.hide("bootstrap_servers", None, "brokers, host:port with commas")


def framework(keys: ConnectorKeys) -> None:
    """Classify keys that only Kafka Connect's runtime needs."""
    obsolete: Mapping[str, str] = {
        "tasks.max": "no tasks: partitions and limits.records_per_task spread a batch over the engine's executors",
        "tasks.max.enforce": "no tasks",
        "config.action.reload": "files are read at each run",
        "header.converter": "headers stay bytes; transforms read them as UTF-8 text",
        "iceberg.control.topic": "no control topic; --positions connect reads it",
        "iceberg.control.group-id": "no control group; --positions connect reads its offsets",
        "iceberg.control.group-id-prefix": "no control consumers",
        "iceberg.connect.group-id": "no such group; --positions connect reads its offsets",
        "iceberg.control.commit.timeout-ms": "no partial commits: a batch is published whole or not at all",
        "iceberg.control.commit.threads": "no coordinator: the run that staged a batch commits it",
        "iceberg.control.commit.max-consecutive-failures": "a failed commit ends the run; Airflow's retries start it again",
        "iceberg.coordinator.transactional.prefix": "no transactions: the position is in the table's own commit",
        "iceberg.coordinator.transactional.suffix": "no transactions: the position is in the table's own commit",
        "iceberg.coordinator-executor-keep-alive-timeout-ms": "no coordinator",
    }
    for name, why in obsolete.items():
        keys.report(name, "changed", why)
    for prefix, why in (
        ("iceberg.kafka.", "no clients of a control topic"),
        ("producer.override.", "Frazil produces nothing for a sink"),
        ("admin.override.", "Frazil's own admin clients use the cluster's properties"),
        ("header.converter.", "headers stay bytes; transforms read them as UTF-8 text"),
    ):
        for option in keys.below(prefix):
            keys.report(prefix + option, "changed", why)


_QUEUE = "errors.deadletterqueue.topic.name"


def dead_letters(keys: ConnectorKeys) -> dict[str, Any]:
    """The key `dead_letters` of the pipeline file."""
    letters: dict[str, Any] = {"tolerance": "all" if (keys.get("errors.tolerance") or "").lower() == "all" else "none"}
    if letters["tolerance"] == "none":
        keys.report("errors.tolerance", "carried", "dead_letters.tolerance: none")
        keys.note(
            "dead_letters.tolerance: none does what the sink does: the first record that can't land stops the pipeline. Without"
            " that line up to 10 % of a batch may go to the dead-letter table, and the rest lands."
        )
    else:
        why = "dead_letters.tolerance: all, for conversion to columns and routing too, where the sink's task fails; none is lost"
        keys.report("errors.tolerance", "changed", why)
    if keys.is_true("errors.log.enable"):
        letters["log"] = True
        keys.report("errors.log.enable", "carried", "dead_letters.log")
    else:
        keys.report("errors.log.enable", "changed", "off, Frazil's default too")
    for name, why in _ERROR_KEYS_WITHOUT_EFFECT.items():
        keys.report(name, "changed", why)
    if _QUEUE in keys:
        letters |= _queue_topic(keys, letters["tolerance"])
    return letters


def _queue_topic(keys: ConnectorKeys, tolerance: str) -> dict[str, Any]:
    """The key `topic` of dead letters: the topic of the connector's dead-letter queue."""
    topic = keys.get(_QUEUE) or ""
    if tolerance == "none":
        keys.report(
            _QUEUE, "changed", "without errors.tolerance: all, no record goes there; Kafka Connect does the same"
        )
        return {}
    sources = [name.strip() for name in (keys.get("topics") or "").split(",")]
    if topic in sources or not _TOPIC.fullmatch(topic):
        message = "not a topic, or a topic that the pipeline reads"
        keys.report(_QUEUE, "not_supported", message, "name another under dead_letters.topic")
        return {}
    keys.report(_QUEUE, "carried", "dead_letters.topic, beside the dead-letter table")
    return {"topic": topic}


_ERROR_KEYS_WITHOUT_EFFECT = {
    "errors.log.include.messages": "a log names coordinates, never what is in a record",
    "errors.retry.timeout": "a passing error (broker, registry, catalog) ends the run, and Airflow's retries start it again",
    "errors.retry.delay.max.ms": "Airflow's retries have their own delay",
    "errors.deadletterqueue.topic.replication.factor": "a new topic gets the brokers' default replication",
    "errors.deadletterqueue.context.headers.enable": "the headers are always there",
}


_PREFIX = "iceberg.catalog."
_REST = "org.apache.iceberg.rest.RESTCatalog"
_JDBC = "org.apache.iceberg.jdbc.JdbcCatalog"
_REST_INSTEAD = {
    "hadoop": "move the tables to a catalog: register_table of a REST catalog keeps their files",
    "nessie": "Nessie speaks Iceberg's REST protocol: http://<host>:19120/iceberg",
}
_ADDRESSES = {"rest": "address of the REST catalog", "hive": "address of the metastore", "glue": "endpoint of Glue"}
_ELSEWHERE = "name a catalog that speaks Iceberg's REST protocol under catalogs"
_DIALECTS = {"postgresql": "postgresql+psycopg2", "sqlite": "sqlite"}
_JVM = ("io-impl", "clients", "client.pool.", "client.factory", "cache-enabled", "cache.", "metrics-reporter-impl")
"""Prefixes of properties that only Java's catalogs read: Spark gets them, PyIceberg ignores them."""


def catalog(keys: ConnectorKeys, secrets: Secrets) -> tuple[str, dict[str, Any]]:
    """The catalog's name, and its entry in the settings file.

    A catalog of a type that Frazil lacks becomes a REST catalog with an address from the environment.
    """
    properties = keys.below(_PREFIX)
    written = keys.get("iceberg.catalog")
    if not properties:
        message = "the sink refuses a configuration without properties of its catalog"
        keys.report("iceberg.catalog", "refused", message, "give the properties iceberg.catalog.*")
        return "iceberg", {}
    is_class = written is not None and re.fullmatch(r"(\w+\.){2,}[A-Z]\w*", written) is not None
    name = "iceberg" if written is None or is_class else written
    message = "catalogs: type (early releases named the class here)" if is_class else "catalogs: the entry's name"
    keys.report("iceberg.catalog", "carried", message)
    kind = _kind(properties, written if is_class else None)
    for option in ("type", "catalog-impl"):
        keys.report(_PREFIX + option, "carried", f"catalogs: type: {kind}")
    if kind in _ADDRESSES:
        return name, _server(keys, properties, kind, secrets)
    if kind == "jdbc":
        return name, _jdbc(keys, properties, secrets)
    return name, _unsupported(keys, properties, kind, secrets)


def _kind(properties: dict[str, str], old_class: str | None) -> str:
    kinds = {_REST: "rest", _JDBC: "jdbc"}
    catalog_class = properties.get("catalog-impl") or old_class
    if catalog_class is not None:
        short = catalog_class.rpartition(".")[2].removesuffix("Catalog").lower()
        return kinds.get(catalog_class, short)
    return properties.get("type", "hive").lower()


def _server(keys: ConnectorKeys, properties: dict[str, str], kind: str, secrets: Secrets) -> dict[str, Any]:
    description, entry = _ADDRESSES[kind], {"type": kind}
    if "uri" in properties:
        entry["uri"] = secrets.value("uri", properties["uri"], description)
    elif kind != "glue":
        entry["uri"] = secrets.hide("uri", None, description)
    keys.report(f"{_PREFIX}uri", "carried", "catalogs: uri")
    if kind != "rest":
        properties = {"warehouse": "", **properties}
    return {**entry, **_warehouse(keys, properties, secrets), **_other_properties(keys, properties, secrets)}


def _jdbc(keys: ConnectorKeys, properties: dict[str, str], secrets: Secrets) -> dict[str, Any]:
    entry: dict[str, Any] = {"type": "jdbc", "uri": _sqlalchemy(keys, properties, secrets)}
    version = properties.get("jdbc.schema-version", "V0").upper()
    if "jdbc.schema-version" in properties and version == "V1":
        keys.report(f"{_PREFIX}jdbc.schema-version", "carried", "Spark and PyIceberg use V1")
    elif version != "V1":
        message = "Frazil's Spark uses schema version V1 of the catalog's tables; the sink's default is V0"
        by_hand = "set jdbc.schema-version=V1 once, which adds a column"
        keys.report(f"{_PREFIX}jdbc.schema-version", "changed", message, by_hand)
        keys.note(message + ".")
    properties = {"warehouse": "", **properties}
    entry |= _warehouse(keys, properties, secrets)
    without_driver = {name: value for name, value in properties.items() if not name.startswith("jdbc.")}
    for name in properties.keys() - without_driver.keys() - {"jdbc.schema-version"}:
        keys.report(_PREFIX + name, "not_supported", "a property of Java's database driver", "write it into the uri")
    return {**entry, **_other_properties(keys, without_driver, secrets)}


def _sqlalchemy(keys: ConnectorKeys, properties: dict[str, str], secrets: Secrets) -> str:
    description = "SQLAlchemy address of the catalog's database, such as postgresql+psycopg2://user:password@host/db"
    dialect, _, address = properties.get("uri", "").removeprefix("jdbc:").partition(":")
    if dialect not in _DIALECTS:
        if "uri" in properties:
            message, by_hand = "Frazil can't translate the address of this database", f"catalogs: uri: {description}"
            keys.report(f"{_PREFIX}uri", "not_supported", message, by_hand)
        return secrets.hide("uri", None, description)
    user, password = properties.get("jdbc.user"), properties.get("jdbc.password")
    for name in ("jdbc.user", "jdbc.password"):
        keys.report(_PREFIX + name, "carried", "catalogs: uri, from the environment")
    if dialect == "sqlite":
        keys.report(f"{_PREFIX}uri", "carried", "catalogs: uri")
        return secrets.value("uri", f"sqlite:///{address.removeprefix('file:')}", description)
    keys.report(f"{_PREFIX}uri", "changed", "catalogs: uri, in SQLAlchemy's form; its driver must be installed")
    if user is None and password is None:
        return secrets.value("uri", f"{_DIALECTS[dialect]}:{address}", description)
    login = ":".join(quote(part, safe="") for part in (user or "", password or ""))
    return secrets.hide("uri", f"{_DIALECTS[dialect]}://{login}@{address.removeprefix('//')}", description)


def _unsupported(keys: ConnectorKeys, properties: dict[str, str], kind: str, secrets: Secrets) -> dict[str, Any]:
    """A REST catalog instead of one of a type that Frazil lacks."""
    written = next((name for name in ("catalog-impl", "type") if name in properties), None)
    by_hand = _REST_INSTEAD.get(kind, _ELSEWHERE)
    name = _PREFIX + written if written else "iceberg.catalog"
    keys.report(name, "not_supported", "Frazil has no catalog of this type", by_hand)
    if "uri" in properties:
        keys.report(f"{_PREFIX}uri", "not_supported", "address of a catalog type that is not supported", by_hand)
    entry = {"type": "rest", "uri": secrets.hide("uri", None, "address of a REST catalog that has these tables")}
    return {**entry, **_warehouse(keys, properties, secrets), **_other_properties(keys, properties, secrets)}


def _warehouse(keys: ConnectorKeys, properties: dict[str, str], secrets: Secrets) -> dict[str, Any]:
    if "warehouse" not in properties:
        return {}
    keys.report(f"{_PREFIX}warehouse", "carried", "catalogs: warehouse")
    description = "where table data is stored"
    if written := properties["warehouse"]:
        return {"warehouse": secrets.value("warehouse", written, description)}
    return {"warehouse": secrets.hide("warehouse", None, description)}


def _other_properties(keys: ConnectorKeys, properties: dict[str, str], secrets: Secrets) -> dict[str, Any]:
    """The key `properties` of the catalog: all other properties, for Spark's catalog and PyIceberg's."""
    entry = {}
    for name, value in properties.items():
        if name in ("type", "catalog-impl", "uri", "warehouse"):
            continue
        entry[name] = secrets.value(name, value, f"property {name} of the catalog")
        if name.startswith(_JVM):
            message = "catalogs: properties; Spark's catalog reads it, PyIceberg ignores it"
            keys.report(_PREFIX + name, "changed", message)
        else:
            message = "catalogs: properties" + (", from the environment" if entry[name] != value else "")
            keys.report(_PREFIX + name, "carried", message)
    if "client.region" in properties:
        entry.setdefault("s3.region", entry["client.region"])
    return {"properties": entry} if entry else {}


def hadoop(keys: ConnectorKeys) -> None:
    """Report Hadoop's configuration, which PyIceberg can't use."""
    by_hand = "give storage under catalogs: properties (s3.*, gcs.*, adls.*), and Spark's own under engines: conf (spark.hadoop.*)"
    for name in (*(f"iceberg.hadoop.{option}" for option in keys.below("iceberg.hadoop.")), "iceberg.hadoop-conf-dir"):
        if name in keys:
            keys.report(name, "not_supported", "Hadoop's configuration reaches only Spark", by_hand)
