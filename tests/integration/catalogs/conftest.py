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
from sqlalchemy.engine import make_url
from sqlalchemy.exc import OperationalError

from frazil.iceberg.catalog.sql import SharedSqlCatalog
from frazil.project import SETTINGS_VARIABLE, Project
from tests.commit_proxy import CommitProxy, commit_proxy
from tests.fault_proxy import FaultProxy, fault_proxy, lost
from tests.integration.conftest import environment
from tests.integration.rest.conftest import path_of, then_silence
from tests.postgres_server import PostgresServer
from tests.rest_catalog import RestServer

KINDS = ("sqlite", "postgres", "rest")


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


@pytest.fixture(params=[pytest.param("sqlite", marks=pytest.mark.full), *KINDS[1:]])
def store(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """Each kind of catalog in turn, empty."""
    if request.param == "sqlite":
        faults = SqliteFaults(monkeypatch)
        yield Store("sqlite", _database(f"sqlite:///{tmp_path}/catalog.db", tmp_path), faults)
    elif request.param == "postgres":
        with _postgres(request.getfixturevalue("postgres"), tmp_path) as made:
            yield made
    else:
        server: RestServer = request.getfixturevalue("rest_server")
        server.empty()
        with fault_proxy(server.port) as proxy:
            yield Store("rest", {"type": "rest", "uri": proxy.uri}, RestFaults(proxy))


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


class SqliteFaults:
    """A disk that fails behind a commit: a file has no answer that could be lost on the way."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.unused = 0
        self._patch = monkeypatch

    def lose_answer(self, table: str) -> None:
        """The commit is in the file, and an error comes instead of the answer."""
        self._strike("commit_table", table)

    def fall_silent(self, table: str) -> None:
        """The same, and the next look at the table."""
        self._strike("commit_table", table, then=lambda: self._strike("load_table", table))

    def _strike(self, name: str, table: str, then: Callable[[], None] = lambda: None) -> None:
        was: Any = getattr(SharedSqlCatalog, name)
        self.unused += 1

        def struck(catalog: SharedSqlCatalog, of: Any, *given: Any) -> Any:
            done = was(catalog, of, *given)
            if done.metadata.location.rpartition("/")[2] != table.rpartition(".")[2]:
                return done
            self._patch.setattr(SharedSqlCatalog, name, was)
            self.unused -= 1
            then()
            raise OperationalError("made up by the test", {}, sqlite3.OperationalError("disk I/O error"))

        self._patch.setattr(SharedSqlCatalog, name, struck)


@pytest.fixture
def catalog_shop(shop: Callable[..., Any], store: Store, tmp_path: Path) -> Callable[..., Any]:
    """Make a shop on the catalog: `catalog_shop(partitions=1)`."""

    def make(**options: Any) -> Any:
        made = shop(**options)
        settings = tmp_path / "settings.yaml"
        clusters = {"local": {"bootstrap_servers": "${local:kafka}"}}
        settings.write_text(json.dumps({"clusters": clusters, "catalogs": {"lake": store.entry}}))
        return replace(made, project=Project.load(environment(made.project) | {SETTINGS_VARIABLE: str(settings)}))

    return make
