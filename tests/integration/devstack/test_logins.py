"""The production profile's REST catalog and Schema Registry ask for a login."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from frazil.devstack import rest_catalog, schema_registry
from frazil.devstack.rest_catalog import Backing
from frazil.doctor.services import ask_time
from frazil.errors import Terminal
from frazil.iceberg.catalog.catalog import Lake
from frazil.pipeline.settings.catalogs import CatalogSettings
from frazil.registry.client import RegistrySchemas
from frazil.registry.registry import Registry
from frazil.runtime.home import Home, serves
from frazil.runtime.process import Processes
from frazil.verify.catalogs import _open_catalog
from tests.servers import with_ports

FreePorts = Callable[[int], list[int]]
PASSWORD = "hunter2"


def test_catalog_shows_its_tables_to_who_logs_in(tmp_path: Path, free_ports: FreePorts) -> None:
    """Who may open a port of this machine may not, for that alone, change metadata of tables."""
    home = with_ports(replace(Home.resolve(), root=tmp_path), catalog=free_ports(1)[0])
    home.warehouse.mkdir(parents=True)
    processes = Processes(home.run, home.logs, home.root)
    login = {"rest.auth.type": "basic", "rest.auth.basic.username": rest_catalog.USER}
    try:
        backing = replace(Backing.folder(home), secrets={"CATALOG_LOGIN": PASSWORD})
        rest_catalog.start(home, processes, print, backing)
        uri = rest_catalog.url(home)

        given = login | {"rest.auth.basic.password": PASSWORD}
        with closing(Lake("lake", uri, None, given, kind="rest")) as lake:
            assert list(lake.tables()) == []
        assert _open_catalog("lake", CatalogSettings(type="rest", uri=uri, properties=given)).list_namespaces() == []
        for properties in ({}, login, login | {"rest.auth.basic.password": "x"}):
            with closing(Lake("lake", uri, None, properties, kind="rest")) as lake, pytest.raises(Terminal):
                list(lake.tables())
        assert not serves(home.ports.catalog, "/v1/config")
        assert ask_time(uri) is not None
    finally:
        rest_catalog.stop(processes)
    assert PASSWORD not in "".join(path.read_text(errors="replace") for path in home.logs.iterdir())


@pytest.mark.full
def test_registry_shows_its_schemas_to_who_logs_in(tmp_path: Path, free_ports: FreePorts) -> None:
    """The same of the registry; short form: that of the catalog."""
    home = with_ports(replace(Home.resolve(), root=tmp_path), registry=free_ports(1)[0])
    processes = Processes(home.run, home.logs, home.root)
    try:
        schema_registry.start(home, processes, print, password=PASSWORD)
        url = schema_registry.url(home)

        with closing(RegistrySchemas(Registry("main", url, {"basic.auth.user.info": f"frazil:{PASSWORD}"}))) as schemas:
            schemas.ask()
        for properties in ({}, {"basic.auth.user.info": "frazil:x"}):
            schemas = RegistrySchemas(Registry("main", url, properties))
            with closing(schemas), pytest.raises(Terminal, match="credentials were refused"):
                schemas.schema(1)
        assert not serves(home.ports.registry, "/apis/registry/v3/search/versions")
    finally:
        schema_registry.stop(processes)
    assert PASSWORD not in "".join(path.read_text(errors="replace") for path in home.logs.iterdir())
