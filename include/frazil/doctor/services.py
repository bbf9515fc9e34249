"""Checks of services, which the settings name: Kafka clusters, catalogs and their storage, Schema Registries, the managed
Spark server; and of a pipeline's topics, position and tables.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from functools import partial
from typing import Final

from frazil.doctor.finding import Check, Finding, State, ask_time, clock_finding, findings_of, record_finding
from frazil.extras import require
from frazil.iceberg.catalog.catalog import Lake
from frazil.iceberg.patches.files import credentials_expire_ms
from frazil.kafka.admin.observe import matching_topics, observe
from frazil.kafka.admin.topics import NEEDED, TopicAccess, topic_access
from frazil.monitor.condition import HEALTH, Condition, state_of
from frazil.monitor.freshness import freshness_objective
from frazil.monitor.reading import read, table_health
from frazil.pipeline.models.pipeline_file import Pipeline
from frazil.pipeline.settings.catalogs import MISSING_FEATURES
from frazil.project import Project
from frazil.runtime import home, spark_server
from frazil.spark.submit.server import managed_engine

_CLUSTER: Final = "cluster {}"

_SPARK_CONNECT: Final = "spark connect"

_S3: Final = "s3.endpoint"
"""Catalog property with the address of an object store."""


def service_checks(project: Project, pipelines: Iterable[Pipeline], *, is_all: bool) -> list[Check]:
    """The checks of the services that these pipelines use; if they are all pipelines, of all services of the settings."""
    chosen, settings = list(pipelines), project.settings
    clusters = settings.clusters if is_all else {pipeline.source.cluster for pipeline in chosen}
    catalogs = settings.catalogs if is_all else {name for pipeline in chosen for name in pipeline.catalogs}
    parts = [part for pipeline in chosen for part in (pipeline.value, pipeline.key) if part is not None]
    registries = settings.registries if is_all else {part.registry for part in parts if part.registry is not None}
    checks: list[Check] = [
        partial(findings_of, _CLUSTER.format(name), partial(cluster, project, name)) for name in sorted(clusters)
    ]
    tables = tuple(table for pipeline in chosen for table in (*pipeline.tables, pipeline.ledger_table))
    checks += [partial(catalog, project, name, tables) for name in sorted(catalogs)]
    checks += [partial(registry, project, name) for name in sorted(registries)]
    return [*checks, partial(warm_spark, project)]


def cluster_check(pipeline: Pipeline) -> str:
    """Name of the check of a pipeline's cluster."""
    return _CLUSTER.format(pipeline.source.cluster)


def cluster(project: Project, name: str) -> Iterator[Finding]:
    """Whether brokers of a cluster answer."""
    target = project.cluster(name)
    began = time.monotonic()
    facts = observe(target, ())
    milliseconds = 1_000 * (time.monotonic() - began)
    answer = f"{target.bootstrap_servers} answers in {milliseconds:.0f} ms; cluster id {facts.cluster_id}"
    yield Finding(_CLUSTER.format(name), "ok", answer)


def catalog(project: Project, name: str, tables: tuple[str, ...]) -> Iterator[Finding]:
    """Whether a catalog and its storage answer and can be written, and whether the clocks of their servers are right."""
    check = f"catalog {name}"

    def check_catalog() -> Iterator[Finding]:
        lake = project.lake(name)
        lake.check_writable()
        answer = "answers" if lake.kind in ("rest", "glue") else "answers, and can be written"
        lacks = f"; it lacks {MISSING_FEATURES[lake.kind]}" if lake.kind in MISSING_FEATURES else ""
        yield Finding(check, "ok", answer + lacks)
        yield from findings_of(f"storage of {name}", lambda: [storage(lake, tables)])

    yield from findings_of(check, check_catalog)
    settings = project.settings.catalogs[name]
    if settings.type == "rest":
        yield from clock(check, settings.uri)
    if (endpoint := settings.properties.get(_S3)) is not None:
        yield from clock(f"{_S3} of {check}", endpoint)


def storage(lake: Lake, tables: Iterable[str]) -> Finding:
    """Whether files can be written where the tables of a catalog are stored.

    Raises:
        Retryable, Terminal: They can't.
    """
    check, target = f"storage of {lake.name}", lake.storage(tables)
    if target is None:
        return Finding(check, "ok", "unknown until there is a table: the server decides where it is")
    target.check_writable()
    answer = f"a file was written to {target.location}, read and removed"
    if (end := credentials_expire_ms(target.properties)) is not None:
        minutes = (end / 1000 - time.time()) / 60
        answer += f"; the catalog lends its keys for {minutes:.0f} minutes: batches must be shorter"
    return Finding(check, "ok", answer)


def registry(project: Project, name: str) -> Iterator[Finding]:
    """Whether a Schema Registry answers, and whether its clock is right."""
    check = f"registry {name}"

    def check_registry() -> Iterator[Finding]:
        require("registry", f"registry {name}")
        from frazil.registry.client import RegistrySchemas

        target = project.registry(name)
        schemas = RegistrySchemas(target)
        try:
            schemas.ask()
        finally:
            schemas.close()
        yield Finding(check, "ok", f"{target.redact(target.url) or 'AWS Glue'} answers")

    yield from findings_of(check, check_registry)
    for url in filter(None, project.settings.registries[name].url.split(",")):
        yield from clock(check, url.strip())


