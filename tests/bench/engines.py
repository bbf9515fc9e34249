"""From how many records on Spark is faster than the process that plans: what `engine: auto` should choose.

    python -m tests.bench.engines [--records 1000,10000,100000,500000,1000000,5000000] [--rounds 3]

Lands so many nested JSON orders of about 198 bytes from 4 partitions with each engine, each into a table of its own, from the
begin of the plan until the last record is visible. The median of the rounds, which take turns. In between lies the count from which
Spark is faster, on a straight line between its two neighbours: `auto.inline_below` of the settings.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Final

from frazil.batch.position import RunRequest
from frazil.kafka.client.cluster import Cluster
from frazil.project import Project
from frazil.run.batches.plan import plan_run
from frazil.run.batches.session import ingest
from frazil.run.staging.stage import stage_inline
from frazil.runtime.home import bootstrap_servers
from frazil.spark.submit.submission import run_spark
from tests.bench.side_by_side.topics import fill
from tests.bench.side_by_side.workloads import WORKLOADS
from tests.bench.stack import environment, running_broker

ORDERS: Final = WORKLOADS["orders"]
ENGINES: Final = ("inline", "spark")
WARM_UP: Final = 1_000
"""Records of a run before the first that counts: it makes the tables, and Spark's archive of classes."""

RECORDS: Final = "1000,10000,100000,500000,1000000,5000000"


def landed_in(env: Mapping[str, str], engine: str, count: int, run: str) -> float:
    """Seconds from the begin of a plan until its records are visible. Ends the measurement if they are not as many."""
    project = Project.load(env)
    pipeline = project.pipeline(ORDERS.name).model_copy(update={"engine": engine})
    began = time.perf_counter()
    plan = plan_run(project, pipeline, RunRequest(run)).plan
    if plan is None or plan.records != count:
        sys.exit(f"expected {count} records to read, found {plan.records if plan else 0}")
    if engine == "inline":
        ingest(project, pipeline, plan, stage_inline, lambda _: None)
    else:
        os.environ.update(env)
        run_spark(project, pipeline, plan, lambda _: None)
    return time.perf_counter() - began


def crossing(measured: Sequence[tuple[int, Mapping[str, float]]]) -> float | None:
    """The count from which Spark is faster; None if it never is, 0 if it always is."""
    before: tuple[int, float] | None = None
    for count, seconds in measured:
        lead = seconds["spark"] - seconds["inline"]
        if lead <= 0:
            if before is None:
                return 0
            before_both, ahead = before
            return before_both + (count - before_both) * ahead / (ahead - lead)
        before = count, lead
    return None


def measure(folder: Path, counts: Sequence[int], rounds: int) -> Iterator[tuple[int, Mapping[str, float]]]:
    """Count -> engine -> seconds, one after the other."""
    records_sent = ORDERS.records()
    with running_broker(folder / "broker") as home:
        cluster, envs = Cluster("local", {"bootstrap.servers": bootstrap_servers(home)}), {}
        fill(cluster, ORDERS.name, ORDERS.partitions, records_sent, WARM_UP)
        for engine in ENGINES:
            (folder / engine).mkdir()
            envs[engine] = environment(folder / engine, home, ORDERS.name, ORDERS.pipeline)
            landed_in(envs[engine], engine, WARM_UP, "warm-up")
        for count in counts:
            took: dict[str, list[float]] = {engine: [] for engine in ENGINES}
            for number in range(rounds):
                fill(cluster, ORDERS.name, ORDERS.partitions, records_sent, count)
                for engine in ENGINES if number % 2 else reversed(ENGINES):
                    took[engine].append(landed_in(envs[engine], engine, count, f"{count}-{number}"))
            yield count, {engine: median(seconds) for engine, seconds in took.items()}


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--records", default=RECORDS, help="counts, with commas")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    measured = []
    print("| records | inline, s | spark-submit, s |\n|---|---|---|", flush=True)  # noqa: T201
    with tempfile.TemporaryDirectory() as folder:
        for count, seconds in measure(Path(folder), sorted(map(int, args.records.split(","))), args.rounds):
            measured.append((count, seconds))
            print(f"| {count:,} | {seconds['inline']:.2f} | {seconds['spark']:.2f} |", flush=True)  # noqa: T201
    at_records = crossing(measured)
    message = f"Spark is faster from about {at_records:,.0f} records on" if at_records else "inline was always faster"
    print(message)  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
