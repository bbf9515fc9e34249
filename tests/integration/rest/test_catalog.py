"""A REST catalog that is away, hangs, refuses or is none at all: the error says what the caller may do, and no secret."""

from __future__ import annotations

import operator
import re
from pathlib import Path
from threading import Event

import pyarrow as pa
import pytest
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.serializers import FromInputFile
from pyiceberg.types import LongType, NestedField

from frazil.errors import FrazilError, Retryable, Terminal
from frazil.iceberg.catalog.catalog import Lake
from frazil.iceberg.catalog.rest import ANSWER
from frazil.iceberg.catalog.table import staging_table
from tests.conftest import FreePorts
from tests.fault_proxy import Answer, FaultProxy, failed, hung, refused
from tests.rest_catalog import RestServer

SCHEMA = Schema(NestedField(1, "id", LongType(), required=False))
SECRETS = {
    "credential": "me:hunter2",
    "token": "hunter2",
    "header.X-Key": "hunter2",
    "s3.secret-access-key": "hunter2",
    "oauth2-server-uri": "http://me:hunter2@127.0.0.1:1/tokens",
}


@pytest.fixture
def empty(rest_server: RestServer) -> RestServer:
    """The server without a table."""
    rest_server.empty()
    return rest_server


def make(lake: Lake, name: str) -> None:
    lake.create_table(name, SCHEMA, UNPARTITIONED_PARTITION_SPEC, {"purpose": "test"})


def test_snapshots_are_read_once(empty: RestServer) -> None:
    """By all catalogs of a process, loads and commits alike; and the metadata are what the table's file says."""
    make(empty.lake(), "shop.orders")
    versions = []
    for n in range(3):
        table = empty.lake().load_table("shop.orders")
        table.append(pa.table({"id": [n]}))
        versions.append(table.metadata)
    loaded = empty.lake().load_table("shop.orders")

    assert loaded.metadata == FromInputFile.table_metadata(loaded.io.new_input(loaded.metadata_location))
    assert [len(of.snapshots) for of in versions] == [1, 2, 3]
    for metadata in versions:
        assert all(map(operator.is_, metadata.snapshots, loaded.metadata.snapshots))


def test_tables_of_nested_namespaces_are_found(empty: RestServer) -> None:
    """Tables are made with their namespaces, found, listed, and made only once whoever is first."""
    for name in ("shop.orders", "shop.europe.orders", "lab.orders"):
        make(empty.lake(), name)
    with empty.lake().load_table("shop.orders").transaction() as transaction:
        transaction.set_properties({"purpose": "changed"})

    make(empty.lake(), "shop.orders")

    lake = empty.lake()
    assert lake.tables() == ["lab.orders", "shop.europe.orders", "shop.orders"]
    assert lake.load_table("shop.orders").properties["purpose"] == "changed"
    assert lake.find_table("shop.order") is None
    assert lake.find_table("nowhere.orders") is None
    with pytest.raises(Terminal, match=re.escape("its tables: lab.orders, shop.europe.orders, shop.orders")):
        lake.load_table("shop.order")


def test_commits_do_not_warn_of_metadata_deleted_by_server(empty: RestServer, caplog: pytest.LogCaptureFixture) -> None:
    """Client and server both delete what a commit made superfluous; whoever comes second has nothing to tell."""
    make(empty.lake(), "shop.busy")
    metadata_properties = {
        "write.metadata.delete-after-commit.enabled": "true",
        "write.metadata.previous-versions-max": "1",
    }
    for number in range(4):
        with empty.lake().load_table("shop.busy").transaction() as transaction:
            transaction.set_properties({**metadata_properties, "number": str(number)})

    table = empty.lake().load_table("shop.busy")
    location = Path(table.metadata.location.removeprefix("file://"))
    assert len(list(location.glob("metadata/*.metadata.json"))) == 2
    assert [record.message for record in caplog.records if "delete" in record.message] == []


def test_unavailable_catalog_is_not_taken_for_empty_one(free_ports: FreePorts) -> None:
    """Nobody listens: try again later."""
    [port] = free_ports(1)

    with pytest.raises(Retryable, match=r"opening catalog lake: .*not available now .*ConnectionError"):
        Lake("lake", f"http://127.0.0.1:{port}", None, {}, kind="rest").find_table("shop.orders")


def test_server_that_fails_over_each_new_table_is_retryable(empty: RestServer, proxy: FaultProxy) -> None:
    """It is asked a few times, and then the run may be tried again."""
    proxy.script("POST", "/namespaces/shop/tables", *[refused(500)] * 5)

    with pytest.raises(Retryable, match=r"creating table shop\.orders in catalog lake: .*ServerError"):
        make(empty.lake(proxy.uri), "shop.orders")

    assert proxy.unused == 0
    make(empty.lake(proxy.uri), "shop.orders")


