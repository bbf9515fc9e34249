"""What dead letters cost a batch: reading it from a broker, decoding, and writing rows and letters to data files.

    python -m tests.bench.batch [--format NAME] [--rounds 7]

Prints per format and kind of fault the records per second of CPU time without dead letters, CPU seconds per million records
without and with one bad record in 1,000, the ratio of both, and the ratio of one in 10 to none. A batch has 200,000 records
of one partition and is staged by the `inline` engine, in this process; CPU time of all its threads counts, the median of the
rounds. Rates take turns, in both directions.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog

from frazil.batch.facts import Range
from frazil.iceberg.catalog.table import staging_table
from frazil.iceberg.ledger.ledger import DEAD_LETTER_SCHEMA
from frazil.kafka.admin.topics import create_topic
from frazil.kafka.client.cluster import Cluster, OutgoingRecord
from frazil.kafka.write.produce import produce
from frazil.run.staging.stage import StageOrder, stage_inline
from frazil.runtime.home import bootstrap_servers
from tests.bench.decode import LIMIT, RATES, RECORDS, batches
from tests.bench.stack import running_broker
from tests.fuzz.subjects import SUBJECTS, Subject
from tests.unit.records.kafka_batches import BATCH_NUMBER

REPEATS = 20
"""Times that the batch of `tests.bench.decode` is in the topic."""

SIZE = RECORDS * REPEATS


@dataclass(frozen=True)
class StagedBatch:
    """A batch to stage, and its dead letters."""

    order: StageOrder
    dead: int

    def cpu_seconds(self) -> float:
        """CPU time of all threads."""
        began = time.process_time()
        staged = stage_inline(self.order)
        took = time.process_time() - began
        counts = (staged.total.read, staged.total.dead)
        if counts != (SIZE, self.dead):
            sys.exit(f"expected {SIZE} records with {self.dead} dead letters, found {counts}")
        return took


def filled_topic(cluster: Cluster, name: str, records: pa.RecordBatch) -> None:
    """A topic of one partition that has the records again and again."""
    create_topic(cluster, name, 1)
    keys, values = records.column("key").to_pylist(), records.column("value").to_pylist()
    pairs = list(zip(keys, values, strict=True))
    produce(cluster, name, (OutgoingRecord(key=key, value=value) for _ in range(REPEATS) for key, value in pairs))


def order_of(subject: Subject, cluster: Cluster, folder: Path) -> StageOrder:
    """What to stage, but for the topic: rows and letters, each into a table of its own."""
    catalog = SqlCatalog("lake", uri=f"sqlite:///{folder}/{subject.name}.db", warehouse=f"file://{folder}")
    catalog.create_namespace("bench")
    rows = catalog.create_table("bench.rows", subject.spec.row_schema)
    letters = catalog.create_table("bench.letters", DEAD_LETTER_SCHEMA)
    return StageOrder(
        pipeline="bench",
        n=BATCH_NUMBER,
        cluster=cluster,
        ranges=(),
        records_per_task=SIZE,
        specs={"bench.rows": subject.spec},
        destinations={"bench.rows": staging_table("bench.rows", rows)},
        dead_letters=staging_table("bench.letters", letters),
    )


def measured(order: StageOrder, topics: dict[int, str], rounds: int) -> list[float]:
    """CPU seconds per million records of topics by their rate: the median of the rounds, after one to warm up."""
    cases = [
        StagedBatch(replace(order, ranges=(Range(topic, 0, 0, SIZE),)), SIZE // every if every else 0)
        for every, topic in topics.items()
    ]
    rounds_cpu = []
    for number in range(rounds + 1):
        turns = reversed(range(len(cases))) if number % 2 else range(len(cases))
        took = {turn: cases[turn].cpu_seconds() for turn in turns}
        rounds_cpu.append([took[index] for index in range(len(cases))])
    return [median(rates) * 1_000_000 / SIZE for rates in zip(*rounds_cpu[1:], strict=True)]


def _print(*figures: str) -> None:
    print("| " + " | ".join(figures) + " |", flush=True)  # noqa: T201


def _rows(subject: Subject, cluster: Cluster, folder: Path, rounds: int) -> bool:
    """Measure each kind of fault of a format; return whether one costs more than the limit."""
    order, is_over = order_of(subject, cluster, folder), False
    for number, fault in enumerate(subject.faults):
        topics = {every: f"{subject.name}.{number}.{every}" for every in RATES}
        for topic, records in zip(topics.values(), batches(subject, fault), strict=True):
            filled_topic(cluster, topic, records)
        none, few, many = measured(order, topics, rounds)
        is_over |= few / none > LIMIT
        figures = (f"{1_000_000 / none:,.0f}", f"{none:.2f}", f"{few:.2f}", f"{few / none:.2f}", f"{many / none:.2f}")
        _print(subject.name, fault, *figures)
    return is_over


def main() -> int:
    """Measure, print, and return 1 if one in 1,000 costs more than the limit."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--format", choices=[subject.name for subject in SUBJECTS])
    parser.add_argument("--rounds", type=int, default=7)
    args = parser.parse_args()
    _print("format", "dead letters are", "records/s", "s per million", "at 0.1 %", "ratio", "ratio at 10 %")
    with tempfile.TemporaryDirectory() as root, running_broker(Path(root) / "broker") as home:
        cluster = Cluster("local", {"bootstrap.servers": bootstrap_servers(home)})
        chosen = [subject for subject in SUBJECTS if args.format in {None, subject.name}]
        over = [_rows(subject, cluster, Path(root), args.rounds) for subject in chosen]
    return 1 if any(over) else 0


if __name__ == "__main__":
    sys.exit(main())
