"""The two ends of a connector: topics, cluster, first start and interval; and the catalog, whose properties of
Iceberg's Java catalogs become those of the settings file.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Any
from urllib.parse import quote

from frazil.connect.config import is_client_property, librdkafka
from frazil.connect.findings import ConnectorKeys, Secrets
from frazil.connect.tables import UnusablePattern, python_regex
from frazil.kafka_properties import TOKEN_PROVIDER
from frazil.pipeline.syntax.interval import SHORTEST, SHORTEST_IN_SESSION

_COMMIT_INTERVAL_MS = 300_000
"""The sink's default."""

TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
"""Names that a topic may have."""

_SESSION = "10m"
"""How long a run stays whose interval Airflow can't schedule."""

_MILLISECONDS = re.compile(r"[0-9]{1,15}")
_RESET = "auto.offset.reset"
_OWN = ("group.id", "client.id")
"""Names of clients that a worker file has for the worker itself."""

_ISOLATION = "isolation.level"
_TOKEN_CONFIG = "sasl.oauthbearer.config"  # noqa: S105 - a name
_AWS_REGION = re.compile(r"\.kafka(?:-serverless)?\.([a-z0-9-]+)\.amazonaws\.com")
"""The region in an address of a broker of Amazon MSK."""


def source(keys: ConnectorKeys) -> dict[str, Any]:
    """The key `source` of the pipeline file, without the cluster."""
    topics, pattern = keys.get("topics"), keys.get("topics.regex")
    if topics is not None and pattern is not None:
        keys.say("topics.regex", "refused", "topics and topics.regex exclude each other", "keep one")
        return {}
    if topics is not None:
        return _named(keys, topics)
    if pattern is not None:
        try:
            keys.say("topics.regex", "carried", "source.topics_pattern")
            return {"topics_pattern": python_regex(pattern)}
        except UnusablePattern as error:
            keys.say("topics.regex", "refused", str(error), "write source.topics_pattern by hand")
            return {}
    keys.say("topics", "refused", "neither topics nor topics.regex says what to read", "name the topics")
    return {}


def _named(keys: ConnectorKeys, topics: str) -> dict[str, Any]:
    names = list(dict.fromkeys(name.strip() for name in topics.split(",") if name.strip()))
    if not names or not all(map(TOPIC.fullmatch, names)):
        keys.say("topics", "refused", "not the name of a topic", "letters, digits, '.', '_' and '-'")
    keys.say("topics", "carried", "source.topics")
    return {"topics": names}


def first_offset(keys: ConnectorKeys, worker: ConnectorKeys) -> str:
    """Where the very first run begins when no positions are taken over: Kafka Connect's own default is `earliest`."""
    place = "earliest"
    for keys_read, name in ((worker, f"consumer.{_RESET}"), (keys, f"consumer.override.{_RESET}")):
        reset = keys_read.get(name)
        if reset in ("earliest", "latest"):
            place = reset
            keys_read.say(name, "carried", f"start: {reset}")
        elif reset is not None:
            keys_read.say(
                name, "not_supported", "a first start is earliest, latest, an instant or offsets", "write start by hand"
            )
    return place


def restart_remark(place: str) -> str:
    """A remark on how a start without positions affects tables that the connector wrote."""
    if place == "earliest":
        return "start: earliest lands again what the connector landed. --positions connect starts where it stopped."
    return (
        "start: latest leaves out what came since the connector stopped. --positions connect starts where it stopped."
    )