@pytest.mark.parametrize("place", ["opening", "loading"])
def test_hanging_catalog_does_not_hang_run(empty: RestServer, proxy: FaultProxy, place: str) -> None:
    """A server that takes the connection and never answers is given up at the time limit."""
    over = Event()
    lake = by_way_of(proxy, {ANSWER: "3000"})
    path = "/v1/config" if place == "opening" else "/tables/orders"
    proxy.script("GET", path, hung(over, carried_out=False))
    try:
        with pytest.raises(
            Retryable, match=rf"{place} .*catalog lake: .*not available now .*ReadTimeout.*timeout=3\.0"
        ):
            lake.find_table("shop.orders")
    finally:
        over.set()


def test_hanging_token_server_does_not_hang_run(empty: RestServer, proxy: FaultProxy) -> None:
    """The time limit holds for the very first request too, which fetches a token."""
    over = Event()
    proxy.script("POST", "/tokens", hung(over, carried_out=False))
    properties = {ANSWER: "500", "credential": "me:hunter2", "oauth2-server-uri": f"{proxy.uri}/tokens"}
    try:
        with pytest.raises(Retryable, match=r"opening catalog lake: .*ReadTimeout") as caught:
            by_way_of(proxy, properties).tables()
    finally:
        over.set()

    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("limit", ["0", "-1", "soon", ""])
def test_invalid_time_limit_is_refused(empty: RestServer, limit: str) -> None:
    """A limit that is no number of milliseconds is the settings' fault."""
    with pytest.raises(Terminal, match=f"{ANSWER}: expected milliseconds, found {limit!r}"):
        Lake("lake", empty.uri, None, {ANSWER: limit}, kind="rest").tables()


@pytest.mark.parametrize(
    ("status", "expected", "says"),
    [
        (400, Terminal, "the catalog refused"),
        (401, Terminal, "the catalog refused"),
        (403, Terminal, "the catalog refused"),
        (418, Terminal, "the answer is not from a catalog's API"),
        (419, Terminal, "the catalog refused"),
        (429, Retryable, "not available now"),
        (500, Retryable, "not available now"),
        (502, Retryable, "not available now"),
        (503, Retryable, "not available now"),
        (504, Retryable, "not available now"),
    ],
)
def test_every_catalog_error_names_its_class(
    empty: RestServer, proxy: FaultProxy, status: int, expected: type[FrazilError], says: str
) -> None:
    """Every error of the protocol says what the caller may do."""
    proxy.script("GET", "/tables/orders", *[refused(status)] * 2)

    with pytest.raises(expected, match=f"loading table shop.orders of catalog lake: .*{says}") as caught:
        by_way_of(proxy, {}).find_table("shop.orders")

    assert type(caught.value) is expected


@pytest.mark.parametrize("answer", [failed(404), Answer(200, {}, b"<html>")], ids=["404", "a page"])
def test_server_that_is_no_catalog_is_refused(proxy: FaultProxy, answer: Answer) -> None:
    """Some other server listens there, or the path is wrong: the uri in the settings is to blame."""
    proxy.script("GET", "/v1/config", lambda _, reply: reply(answer))

    with pytest.raises(Terminal, match=r"(?s)opening catalog lake: .*root of an Iceberg REST catalog"):
        by_way_of(proxy, {}).tables()


@pytest.mark.parametrize(
    ("uri", "properties"),
    [
        ("nonsense hunter2", {}),
        ("ftp://me:hunter2@host", {}),
        ("http://me:hunter2@", {}),
        ("http://127.0.0.1:1", {"header.X-Key": "hunter2\r\nmore"}),
        ("http://127.0.0.1:1", {"header.Authorization": " hunter2"}),
        ("http://me:hunter2@127.0.0.1:1", SECRETS),
        ("http://127.0.0.1:1", {"token": "hunter2"}),
    ],
)
def test_secret_shows_in_no_error(uri: str, properties: dict[str, str]) -> None:
    """Whatever is wrong with address or headers, the message does not repeat them."""
    lake = Lake("lake", uri, None, properties, kind="rest")

    with pytest.raises(FrazilError, match="opening catalog lake") as caught:
        lake.tables()

    assert "hunter2" not in f"{caught.value!s} {caught.value!r} {lake!r}"


def test_tasks_get_no_catalog_credentials(empty: RestServer) -> None:
    """What a task gets to write files opens the storage, not the catalog."""
    make(empty.lake(), "shop.orders")
    opened = {"token": "hunter2", "header.X-Key": "hunter2", "scope": "hunter2", "s3.region": "here"}
    lake = Lake("lake", empty.uri, None, opened, kind="rest")

    io = staging_table("shop.orders", lake.load_table("shop.orders")).io

    assert "hunter2" not in str(dict(io))
    assert io["s3.region"] == "here"
    assert {type(value) for value in io.values()} == {str}


def by_way_of(proxy: FaultProxy, properties: dict[str, str]) -> Lake:
    """The catalog by way of the proxy."""
    return Lake("lake", proxy.uri, None, properties, kind="rest")
