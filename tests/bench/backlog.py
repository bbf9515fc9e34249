"""A backlog much larger than the driver: twenty million records through a driver of 2 GB.

    python -m tests.bench.backlog [RECORDS]

Prints how the run went: batches, records per second, and the largest resident memory of the driver's JVM and of its
Python process.
"""

from __future__ import annotations

import itertools
import sys
import tempfile
import threading
import time
from pathlib import Path

from frazil.batch.position import RunRequest
from frazil.kafka.admin.topics import create_topic
from frazil.kafka.client.cluster import Cluster, OutgoingRecord
from frazil.kafka.write.produce import produce
from frazil.run.batches.plan import plan_run, run_result
from frazil.runtime.home import bootstrap_servers
from frazil.spark.submit.submission import run_spark
from tests.bench.stack import project, running_broker

RECORDS, PARTITIONS = 20_000_000, 4

PIPELINE = """
name: backlog
source: {topics: [backlog]}
destinations: [{table: shop.backlog, columns: {id: long, name: string, price: double}}]
"""

SETTINGS = """
clusters: {local: {bootstrap_servers: "KAFKA"}}
catalogs:
  lake: {uri: "sqlite:///${local:home}/catalog.db", warehouse: "file://${local:home}/warehouse"}
engines: {spark: {driver_memory: 2g}}
"""


class Memory(threading.Thread):
    """Watches the largest resident memory of processes whose command line holds a text."""

    def __init__(self, text: str) -> None:
        super().__init__(daemon=True)
        self.text = text
        self.peaks: dict[str, int] = {}

    def run(self) -> None:
        """Look twice a second."""
        for _ in itertools.count():
            for path in Path("/proc").glob("[0-9]*"):
                self._look(path)
            time.sleep(0.5)

    def _look(self, path: Path) -> None:
        try:
            command = (path / "cmdline").read_bytes().decode(errors="replace")
            status = (path / "status").read_text()
        except OSError:
            return  # it ended while we looked
        if self.text in command and "VmHWM:" in status:
            name = "jvm" if "java" in command.split("\0")[0] else "python"
            kilobytes = int(status.split("VmHWM:")[1].split()[0])
            self.peaks[name] = max(self.peaks.get(name, 0), kilobytes // 1024)


def main() -> None:
    """Produce the backlog, run once, say how it went."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else RECORDS
    with tempfile.TemporaryDirectory() as folder, running_broker(Path(folder) / "broker") as home:
        cluster = Cluster("local", {"bootstrap.servers": bootstrap_servers(home)})
        create_topic(cluster, "backlog", PARTITIONS)
        values = [b'{"id": %d, "name": "record number %d", "price": %d.25}' % (n, n, n % 100) for n in range(1000)]
        produced = produce(cluster, "backlog", (OutgoingRecord(key=None, value=values[n % 1000]) for n in range(count)))
        print(f"{produced.count:,} records produced in {produced.seconds:.0f} s")  # noqa: T201
        of = project(Path(folder), home, "backlog", PIPELINE, SETTINGS.replace("KAFKA", bootstrap_servers(home)))
        pipeline = of.pipeline("backlog")
        plan = plan_run(of, pipeline, RunRequest("backlog")).plan
        if plan is None:
            sys.exit("there is nothing to read")
        watch = Memory("spark_jobs/ingest.py")
        watch.start()
        began = time.monotonic()
        run_spark(of, pipeline, plan, print)
        took = time.monotonic() - began
        done = run_result(of, pipeline, "backlog")
        print(  # noqa: T201
            f"{done.read:,} read = {done.written:,} written + {done.dead:,} dead in {done.batches} batches, {took:.0f} s,"
            f" {done.read / took:,.0f} records/s; peak MB: {watch.peaks}"
        )


if __name__ == "__main__":
    main()
