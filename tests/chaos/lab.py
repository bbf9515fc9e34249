"""A pipeline under torture: what was produced is known, children run it, and every outcome is judged."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, Literal
from uuid import uuid4

import pyarrow as pa
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions
from pyiceberg.table import Table

from frazil.batch.position import Target
from frazil.failpoints import Failpoint
from frazil.kafka.admin.observe import observe
from frazil.kafka.admin.topics import create_topic
from frazil.kafka.client.cluster import Cluster
from frazil.pipeline.models.pipeline_file import Pipeline
from frazil.project import SETTINGS_VARIABLE, Project
from frazil.run.repair.reset_batch import ResetOrder
from frazil.run.state.tables import open_tables
from frazil.runtime.process import until
from frazil.verify.check import verify
from frazil.verify.facts.result import Verification
from tests.chaos import child
from tests.chaos.child import Deed
from tests.chaos.processes import SECONDS, Child, ExitResult, Nursery, kill_at, stop_at
from tests.topic_reader import committed

ORDERS, LETTERS, LEDGER = "shop.orders", "shop.orders__dead_letters", "shop.orders__ledger"
TABLES = (ORDERS, LETTERS, LEDGER)

Catalog = Literal["jdbc", "rest"]

PIPELINE = """
name: orders
start: {start}
source: {{{source}, on_data_loss: {on_data_loss}}}
engine: {engine}
value: {{null_value: {null_value}}}
destinations:
  - table: {table}
    columns:
      id: {{type: long, required: true}}
      name: {{type: string, required: {strict}}}
    evolve: {evolve}
{more}limits: {{max_records: {max_records}, max_bytes: {max_bytes}, records_per_task: {max_records}}}
dead_letters: {{tolerance: {{max_rate: 1.0}}, topic: {letter_topic}}}
"""

DEFAULTS: Mapping[str, Any] = {
    "start": "earliest",
    "on_data_loss": "fail",
    "engine": "inline",
    "null_value": "filter",
    "table": ORDERS,
    "strict": "false",
    "evolve": "none",
    "max_records": 1000,
    "max_bytes": 2**30,
    "letter_topic": "null",
    "more": "",
}

COPIES = """  - {table: shop.copies, columns: {id: {type: long, required: true}, name: string}}
  - {table: shop.numbers, columns: {id: {type: long, required: true}}}
"""
"""Further destinations: every record goes to each of them."""

ROUTE = """route:
  topic: {rename: {'.*': shop.orders}}
  create: {columns: {id: {type: long, required: true}, name: string}}