def schedule(keys: ConnectorKeys) -> dict[str, str]:
    """The interval of the pipeline, from that of the sink's commits; below a minute with a session that lands batches so often."""
    name = "iceberg.control.commit.interval-ms"
    commit_interval = keys.get(name)
    milliseconds = _COMMIT_INTERVAL_MS
    if commit_interval is not None and not _MILLISECONDS.fullmatch(commit_interval):
        keys.say(name, "refused", "not a number of milliseconds")
    elif commit_interval is not None:
        milliseconds = int(commit_interval)
    every = max(timedelta(seconds=milliseconds // 1000), SHORTEST_IN_SESSION)
    seconds = every // timedelta(seconds=1)
    text = f"{seconds // 60}m" if seconds % 60 == 0 else f"{seconds}s"
    session = {"session_for": _SESSION} if every < SHORTEST else {}
    if session:
        keys.say(
            name,
            "changed",
            f"interval: {text} and session_for: {_SESSION}: each run goes on for {_SESSION} and lands a batch every {text}",
        )
    elif milliseconds % 1000:
        keys.say(name, "changed", f"interval: {text}, in whole seconds")
    keys.say(name, "carried", f"interval: {text}")
    return {"interval": text, **session}


def cluster(keys: ConnectorKeys, worker: ConnectorKeys, secrets: Secrets) -> dict[str, Any]:
    """The cluster's entry in the settings file: the worker's clients, the connector's overrides above them."""
    shared = {name: value for name, value in worker.below("").items() if is_client_property(name) and name not in _OWN}
    consumers = {**worker.below("consumer."), **keys.below("consumer.override.")}
    java_properties = {**shared, **consumers}
    for name in ("bootstrap.servers", _RESET, _ISOLATION):
        java_properties.pop(name, None)
    properties = librdkafka(java_properties, secrets, lambda name, *finding: _say(keys, worker, name, *finding))
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


def _say(
    keys: ConnectorKeys, worker: ConnectorKeys, name: str, outcome: Any, message: str, by_hand: str | None = None
) -> None:
    for origin, prefix in ((worker, ""), (worker, "consumer."), (keys, "consumer.override.")):
        if f"{prefix}{name}" in origin:
            origin.say(f"{prefix}{name}", outcome, message, by_hand)


def _isolation(keys: ConnectorKeys, worker: ConnectorKeys) -> None:
    for origin, name in ((worker, f"consumer.{_ISOLATION}"), (keys, f"consumer.override.{_ISOLATION}")):
        if origin.get(name) == "read_committed":
            origin.say(name, "carried", "Frazil always reads committed records only")
        elif name in origin:
            origin.say(name, "changed", "committed records only: those of aborted transactions never land")


def _bootstrap(keys: ConnectorKeys, worker: ConnectorKeys, secrets: Secrets) -> str:
    places: tuple[tuple[ConnectorKeys, str], ...] = (
        (keys, "consumer.override.bootstrap.servers"),
        (worker, "consumer.bootstrap.servers"),
        (worker, "bootstrap.servers"),
        (keys, "iceberg.kafka.bootstrap.servers"),
    )
    servers = [(origin, name, origin.get(name) or "") for origin, name in places if name in origin]
    for origin, name, _ in servers:
        origin.say(name, "carried", "clusters: bootstrap_servers")
    if servers:
        return secrets.value("bootstrap_servers", servers[0][2], "brokers, host:port with commas")
    keys.note(
        "No worker file was given, so nothing tells where the brokers are: the settings take them from the environment."
    )
    return secrets.hide("bootstrap_servers", None, "brokers, host:port with commas")


def framework(keys: ConnectorKeys) -> None:
    """Classify keys that only Kafka Connect's runtime needs."""
    obsolete: Mapping[str, str] = {
        "tasks.max": "no tasks: a batch is spread over the engine's executors by partitions and limits.records_per_task",
        "tasks.max.enforce": "no tasks",
        "config.action.reload": "files are read at each run",
        "header.converter": "headers stay bytes; transforms read them as UTF-8 text",
        "iceberg.control.topic": "no control topic; --positions connect reads it",
        "iceberg.control.group-id": "no control group; --positions connect reads its offsets",
        "iceberg.control.group-id-prefix": "no control consumers",
        "iceberg.connect.group-id": "no such group; --positions connect reads its offsets",
        "iceberg.control.commit.timeout-ms": "no partial commits: a batch is published whole or not at all",
        "iceberg.control.commit.threads": "no coordinator: the run that made a batch commits it",
        "iceberg.control.commit.max-consecutive-failures": "a failed commit ends the run, and Airflow's retries decide",
        "iceberg.coordinator.transactional.prefix": "no transactions: the position is in the table's own commit",
        "iceberg.coordinator.transactional.suffix": "no transactions: the position is in the table's own commit",
        "iceberg.coordinator-executor-keep-alive-timeout-ms": "no coordinator",
    }
    for name, why in obsolete.items():
        if name in keys:
            keys.say(name, "changed", why)
    for prefix, why in (
        ("iceberg.kafka.", "no clients of a control topic"),
        ("producer.override.", "Frazil produces nothing for a sink"),
        ("admin.override.", "Frazil's own admin clients use the cluster's properties"),
        ("header.converter.", "headers stay bytes; transforms read them as UTF-8 text"),
    ):
        for option in keys.below(prefix):
            keys.say(prefix + option, "changed", why)


_TOPIC = "errors.deadletterqueue.topic.name"


def dead_letters(keys: ConnectorKeys) -> dict[str, Any]:
    """The key `dead_letters` of the pipeline file."""
    letters: dict[str, Any] = {"tolerance": "all" if (keys.get("errors.tolerance") or "").lower() == "all" else "none"}
    if "errors.tolerance" in keys:
        _tolerance(keys, letters["tolerance"])
    if letters["tolerance"] == "none":
        keys.note(
            "dead_letters.tolerance: none keeps what the sink does: the first record that can't land stops everything. Without"
            " that line up to 10 % of a batch may go to the dead-letter table, and the rest lands."
        )
    if (keys.get("errors.log.enable") or "").lower() == "true":
        letters["log"] = True
        keys.say("errors.log.enable", "carried", "dead_letters.log")
    else:
        keys.say("errors.log.enable", "changed", "off, as here")
    for name, why in _WITHOUT.items():
        if name in keys:
            keys.say(name, "changed", why)
    if _TOPIC in keys:
        letters |= _topic(keys, letters["tolerance"])
    return letters


def _topic(keys: ConnectorKeys, tolerance: str) -> dict[str, Any]:
    """The queue as the topic beside the dead-letter table."""
    topic = keys.get(_TOPIC) or ""
    if tolerance == "none":
        keys.say(_TOPIC, "changed", "without errors.tolerance: all, no record goes there; Kafka Connect does the same")
        return {}
    read = [name.strip() for name in (keys.get("topics") or "").split(",")]
    if topic in read or not TOPIC.fullmatch(topic):
        keys.say(
            _TOPIC,
            "not_supported",
            "not a topic, or a topic that the pipeline reads",
            "name another under dead_letters.topic",
        )
        return {}
    keys.say(_TOPIC, "carried", "dead_letters.topic, beside the dead-letter table")
    return {"topic": topic}


_WITHOUT = {
    "errors.log.include.messages": "a log names coordinates, never what is in a record",
    "errors.retry.timeout": "what is passing (broker, registry, catalog) ends the run, and Airflow's retries try again",
    "errors.retry.delay.max.ms": "Airflow's retries have their own delay",
    "errors.deadletterqueue.topic.replication.factor": "a topic that is made is replicated as the brokers are configured",
    "errors.deadletterqueue.context.headers.enable": "the headers are always there",
}


def _tolerance(keys: ConnectorKeys, tolerance: str) -> None:
    if tolerance == "none":
        keys.say("errors.tolerance", "carried", "dead_letters.tolerance: none")
        return
    why = "dead_letters.tolerance: all, for conversion to columns and routing too, where the sink's task fails; none is lost"
    keys.say("errors.tolerance", "changed", why)


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
"""Beginnings of properties that only Java's catalogs read; Spark gets them, PyIceberg passes over them."""


def catalog(keys: ConnectorKeys, secrets: Secrets) -> tuple[str, dict[str, Any]]:
    """The catalog's name, and its entry in the settings file. A kind without counterpart becomes a REST catalog whose address comes from the environment."""
    properties = keys.below(_PREFIX)
    written = keys.get("iceberg.catalog")
    if not properties:
        by_hand = "give the properties iceberg.catalog.*"
        keys.say(
            "iceberg.catalog", "refused", "the sink refuses a configuration without properties of its catalog", by_hand
        )
        return "iceberg", {}
    is_class = written is not None and re.fullmatch(r"(\w+\.){2,}[A-Z]\w*", written) is not None
    name = "iceberg" if written is None or is_class else written
    if written is not None:
        message = (
            "catalogs: type (an old release's way to name the class)" if is_class else "catalogs: the entry's name"
        )
        keys.say("iceberg.catalog", "carried", message)
    kind = _kind(properties, written if is_class else None)
    for option in ("type", "catalog-impl"):
        if option in properties:
            keys.say(_PREFIX + option, "carried", f"catalogs: type: {kind}")
    if kind in _ADDRESSES:
        return name, _server(keys, properties, kind, secrets)
    if kind == "jdbc":
        return name, _jdbc(keys, properties, secrets)
    return name, _other(keys, properties, kind, secrets)


def _kind(properties: dict[str, str], old_class: str | None) -> str:
    kinds = {_REST: "rest", _JDBC: "jdbc"}
    catalog_class = properties.get("catalog-impl") or old_class
    if catalog_class is not None:
        short = catalog_class.rpartition(".")[2].removesuffix("Catalog").lower()
        return kinds.get(catalog_class, short)
    return properties.get("type", "hive").lower()


def _server(keys: ConnectorKeys, properties: dict[str, str], kind: str, secrets: Secrets) -> dict[str, Any]:
    what, entry = _ADDRESSES[kind], {"type": kind}
    if "uri" in properties:
        entry["uri"] = secrets.value("uri", properties["uri"], what)
    elif kind != "glue":
        entry["uri"] = secrets.hide("uri", None, what)
    _say_carried(keys, properties, "uri")
    if kind != "rest":
        properties = {"warehouse": "", **properties}
    return {**entry, **_warehouse(keys, properties, secrets), **_rest_of(keys, properties, secrets)}


def _jdbc(keys: ConnectorKeys, properties: dict[str, str], secrets: Secrets) -> dict[str, Any]:
    entry: dict[str, Any] = {"type": "jdbc", "uri": _sqlalchemy(keys, properties, secrets)}
    version = properties.get("jdbc.schema-version", "V0").upper()
    if "jdbc.schema-version" in properties and version == "V1":
        keys.say(f"{_PREFIX}jdbc.schema-version", "carried", "Spark and PyIceberg use V1")
    elif version != "V1":
        message = (
            "Frazil's Spark uses schema version V1 of the catalog's tables; the sink's are V0 unless told otherwise"
        )
        keys.say(
            f"{_PREFIX}jdbc.schema-version", "changed", message, "set jdbc.schema-version=V1 once, which adds a column"
        )
        keys.note(message + ".")
    if "warehouse" not in properties:
        properties = {**properties, "warehouse": ""}
    entry |= _warehouse(keys, properties, secrets)
    without_driver = {name: value for name, value in properties.items() if not name.startswith("jdbc.")}
    for name in properties.keys() - without_driver.keys() - {"jdbc.schema-version"}:
        keys.say(_PREFIX + name, "not_supported", "a property of Java's database driver", "write it into the uri")
    return {**entry, **_rest_of(keys, without_driver, secrets)}


def _sqlalchemy(keys: ConnectorKeys, properties: dict[str, str], secrets: Secrets) -> str:
    what = "SQLAlchemy address of the catalog's database, such as postgresql+psycopg2://user:password@host/db"
    uri = properties.get("uri", "")
    dialect, _, address = uri.removeprefix("jdbc:").partition(":")
    if dialect not in _DIALECTS:
        if "uri" in properties:
            keys.say(
                f"{_PREFIX}uri", "not_supported", "a database whose address is not known here", f"catalogs: uri: {what}"
            )
        return secrets.hide("uri", None, what)
    user, password = properties.get("jdbc.user"), properties.get("jdbc.password")
    for name in ("jdbc.user", "jdbc.password"):
        if name in properties:
            keys.say(_PREFIX + name, "carried", "catalogs: uri, from the environment")
    if dialect == "sqlite":
        keys.say(f"{_PREFIX}uri", "carried", "catalogs: uri")
        return secrets.value("uri", f"sqlite:///{address.removeprefix('file:')}", what)
    keys.say(f"{_PREFIX}uri", "changed", "catalogs: uri, in SQLAlchemy's form; its driver must be installed")
    if user is None and password is None:
        return secrets.value("uri", f"{_DIALECTS[dialect]}:{address}", what)
    login = ":".join(quote(part, safe="") for part in (user or "", password or ""))
    return secrets.hide("uri", f"{_DIALECTS[dialect]}://{login}@{address.removeprefix('//')}", what)


def _other(keys: ConnectorKeys, properties: dict[str, str], kind: str, secrets: Secrets) -> dict[str, Any]:
    written = next((name for name in ("catalog-impl", "type") if name in properties), None)
    by_hand = _REST_INSTEAD.get(kind, _ELSEWHERE)
    name = _PREFIX + written if written else "iceberg.catalog"
    keys.say(name, "not_supported", "catalogs are reached by Iceberg's REST protocol, or in a SQL database", by_hand)
    if "uri" in properties:
        keys.say(f"{_PREFIX}uri", "not_supported", "address of a catalog type that is not supported", by_hand)
    entry = {"type": "rest", "uri": secrets.hide("uri", None, "address of a REST catalog that has these tables")}
    return {**entry, **_warehouse(keys, properties, secrets), **_rest_of(keys, properties, secrets)}


def _warehouse(keys: ConnectorKeys, properties: dict[str, str], secrets: Secrets) -> dict[str, Any]:
    if "warehouse" not in properties:
        return {}
    _say_carried(keys, properties, "warehouse")
    what = "where table data is stored"
    written = properties["warehouse"]
    return {
        "warehouse": secrets.value("warehouse", written, what) if written else secrets.hide("warehouse", None, what)
    }


def _rest_of(keys: ConnectorKeys, properties: dict[str, str], secrets: Secrets) -> dict[str, Any]:
    """Pass all other properties on to Spark's catalog and to PyIceberg's."""
    shared_properties = {}
    for name, value in properties.items():
        if name in ("type", "catalog-impl", "uri", "warehouse"):
            continue
        key = _PREFIX + name
        shared_properties[name] = secrets.value(name, value, f"property {name} of the catalog")
        if name.startswith(_JVM):
            keys.say(key, "changed", "catalogs: properties; Spark's catalog reads it, PyIceberg has its own way")
        else:
            place = "catalogs: properties" + (", from the environment" if shared_properties[name] != value else "")
            keys.say(key, "carried", place)
    if (
        any(name.startswith(("s3.", "client.region")) for name in properties)
        and "s3.region" not in properties
        and "client.region" in properties
    ):
        shared_properties["s3.region"] = shared_properties["client.region"]
    return {"properties": shared_properties} if shared_properties else {}


def _say_carried(keys: ConnectorKeys, properties: dict[str, str], name: str) -> None:
    if name in properties:
        keys.say(_PREFIX + name, "carried", f"catalogs: {name}")


def hadoop(keys: ConnectorKeys) -> None:
    """Hadoop's configuration, which PyIceberg has no use for."""
    by_hand = "give storage under catalogs: properties (s3.*, gcs.*, adls.*), and Spark's own under engines: conf (spark.hadoop.*)"
    for option in keys.below("iceberg.hadoop."):
        keys.say(f"iceberg.hadoop.{option}", "not_supported", "Hadoop's configuration reaches only Spark", by_hand)
    if "iceberg.hadoop-conf-dir" in keys:
        keys.say("iceberg.hadoop-conf-dir", "not_supported", "Hadoop's configuration reaches only Spark", by_hand)
