"""Runs with plans of different age over logs that grow, shrink, appear and vanish: every offset once, read or given up."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule

from frazil.batch.audit import check_position, check_vanished
from frazil.batch.facts import Range, TopicPartition
from frazil.batch.plan import RunPlan, advance, cut, plan_topics, remaining, skip_vanished, skipped, start_position
from frazil.batch.position import Position
from tests.unit.batch.lake_model import Broker

counts = st.lists(st.integers(1, 9), min_size=3, max_size=3)
names = st.sampled_from(["day-1", "day-2"])


class RivalRuns(RuleBasedStateMachine):
    """One pipeline whose pattern matches up to two topics, and several runs at once."""

    plans: Bundle[RunPlan] = Bundle("plans")

    @initialize(records=counts)
    def begin(self, records: list[int]) -> None:
        """A first run that begins at the log starts."""
        self.broker = Broker()
        self.broker.create("day-1", 2)
        self.broker.produce("day-1", records)
        starts = {key: p.log_start for key, p in self.broker.partitions().items()}
        self.position = start_position(self.broker.facts, starts)
        self.first = dict(starts)
        self.passed: dict[TopicPartition, list[Range]] = {}
        self.wanted: dict[TopicPartition, int] = {}
        self.vanished: set[str] = set()

    @rule(name=names, records=counts)
    def produce(self, name: str, records: list[int]) -> None:
        """Records arrive, in a topic that may be new; one that vanished does not come back."""
        if name not in self.vanished:
            if name not in self.broker.topics:
                self.broker.create(name, 1)
            self.broker.produce(name, records)

    @rule(name=names)
    def add_partition(self, name: str) -> None:
        """A topic gets another partition."""
        if name in self.broker.topics and len(self.broker.topics[name].partitions) < 3:
            self.broker.grow(name)

    @rule(name=names, partition=st.integers(0, 2), records=st.integers(1, 9))
    def expire(self, name: str, partition: int, records: int) -> None:
        """Retention deletes records, read or not."""
        if name in self.broker.topics:
            self.broker.expire(name, partition, records)

    @rule(name=names)
    def vanish(self, name: str) -> None:
        """A topic is deleted, read or not."""
        if self.broker.topics.pop(name, None) is not None:
            self.vanished.add(name)

    @rule(target=plans, until=st.none() | st.integers(0, 20))
    def plan(self, until: int | None) -> RunPlan:
        """A run fixes its ends: the stable ends, or those of an interval."""
        facts = self.broker.facts
        missing_topics = [name for name in self.position.topics if name not in facts.topics]
        check_position(self.position, facts, "p", "skip_recorded")
        check_vanished(self.position, missing_topics, "skip_recorded")
        ends = None if until is None else dict.fromkeys(self.broker.partitions(), until)
        topics = plan_topics(self.position, facts, ends) | skip_vanished(self.position, missing_topics)
        for key, p in self.broker.partitions().items():
            assert topics[key[0]].begin[key[1]] >= p.log_start
        return RunPlan.from_json(RunPlan("p", "r", "t", facts.cluster_id, topics, complete=False).to_json())

    @rule(plan=plans, most=st.integers(1, 8), batches=st.integers(1, 3))
    def land(self, plan: RunPlan, most: int, batches: int) -> None:
        """One of the runs lands some batches of its plan, wherever its rivals stand by now."""
        for _ in range(batches):
            ranges, skipped_ranges = remaining(plan, self.position), skipped(plan, self.position)
            if not ranges and not skipped_ranges:
                return
            before = self.position
            chosen = next(cut(ranges, most), ())
            after = advance(before, chosen, plan)
            self.position = Position.from_json(after.to_json())
            assert self.position == after
            assert after.n == before.n + 1
            self.keep(plan, chosen, skipped_ranges)

    @rule(plan=plans)
    def finish(self, plan: RunPlan) -> None:
        """A run that goes on until it has nothing left has reached all of its ends."""
        self.land(plan, 5, 1000)
        assert remaining(plan, self.position) == ()
        assert skipped(plan, self.position) == ()

    def keep(self, plan: RunPlan, read: tuple[Range, ...], skipped_ranges: tuple[Range, ...]) -> None:
        """Remember what a batch passed, and how far its run wants to go."""
        for r in sorted((*skipped_ranges, *read), key=lambda r: r.start):
            self.passed.setdefault((r.topic, r.partition), []).append(r)
        for name, topic in plan.topics.items():
            for number, end in enumerate(topic.end):
                self.first.setdefault((name, number), 0)
                self.wanted[name, number] = max(self.wanted.get((name, number), 0), end)

    @invariant()
    def no_offset_is_lost_or_repeated(self) -> None:
        """What was read and what was given up follow each other from the first position to the present one."""
        for name, topic in self.position.topics.items():
            for number, offset in enumerate(topic.next):
                pieces = self.passed.get((name, number), [])
                starts, ends = [r.start for r in pieces], [r.end for r in pieces]
                assert [*starts, offset] == [self.first[name, number], *ends]
                assert all(start < end for start, end in zip(starts, ends, strict=True))

    @invariant()
    def unread_partitions_are_known(self) -> None:
        """Exactly the partitions that some run wants to read further are marked, so that none vanishes unnoticed."""
        for name, topic in self.position.topics.items():
            behind = [n for n, offset in enumerate(topic.next) if offset < self.wanted.get((name, n), 0)]
            assert list(topic.unread) == behind

    def teardown(self) -> None:
        """In the end one more run brings what Kafka has, and gives up what it had."""
        if hasattr(self, "position"):
            self.finish(self.plan(None))
            self.no_offset_is_lost_or_repeated()
            assert not [name for name, topic in self.position.topics.items() if topic.unread]
            for (name, number), p in self.broker.partitions().items():
                assert self.position.next_offset(name, number) in (None, p.stable_end)


RivalRuns.TestCase.settings = settings(max_examples=100, stateful_step_count=25, deadline=None)
TestRivalRuns = RivalRuns.TestCase
