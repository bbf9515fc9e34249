"""The events of a random schedule: everything that may happen to a pipeline, in any order."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count
from random import Random

from py4j.protocol import Py4JJavaError
from sqlalchemy.exc import OperationalError

from frazil.batch.facts import PartitionFacts
from frazil.batch.position import RunRequest, Target
from frazil.errors import OutcomeUnknown, Retryable, Terminal
from frazil.failpoints import Failpoint
from frazil.iceberg.commit.summary_state import POSITION_KEY, ancestry
from frazil.kafka.admin.observe import observe
from tests.chaos import child
from tests.chaos.child import Deed
from tests.chaos.lab import COPIES, LENIENT, ORDERS, STRICT, TABLES, Lab, bad, doubtful, good
from tests.chaos.maintenance import Maintained
from tests.chaos.outsiders import catalog_file, remove_orphans
from tests.chaos.processes import SECONDS, Child, ExitResult, kill_at, stop_at
from tests.chaos.scenes import INGEST, REPLAY
from tests.fork_server import run_frazil
from tests.refusals import named_command
from tests.topic_reader import committed
from tests.transactions import Transactions, transactions

P = Failpoint
HARMLESS = {0, Retryable.exit_code, OutcomeUnknown.exit_code}
ABORTED = 0.3
"""Share of transactions that are aborted."""

ASLEEP, PARTITIONS = 4, 8
"""The most zombies at a time, and the most partitions: one more of them, and the machine is what is tested."""


BEFORE_COMMITS = (P.DECIDE_COMMITTING, P.FOLLOW_COMMITTING, P.RECORD_COMMITTING)
"""A run that sleeps here has looked for its files: no writer of Iceberg tables notices what goes between that and the commit."""


class Broken(Exception):
    """Something happened that must not: a child's surprise, or a check that found a difference."""


class Nothing(Exception):
    """A deed could not be done as things were: it is not counted."""


@dataclass(frozen=True)
class Zombie:
    """A run that stands still: where, since when, and how often others had harmed tables by then."""

    running: Child
    point: Failpoint
    since: float
    harms: int


