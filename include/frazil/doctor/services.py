"""Checks of what settings and pipeline files name: Kafka clusters, catalogs and their storage, Schema Registries;
topics, positions and tables.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from functools import partial
from typing import Final

from frazil.doctor.finding import (
    Check,
    Finding,
    State,
    ask_time,
    clock_finding,
    findings_of,
    record_finding,
)
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

_WARM: Final = "spark connect"

_S3: Final = "s3.endpoint"
"""Catalog property: address of an object store."""


def service_checks(project: Project, pipelines: Iterable[Pipeline], *, is_all: bool) -> list[Check]:
    """The checks of services. If the pipelines are all (`is_all`), of everything that the settings name, else of what these
    pipelines name.
    """
    named, settings = list(pipelines), project.settings
    clusters = settings.clusters if is_all else {pipeline.source.cluster for pipeline in named}
    catalogs = settings.catalogs if is_all else {name for pipeline in named for name in pipeline.catalogs}
    halves = [half for pipeline in named for half in (pipeline.value, pipeline.key) if half is not None]
    registries = settings.registries if is_all else {half.registry for half in halves if half.registry is not None}
    checks: list[Check] = [
        partial(findings_of, _CLUSTER.format(name), partial(cluster, project, name)) for name in sorted(clusters)
    ]
    tables = tuple(table for pipeline in named for table in (*pipeline.tables, pipeline.ledger_table))
    checks += [partial(catalog, project, name, tables) for name in sorted(catalogs)]
    checks += [partial(registry, project, name) for name in sorted(registries)]
    return [*checks, partial(warm_spark, project)]


def cluster_check(pipeline: Pipeline) -> str:
    """Name of the check of a pipeline's cluster."""
    return _CLUSTER.format(pipeline.source.cluster)


def cluster(project: Project, name: str) -> Iterator[Finding]:
    """Whether brokers of a cluster answer."""
    door = project.cluster(name)
    began = time.monotonic()
    facts = observe(door, ())
    took = 1_000 * (time.monotonic() - began)
    answer = f"{door.bootstrap_servers} answers in {took:.0f} ms; cluster id {facts.cluster_id}"
    yield Finding(_CLUSTER.format(name), "ok", answer)


def catalog(project: Project, name: str, tables: tuple[str, ...]) -> Iterator[Finding]:
    """Whether a catalog answers and can be written, its storage too, and what clocks their servers have."""
    check = f"catalog {name}"

    def ask() -> Iterator[Finding]:
        lake = project.lake(name)
        lake.check_writable()
        answer = "answers" if lake.kind in ("rest", "glue") else "answers, and can be written"
        lacks = f"; it lacks {MISSING_FEATURES[lake.kind]}" if lake.kind in MISSING_FEATURES else ""
        yield Finding(check, "ok", answer + lacks)
        yield from findings_of(f"storage of {name}", lambda: [storage(lake, tables)])

    yield from findings_of(check, ask)
    settings = project.settings.catalogs[name]
    if settings.type == "rest":
        yield from clock(check, settings.uri)
    if (endpoint := settings.properties.get(_S3)) is not None:
        yield from clock(f"{_S3} of {check}", endpoint)


def storage(lake: Lake, tables: Iterable[str]) -> Finding:
    """Whether files can be written where a catalog's tables keep theirs.

    Raises:
        Retryable, Terminal: They can't.
    """
    check, place = f"storage of {lake.name}", lake.storage(tables)
    if place is None:
        return Finding(check, "ok", "unknown until there is a table: the server decides where it is")
    place.check_writable()
    answer = f"a file was written to {place.location}, read and removed"
    if (end := credentials_expire_ms(place.properties)) is not None:
        answer += (
            f"; the catalog lends its keys for {(end / 1000 - time.time()) / 60:.0f} minutes: batches must be shorter"
        )
    return Finding(check, "ok", answer)


