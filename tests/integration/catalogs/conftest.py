"""The shop on each kind of catalog, and what goes wrong there in the catalog's own way."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol
from uuid import uuid4

import pytest
from botocore.exceptions import ReadTimeoutError
from pyiceberg.catalog import Catalog
from sqlalchemy.engine import make_url
from sqlalchemy.exc import OperationalError
from thrift.transport.TTransport import TTransportException

from frazil.iceberg.catalog.glue import SharedGlueCatalog
from frazil.iceberg.catalog.hive import SharedHiveCatalog
from frazil.iceberg.catalog.sql import SharedSqlCatalog
from frazil.pipeline.settings.catalogs import CatalogSettings
from frazil.project import SETTINGS_VARIABLE, Project, catalog_of
from tests.commit_proxy import CommitProxy, commit_proxy
from tests.conftest import FreePorts
from tests.fault_proxy import FaultProxy, fault_proxy, lost
from tests.glue_server import KEYS, glue_server
from tests.integration.conftest import environment
from tests.integration.rest.conftest import path_of, then_silence
from tests.postgres_server import PostgresServer
from tests.rest_catalog import RestServer
from tests.seaweedfs import SeaweedFS

KINDS = ("sqlite", "postgres", "rest", "hive", "glue", "oauth2", "sigv4")
FULL = ("sqlite", "hive", "glue", "oauth2", "sigv4")
"""Those whose whole contract is a matter of `make test-full`."""


class Faults(Protocol):
    """What a test does to commits: each strikes once."""

    @property
    def unused(self) -> int:
        """Faults that never struck."""

    def lose_answer(self, table: str) -> None:
        """The next commit on a table lands, and whoever sent it hears of a failure."""

    def fall_silent(self, table: str) -> None:
        """The same, and the next look at the catalog fails too."""


@dataclass(frozen=True)
class Store:
    """A catalog that a test may mistreat.

    Attributes:
        kind: One of `KINDS`.
        entry: Its entry in the settings file.
        faults: What can go wrong.
    """

    kind: str
    entry: dict[str, Any]
    faults: Faults


@pytest.fixture(scope="session")
def glue(free_ports: FreePorts) -> Iterator[str]:
    """Moto's Glue on the loopback interface."""
    with glue_server(*free_ports(1)) as uri:
        yield uri


