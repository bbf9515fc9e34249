"""Logs that lose their tail and grow again past the position: the records there were never read, and Frazil says so."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from frazil.batch.position import RunRequest, Target
from frazil.errors import Terminal
from frazil.kafka.admin.observe import truncations
from frazil.kafka.client.client import consumer
from frazil.kafka.client.cluster import Cluster
from frazil.run.batches.plan import plan_run
from frazil.run.batches.session import ingest
from frazil.run.staging.stage import stage_inline
from frazil.verify.check import verify
from tests.conftest import FreePorts
from tests.log_truncation import Patient, running_patient
from tests.operations import assert_clean, offsets, order, position, replay, reset, send
from tests.unit.batch.commands import reset_command

MakeShop = Callable[..., Any]

pytestmark = pytest.mark.embedded  # the broker is stopped, and its files are truncated


@pytest.fixture(scope="module")
def patient(tmp_path_factory: pytest.TempPathFactory, free_ports: FreePorts) -> Iterator[Patient]:
    """A broker of its own."""
    with running_patient(tmp_path_factory.mktemp("broker"), free_ports(2)) as broker:
        yield broker


@pytest.fixture
def cluster(patient: Patient) -> Cluster:
    """That broker, for the shop."""
    return patient.cluster


def landed(shop: MakeShop) -> Any:
    """A shop with six records of two partitions each, which came one by one, in the table."""
    orders = shop(partitions=2)
    text = (orders.project.pipelines_folder / "orders.yaml").read_text()
    # The group's coordinator is late after each restart, and nobody here looks at the group.
    orders = orders.with_pipeline(text.replace("source: {", "source: {consumer_group: false, "))
    for number in range(6):
        send(orders, {0: [order(number)], 1: [order(100 + number)]})
    assert orders.run().read == 12
    return orders


def test_log_that_regrew_past_the_position_is_refused(shop: MakeShop, patient: Patient) -> None:
    """The refusal says where the old log ended. After the reset it names, each record of Kafka is in the table, and no other."""
    orders = landed(shop)
    patient.truncate(orders, 0, 3)
    send(orders, {0: [order(number) for number in range(20, 28)], 1: [order(106)]})
    assert verify(orders.project, orders.pipeline).count == 3

    with pytest.raises(Terminal, match=r"partition 0: the position is 6 in leader epoch 0, which ends at 3") as e:
        orders.run()

    assert reset_command(e.value).offsets == {orders.topic: {"0": 3}}
    reset(orders, Target("offsets", offsets={orders.topic: {0: 3}}))
    assert orders.run().read == 9
    assert orders.ids() == [0, 1, 2, *range(20, 28), *range(100, 107)]
    assert_clean(orders)
    assert orders.run().batches == 0


def test_log_that_regrew_to_less_than_the_position_names_where_the_old_epoch_ended(
    shop: MakeShop, patient: Patient
) -> None:
    """A reset to the end of the log would pass over what stands between that and the end of the old log."""
    orders = landed(shop)
    patient.truncate(orders, 1, 2)
    send(orders, {1: [order(200)]})

    with pytest.raises(Terminal) as refused:
        orders.run()

    assert reset_command(refused.value).offsets == {orders.topic: {"1": 2}}


def test_replay_of_a_log_that_lost_records_leaves_their_rows(shop: MakeShop, patient: Patient) -> None:
    """Other records would take the place of those that were read, also where the log has grown just to the position."""
    orders = landed(shop)
    patient.truncate(orders, 0, 3)
    send(orders, {0: [order(number) for number in range(20, 23)]})

    with pytest.raises(Terminal, match=r"partition 0: the position is 6 in leader epoch 0, which ends at 3"):
        replay(orders, "earliest")

    assert orders.ids() == [*range(6), *range(100, 106)]


def test_replay_of_what_a_log_did_not_lose_is_done(shop: MakeShop, patient: Patient) -> None:
    """Another partition, and offsets before the cut: whether the log is shorter than the position or has grown to it."""
    orders = landed(shop)
    patient.truncate(orders, 0, 3)

    start, end = (Target("offsets", offsets={orders.topic: {1: offset}}) for offset in (0, 6))

    for _ in range(2):
        assert replay(orders, start, end).read == 6
        assert replay(orders, offsets(orders, 0, 6), offsets(orders, 3, 6)).read == 3
        send(orders, {0: [order(number) for number in range(20, 23)]})
    with pytest.raises(Terminal, match=r"partition 0: the position is 6 in leader epoch 0, which ends at 3"):
        replay(orders, offsets(orders, 0, 6), offsets(orders, 4, 6))

    assert orders.ids() == [*range(6), *range(100, 106)]


@pytest.mark.full
def test_rows_of_lost_records_stay_with_allow_duplicates(shop: MakeShop, patient: Patient) -> None:
    """`--allow-duplicates`: what Kafka lost is nowhere else."""
    orders = landed(shop)
    patient.truncate(orders, 0, 3)
    send(orders, {0: [order(number) for number in range(20, 28)]})

    reset(orders, offsets(orders, 3, 6), allow_duplicates=True)
    orders.run()

    assert orders.ids() == [*range(6), *range(20, 28), *range(100, 106)]


@pytest.mark.full
def test_log_truncated_between_plan_and_read_is_refused_by_the_next_plan(shop: MakeShop, patient: Patient) -> None:
    """The position takes the epoch that the plan heard of, which no record before the planned end is beyond."""
    orders = landed(shop)
    send(orders, {0: [order(6), order(7)]})
    send(orders, {0: [order(8), order(9)]})
    planned = plan_run(orders.project, orders.pipeline, RunRequest("run"))
    patient.truncate(orders, 0, 8)
    send(orders, {0: [order(number) for number in range(20, 26)]})
    assert planned.plan is not None
    ingest(orders.project, orders.pipeline, planned.plan, stage_inline, print)
    assert position(orders).next_offset(orders.topic, 0) == 10

    with pytest.raises(Terminal) as refused:
        orders.run()

    assert reset_command(refused.value).offsets == {orders.topic: {"0": 8}}


def test_new_leader_with_the_whole_log_is_read_on(shop: MakeShop, patient: Patient) -> None:
    """Leaders change without a loss: the position takes the new epoch where something was read, and only there."""
    orders = landed(shop)
    patient.truncate(orders, 0, 6)
    send(orders, {0: [order(6)]})

    assert orders.run().read == 1

    first, second = position(orders).topics[orders.topic].leader_epochs
    assert first > second == 0
    assert_clean(orders)


@pytest.fixture(params=[False, pytest.param(True, marks=pytest.mark.full)], ids=["cold", "warm"])
def asking(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], None]:
    """Whether the client that asks about a shop's logs knows their leaders before it reads."""

    def begin(orders: Any) -> None:
        def knowing(*args: Any, **options: Any) -> Consumer:
            client = consumer(*args, **options)
            client.get_watermark_offsets(TopicPartition(orders.topic, 0), timeout=10)
            return client

        if request.param:
            monkeypatch.setattr("frazil.kafka.admin.observe.consumer", knowing)

    return begin


def test_epoch_that_the_log_does_not_know_has_no_end(
    shop: MakeShop, cluster: Cluster, asking: Callable[[Any], None]
) -> None:
    """As where all brokers were restored from a copy."""
    orders = landed(shop)
    asking(orders)

    problems = truncations(cluster, {(orders.topic, 0): (6, 99), (orders.topic, 1): (6, 0)})

    assert problems == {(orders.topic, 0): None}


def test_log_that_ends_before_position_is_asked_for_its_epoch(
    shop: MakeShop, patient: Patient, cluster: Cluster, asking: Callable[[Any], None]
) -> None:
    """Its leader has nothing at the position, and yet says where the old epoch ended."""
    orders = landed(shop)
    patient.truncate(orders, 0, 3)
    send(orders, {0: [order(20)]})
    asking(orders)

    problems = truncations(cluster, {(orders.topic, 0): (6, 0), (orders.topic, 1): (6, 0)})

    assert problems == {(orders.topic, 0): 3}
