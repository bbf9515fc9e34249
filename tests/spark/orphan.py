"""A driver whose JVM is killed while it merges, in a process of its own: the session that tests share goes on."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from pyspark import SparkContext

from frazil import failpoints
from frazil.failpoints import Failpoint
from frazil.iceberg.catalog.catalog import Lake
from frazil.runtime.process import until
from frazil.spark.jobs.driver import exit_code
from frazil.spark.jobs.start import started_session
from tests.spark.changes import Customers, upsert

SECONDS = 60


def lake(folder: Path) -> Lake:
    """The catalog that it lands in; whoever comes next knows it by the same name."""
    return Lake("lake_orphan", f"sqlite:///{folder}/catalog.db", f"file://{folder}/warehouse", {})


def kill_jvm(point: Failpoint) -> None:
    """The JVM is gone once a branch was made."""
    gateway = SparkContext._gateway
    if point is Failpoint.BRANCH_MADE and gateway is not None and gateway.proc.poll() is None:
        os.kill(gateway.proc.pid, signal.SIGKILL)
        assert until(lambda: gateway.proc.poll() is not None, SECONDS)


def merge(folder: Path) -> None:
    """Land a batch, over which the JVM dies."""
    failpoints.hit = kill_jvm
    customers = Customers(started_session(), lake(folder))
    customers.land(customers.change(1, [upsert(0, 1, "a")]))


if __name__ == "__main__":
    sys.exit(exit_code(lambda: merge(Path(sys.argv[1]))))
