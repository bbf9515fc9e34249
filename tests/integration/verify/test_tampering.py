"""Whatever is done to tables, ledger or position, `frazil verify` names it: the record, the batch, the table, and what is wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from frazil.errors import Terminal
from frazil.kafka.client.cluster import Cluster
from tests.tampering.pipelines import CIRCUMSTANCES, Landed
from tests.tampering.suite import MISSED, missed

Make = Callable[..., Any]

ADDED = [name for name in CIRCUMSTANCES if name != "merged"]
"""Circumstances that need no Spark."""


@pytest.mark.embedded
@pytest.mark.short("append-as_landed", "fan_out-as_landed")
@pytest.mark.parametrize("is_edited", [False, True], ids=["as_landed", "edited_since"])
@pytest.mark.parametrize("name", ADDED)
def test_each_tampering_is_named(tmp_path: Path, cluster: Cluster, name: str, is_edited: bool) -> None:
    """What verify says is what docs/reliability.md says that it says."""
    landed = Landed(tmp_path, cluster, CIRCUMSTANCES[name])
    landed.land(is_edited=is_edited)
    assert [str(difference) for difference in landed.verified().differences] == []

    assert missed(landed, name, is_edited=is_edited) == MISSED.get(f"{name}_edited" if is_edited else name, {})


@pytest.fixture
def orders(shop: Make) -> Any:
    """Two partitions, two batches: 42 good records, 2 bad ones, a tombstone."""
    orders = shop()
    orders.produce_orders(range(30))
    orders.produce([b"broken", None])
    orders.run()
    orders.produce_orders(range(30, 42))
    orders.produce([b'{"id": "x"}'])
    orders.run()
    return orders


def test_position_of_another_cluster_is_refused(orders: Any, check: Make, table: Make) -> None:
    """Offsets of one cluster mean nothing in another."""
    position = '{"v":1,"n":2,"epoch":0,"cluster":"c","topics":{}}'
    table(orders, "shop.orders__ledger").overwrite(lambda row: row | ({"position": position} if row["n"] == 2 else {}))

    with pytest.raises(Terminal, match="belongs to Kafka cluster c"):
        check(orders)


def test_unfinished_batch_is_named_with_its_next_step(shop: Make, check: Make) -> None:
    """Decided and not finished: the reader is told what to do."""

    class Killed(BaseException):
        """Ends a run like a kill."""

    def report(line: str) -> None:
        if "decided" in line:
            raise Killed

    orders = shop()
    orders.produce_orders(range(5))
    with pytest.raises(Killed):
        orders.run(report=report)

    found = check(orders)

    assert not found.is_clean
    assert "batch 1 is decided and not finished yet: run `frazil run orders`" in str(found.differences[0])
    orders.run()
    assert check(orders).is_clean


def test_rows_of_another_pipeline_are_only_counted(orders: Any, check: Make, table: Make) -> None:
    """Topics that a neighbour's position names in the same table are its own."""
    row = table(orders).rows().to_pylist()[0]
    table(orders).append([row | {"_kafka_topic": "elsewhere"}])
    position = {
        "v": 1,
        "n": 1,
        "epoch": 0,
        "cluster": "c",
        "topics": {"elsewhere": {"id": None, "from": [0], "next": [9]}},
    }
    with orders.project.lake("lake").load_table("shop.orders").transaction() as transaction:
        mirrored = json.dumps({"snapshot": 1, "value": json.dumps(position)})
        transaction.set_properties({"kafka.offsets.neighbour": mirrored})

    report = check(orders)

    assert (report.count, report.foreign) == (0, 1)
