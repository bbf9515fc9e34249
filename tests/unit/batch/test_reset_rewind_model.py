"""Ingest, replay, reset, retention and rollbacks in any order: every offset has exactly one outcome all the same."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from frazil.batch.audit import check_position
from frazil.batch.changes import moved_back_ranges, replayed_ranges
from frazil.batch.facts import TopicPartition
from frazil.batch.plan import RunPlan, advance, cut, plan_topics, remaining, replay_topics, skipped, start_position
from frazil.batch.reset import reset_position
from frazil.errors import Terminal
from tests.unit.batch.lake_model import Batch, Broker, Tables, offsets_of, passed

counts = st.lists(st.integers(0, 6), min_size=3, max_size=3)
fractions = st.integers(0, 4)
names = st.sampled_from(["orders", "pizzas"])


class PipelineLife(RuleBasedStateMachine):
    """One pipeline with up to two topics, and everything that may happen to it between two batches."""

    @initialize(records=counts)
    def first_run(self, records: list[int]) -> None:
        """A first run that begins at the log starts."""
        self.broker = Broker()
        self.broker.create("orders", 2)
        self.broker.produce("orders", records)
        starts = {key: p.log_start for key, p in self.broker.partitions().items()}
        self.tables = Tables(start_position(self.broker.facts, starts))
        self.first = {(self.broker.topics[name].id, number): start for (name, number), start in starts.items()}

    @rule(name=names, records=counts)
    def produce(self, name: str, records: list[int]) -> None:
        """Records arrive, in a topic that may be new."""
        if name not in self.broker.topics:
            self.broker.create(name, 1)
        self.broker.produce(name, records)

    @rule(name=names, partition=st.integers(0, 2), records=st.integers(1, 9))
    def expire(self, name: str, partition: int, records: int) -> None:
        """Retention deletes records, landed or not."""
        if name in self.broker.topics:
            self.broker.expire(name, partition, records)

    @rule(name=names)
    def add_partition(self, name: str) -> None:
        """A topic gets another partition."""
        if name in self.broker.topics and len(self.broker.topics[name].partitions) < 3:
            self.broker.grow(name)

    @rule(name=names, records=counts)
    def recreate_topic(self, name: str, records: list[int]) -> None:
        """A topic is deleted and made anew, with other records at the same offsets."""
        self.broker.create(name, 2)
        self.broker.produce(name, records)

    @rule(batches=st.integers(1, 3), most=st.integers(1, 12))
    def ingest(self, batches: int, most: int) -> None:
        """A run lands some batches."""
        self.take_up_recreated_topics()
        plan = self.plan()
        for _ in range(batches):
            self.land(plan, most)

    @rule(begin=fractions, end=fractions)
    def replay(self, begin: int, end: int) -> None:
        """A range is landed again; records that were rows may be letters now, and letters rows."""
        self.take_up_recreated_topics()
        now = self.tables.main.position
        starts, ends = self.within_logs(begin), self.within_logs(end)
        plan = replace(self.plan(), topics=replay_topics(now, self.broker.facts, starts, ends, "p"))
        if plan.ranges:
            removed = replayed_ranges(plan.ranges, now)
            fates = self.tables.main.fates | {offset: True for r in plan.ranges for offset in offsets_of(now, r)}
            position = replace(now, n=self.tables.newest.n + 1)
            self.tables.commit(Batch("replay", position, plan.ranges, removed, removed), fates)

    @rule(new_start=fractions, only=st.none() | names)
    def reset(self, new_start: int, only: str | None) -> None:
        """The position is moved, forward or back, of all topics or of one."""
        offsets = {key: offset for key, offset in self.within_logs(new_start).items() if only in (None, key[0])}
        self.move(offsets)

    @precondition(lambda self: self.tables.main.past)
    @rule(data=st.data())
    def roll_back(self, data: st.DataObject) -> None:
        """The closing table is rolled back to one of its older snapshots, past whatever lies between."""
        number = data.draw(st.integers(0, len(self.tables.main.past) - 1))
        self.tables.main = self.tables.main.past[number]
        self.tables.rewind(self.first)

    @invariant()
    def every_offset_has_one_outcome(self) -> None:
        """What was landed stands once, in the rows or in the letters, and nothing else stands there."""
        expected = {fate_key for fate_key, landed in self.tables.main.fates.items() if landed}
        outcomes = self.tables.outcomes()
        assert outcomes.keys() == expected
        assert set(outcomes.values()) <= {1}

    @invariant()
    def every_offset_is_accounted_for(self) -> None:
        """From where a partition was begun to where the position stands, every offset landed or was given up on record."""
        for name, topic in self.tables.main.position.topics.items():
            for number, offset in enumerate(topic.next):
                landed_offsets = {
                    fate_key.offset for fate_key in self.tables.main.fates if fate_key[:2] == (topic.id, number)
                }
                assert landed_offsets == set(range(self.first[topic.id, number], offset)), (name, number)

    def teardown(self) -> None:
        """In the end a run without limits brings everything that Kafka has."""
        if hasattr(self, "tables"):
            self.take_up_recreated_topics()
            self.land(self.plan(), 10_000)
            self.every_offset_has_one_outcome()
            self.every_offset_is_accounted_for()
            for (name, number), p in self.broker.partitions().items():
                assert self.tables.main.position.next_offset(name, number) in (p.stable_end, None)

    def plan(self) -> RunPlan:
        """Plan a run, as far as the broker's facts allow it."""
        facts, position = self.broker.facts, self.tables.main.position
        check_position(position, facts, "p", "skip_recorded")
        return RunPlan("p", "r", "t", facts.cluster_id, plan_topics(position, facts), complete=True)

    def land(self, plan: RunPlan, most: int) -> None:
        """One batch."""
        now = self.tables.main.position
        ranges, skipped_ranges = remaining(plan, now), skipped(plan, now)
        if not ranges and not skipped_ranges:
            return
        chosen = next(cut(ranges, most), ())
        after = advance(replace(now, n=self.tables.newest.n), chosen, plan)
        self.begun(plan)
        fates = dict(self.tables.main.fates)
        fates |= {offset: True for r in chosen for offset in offsets_of(after, r)}
        fates |= {offset: False for r in skipped_ranges for offset in offsets_of(after, r)}
        self.tables.commit(Batch("ingest", after, chosen, given_up=skipped_ranges), fates)

    def move(self, offsets: dict[TopicPartition, int]) -> None:
        """One reset."""
        now, newest = self.tables.main.position, self.tables.newest
        after = reset_position(now, self.broker.facts, offsets, newest.n + 1, newest.epoch + 1)
        removed = moved_back_ranges(now, after)
        for name, topic in after.topics.items():
            topic_position = now.topics.get(name)
            for number in range(len(topic.next)):
                if topic_position is None or topic_position.id != topic.id or number >= len(topic_position.next):
                    log_start = self.broker.topics[name].partitions[number].log_start
                    self.first[topic.id, number] = log_start if (name, number) in offsets else 0
        fates = passed(self.tables.main.fates, now, after, self.first)
        self.tables.commit(Batch("reset", after, (), removed, removed), fates)

    def begun(self, plan: RunPlan) -> None:
        """Remember where partitions were begun that nobody knew before."""
        for topic in plan.topics.values():
            for number in range(len(topic.begin)):
                self.first.setdefault((topic.id, number), 0)

    def take_up_recreated_topics(self) -> None:
        """What the refusal of a recreated topic asks for: a reset of that topic to its beginning."""
        topics = self.tables.main.position.topics
        names_ = {name for name, topic in self.broker.topics.items() if name in topics and topics[name].id != topic.id}
        if names_:
            try:
                self.plan()
            except Terminal:
                self.move({key: p.log_start for key, p in self.broker.partitions().items() if key[0] in names_})

    def within_logs(self, fraction: int) -> dict[TopicPartition, int]:
        """An offset in every partition: the log's start, its end, or in between."""
        spans = {key: (p.log_start, p.stable_end - p.log_start) for key, p in self.broker.partitions().items()}
        return {key: start + span * fraction // 4 for key, (start, span) in spans.items()}


PipelineLife.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestPipelineLife = PipelineLife.TestCase