def warm_spark(project: Project) -> Iterator[Finding]:
    """Whether the managed Spark Connect server is up. No finding if no engine has such a server."""
    if managed_engine(project) is None:
        return
    address = spark_server.url(project.home)
    if home.answers(project.home.ports.spark_connect):
        yield Finding(_SPARK_CONNECT, "ok", f"{address} answers")
        return
    state = "ended by itself" if spark_server.is_started(project.home) else "is not up"
    step = "`frazil up --only spark`; until then each run starts a Spark of its own, which takes some seconds"
    yield Finding(_SPARK_CONNECT, "warning", f"the server {state}", f"a server at {address}", step)


def clock(server: str, url: str) -> Iterator[Finding]:
    """Compare an HTTP server's clock with this one. No finding if its answer has no time."""
    answer = ask_time(url)
    if answer is not None:
        yield clock_finding(server, answer.ahead)


_FAILED: Final = ("Refused", "Failed")
_WARNING: Final = ("Degraded", "Behind", "Paused")

_STEPS: Final = {
    "Failed": "frazil history {0}; the failed run's log is in Airflow",
    "Degraded": "docs/runbooks; frazil lag {0}",
    "Behind": "frazil lag {0}; frazil run {0}",
    "Paused": "frazil resume {0}",
}


def pipeline_checks(project: Project, pipeline: Pipeline, *, has_cluster: bool) -> list[Check]:
    """The checks of one pipeline. Without its cluster, those of topics and position are left out."""
    name, tables, position = pipeline.name, f"tables of {pipeline.name}", f"position of {pipeline.name}"
    checks: list[Check] = [
        lambda: findings_of(tables, lambda: [tables_finding(tables, name, table_health(project, pipeline))])
    ]
    if has_cluster:
        checks.append(lambda: findings_of(f"topics of {name}", lambda: topics(project, pipeline)))
        checks.append(lambda: findings_of(position, lambda: [position_finding(read(project, pipeline), pipeline)]))
    return checks


def topics(project: Project, pipeline: Pipeline) -> Iterator[Finding]:
    """Whether the topics exist and may be read, and whether the newest timestamps show a wrong clock."""
    cluster, source = project.cluster(pipeline.source.cluster), pipeline.source
    names = source.topics if source.topics_pattern is None else matching_topics(cluster, source.topics_pattern)
    if not names:
        step = "check the pattern, and that the credentials may see the topics; a new topic is read from its beginning"
        no_match = f"none matches {source.topics_pattern}"
        yield Finding(f"topics of {pipeline.name}", "warning", no_match, "at least one topic", step)
        return
    access = topic_access(cluster, names)
    yield access_finding(f"topics of {pipeline.name}", access)
    newest = max((topic.newest for topic in access.values() if topic.newest is not None), default=None)
    if newest is not None:
        yield record_finding(cluster.name, newest, datetime.now(UTC).timestamp())


def access_finding(check: str, access: dict[str, TopicAccess]) -> Finding:
    """Whether the credentials have the topic permissions that a pipeline needs."""
    missing = {
        name: sorted(NEEDED - topic.operations)
        for name, topic in access.items()
        if topic.operations is not None and not topic.operations >= NEEDED
    }
    if not missing:
        partitions = sum(topic.partitions for topic in access.values())
        return Finding(check, "ok", f"{', '.join(access)}: {partitions} partitions, which may be read")
    observed = "; ".join(f"{name}: no {' and no '.join(operations)}" for name, operations in missing.items())
    step = f"have {' and '.join(sorted(NEEDED))} on {', '.join(missing)} granted to the credentials of the settings"
    return Finding(check, "failed", observed, " and ".join(sorted(NEEDED)), step)


def position_finding(condition: Condition, pipeline: Pipeline) -> Finding:
    """The finding for a pipeline's position, by its state."""
    check, name = f"position of {pipeline.name}", pipeline.name
    pipeline_state, why = state_of(condition, freshness_objective(pipeline, condition.read_at))
    state: State = "failed" if pipeline_state in _FAILED else "warning" if pipeline_state in _WARNING else "ok"
    if state == "ok":
        return Finding(check, state, why if condition.n is None else f"batch {condition.n}: {why}")
    expected = "a position that Kafka still has" if pipeline_state == "Refused" else "Idle or Running"
    error_text = {"Refused": condition.refusal, "Degraded": condition.unreadable}.get(pipeline_state) or ""
    step = error_text.partition("\n  next: ")[2]  # the form of an error's text, see `frazil.errors`
    step = step or _STEPS.get(pipeline_state, "").format(name)
    return Finding(check, state, f"{pipeline_state}: {why}", expected, step or None)


def tables_finding(check: str, pipeline: str, scores: dict[str, int]) -> Finding:
    """Judge health scores, table by table."""
    if not scores:
        return Finding(check, "ok", "no table exists yet: the first run creates them")
    shown = ", ".join(f"{table} {score}" for table, score in sorted(scores.items()))
    if min(scores.values()) >= HEALTH:
        return Finding(check, "ok", f"health of 100: {shown}")
    step = f"frazil maintain {pipeline} --dry-run shows which steps are due; frazil maintain {pipeline} does them"
    return Finding(check, "warning", f"health of 100: {shown}", f"{HEALTH} or more", step)
