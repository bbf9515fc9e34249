"""What more than one tier needs: one real broker, REST catalog, PostgreSQL, S3 server and Schema Registry each, started only if a test asks, and fresh topics."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from pathlib import Path
from random import SystemRandom
from typing import Any
from uuid import uuid4

import pytest

from frazil.devstack import broker as local_broker
from frazil.devstack.postgres import programs
from frazil.kafka.admin.topics import create_topic
from frazil.kafka.client.cluster import Cluster
from frazil.runtime.home import Home, bootstrap_servers, is_free
from frazil.runtime.jars import fetch
from frazil.runtime.process import Processes
from tests.hive_metastore import hive_metastore
from tests.postgres_server import PostgresServer, postgres_server
from tests.production import STORES, cluster_of, empty, in_production, production_stack
from tests.registry_server import RegistryServer, registry_server
from tests.rest_catalog import RestServer, rest_catalog_server
from tests.s3_server import S3Server, built_program, s3_server
from tests.seaweedfs import PORTS, SeaweedFS, program, seaweedfs
from tests.servers import with_ports
from tests.warm_spark import WarmSpark, started

TopicFactory = Callable[..., str]


BELOW_EPHEMERAL = range(20_000, 32_000)
"""Ports that the kernel gives to no outgoing connection: a client that keeps calling a killed broker would, sooner or
later, be given that broker's own port for its end of the connection, and the restart would find it taken."""

FreePorts = Callable[[int], list[int]]


@pytest.fixture(scope="session")
def free_ports() -> FreePorts:
    """Find different ports of the loopback interface on which nobody listens: `free_ports(3)`."""

    def find(count: int) -> list[int]:
        tried = SystemRandom().sample(BELOW_EPHEMERAL, 100)  # not the seeded one: sessions side by side would agree
        return list(islice(filter(is_free, tried), count))

    return find


@pytest.fixture(scope="session")
def production(request: pytest.FixtureRequest) -> Iterator[Home | None]:
    """The stores of the production profile, if the tests are to run on them (`--profile production`); else None."""
    if request.config.getoption("--profile") != "production":
        yield None
        return
    with production_stack(STORES) as home:
        yield home


@pytest.fixture(scope="session")
def broker(production: Home | None, tmp_path_factory: pytest.TempPathFactory, free_ports: FreePorts) -> Iterator[str]:
    """`host:port` of a broker in a home of its own; the jars are the project's."""
    if production is not None:
        yield bootstrap_servers(production)
        return
    kafka, controller = free_ports(2)
    root = tmp_path_factory.mktemp("broker")
    home = with_ports(replace(Home.resolve(), root=root), kafka=kafka, controller=controller)
    processes = Processes(home.run, home.logs, home.root)
    try:
        local_broker.start(home, processes, print)
        yield bootstrap_servers(home)
    finally:
        local_broker.stop(processes)


@pytest.fixture
def cluster(broker: str, production: Home | None) -> Cluster:
    """The broker as a cluster named `local`."""
    return Cluster("local", {"bootstrap.servers": broker}) if production is None else cluster_of(production)


@pytest.fixture
def home_at(production: Home | None) -> Callable[[Path], Path]:
    """Say where a home is to be: `home_at(tmp_path / "home")`. On the production profile it has its stores, emptied."""

    def make(root: Path) -> Path:
        if production is not None:
            empty(production)
            in_production(production, root)
        return root

    return make


@pytest.fixture
def topic(cluster: Cluster) -> TopicFactory:
    """Make topics that no other test knows: `topic(partitions=1, config={...})` returns the name."""

    def make(partitions: int = 1, config: Mapping[str, str] | None = None) -> str:
        name = f"t-{uuid4().hex}"
        assert create_topic(cluster, name, partitions, config or {})
        return name

    return make


@pytest.fixture(scope="session")
def rest_server(tmp_path_factory: pytest.TempPathFactory, free_ports: FreePorts) -> Iterator[RestServer]:
    """Iceberg's REST catalog server on the loopback interface."""
    with rest_catalog_server(tmp_path_factory.mktemp("rest"), *free_ports(1)) as server:
        yield server


@pytest.fixture
def rest_settings(rest_server: RestServer, tmp_path: Path) -> Callable[..., Path]:
    """Write a settings file whose catalog `lake` is the REST server, emptied: `rest_settings(uri=..., properties={...})`."""
    rest_server.empty()

    def write(uri: str = rest_server.uri, properties: Mapping[str, str] | None = None) -> Path:
        path = tmp_path / "settings.yaml"
        lake = {"type": "rest", "uri": uri, "properties": dict(properties or {})}
        clusters = {"local": {"bootstrap_servers": "${local:kafka}"}}
        path.write_text(json.dumps({"clusters": clusters, "catalogs": {"lake": lake}}))
        return path

    return write


@pytest.fixture(scope="session")
def postgres(free_ports: FreePorts) -> Iterator[PostgresServer]:
    """A PostgreSQL server on the loopback interface; without its programs on the machine the test is skipped."""
    if programs() is None:
        pytest.skip("no PostgreSQL: neither on PATH nor below /usr/lib/postgresql (apt-get install postgresql)")
    with postgres_server(*free_ports(1)) as server:
        yield server


@pytest.fixture(scope="session")
def metastore(tmp_path_factory: pytest.TempPathFactory, free_ports: FreePorts) -> Iterator[dict[str, Any]]:
    """The entry of a Hive Metastore on the loopback interface, less a warehouse."""
    with hive_metastore(tmp_path_factory.mktemp("hive"), *free_ports(1)) as entry:
        yield entry


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory, free_ports: FreePorts) -> Iterator[S3Server]:
    """An S3 server on the loopback interface; without the program and a Go that builds it the test is skipped."""
    if built_program(Home.resolve()) is None:
        pytest.skip("no S3 server: Go builds it, and there is none on PATH (https://go.dev/dl, 1.26 or newer)")
    with s3_server(tmp_path_factory.mktemp("s3"), *free_ports(1)) as server:
        yield server


@pytest.fixture(scope="session")
def managed_catalog(tmp_path_factory: pytest.TempPathFactory, free_ports: FreePorts) -> Iterator[SeaweedFS]:
    """A REST catalog with a store of its own, logins and signatures; without a Go that builds it the test is skipped."""
    if (built := program(Home.resolve())) is None:
        pytest.skip("no SeaweedFS: Go builds it, and there is none on PATH (https://go.dev/dl, 1.26 or newer)")
    with seaweedfs(built, tmp_path_factory.mktemp("seaweedfs"), free_ports(2 * len(PORTS) + 1)) as server:
        yield server


@pytest.fixture(scope="session")
def registry(tmp_path_factory: pytest.TempPathFactory, free_ports: FreePorts) -> Iterator[RegistryServer]:
    """A Schema Registry on the loopback interface."""
    with registry_server(tmp_path_factory.mktemp("registry"), *free_ports(1)) as server:
        yield server


@pytest.fixture(scope="session")
def warm_spark(tmp_path_factory: pytest.TempPathFactory, free_ports: FreePorts) -> Iterator[WarmSpark]:
    """A spark connect server that Frazil manages, small. Who kills it brings it up again."""
    fetch(Home.resolve(), "spark")
    spark = started(tmp_path_factory.mktemp("warm"), *free_ports(1))
    try:
        yield spark
    finally:
        spark.down()
