"""Named schedules: what happens to topics while they are read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

from frazil.batch.facts import ClusterFacts
from frazil.batch.position import RunRequest, Target
from frazil.errors import Terminal
from frazil.failpoints import Failpoint
from frazil.kafka.admin.observe import observe
from frazil.kafka.admin.topics import create_topic
from frazil.kafka.client.cluster import Cluster
from frazil.run.batches.plan import plan_run
from frazil.run.batches.session import ingest
from frazil.run.staging.stage import stage_inline
from frazil.run.state import context
from tests.chaos.lab import Lab, good
from tests.chaos.scenes import BATCH, INGEST, one_now
from tests.servers import delete_topic
from tests.transactions import transactions

MakeLab = Callable[..., Lab]
P = Failpoint


@pytest.mark.parametrize("point", one_now(P.STAGED, P.PLANNED))
def test_topic_deleted_after_plan_publishes_nothing(lab: MakeLab, point: Failpoint) -> None:
    """Records of a topic that is gone can't be held against it any more: nothing is published."""
    orders = lab()
    running = orders.pause(point, 1, INGEST.prepare(orders))
    before = orders.snapshots()
    delete_topic(orders.cluster, orders.topic)

    running.resume()
    ended = running.wait()

    assert (ended.code, orders.topic in ended.output) == (Terminal.exit_code, True), ended.output
    assert orders.snapshots() == before


@pytest.mark.parametrize("point", one_now(P.STAGED, P.PLANNED))
def test_topic_recreated_after_plan_is_not_read_with_old_offsets(lab: MakeLab, point: Failpoint) -> None:
    """Offsets of the old topic are never read from the new one, though they would fit."""
    orders = lab()
    running = orders.pause(point, 1, INGEST.prepare(orders))
    before = orders.snapshots()
    delete_topic(orders.cluster, orders.topic)
    create_topic(orders.cluster, orders.topic, 1)
    orders.produce(map(good, range(9000, 9100)), 0)

    running.resume()
    ended = running.wait()

    assert (ended.code, "recreated" in ended.output) == (Terminal.exit_code, True), ended.output
    assert orders.snapshots() == before


def test_retention_past_position_stops_pipeline_unless_policy_skips(lab: MakeLab) -> None:
    """Lost records stop the pipeline; only the policy that says so goes on, and the loss is on record."""
    orders = lab(max_records=BATCH)
    orders.fill(0)
    orders.run()
    orders.produce(map(good, range(100, 130)), 0)
    orders.delete_before(34)

    assert orders.refused().code == Terminal.exit_code
    orders.configure(on_data_loss="skip_recorded")
    orders.run()

    orders.values = [value for value in orders.values if value not in set(map(good, range(100, 110)))]
    orders.assert_clean()
    assert [batch["skipped"] for batch in orders.batches("ingest")] == ["[]", f'[["{orders.topic}",0,24,34]]']


@pytest.mark.parametrize("policy", ["fail", "skip_recorded"])
def test_retention_past_planned_offsets_fails_run(lab: MakeLab, policy: str) -> None:
    """Records deleted after the plan make the run fail; the next one decides by the policy."""
    orders = lab(on_data_loss=policy)
    running = orders.pause(P.PLANNED, 1, INGEST.prepare(orders))
    orders.delete_before(30)

    running.resume()
    assert running.wait().code in (75, 78)

    if policy == "fail":
        assert orders.refused().code == Terminal.exit_code
        orders.configure(on_data_loss="skip_recorded")
    orders.run()
    landed = orders.outcomes()
    assert len(set(orders.values) - set(landed)) == 6
    orders.values = list(landed)
    orders.assert_clean()


@pytest.mark.parametrize("point", one_now(P.STAGED, P.PLANNED, P.DECIDE_COMMITTED))
def test_partitions_added_under_run_are_read_from_their_beginning(lab: MakeLab, point: Failpoint) -> None:
    """New partitions are taken at the next plan, from their beginning, even where the run that saw none is killed."""
    orders = lab(max_records=BATCH)
    running = orders.pause(point, 1, INGEST.prepare(orders))
    orders.add_partitions(3)
    orders.produce(map(good, range(7000, 7010)), 2)
    if point == P.DECIDE_COMMITTED:
        running.kill()
    else:
        running.resume()
        running.succeed()

    orders.run()

    orders.assert_clean()
    assert {row["_kafka_partition"] for row in orders.rows()} >= {2}


