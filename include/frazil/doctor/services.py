"""Checks of what the settings name: Kafka clusters, catalogs and their storage, Schema Registries, and Airflow."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from functools import partial
from importlib.util import find_spec
from typing import Final

from frazil.doctor.finding import Check, Finding, ask_time, clock_finding, error_finding, findings_of
from frazil.errors import Retryable, Terminal
from frazil.extras import require
from frazil.iceberg.catalog.catalog import Lake
from frazil.kafka.admin.observe import observe
from frazil.pipeline.models.pipeline_file import Pipeline
from frazil.pipeline.settings.catalogs import LACKS
from frazil.project import Project
from frazil.runtime import port, spark_server
from frazil.runtime.airflow_login import any_api, remote_url
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
    return [*checks, partial(warm_spark, project), partial(airflow, project)]


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
        lacks = f"; it lacks {LACKS[lake.kind]}" if lake.kind in LACKS else ""
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
        return Finding(check, "ok", "not known before there is a table: the server tells where it is")
    place.check_writable()
    return Finding(check, "ok", f"a file was written to {place.location}, read and removed")


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
        yield Finding(check, "ok", f"{asked_registry.redact(asked_registry.url)} answers")

    yield from findings_of(check, ask)
    for url in project.settings.registries[name].url.split(","):
        yield from clock(check, url.strip())


def warm_spark(project: Project) -> Iterator[Finding]:
    """Whether the managed Spark Connect server is up. No finding if no engine has one."""
    if managed_engine(project) is None:
        return
    address = spark_server.url(project.home)
    if port.answers(project.home.ports.spark_connect):
        yield Finding(_WARM, "ok", f"{address} answers")
        return
    state = "ended by itself" if spark_server.is_started(project.home) else "is not up"
    step = "`frazil up --only spark`; until then each run starts a Spark of its own, which takes some seconds"
    yield Finding(_WARM, "warning", f"the server {state}", f"one at {address}", step)


def airflow(project: Project) -> Iterator[Finding]:
    """Whether the configured Airflow answers, and its components are healthy. No finding without Airflow."""
    if find_spec("httpx") is None:  # comes with Airflow's packages
        return
    is_embedded = remote_url() is None
    try:
        with any_api(project.home) as api:
            states = api.health()
    except Terminal as refusal:
        if not is_embedded:  # else it was never started in this home
            yield error_finding("airflow", refusal)
        return
    except Retryable as problem:
        yield error_finding("airflow", problem, "warning" if is_embedded else "failed")
        return
    ill = sorted(name for name, component in states.items() if not component.is_healthy)
    if ill:
        step = "look at their logs" + ("; `frazil up` starts what ended" if is_embedded else "")
        yield Finding("airflow", "failed", f"not healthy: {', '.join(ill)}", "all components are", step)
    else:
        yield Finding("airflow", "ok", f"answers, with {', '.join(sorted(states)) or 'no component yet'}")
    yield from clock("airflow", remote_url() or project.home.airflow_url)


def clock(server: str, url: str) -> Iterator[Finding]:
    """Compare an HTTP server's clock with this one, if its answer has a time."""
    answer = ask_time(url)
    if answer is not None:
        yield clock_finding(server, answer.ahead)