def registry(project: Project, name: str) -> Iterator[Finding]:
    """Whether a Schema Registry answers, and what clock it has."""
    check = f"registry {name}"

    def ask() -> Iterator[Finding]:
        require("registry", f"registry {name}")
        from frazil.registry.client import RegistrySchemas

        asked_registry = project.registry(name)
        schemas = RegistrySchemas(asked_registry)
        try:
            schemas.ask()
        finally:
            schemas.close()
        yield Finding(check, "ok", f"{asked_registry.redact(asked_registry.url) or 'AWS Glue'} answers")

    yield from findings_of(check, ask)
    for url in filter(None, project.settings.registries[name].url.split(",")):
        yield from clock(check, url.strip())


def warm_spark(project: Project) -> Iterator[Finding]:
    """Whether the managed Spark Connect server is up. No finding if no engine has one."""
    if managed_engine(project) is None:
        return
    address = spark_server.url(project.home)
    if home.answers(project.home.ports.spark_connect):
        yield Finding(_WARM, "ok", f"{address} answers")
        return
    state = "ended by itself" if spark_server.is_started(project.home) else "is not up"
    step = "`frazil up --only spark`; until then each run starts a Spark of its own, which takes some seconds"
    yield Finding(_WARM, "warning", f"the server {state}", f"one at {address}", step)


def clock(server: str, url: str) -> Iterator[Finding]:
    """Compare an HTTP server's clock with this one, if its answer has a time."""
    answer = ask_time(url)
    if answer is not None:
        yield clock_finding(server, answer.ahead)


_FAILED: Final = ("Refused", "Failed")
_SHAKY: Final = ("Degraded", "Behind", "Paused")

_STEPS: Final = {
    "Failed": "frazil history {0}; the failed run's log is in Airflow",
    "Degraded": "docs/runbooks; frazil lag {0}",
    "Behind": "frazil lag {0}; frazil run {0}",
    "Paused": "frazil resume {0}",
}


def pipeline_checks(project: Project, pipeline: Pipeline, *, has_cluster: bool) -> list[Check]:
    """The checks of one pipeline. If its cluster does not answer, checks of topics are left out."""
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
        step = "a topic that appears is read from its beginning; is the pattern right, and may the topics be seen?"
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
    lacking = {
        name: sorted(NEEDED - topic.operations)
        for name, topic in access.items()
        if topic.operations is not None and not topic.operations >= NEEDED
    }
    if not lacking:
        partitions = sum(topic.partitions for topic in access.values())
        return Finding(check, "ok", f"{', '.join(access)}: {partitions} partitions, which may be read")
    lacks = "; ".join(f"{name}: no {' and no '.join(operations)}" for name, operations in lacking.items())
    step = f"have {' and '.join(sorted(NEEDED))} on {', '.join(lacking)} granted to the credentials of the settings"
    return Finding(check, "failed", lacks, " and ".join(sorted(NEEDED)), step)


def position_finding(condition: Condition, pipeline: Pipeline) -> Finding:
    """The finding for a pipeline's position, by its state."""
    check, name = f"position of {pipeline.name}", pipeline.name
    word, why = state_of(condition, freshness_objective(pipeline, condition.read_at))
    state: State = "failed" if word in _FAILED else "warning" if word in _SHAKY else "ok"
    if state == "ok":
        return Finding(check, state, why if condition.n is None else f"batch {condition.n}: {why}")
    expected = "a position that Kafka still has" if word == "Refused" else "Idle or Running"
    complaint = condition.refusal if word == "Refused" else condition.unreadable if word == "Degraded" else None
    step = _next_step(complaint) or _STEPS.get(word, "").format(name) or None
    return Finding(check, state, f"{word}: {why}", expected, step)


def _next_step(complaint: str | None) -> str | None:
    """The next step of an error that is text by now, see `frazil.errors`."""
    return None if complaint is None else complaint.partition("\n  next: ")[2] or None


def tables_finding(check: str, pipeline: str, scores: dict[str, int]) -> Finding:
    """Judge health scores, table by table."""
    if not scores:
        return Finding(check, "ok", "there are none yet: the first run creates them")
    shown = ", ".join(f"{table} {score}" for table, score in sorted(scores.items()))
    if min(scores.values()) >= HEALTH:
        return Finding(check, "ok", f"health of 100: {shown}")
    step = f"frazil maintain {pipeline} --dry-run says what is due; frazil maintain {pipeline} does it"
    return Finding(check, "warning", f"health of 100: {shown}", f"{HEALTH} or more", step)
