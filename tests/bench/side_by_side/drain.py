"""Draining a backlog: every side lands the same topic, one after the other, several times.

Each drain lands into a new table in a SQLite catalog, from the beginning of the topic. Measured from the start of the command (of
Kafka Connect: of the request that starts a connector) until the last record is in a snapshot. Then
the tables are read, and every column is compared.

What runs all the time, Kafka Connect's worker and a Spark Connect server, has landed the scratch topic before it is measured.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from tests.bench.side_by_side.bench import SCRATCH_RECORDS, bench
from tests.bench.side_by_side.contents import unequal
from tests.bench.side_by_side.flink_side import FlinkSide
from tests.bench.side_by_side.frazil_side import FrazilSide
from tests.bench.side_by_side.plain_side import PlainSide
from tests.bench.side_by_side.sides import Drained, Side
from tests.bench.side_by_side.sink_side import SinkSide
from tests.bench.side_by_side.topics import fill
from tests.bench.side_by_side.workloads import WORKLOADS

SIDES: Final[dict[str, tuple[Side, ...]]] = {
    "flink": (FlinkSide(),),
    "plain": (PlainSide("batch"), PlainSide("stream")),
}


@dataclass(frozen=True)
class DrainOrder:
    """What is to be drained.

    Attributes:
        workload: Name of it.
        records: In the topic.
        rounds: How often each side lands it.
        engines: Frazil's.
        beside: Who lands it besides Frazil and Kafka Connect: names of `SIDES`. Plain Spark takes JSON only.
    """

    workload: str
    records: int
    rounds: int
    engines: tuple[str, ...]
    beside: tuple[str, ...]

    @property
    def sides(self) -> Sequence[Side]:
        """Who lands it, in this order."""
        return [*map(FrazilSide, self.engines), SinkSide(), *(side for name in self.beside for side in SIDES[name])]


def drain(root: Path, order: DrainOrder, results: dict[str, Any], report: Callable[[str], None]) -> None:
    """Fill a topic and have every side land it by turns.

    Args:
        root: Folder of the bench.
        order: What is to be drained.
        results: Gets what goes into the results file, each round as it comes; `wrong` is empty if all tables hold the same.
        report: Told of each round.
    """
    workload = WORKLOADS[order.workload]
    results |= {"workload": workload.name, "said": workload.said, "partitions": workload.partitions}
    results |= {"records": order.records, "cores": os.cpu_count(), "sides": {}, "wrong": []}
    with bench(root, workload) as ground:
        records = workload.records(registry=ground.registry)
        fill(ground.cluster, ground.scratch.workload.name, workload.partitions, records, SCRATCH_RECORDS)
        results["bytes"] = fill(ground.cluster, workload.name, workload.partitions, records, order.records)
        rounds: dict[str, list[Drained]] = {side.name: [] for side in order.sides}
        for number in range(order.rounds):
            for side in order.sides:
                done = side.drain(ground, order.records, number)
                rounds[side.name].append(done)
                results["sides"].setdefault(side.name, []).append(asdict(done))
                results["wrong"] = differences(rounds, order.records)
                report(
                    f"{workload.name}, round {number + 1}: {side.name} {done.seconds:.1f} s, {done.cpu_seconds:.1f} CPU s"
                )


def differences(rounds: dict[str, list[Drained]], count: int) -> list[str]:
    """In what the tables differ from each other, or from the topic; empty if they hold the same."""
    every = {
        f"{side}, round {number}": drained.held
        for side, each in rounds.items()
        for number, drained in enumerate(each, 1)
    }
    return unequal(every, count)
