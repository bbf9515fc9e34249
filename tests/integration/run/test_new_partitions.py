"""Partitions and topics that appear after a pipeline began: their records are owed from offset 0 on."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions

from frazil.batch.position import parse_offsets
from frazil.errors import Terminal
from frazil.kafka.admin.observe import observe
from frazil.kafka.admin.topics import create_topic
from frazil.runtime.process import until
from frazil.verify.check import verify
from tests.operations import LEDGER, assert_clean, lake, ledger, offsets, order, reset, send

MakeShop = Callable[..., Any]


def lose_head(orders: Any, topic: str, partition: int) -> None:
    """Thirty orders, the first twenty of which retention takes before anybody looks."""
    send(replace(orders, topic=topic), {partition: [order(n) for n in range(100, 130)]})
    admin = AdminClient(dict(orders.cluster.properties))
    place = TopicPartition(topic, partition, 20)
    admin.delete_records([place])[place].result()


@pytest.fixture
def grown(shop: MakeShop) -> Any:
    """A shop that landed two orders, then got a second partition, the head of which is gone."""
    orders = shop(partitions=1)
    send(orders, {0: [order(0), order(1)]})
    orders.run()
    admin = AdminClient(dict(orders.cluster.properties))
    admin.create_partitions([NewPartitions(orders.topic, 2)])[orders.topic].result()
    assert until(lambda: len(observe(orders.cluster, [orders.topic]).topics[orders.topic].partitions) == 2, 30)
    lose_head(orders, orders.topic, 1)
    return orders


def edited(orders: Any, old: str, new: str) -> Any:
    text = (orders.project.pipelines_folder / "orders.yaml").read_text()
    assert old in text
    return orders.with_pipeline(text.replace(old, new))


def test_lost_head_of_a_new_partition_is_refused(grown: Any) -> None:
    """The message has the offsets, and the reset that it names lets the pipeline go on."""
    with pytest.raises(Terminal, match=r"partition 1: records 0 to 19 were deleted by retention before they were read"):
        grown.run()

    reset(grown, offsets(grown, 2, 20))
    grown.run()

    assert grown.ids() == [0, 1, *range(120, 130)]
    assert_clean(grown)


def test_lost_head_of_a_new_partition_is_skipped_on_record(grown: Any) -> None:
    """The ledger has it; without that entry the independent check counts each of its offsets."""
    orders = edited(grown, f"[{grown.topic}]", f"[{grown.topic}], on_data_loss: skip_recorded")
    orders.run()

    assert orders.ids() == [0, 1, *range(120, 130)]
    assert json.loads(ledger(orders, "ingest")[-1]["skipped"]) == [[orders.topic, 1, 0, 20]]
    assert_clean(orders)

    table = lake(orders).load_table(LEDGER)
    rows = table.scan().to_arrow()
    column = rows.schema.get_field_index("skipped")
    table.overwrite(
        rows.set_column(column, rows.schema.field(column), pa.array(["[]"] * len(rows), rows.schema.field(column).type))
    )
    verification = verify(orders.project, orders.pipeline)
    assert sum(partition.missing for partition in verification.partitions) == 20


def test_lost_head_of_a_new_topic_of_a_pattern_is_refused(shop: MakeShop) -> None:
    """It appeared after the pipeline began, as a partition does. The reset that the message names moves that partition only."""
    orders = shop(partitions=1)
    orders = edited(orders, f"topics: [{orders.topic}]", f"topics_pattern: {orders.topic}.*")
    send(orders, {0: [order(0)]})
    orders.run()
    create_topic(orders.cluster, f"{orders.topic}-more", 2)
    lose_head(orders, f"{orders.topic}-more", 0)
    send(replace(orders, topic=f"{orders.topic}-more"), {1: [order(1)]})

    with pytest.raises(
        Terminal, match=rf"topic {orders.topic}-more, partition 0: records 0 to 19 were deleted"
    ) as error:
        orders.run()
    body = re.search(r"with (\{.*\}) in FILE\.json", str(error.value.next_step))
    assert body is not None
    reset(orders, parse_offsets(body[1], "FILE.json"))
    orders.run()

    assert orders.ids() == [0, 1, *range(120, 130)]
    assert_clean(orders)


def test_topic_that_somebody_adds_to_the_file_begins_at_its_log_start(shop: MakeShop) -> None:
    """What it lost before is on record, and no reason to stop."""
    orders = shop(partitions=1)
    send(orders, {0: [order(0)]})
    orders.run()
    create_topic(orders.cluster, f"{orders.topic}-more", 1)
    lose_head(orders, f"{orders.topic}-more", 0)

    orders = edited(orders, f"[{orders.topic}]", f"[{orders.topic}, {orders.topic}-more]")
    orders.run()

    assert orders.ids() == [0, *range(120, 130)]
    assert json.loads(ledger(orders, "ingest")[-1]["skipped"]) == [[f"{orders.topic}-more", 0, 0, 20]]
    assert_clean(orders)
