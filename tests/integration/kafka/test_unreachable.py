"""Nobody at the address: said within 15 seconds, with what to do, and nothing on stderr."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from frazil.errors import Retryable, Terminal
from frazil.kafka.admin.observe import observe
from frazil.kafka.admin.topics import create_topic
from frazil.kafka.client.cluster import Cluster, OutgoingRecord
from frazil.kafka.read.read import read_range
from frazil.kafka.write.produce import produce

OPERATIONS: dict[str, Callable[[Cluster], object]] = {
    "observe": lambda cluster: observe(cluster, ["orders"]),
    "read": lambda cluster: list(read_range(cluster, "orders", 0, 0, 1)),
    "produce": lambda cluster: produce(cluster, "orders", [OutgoingRecord(None, b"v")]),
    "create": lambda cluster: create_topic(cluster, "orders", 1),
}


def test_unreachable_broker_is_reported_in_time(unreachable: Cluster, capfd: pytest.CaptureFixture[str]) -> None:
    """Every operation names the servers asked, the reason and the next step, in time and once."""
    began = time.monotonic()

    with ThreadPoolExecutor(len(OPERATIONS)) as pool:  # together: each takes the whole time
        own = {name: Cluster("prod", {**unreachable.properties, "client.id": name}) for name in OPERATIONS}
        futures = {name: pool.submit(operation, own[name]) for name, operation in OPERATIONS.items()}

    assert time.monotonic() - began < 15
    for name, answer in futures.items():
        failure = answer.exception()
        assert isinstance(failure, Retryable), name
        assert unreachable.bootstrap_servers in failure.message, name
        assert "Connection refused" in failure.message, name
        assert "frazil up --only kafka" in (failure.next_step or ""), name
        assert "clusters.prod.bootstrap_servers" in (failure.next_step or ""), name
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("operation", OPERATIONS)
def test_bad_property_is_named_and_not_retried(operation: str) -> None:
    """A property that the client does not know is named, and not retried."""
    broken = Cluster("prod", {"bootstrap.servers": "127.0.0.1:1", "bootstrap.sservers": "x"})

    with pytest.raises(Terminal, match=r"bootstrap\.sservers"):
        OPERATIONS[operation](broken)