"""
"""No destination for the records is listed: the topic names it."""

LENIENT: Mapping[str, Any] = {"strict": "false", "null_value": "filter"}
STRICT: Mapping[str, Any] = {"strict": "true", "null_value": "dead_letter"}
"""The same columns under another rule: an order without a name is dead, and so is a tombstone."""


def good(number: int) -> bytes:
    """An order that is a row under every rule."""
    return json.dumps({"id": number, "name": f"order {number}"}).encode()


def grown(number: int) -> bytes:
    """An order with fields that no column takes yet."""
    order = {"id": number, "name": f"order {number}", "extra": {"of": [{"number": number}]}, "note": f"note {number}"}
    return json.dumps(order).encode()


def doubtful(number: int) -> bytes:
    """An order that is a row under one rule and a dead letter under the other."""
    return json.dumps({"id": number}).encode()


def bad(number: int) -> bytes:
    """What is a dead letter under every rule."""
    return f"broken {number}".encode()


@dataclass
class Lab:
    """A pipeline `orders` of its own topics, home and catalog."""

    env: dict[str, str]
    cluster: Cluster
    topic: str
    nursery: Nursery
    options: dict[str, Any]
    values: list[bytes] = field(default_factory=list)
    """Values that were produced and committed, all different; tombstones apart."""

    # --- what is set up -----------------------------------------------------------------------------------------------
    @property
    def project(self) -> Project:
        """The project as its files say now."""
        return Project.load(self.env)

    @property
    def pipeline(self) -> Pipeline:
        """The pipeline as its file says now."""
        return self.project.pipeline("orders")

    def configure(self, **options: Any) -> None:
        """Write the pipeline file anew."""
        self.options |= options
        text = PIPELINE.format(**(dict(DEFAULTS) | {"source": f"topics: [{self.topic}]"} | self.options))
        (self.project.pipelines_folder / "orders.yaml").write_text(text)

    def produce(self, values: Iterable[bytes | None], partition: int | None = None, topic: str | None = None) -> None:
        """Send values; those that are not tombstones must come out again."""
        outgoing = list(values)
        producer = Producer({**self.cluster.properties, "linger.ms": 0})
        for value in outgoing:
            producer.produce(topic or self.topic, value, **({} if partition is None else {"partition": partition}))
        assert producer.flush(SECONDS) == 0
        self.values += [value for value in outgoing if value is not None]

    def fill(self, first: int, count: int = 20) -> None:
        """`count` good orders from `first` on, and of each other sort one or two."""
        numbers = range(first, first + count)
        self.produce(chain(map(good, numbers), [doubtful(first + 900_000), bad(first), bad(first + 1), None]))

    # --- what is done -------------------------------------------------------------------------------------------------
    def start(self, deed: Deed = child.run, crash: str = "") -> Child:
        """Start a child."""
        return self.nursery.start(deed, self.env, crash)

    def run(self, deed: Deed = child.run) -> str:
        """A run that must succeed; returns what it said."""
        return self.start(deed).succeed()

    def refused(self, deed: Deed = child.run) -> ExitResult:
        """A run that must not succeed, and must not be surprised either."""
        ended = self.start(deed).wait()
        assert ended.code in (75, 76, 78), f"exit code {ended.code}:\n{ended.output}"
        return ended

    def crash(self, point: Failpoint, time: int = 1, deed: Deed = child.run) -> None:
        """A run that is killed at a point. A point that is never reached fails the test."""
        self.start(deed, kill_at(point, time)).die()

    def pause(self, point: Failpoint, time: int = 1, deed: Deed = child.run, deed_after: str = "") -> Child:
        """A run that stands still at a point."""
        started = self.start(deed, ",".join(filter(None, [stop_at(point, time), deed_after])))
        started.pause()
        return started

    def replay(self, start: Target, end: Target | None = None) -> Deed:
        """The deed of landing a range again."""
        return partial(child.replay, start=start, end=end)

    def reset(self, target: Target, *, allow_duplicates: bool = False) -> Deed:
        """The deed of moving the position."""
        return partial(child.move, order=ResetOrder(target, allow_duplicates=allow_duplicates))

    def foreign_commit(self, table: str = ORDERS, rows: int = 0) -> None:
        """Somebody else commits to a table: rows without Kafka coordinates, or just a snapshot."""
        table_now = self.load(table)
        table_now.append(pa.Table.from_pylist([{"id": -1, "name": "foreign"}] * rows, table_now.schema().as_arrow()))

    def delete_before(self, offset: int, partition: int = 0) -> None:
        """Delete records as retention does."""
        admin = AdminClient(dict(self.cluster.properties))
        for future in admin.delete_records([TopicPartition(self.topic, partition, offset)]).values():
            future.result()

    def add_partitions(self, total: int) -> None:
        """Give the topic more partitions, and wait until the broker serves them."""
        admin = AdminClient(dict(self.cluster.properties))
        admin.create_partitions([NewPartitions(self.topic, total)])[self.topic].result()
        assert until(lambda: len(observe(self.cluster, [self.topic]).topics[self.topic].partitions) == total, SECONDS)

    # --- what is there ------------------------------------------------------------------------------------------------
    def load(self, table: str = ORDERS) -> Table:
        """A table as it is now."""
        return self.project.lake("lake").load_table(table)

    def rows(self, table: str = ORDERS) -> list[dict[str, Any]]:
        """All rows of a table."""
        rows: list[dict[str, Any]] = self.load(table).scan().to_arrow().to_pylist()
        return rows

    def snapshots(self) -> dict[str, int]:
        """How many snapshots each table has."""
        return {table: len(self.load(table).metadata.snapshots) for table in TABLES}

    def batches(self, *kinds: str) -> list[dict[str, Any]]:
        """The ledger's row per batch, oldest first, of these kinds."""
        rows = [
            row for row in self.rows(LEDGER) if row["role"] == "destination" and (not kinds or row["kind"] in kinds)
        ]
        return sorted(rows, key=lambda row: row["n"])

    # --- what must hold -----------------------------------------------------------------------------------------------
    def assert_clean(self, *, passes: int = 1, has_whole_ledger: bool = True) -> Verification:
        """Every record has its outcomes, once per pass; the ledger has no holes; the independent check agrees.

        A ledger that was dropped lacks the batches whose manifests nobody names any more. A rewind abandons a decided batch that
        was killed before its ledger row: its number is not given again, so the ledger has a gap before the rewind, and nowhere else.
        """
        kinds = dict(sorted((row["n"], row["kind"]) for row in self.rows(LEDGER)))
        numbers = list(kinds)
        gaps = [(low, high) for low, high in pairwise([-1, *numbers]) if low + 1 < high and kinds[high] != "rewind"]
        assert not has_whole_ledger or not gaps, f"the ledger has gaps {gaps}: {kinds}"
        named = Counter((row["n"], row["table"]) for row in self.rows(LEDGER))
        assert set(named.values()) == {1}, f"rows that the ledger has twice: {named}"
        landed = self.outcomes()
        expected = Counter(dict.fromkeys(self.values, passes))
        assert landed == expected, f"too many: {landed - expected}\ntoo few: {expected - landed}"
        self._assert_sent()
        result = verify(self.project, self.pipeline)
        assert result.is_clean, "\n".join(map(str, result.differences))
        return result

    def _assert_sent(self) -> None:
        """Every letter is in the dead-letter topic, if there is one, and nothing else is. A kill may repeat some."""
        topic = self.pipeline.dead_letters.topic
        if topic is not None:
            records = committed(self.cluster, topic.name)
            letters_sent = {(dict(record.headers())["frazil.batch"], record.value()) for record in records}
            letters_kept = {(str(row["_frazil_batch"]).encode(), row["value"]) for row in self.rows(LETTERS)}
            assert letters_sent == letters_kept, (
                f"sent too much: {letters_sent - letters_kept}\nnot sent: {letters_kept - letters_sent}"
            )

    def outcomes(self) -> Counter[bytes]:
        """Every row and dead letter, as the value it came from; tombstones apart."""
        landed = [row for row in self.rows() if row["_kafka_topic"] is not None]
        rows = map(_value_of, landed)
        still_dead = (row for row in self.rows(LETTERS) if row["landed_batch"] is None)
        letters = (row["value"] for row in still_dead if row["value"] is not None)
        return Counter(chain(rows, letters))

    def assert_at_rest(self) -> None:
        """A further run finds nothing to do and commits nothing."""
        before = self.snapshots()
        self.run()
        assert self.snapshots() == before


