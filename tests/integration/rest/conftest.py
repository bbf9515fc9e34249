"""The shop on a REST catalog, by way of a proxy that can be told to misbehave."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from frazil.project import SETTINGS_VARIABLE, Project
from frazil.report.history import history
from frazil.verify.check import verify
from tests.fault_proxy import FaultProxy, Forward, HeldRequest, Reply, Step, fault_proxy, refused
from tests.rest_catalog import RestServer

BROKEN = (b"broken", b"{}", b'{"id": "x"}')
"""Values that become dead letters."""

ORDERS, LETTERS, LEDGER = "shop.orders", "shop.orders__dead_letters", "shop.orders__ledger"


@dataclass(frozen=True)
class RestShop:
    """A shop whose every request to the catalog goes through the proxy; and straight ways to look at what is there."""

    shop: Any
    proxy: FaultProxy
    server: RestServer

    def run(self, **options: Any) -> Any:
        """One run, through the proxy."""
        return self.shop.run(**options)

    def rows(self, table: str) -> list[dict[str, Any]]:
        """All rows of a table, through its manifests and files, not by way of the proxy."""
        rows: list[dict[str, Any]] = self.server.lake().load_table(table).scan().to_arrow().to_pylist()
        return rows

    def snapshots(self, table: str) -> int:
        """How many snapshots a table has."""
        return len(self.server.lake().load_table(table).metadata.snapshots)

    def produce(self, first: int, last: int) -> None:
        """Good orders of these ids, and the broken values."""
        self.shop.produce_orders(range(first, last))
        self.shop.produce(BROKEN)

    def assert_exactly_once(self, orders: int, rounds: int) -> None:
        """Every order of `range(orders)` is one row with its values, every broken value of each round one letter.

        The ledger has each batch once and agrees; no offset is in two places; a further run finds nothing to do.
        """
        rows, letters = self.rows(ORDERS), self.rows(LETTERS)
        assert sorted((row["id"], row["name"]) for row in rows) == [(n, f"order {n}") for n in range(orders)]
        assert Counter(letter["value"] for letter in letters) == Counter(BROKEN * rounds)
        places = [(row["_kafka_partition"], row["_kafka_offset"]) for row in rows]
        places += [(letter["partition"], letter["offset"]) for letter in letters]
        assert len(places) == len(set(places)) == orders + len(BROKEN) * rounds
        verification = verify(self.shop.project, self.shop.pipeline)
        assert verification.is_clean, list(map(str, verification.differences))
        self._assert_ledger_agrees(len(places), {ORDERS: orders, LETTERS: len(BROKEN) * rounds})
        before = [self.snapshots(table) for table in (ORDERS, LETTERS, LEDGER)]
        assert (self.run().read, [self.snapshots(table) for table in (ORDERS, LETTERS, LEDGER)]) == (0, before)

    def _assert_ledger_agrees(self, read: int, landed: dict[str, int]) -> None:
        ledger = self.rows(LEDGER)
        named = [(row["n"], row["table"]) for row in ledger]
        assert len(named) == len(set(named))
        numbers = sorted({row["n"] for row in ledger})
        assert numbers == list(range(len(numbers)))
        ingested = [row for row in ledger if row["kind"] == "ingest"]
        assert {table: sum(row["rows"] for row in ingested if row["table"] == table) for table in landed} == landed
        batches = history(self.shop.project, self.shop.pipeline)
        assert sum(batch.read for batch in batches if batch.kind == "ingest") == read


def path_of(table: str) -> str:
    """End of the path of a table's own requests."""
    return f"/tables/{table.rpartition('.')[2]}"


def then_silence(proxy: FaultProxy, table: str, fault: Step) -> Step:
    """A fault of a commit, after which the table can't be read, once: the run ends and does not know."""

    def step(forward: Forward, reply: Reply) -> None:
        proxy.script("GET", path_of(table), refused(None))
        fault(forward, reply)

    return step


@pytest.fixture
def proxy(rest_server: RestServer) -> Iterator[FaultProxy]:
    """A proxy before the REST server."""
    with fault_proxy(rest_server.port) as proxy:
        yield proxy


@pytest.fixture
def rest_shop(
    shop: Callable[..., Any], rest_settings: Callable[..., Path], rest_server: RestServer, proxy: FaultProxy
) -> Callable[..., RestShop]:
    """Make a shop on the REST catalog: `rest_shop(partitions=1)`, `properties` are the catalog's."""

    def make(properties: Mapping[str, str] | None = None, **options: Any) -> RestShop:
        rest_shop = shop(**options)
        settings = rest_settings(uri=proxy.uri, properties=properties)
        project = Project.load(
            rest_shop.project.environment()
            | {SETTINGS_VARIABLE: str(settings), "FRAZIL_KAFKA_PORT": str(rest_shop.project.home.ports.kafka)}
        )
        return RestShop(replace(rest_shop, project=project), proxy, rest_server)

    return make


@pytest.fixture
def begun(rest_shop: Callable[..., RestShop]) -> RestShop:
    """A shop that stands at its start position: the next commit on each table is the next batch's."""
    shop = rest_shop()
    shop.run()
    return shop


@pytest.fixture
def held() -> Iterator[HeldRequest]:
    """A commit that hangs until the test releases it."""
    step = HeldRequest()
    yield step
    step.give_up()