def test_daily_topics_that_come_and_go_are_read_completely(lab: MakeLab, cluster: Cluster) -> None:
    """A day that appears is read from its beginning; one that was read to its end vanishes without harm."""
    stem = f"events-{uuid4().hex[:8]}"
    days = [f"{stem}.2024010{day}" for day in (1, 2, 3)]
    orders = lab(source=rf"topics_pattern: '{stem}\.\d{{8}}'", start="latest", max_records=BATCH)
    orders.run()
    for number, day in enumerate(days[:2]):
        create_topic(cluster, day, 1)
        orders.produce(map(good, range(100 * number, 100 * number + 30)), topic=day)
    orders.crash(P.DECIDE_COMMITTED, 1)
    orders.run()
    delete_topic(cluster, days[0])
    create_topic(cluster, days[2], 1)
    create_topic(cluster, f"{stem}.2024010", 1)  # no whole match
    orders.produce(map(good, range(500, 510)), topic=days[2])

    orders.run()

    orders.assert_at_rest()
    assert sorted(row["id"] for row in orders.rows()) == [*range(30), *range(100, 130), *range(500, 510)]


def test_daily_topic_that_vanishes_unread_is_refused_or_skipped_on_record(lab: MakeLab, cluster: Cluster) -> None:
    """A day whose end is known and was not reached is a loss: refused, or skipped on record."""
    day = f"events-{uuid4().hex[:8]}.20240101"
    create_topic(cluster, day, 1)
    orders = lab(source=f"topics_pattern: '{day[:-8]}.*'", max_records=20)
    orders.produce(map(good, range(60)), topic=day)
    orders.crash(P.RECORD_COMMITTED, 2)
    delete_topic(cluster, day)

    ended = orders.refused()
    orders.configure(on_data_loss="skip_recorded")
    orders.run()

    assert (ended.code, "was deleted before it was read" in ended.output) == (Terminal.exit_code, True), ended.output
    assert orders.batches("ingest")[-1]["skipped"] == f'[["{day}",0,20,60]]'
    assert len(orders.rows()) == 20


def test_aborted_and_open_transactions_do_not_land(lab: MakeLab) -> None:
    """Three of ten transactions are aborted and one stays open: what is committed lands, and a kill changes nothing."""
    orders = lab(max_records=BATCH)
    with transactions(orders.cluster, orders.topic) as writer:
        for number in range(20):
            values = [good(100 * number + each) for each in range(5)]
            if number % 10 in (2, 5, 8):
                writer.abort(values)
            else:
                writer.commit(values)
                orders.values += values
        writer.open([good(50_000)])
        orders.crash(P.DECIDE_COMMITTED, 3)
        orders.run()
        orders.assert_clean()
        writer.end(commit=True)
    orders.values.append(good(50_000))

    orders.run()

    orders.assert_clean()
    orders.assert_at_rest()


def test_backlog_is_cut_by_bytes_and_by_records(lab: MakeLab) -> None:
    """Once a batch has measured the records, the next ones keep to `max_bytes`; `max_records` always holds."""
    orders = lab(max_records=100)
    orders.produce(map(good, range(300)), 0)
    orders.run()
    size = sum(map(len, orders.values)) / 300
    orders.configure(max_bytes=int(size * 40))
    orders.produce(map(good, range(1000, 1200)), 0)

    orders.run()

    read = [batch["records_read"] for batch in orders.batches("ingest")]
    assert read[:3] == [100, 100, 100]
    assert all(count <= 44 for count in read[3:])
    orders.assert_clean()


def test_broker_without_topic_ids_neither_stops_nor_misleads_pipeline(
    lab: MakeLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Said once; everything lands; and a log that ends before the position still tells a recreated topic."""

    def without_ids(cluster: Cluster, topics: Sequence[str], *, absent_ok: bool = False) -> ClusterFacts:
        facts = observe(cluster, topics, absent_ok=absent_ok)
        return replace(facts, topics={name: replace(topic, id=None) for name, topic in facts.topics.items()})

    monkeypatch.setattr(context, "observe", without_ids)
    lines: list[str] = []
    orders = lab()
    for first in (0, 100):
        orders.fill(first)
        planned = plan_run(orders.project, orders.pipeline, RunRequest(str(first)), lines.append).plan
        assert planned is not None
        assert ingest(orders.project, orders.pipeline, planned, stage_inline, lines.append) == 1

    orders.assert_clean()
    assert len([line for line in lines if "gives no topic ids" in line]) == 1
    delete_topic(orders.cluster, orders.topic)
    create_topic(orders.cluster, orders.topic, 1)
    with pytest.raises(Terminal, match="the log ends at 0"):
        plan_run(orders.project, orders.pipeline, RunRequest("recreated"))


def test_interval_runs_leave_no_gap(lab: MakeLab) -> None:
    """A run that ends at an instant goes on from the position to there; an older interval has nothing to do."""
    orders = lab(max_records=BATCH)
    orders.fill(0)
    between = datetime.now(UTC) + timedelta(milliseconds=5)
    orders.run()
    assert orders.outcomes()
    orders.fill(100)
    planned = plan_run(orders.project, orders.pipeline, RunRequest("old", end=Target("timestamp", between)))

    assert planned.plan is None
    orders.run()
    orders.assert_clean()
