"""What a second core brings, in one Spark and in a cluster's: the drain of a backlog, in turns.

    python -m tests.bench.scale [--records 3000000] [--rounds 3]

Lands nested JSON orders of about 198 bytes from 4 partitions by `spark-submit`: with `local[1]`, with `local[2]`, and on a standalone
cluster of two workers with a core each. Told is the time in which batches are staged, all of them, without what Spark takes to
start, and the time of the whole command. Medians of the rounds.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Final

from frazil.batch.position import RunRequest
from frazil.devstack import spark_cluster
from frazil.kafka.client.cluster import Cluster
from frazil.project import Project
from frazil.run.batches.plan import plan_run, run_result
from frazil.runtime.home import Home, bootstrap_servers, is_free
from frazil.runtime.process import Processes
from frazil.spark.submit.submission import run_spark
from tests.bench.side_by_side.topics import fill
from tests.bench.side_by_side.workloads import WORKLOADS
from tests.bench.stack import environment, running_broker
from tests.servers import with_ports

ORDERS: Final = WORKLOADS["orders"]
WORKERS: Final = 2
WARM_UP: Final = 1_000
"""Records of a run before the first that counts: it makes the table, and Spark's archive of classes."""

SETTINGS: Final = """
clusters: {{local: {{bootstrap_servers: "${{local:kafka}}"}}}}
catalogs:
  lake: {{type: jdbc, uri: "sqlite:///${{local:home}}/catalog.db", warehouse: "file://${{local:home}}/warehouse"}}
engines:
  spark: {{master: "{master}", conf: {{spark.cores.max: "{workers}", spark.executor.memory: 512m}}}}
"""


@contextmanager
def running_cluster(home: Home) -> Iterator[str]:
    """The address of a standalone cluster, stopped at the end."""
    placed = with_ports(home, spark_master=next(port for port in range(22_000, 23_000) if is_free(port)))
    processes = Processes(home.run, home.logs, home.root)
    try:
        spark_cluster.start(placed, processes, print, WORKERS)
        yield spark_cluster.url(placed.ports.spark_master)
    finally:
        spark_cluster.stop(processes, WORKERS)


def landed_in(env: Mapping[str, str], count: int, run: str) -> tuple[float, float]:
    """Seconds in which a plan's batches were staged, and of the whole. Ends the measurement if the records are not as many."""
    project = Project.load(env)
    pipeline = project.pipeline(ORDERS.name).model_copy(update={"engine": "spark"})
    plan = plan_run(project, pipeline, RunRequest(run)).plan
    if plan is None or plan.records != count:
        sys.exit(f"expected {count} records to read, found {plan.records if plan else 0}")
    os.environ.update(env)
    began = time.perf_counter()
    run_spark(project, pipeline, plan, lambda _: None)
    took = time.perf_counter() - began
    result = run_result(project, pipeline, run)
    if result.written != count:
        sys.exit(f"expected {count} rows, found {result.written}")
    return sum(phases["stage"] for phases in result.phases), took


def measure(folder: Path, records: int, rounds: int) -> Iterator[tuple[str, float, float]]:
    """Master, seconds of staging, seconds of the command."""
    records_sent = ORDERS.records()
    with running_broker(folder / "broker") as home, running_cluster(home) as cluster_url:
        cluster, envs = Cluster("local", {"bootstrap.servers": bootstrap_servers(home)}), {}
        fill(cluster, ORDERS.name, ORDERS.partitions, records_sent, WARM_UP)
        for name, master in {"local[1]": "local[1]", "local[2]": "local[2]", "standalone, 2 × 1": cluster_url}.items():
            root = folder / str(len(envs))
            root.mkdir()
            settings = SETTINGS.format(master=master, workers=WORKERS)
            envs[name] = environment(root, home, ORDERS.name, ORDERS.pipeline, settings)
            landed_in(envs[name], WARM_UP, "warm-up")
        took: dict[str, list[tuple[float, float]]] = {name: [] for name in envs}
        for number in range(rounds):
            fill(cluster, ORDERS.name, ORDERS.partitions, records_sent, records)
            for name, env in envs.items():
                took[name].append(landed_in(env, records, f"round-{number}"))
        for name, seconds in took.items():
            yield name, median(staged for staged, _ in seconds), median(whole for _, whole in seconds)


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--records", type=int, default=3_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    print("| master | staging, s | records/s staged | of local[1] | command, s |\n|---|---|---|---|---|", flush=True)  # noqa: T201
    first = None
    with tempfile.TemporaryDirectory() as folder:
        for name, staged, whole in measure(Path(folder), args.records, args.rounds):
            first = first or staged
            print(f"| {name} | {staged:.1f} | {args.records / staged:,.0f} | {first / staged:.2f} | {whole:.1f} |")  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