def _value_of(row: Mapping[str, Any]) -> bytes:
    """The value that a row came from: all that it tells must be in it."""
    if row.get("extra") is not None:
        return json.dumps({name: row[name] for name in ("id", "name", "extra", "note")}).encode()
    return good(row["id"]) if row["name"] else doubtful(row["id"])


def new_lab(
    folder: Path,
    cluster: Cluster,
    children: Nursery,
    partitions: int = 1,
    topic_config: Mapping[str, str] | None = None,
    settings: Path | None = None,
    **options: Any,
) -> Lab:
    """Make a topic, a home with a catalog (another settings file brings another), and empty tables; options are the pipeline's."""
    topic = f"orders-{uuid4().hex[:8]}"
    create_topic(cluster, topic, partitions, topic_config or {})
    (folder / "pipelines").mkdir()
    env = {
        "FRAZIL_HOME": str(folder / "home"),
        "FRAZIL_PIPELINES": str(folder / "pipelines"),
        "FRAZIL_KAFKA_PORT": cluster.bootstrap_servers.rpartition(":")[2],
    }
    if settings is not None:
        env[SETTINGS_VARIABLE] = str(settings)
    new_lab = Lab(env, cluster, topic, children, {})
    new_lab.configure(**(options | LENIENT))
    open_tables(new_lab.project.lake("lake"), new_lab.pipeline)  # not by a strict file: its columns would be required
    new_lab.configure(**options)
    return new_lab