@dataclass
class Storm:
    """What happens to a lab, decided by a seeded random number generator."""

    orders: Lab
    maintained: Maintained
    random: Random
    stack: ExitStack
    cut: Callable[[Lab, int, int], None] | None
    figures: Counter[str] = field(default_factory=Counter)
    zombies: list[Zombie] = field(default_factory=list)
    writer: Transactions = field(init=False)
    _numbers: Iterator[int] = field(default_factory=count)
    _harms: int = 0
    _committed: set[bytes] = field(default_factory=set)

    def __post_init__(self) -> None:
        """The embedded catalog is a file, which can be put back; that of a server can't."""
        self._catalog = catalog_file(self.orders)
        self._renew_writer()

    def _renew_writer(self) -> None:
        self.writer = self.stack.enter_context(transactions(self.orders.cluster, self.orders.topic))

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
            self.remove_orphans: 2,
            self.remove_fresh_orphans: 1,
            self.append_foreign_rows: 5,
            self.change_rules: 3,
            self.stay_quiet: 3,
            self.run_on_a_fast_host: 3,
            self.add_a_partition_under_retention: 1,
            self.deploy: 1,
            self.restore_a_table: 2,
            self.back_up: 5,
            self.restore_the_catalog: 4,
            self.drop_a_follower: 1,
            self.truncate_a_log: 1,
        }

    def step(self) -> None:
        """Let one thing happen, and count it."""
        events = self.events()
        if not self.orders.values:
            self.produce()
        (event,) = self.random.choices(list(events), weights=list(events.values()))
        with suppress(Nothing):
            try:
                event()
            except (OperationalError, Py4JJavaError) as error:
                if "locked" not in str(error) or not self.zombies:
                    raise
                self._wake_all()
                raise Nothing from error
            self.figures[event.__name__] += 1

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
                self._committed.update(values)

    def add_a_partition(self) -> None:
        """The topic grows, under whatever runs or sleeps."""
        if self._partitions() >= PARTITIONS:
            raise Nothing
        self.orders.add_partitions(self._partitions() + 1)
        self.writer.producer.list_topics(self.orders.topic, SECONDS)  # or it would hear of it minutes later

    def add_a_partition_under_retention(self) -> None:
        """The topic grows, and retention takes the first records of the new partition before anybody looks."""
        new = self._partitions()
        self.add_a_partition()
        values = [good(next(self._numbers)) for _ in range(20)]
        self.orders.produce(values, new)
        lost = self.random.randint(1, 10)
        self.orders.delete_before(lost, new)
        self.orders.values = [value for value in self.orders.values if value not in values[:lost]]
        self.orders.configure(on_data_loss="skip_recorded")
        self.drain()
        self.orders.configure(on_data_loss="fail")

    def _value(self) -> bytes | None:
        number = next(self._numbers)
        (value,) = self.random.choices([good, doubtful, bad, None], weights=[80, 10, 7, 3])
        return value(number) if value is not None else None

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
        point, since = self.random.choice(scene.points), time.time()
        running = self.orders.start(deed, stop_at(point, self.random.choice((1, 1, 2))))
        if not running.stands_or_ended():
            self._end(running)
            raise Nothing
        self.zombies.append(Zombie(running, point, since, self._harms))

    def wake_a_zombie(self) -> None:
        """A run that stood still goes on. What it brings into a table that others harmed meanwhile ends by the commands."""
        if not self.zombies:
            raise Nothing
        zombie = self.zombies.pop(self.random.randrange(len(self.zombies)))
        zombie.running.resume()
        if zombie.harms == self._harms:
            self._end(zombie.running)
        else:
            self._end(zombie.running, HARMLESS | {Terminal.exit_code})
            self.mend()

    def _wake_all(self) -> None:
        """A run that stands still while one of its threads reads the catalog keeps a lock of SQLite from all others."""
        while self.zombies:
            self.wake_a_zombie()

    def run_on_a_fast_host(self) -> None:
        """A run of a host whose clock is up to 45 s ahead: less than what the next host waits for."""
        self.produce()
        self._end(
            self.orders.start(partial(child.run_ahead, seconds=self.random.uniform(1, 45)), self._perhaps_killed())
        )

    def deploy(self) -> None:
        """The file gets two more destinations, under whatever runs or sleeps."""
        if self.orders.options.get("more"):
            raise Nothing
        self.orders.configure(more=COPIES)

    def run_to_somewhere(self) -> None:
        """A run that ends before the end of the log, as those of past intervals do."""
        request = RunRequest("interval", end=self.random.choice((self._offsets, self._instant))())
        self._end(self.orders.start(partial(child.run, request=request), self._perhaps_killed()))

    def replay(self) -> None:
        """A range is landed again."""
        self._end(self.orders.start(self._replay(), self._perhaps_killed()))

    def move_back(self) -> None:
        """The position goes back; what lies behind it comes again."""
        position = self._position()
        if position is None:
            raise Nothing
        starts = [log.log_start for log in self._logs()]
        back = {n: self.random.randint(min(starts[n], offset), offset) for n, offset in enumerate(position)}
        target = Target("offsets", offsets={self.orders.topic: back})
        self._end(self.orders.start(self.orders.reset(target), self._perhaps_killed()))

    def change_rules(self) -> None:
        """What was dead is good from now on, or the other way round."""
        self.orders.configure(**self.random.choice((LENIENT, STRICT)))

    def stay_quiet(self) -> None:
        """Runs that find nothing to do."""
        for _ in range(3):
            self.run()

    # --- others -------------------------------------------------------------------------------------------------------
    def roll_back(self) -> None:
        """Somebody makes the destination what it was some snapshots ago, and resets the pipeline to it, or repairs it."""
        metadata = self.orders.load().metadata
        past = [s.snapshot_id for s in ancestry(metadata, metadata.current_snapshot_id)]
        if len(past) <= 1:
            raise Nothing
        self.orders.load().manage_snapshots().rollback_to_snapshot(self.random.choice(past[1:6])).commit()
        if POSITION_KEY.format(child.PIPELINE) not in self.orders.load().metadata.properties:
            self._recover()  # a pipeline that was deployed before its first batch closes in the ledger
            return
        while self._end(self.orders.start(child.to_table, self._perhaps_killed())) != 0:
            pass

    def restore_a_table(self) -> None:
        """Somebody points the catalog to the metadata that a table had before its last commit."""
        table = self.random.choice(TABLES)
        if self._catalog is None or not self._catalog.restore(table, self.orders.load(table)):
            raise Nothing
        self._recover()

    def back_up(self) -> None:
        """The catalog's database is copied."""
        if self._catalog is None:
            raise Nothing
        self._catalog.back_up()

    def restore_the_catalog(self) -> None:
        """The catalog's database is what it was when it was copied. Of files that an expiry took meanwhile no backup helps."""
        if self._catalog is None or not self._catalog.restore_all():
            raise Nothing
        self._recover()

    def drop_a_follower(self) -> None:
        """The dead letters or the ledger are dropped."""
        self.drain()
        self.orders.project.lake("lake")._catalog.drop_table(self.random.choice(TABLES[1:]))
        self._recover()

    def remove_orphans(self) -> None:
        """Another tool deletes old files that no snapshot names: no run under way is as old."""
        self._remove_orphans(min((zombie.since for zombie in self.zombies), default=time.time()))

    def remove_fresh_orphans(self) -> None:
        """A wild one deletes what runs have staged, too."""
        if any(zombie.point in BEFORE_COMMITS for zombie in self.zombies):
            raise Nothing
        self._remove_orphans(time.time())

    def _remove_orphans(self, before: float) -> None:
        if self._catalog is None:
            raise Nothing
        self._catalog.forget()
        self.figures["orphans"] += remove_orphans(self.orders, before)
        self._recover()

    def truncate_a_log(self) -> None:
        """A log loses its tail, as by an unclean election, and grows again past where it ended. No transaction is cut in two."""
        records = committed(self.orders.cluster, self.orders.topic)
        plain = [record for record in records if record.value() is not None and record.value() not in self._committed]
        if self.cut is None or not plain:
            raise Nothing
        last = self.random.choice(plain)
        number = last.partition()
        end = self._logs()[number].high_watermark
        self.cut(self.orders, number, last.offset())
        cut = self._logs()[number].high_watermark
        lost = {record.value() for record in records if record.partition() == number and record.offset() >= cut}
        self.orders.values = [value for value in self.orders.values if value not in lost]
        grown = [good(next(self._numbers)) for _ in range(end - cut + self.random.randint(1, 20))]
        self.orders.produce(grown, number)
        self._renew_writer()
        self._recover()

    def _recover(self) -> None:
        self._harms += 1
        self.mend()

    def mend(self) -> None:
        """Do what the refusals of runs say, until one ends well."""
        for _ in range(8):
            ended = self._waited(self.orders.start())
            if ended.code == 0:
                return
            if ended.code not in HARMLESS:
                self._run_named_command(ended)
        raise Broken("nothing that the refusals say gets the pipeline going again")

    def _run_named_command(self, ended: ExitResult) -> None:
        """The command of a refusal, by the real command line."""
        file = self.orders.project.home.root / "FILE.json"
        words = [*named_command(ended.output, file), "--reason", "the refusal says so", "--yes"]
        done = run_frazil(words, os.environ | self.orders.env, SECONDS)
        self.figures["commands"] += 1
        if done.returncode not in HARMLESS:
            raise Broken(
                f"{words} of the refusal\n{ended.output}\nended with {done.returncode}:\n{done.stdout}{done.stderr}"
            )

    def compact(self) -> None:
        """All files of a table are rewritten."""
        self.maintained.compact(self.random.choice(TABLES[:2]))

    def expire(self) -> None:
        """Only the head of a table is kept."""
        if self._catalog is not None:
            self._catalog.forget()
        self.maintained.expire(self.random.choice(TABLES))

    def append_foreign_rows(self) -> None:
        """Somebody else writes to a table."""
        table = self.random.choice(TABLES)
        self.orders.foreign_commit(table, rows=self.random.randint(0, 3) if table == ORDERS else 0)

    # --- what is checked ----------------------------------------------------------------------------------------------
    def drain(self) -> None:
        """Runs until one ends well: by then everything is in."""
        for _ in range(5):
            ended = self._waited(self.orders.start())
            if ended.code == 0:
                return
            if ended.code not in HARMLESS:
                raise Broken(f"a run ended with exit code {ended.code}:\n{ended.output}")
        if not self.zombies:
            raise Broken(f"five runs in a row could not be finished, the last by:\n{ended.output}")
        self._wake_all()
        self.drain()

    def check(self) -> str:
        """Drain, then hold every outcome against what was produced."""
        self.drain()
        self.drain()  # branches that rivals prepared for the last batch go with the run after it
        self.figures["batches"] = len(self.orders.batches())
        self.figures["records"] = len(self.orders.values)
        result = self.orders.assert_clean(
            has_whole_ledger=not (self.figures["drop_a_follower"] + self.figures["orphans"])
        )
        return f"verify clean, {result.records} records compared"

    def _end(self, running: Child, allowed: Collection[int] = HARMLESS) -> int:
        ended = self._waited(running)
        if ended.code not in allowed and not ended.killed:
            raise Broken(f"a run ended with exit code {ended.code}:\n{ended.output}")
        return ended.code

    def _waited(self, running: Child) -> ExitResult:
        ended = running.wait()
        self.figures["runs"] += 1
        self.figures["kills"] += ended.killed
        self.figures["refusals"] += ended.output.count("refused")
        self.figures["redone"] += ended.output.count("refused, planning again") + ended.output.count("staging it again")
        self.figures["later"] += ended.code in HARMLESS - {0}
        return ended

    # --- choices ------------------------------------------------------------------------------------------------------
    def _point(self) -> Failpoint:
        return self.random.choice(list(Failpoint))

    def _perhaps_killed(self) -> str:
        return kill_at(self._point()) if self.random.random() < 1 / 2 else ""

    def _offsets(self) -> Target:
        ends = {number: self._place(log) for number, log in enumerate(self._logs())}
        return Target("offsets", offsets={self.orders.topic: ends})

    def _instant(self) -> Target:
        return Target("timestamp", datetime.now(UTC) - timedelta(seconds=self.random.uniform(0, 15)))

    def _replay(self) -> Deed:
        bounds = [sorted(self._place(log) for _ in range(2)) for log in self._logs()]
        start, end = (
            Target("offsets", offsets={self.orders.topic: {n: places[side] for n, places in enumerate(bounds)}})
            for side in (0, 1)
        )
        return self.orders.replay(start, end)

    def _place(self, log: PartitionFacts) -> int:
        return self.random.randint(log.log_start, log.stable_end)

    def _logs(self) -> tuple[PartitionFacts, ...]:
        return observe(self.orders.cluster, [self.orders.topic]).topics[self.orders.topic].partitions

    def _partitions(self) -> int:
        return len(self._logs())

    def _position(self) -> list[int] | None:
        batches = self.orders.batches()
        topics = json.loads(batches[-1]["position"])["topics"] if batches else {}
        return topics[self.orders.topic]["next"] if topics else None