@pytest.fixture(params=[pytest.param(kind, marks=pytest.mark.full) if kind in FULL else kind for kind in KINDS])
def store(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """Each kind of catalog in turn, empty."""
    if request.param == "sqlite":
        failure = OperationalError("made up by the test", {}, sqlite3.OperationalError("disk I/O error"))
        faults = CatalogFaults(monkeypatch, SharedSqlCatalog, failure)
        yield Store("sqlite", _database(f"sqlite:///{tmp_path}/catalog.db", tmp_path), faults)
    elif request.param == "hive":
        broken = TTransportException(TTransportException.TIMED_OUT, "made up by the test")
        entry = request.getfixturevalue("metastore") | {"warehouse": f"file://{tmp_path}/warehouse"}
        yield _emptied(Store("hive", entry, CatalogFaults(monkeypatch, SharedHiveCatalog, broken)))
    elif request.param == "glue":
        timeout = ReadTimeoutError(endpoint_url="made up by the test")
        entry = {"type": "glue", "uri": request.getfixturevalue("glue"), "warehouse": f"file://{tmp_path}/warehouse"}
        faults = CatalogFaults(monkeypatch, SharedGlueCatalog, timeout)
        yield _emptied(Store("glue", entry | {"properties": KEYS}, faults))
    elif request.param in ("oauth2", "sigv4"):
        managed: SeaweedFS = request.getfixturevalue("managed_catalog")
        _emptied(Store("rest", managed.entry(request.param), RestFaults(FaultProxy(""))))
        with fault_proxy(managed.port) as proxy:
            entry = managed.entry(request.param, int(proxy.uri.rpartition(":")[2]))
            yield Store(request.param, entry, RestFaults(proxy))
    elif request.param == "postgres":
        with _postgres(request.getfixturevalue("postgres"), tmp_path) as made:
            yield made
    else:
        server: RestServer = request.getfixturevalue("rest_server")
        server.empty()
        with fault_proxy(server.port) as proxy:
            yield Store("rest", {"type": "rest", "uri": proxy.uri}, RestFaults(proxy))


def _emptied(store: Store) -> Store:
    """The store without the tables of the test before."""
    lake = catalog_of("lake", CatalogSettings(**store.entry))
    for table in lake.tables():
        lake._catalog.drop_table(table)
    return store


def _database(uri: str, folder: Path) -> dict[str, Any]:
    return {"type": "jdbc", "uri": uri, "warehouse": f"file://{folder}/warehouse"}


@contextmanager
def _postgres(server: PostgresServer, folder: Path) -> Iterator[Store]:
    address = make_url(server.make(f"lake_{uuid4().hex}"))
    with commit_proxy(server.port) as proxy:
        uri = address.set(drivername="postgresql", port=proxy.port).render_as_string(hide_password=False)
        yield Store("postgres", _database(uri, folder), PostgresFaults(proxy))


@dataclass
class RestFaults:
    """Answers of a server that get lost on the way."""

    proxy: FaultProxy

    @property
    def unused(self) -> int:
        """Faults that never struck."""
        return self.proxy.unused

    def lose_answer(self, table: str) -> None:
        """504 from something in between."""
        self.proxy.script("POST", path_of(table), lost(504))

    def fall_silent(self, table: str) -> None:
        """The connection breaks, and the next question about the table is not answered."""
        self.proxy.script("POST", path_of(table), then_silence(self.proxy, table, lost(None)))


@dataclass
class PostgresFaults:
    """Connections that break behind a commit."""

    proxy: CommitProxy

    @property
    def unused(self) -> int:
        """Faults that never struck."""
        return self.proxy.unused

    def lose_answer(self, table: str) -> None:
        """The connection breaks once the server has committed."""
        self.proxy.lose_answer(table.rpartition(".")[2])

    def fall_silent(self, table: str) -> None:
        """The same, and the next connection too."""
        self.proxy.lose_answer(table.rpartition(".")[2], then_refuse=1)


class CatalogFaults:
    """What breaks between a catalog and its client once the catalog has committed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, catalog: type[Catalog], failure: Exception) -> None:
        self.unused = 0
        self._patch, self._catalog, self._failure = monkeypatch, catalog, failure

    def lose_answer(self, table: str) -> None:
        """The commit is in the catalog, and an error comes instead of the answer."""
        self._strike("commit_table", table)

    def fall_silent(self, table: str) -> None:
        """The same, and the next look at the table."""
        self._strike("commit_table", table, do_after=lambda: self._strike("load_table", table))

    def _strike(self, name: str, table: str, do_after: Callable[[], None] = lambda: None) -> None:
        was: Any = getattr(self._catalog, name)
        self.unused += 1

        def struck(catalog: Catalog, operation: Any, *arguments: Any) -> Any:
            done = was(catalog, operation, *arguments)
            if done.metadata.location.rpartition("/")[2] != table.rpartition(".")[2]:
                return done
            self._patch.setattr(self._catalog, name, was)
            self.unused -= 1
            do_after()
            raise self._failure

        self._patch.setattr(self._catalog, name, struck)


@pytest.fixture
def catalog_shop(shop: Callable[..., Any], store: Store, tmp_path: Path) -> Callable[..., Any]:
    """Make a shop on the catalog: `catalog_shop(partitions=1)`."""

    def make(**options: Any) -> Any:
        other_shop = shop(**options)
        settings = tmp_path / "settings.yaml"
        clusters = {"local": {"bootstrap_servers": "${local:kafka}"}}
        settings.write_text(json.dumps({"clusters": clusters, "catalogs": {"lake": store.entry}}))
        return replace(
            other_shop, project=Project.load(environment(other_shop.project) | {SETTINGS_VARIABLE: str(settings)})
        )

    return make
