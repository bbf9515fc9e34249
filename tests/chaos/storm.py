"""The events of a random schedule: everything that may happen to a pipeline, in any order."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count
from random import Random

from frazil.batch.request import RunRequest
from frazil.batch.target import Target
from frazil.crash_points import CrashPoint
from frazil.errors import OutcomeUnknown, Retryable
from frazil.iceberg.holdings import ancestry
from frazil.kafka.observe import observe
from tests.chaos import child
from tests.chaos.child import Deed
from tests.chaos.lab import LENIENT, ORDERS, STRICT, TABLES, Lab, bad, doubtful, good
from tests.chaos.maintenance import Maintained
from tests.chaos.processes import SECONDS, Child, kill_at, stop_at
from tests.chaos.scenes import INGEST, REPLAY
from tests.transactions import Transactions

HARMLESS = {0, Retryable.exit_code, OutcomeUnknown.exit_code}
ABORTED = 0.3
"""Share of transactions that are aborted."""

ASLEEP, PARTITIONS = 4, 8
"""The most zombies at a time, and the most partitions: one more of them, and the machine is what is tested."""


class Broken(Exception):
    """Something happened that must not: a child's surprise, or a check that found a difference."""


@dataclass
class Storm:
    """What happens to a lab, decided by a seeded random number generator."""

    orders: Lab
    maintained: Maintained
    writer: Transactions
    random: Random
    figures: Counter[str] = field(default_factory=Counter)
    zombies: list[Child] = field(default_factory=list)
    _numbers: Iterator[int] = field(default_factory=count)

    def events(self) -> dict[Callable[[], None], int]:
        """What may happen, with weights."""
        return {
            self.produce: 18,
            self.produce_in_transactions: 10,
            self.add_a_partition: 1,
            self.run: 20,
            self.run_killed_at_a_point: 24,
            self.run_killed_any_time: 8,
            self.two_at_once: 8,
            self.pause_a_run: 16,
            self.wake_a_zombie: 16,
            self.run_to_somewhere: 5,
            self.replay: 5,
            self.move_back: 3,
            self.roll_back: 3,
            self.compact: 4,
            self.expire: 4,
            self.remove_orphans: 1,
            self.append_foreign_rows: 5,
            self.change_rules: 3,
            self.stay_quiet: 3,
        }

    def step(self) -> str:
        """Let one thing happen, and return what."""
        events = self.events()
        if not self.orders.values:
            self.produce()
        (event,) = self.random.choices(list(events), weights=list(events.values()))
        event()
        self.figures["steps"] += 1
        return event.__name__

    # --- producers ----------------------------------------------------------------------------------------------------
    def produce(self) -> None:
        """Plain records, some of them bad, some without value."""
        values = [self._value() for _ in range(self.random.randint(1, 60))]
        self.orders.produce(values, self.random.randrange(self._partitions()))

    def produce_in_transactions(self) -> None:
        """Transactions, three of ten aborted: only what is committed must come out."""
        for _ in range(self.random.randint(1, 5)):
            values = [
                value for value in (self._value() for _ in range(self.random.randint(1, 10))) if value is not None
            ]
            partition = self.random.randrange(self._partitions())
            if self.random.random() < ABORTED:
                self.writer.abort(values, partition)
                self.figures["aborted"] += len(values)
            elif values:
                self.writer.commit(values, partition)
                self.orders.values += values

    def add_a_partition(self) -> None:
        """The topic grows, under whatever runs or sleeps."""
        if self._partitions() < PARTITIONS:
            self.orders.add_partitions(self._partitions() + 1)
            self.writer.producer.list_topics(self.orders.topic, SECONDS)  # or it would hear of it minutes later
            self.figures["partitions"] += 1

    def _value(self) -> bytes | None:
        number = next(self._numbers)
        (made,) = self.random.choices([good, doubtful, bad, None], weights=[80, 10, 7, 3])
        return made(number) if made is not None else None

    # --- runs ---------------------------------------------------------------------------------------------------------
    def run(self) -> None:
        """A run that nobody harms."""
        self._end(self.orders.start())

    def run_killed_at_a_point(self) -> None:
        """A run that is killed where it hurts, if it gets there."""
        self.produce()
        self._end(self.orders.start(child.run, kill_at(self._point(), self.random.randint(1, 2))))

    def run_killed_any_time(self) -> None:
        """A run that is killed at some moment."""
        running = self.orders.start()
        running.process.join(self.random.uniform(0.05, 1.5))
        running.kill()
        self._end(running)

    def two_at_once(self) -> None:
        """Two runs, and perhaps one of them is killed."""
        crash = kill_at(self._point()) if self.random.random() < 1 / 2 else ""
        for running in [self.orders.start(child.run, crash), self.orders.start()]:
            self._end(running)

    def pause_a_run(self) -> None:
        """A run that stands still for a while, if it gets to its point."""
        if len(self.zombies) == ASLEEP:
            self.wake_a_zombie()
        self.produce()
        scene, deed = (REPLAY, self._replay()) if self.random.random() < 1 / 5 else (INGEST, child.run)
        place = stop_at(self.random.choice(scene.points), self.random.choice((1, 1, 2)))
        running = self.orders.start(deed, place)
        if running.stands_or_ended():
            self.zombies.append(running)
            self.figures["zombies"] += 1
        else:
            self._end(running)

    def wake_a_zombie(self) -> None:
        """A run that stood still goes on."""
        if self.zombies:
            zombie = self.zombies.pop(self.random.randrange(len(self.zombies)))
            zombie.resume()
            self._end(zombie)

    def run_to_somewhere(self) -> None:
        """A run that ends before the end of the log, as those of past intervals do."""
        request = RunRequest("interval", end=self.random.choice((self._offsets, self._instant))())
        self._end(self.orders.start(partial(child.run, request=request), self._perhaps_killed()))
        self.figures["intervals"] += 1

    def replay(self) -> None:
        """A range is landed again."""
        self._end(self.orders.start(self._replay(), self._perhaps_killed()))
        self.figures["replays"] += 1

    def move_back(self) -> None:
        """The position goes back; what lies behind it comes again."""
        position = self._position()
        if position is not None:
            back = {number: self.random.randint(0, at) for number, at in enumerate(position)}
            target = Target("offsets", offsets={self.orders.topic: back})
            self._end(self.orders.start(self.orders.reset(target), self._perhaps_killed()))
            self.figures["resets"] += 1

    def change_rules(self) -> None:
        """What was dead is good from now on, or the other way round."""
        self.orders.configure(**self.random.choice((LENIENT, STRICT)))

    def stay_quiet(self) -> None:
        """Runs that find nothing to do."""
        for _ in range(3):
            self.run()

    # --- others -------------------------------------------------------------------------------------------------------
    def roll_back(self) -> None:
        """Somebody makes the destination what it was some snapshots ago, and resets the pipeline to it."""
        metadata = self.orders.load().metadata
        past = [s.snapshot_id for s in ancestry(metadata, metadata.current_snapshot_id)]
        if len(past) > 1:
            self.orders.load().manage_snapshots().rollback_to_snapshot(self.random.choice(past[1:6])).commit()
            self.figures["rollbacks"] += 1
            while self._end(self.orders.start(child.to_table, self._perhaps_killed())) != 0:
                self.figures["retries"] += 1
            self.figures["rewinds"] += 1

    def compact(self) -> None:
        """All files of a table are rewritten."""
        self.maintained.compact(self.random.choice(TABLES[:2]))
        self.figures["maintenance"] += 1

    def expire(self) -> None:
        """Only the head of a table is kept."""
        self.maintained.expire(self.random.choice(TABLES))
        self.figures["maintenance"] += 1

    def remove_orphans(self) -> None:
        """Old files that nobody names go."""
        self.maintained.remove_orphans(self.random.choice(TABLES))
        self.figures["maintenance"] += 1

    def append_foreign_rows(self) -> None:
        """Somebody else writes to a table."""
        table = self.random.choice(TABLES)
        self.orders.foreign_commit(table, rows=self.random.randint(0, 3) if table == ORDERS else 0)
        self.figures["foreign"] += 1

    # --- what is checked ----------------------------------------------------------------------------------------------
    def drain(self) -> None:
        """Runs until one ends well: by then everything is in."""
        for _ in range(5):
            if self._end(self.orders.start()) == 0:
                return
        raise Broken("five runs in a row could not be finished")

    def check(self) -> str:
        """Drain, then hold every outcome against what was produced."""
        self.drain()
        self.figures["batches"] = len(self.orders.batches())
        self.figures["records"] = len(self.orders.values)
        result = self.orders.assert_clean()
        return f"verify clean, {result.records} records compared"

    def _end(self, running: Child) -> int:
        ended = running.wait()
        self.figures["runs"] += 1
        self.figures["kills"] += ended.killed
        self.figures["refusals"] += ended.said.count("refused")
        self.figures["redone"] += ended.said.count("refused, planning again") + ended.said.count("staging it again")
        self.figures["later"] += ended.code in HARMLESS - {0}
        if ended.code not in HARMLESS and not ended.killed:
            raise Broken(f"a run ended with exit code {ended.code}:\n{ended.said}")
        return ended.code

    # --- choices ------------------------------------------------------------------------------------------------------
    def _point(self) -> CrashPoint:
        return self.random.choice(list(CrashPoint))

    def _perhaps_killed(self) -> str:
        return kill_at(self._point()) if self.random.random() < 1 / 2 else ""

    def _offsets(self) -> Target:
        ends = {number: self.random.randint(0, end) for number, end in enumerate(self._ends())}
        return Target("offsets", offsets={self.orders.topic: ends})

    def _instant(self) -> Target:
        return Target("timestamp", datetime.now(UTC) - timedelta(seconds=self.random.uniform(0, 15)))

    def _replay(self) -> Deed:
        bounds = [sorted((self.random.randint(0, end), self.random.randint(0, end))) for end in self._ends()]
        start, end = (
            Target("offsets", offsets={self.orders.topic: {n: of[side] for n, of in enumerate(bounds)}})
            for side in (0, 1)
        )
        return self.orders.replay(start, end)

    def _ends(self) -> list[int]:
        return [
            p.stable_end for p in observe(self.orders.cluster, [self.orders.topic]).topics[self.orders.topic].partitions
        ]

    def _partitions(self) -> int:
        return len(self._ends())

    def _position(self) -> list[int] | None:
        batches = self.orders.batches()
        topics = json.loads(batches[-1]["position"])["topics"] if batches else {}
        return topics[self.orders.topic]["next"] if topics else None
