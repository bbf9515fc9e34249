"""Pipelines of several Kafka clusters that one settings file names."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from frazil.devstack import broker as local_broker
from frazil.errors import Terminal
from frazil.kafka.admin.topics import create_topic
from frazil.kafka.client.cluster import Cluster
from frazil.project import SETTINGS_VARIABLE, Project
from frazil.runtime.home import Home, bootstrap_servers
from frazil.runtime.process import Processes
from tests.conftest import FreePorts
from tests.integration.conftest import Shop, environment
from tests.operations import assert_clean, lake, order, send
from tests.servers import with_ports


@pytest.fixture
def other(tmp_path: Path, free_ports: FreePorts) -> Iterator[Cluster]:
    """A second cluster."""
    kafka, controller = free_ports(2)
    home = with_ports(replace(Home.resolve(), root=tmp_path / "other"), kafka=kafka, controller=controller)
    processes = Processes(home.run, home.logs, home.root)
    try:
        local_broker.start(home, processes, print)
        yield Cluster("other", {"bootstrap.servers": bootstrap_servers(home)})
    finally:
        local_broker.stop(processes)


class Returns(Shop):
    """A pipeline `returns`, over a topic of the same name in the other cluster."""

    @property
    def pipeline(self) -> Any:
        """The pipeline as its file says now."""
        return self.project.pipeline("returns")


@pytest.mark.embedded  # its settings name clusters without a password
def test_records_of_another_cluster_do_not_land(shop: Callable[..., Shop], other: Cluster, tmp_path: Path) -> None:
    """Topics of one name, one offset and two clusters: each pipeline reads its own, and an edit that swaps them is refused."""
    orders = shop(partitions=1)
    create_topic(other, orders.topic, 1)
    clusters = {
        cluster.name: {"bootstrap_servers": cluster.properties["bootstrap.servers"]}
        for cluster in (orders.cluster, other)
    }
    catalog = {"uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}/warehouse"}
    settings = tmp_path / "settings.yaml"
    settings.write_text(json.dumps({"clusters": clusters, "catalogs": {"lake": catalog}}))
    folder = orders.project.pipelines_folder
    text = (folder / "orders.yaml").read_text()
    named = text.replace("name: orders", "name: returns").replace("shop.orders", "shop.returns")
    (folder / "returns.yaml").write_text(named.replace("topics:", "cluster: other, topics:"))
    project = Project.load(environment(orders.project) | {SETTINGS_VARIABLE: str(settings)})
    orders, returns = replace(orders, project=project), Returns(project, other, orders.topic)
    send(orders, {0: [order(1), order(2)]})
    send(returns, {0: [order(7), order(8)]})

    assert (orders.run().written, returns.run().written) == (2, 2)

    assert orders.ids() == [1, 2]
    assert sorted(row["id"] for row in returns.rows("shop.returns")) == [7, 8]
    assert_clean(orders)
    assert_clean(returns)
    swapped = orders.with_pipeline(text.replace("topics:", "cluster: other, topics:"))
    send(returns, {0: [order(9)]})
    with pytest.raises(Terminal, match="cluster"):
        swapped.run()
    assert len(lake(orders).load_table("shop.orders").scan().to_arrow()) == 2
