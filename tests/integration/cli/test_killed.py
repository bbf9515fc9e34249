"""`frazil run` is killed while Spark works for it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tenacity import retry, retry_if_result, stop_after_delay, wait_fixed

from frazil.runtime.home import Home
from frazil.runtime.jars import fetch
from frazil.runtime.process import until

Place = Any
"""A project of its own: `place.frazil(...)` runs the command in it. See conftest."""

ENDS_WITHIN_SECONDS = 120
"""Bounds the wait for the job to notice; it looks twice a second, and Spark takes some seconds to shut down."""


def jobs_of(folder: Path) -> list[str]:
    """Live processes with the folder in their environment."""
    pids = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal() or int(entry.name) == os.getpid():
            continue
        try:
            environment = (entry / "environ").read_bytes()
        except OSError:  # it ended meanwhile, or is another user's
            continue
        if str(folder).encode() in environment:
            pids.append(entry.name)
    return pids


def test_killed_run_leaves_neither_spark_job_nor_gap(place: Place) -> None:
    """The job ends with the run that started it, and the next run lands every record once."""
    fetch(Home.resolve(), "spark")
    place.succeed("produce", place.topic, "--generate", "payments", "--count", "3000")
    command = [sys.executable, "-m", "frazil.cli", "run", "orders", "--engine", "spark"]
    with subprocess.Popen(command, env=place.environment, stderr=subprocess.PIPE, text=True) as run:
        for line in run.stderr or ():
            if "staging" in line:
                break
        run.send_signal(signal.SIGKILL)

    @retry(retry=retry_if_result(bool), stop=stop_after_delay(ENDS_WITHIN_SECONDS), wait=wait_fixed(0.2))
    def remaining() -> list[str]:
        return jobs_of(place.root / "home")

    assert remaining() == []
    place.succeed("run", "orders", "--json")
    rows = place.json("sql", "SELECT count(*) AS n, count(DISTINCT id) AS d FROM shop.orders")
    assert rows == [{"n": 3000, "d": 3000}]


_DRIVER = """
import contextlib, os, sys, threading
from pathlib import Path
from frazil import shutdown
from frazil.runtime.home import write_atomically
from frazil.runtime.process import until
from frazil.spark.jobs.driver import end_with_parent
folder, decides = Path(sys.argv[1]), sys.argv[2] == "decided"
parent = os.getppid()
end_with_parent()
with shutdown.finishing() if decides else contextlib.nullcontext():
    write_atomically(folder / "driver.pid", str(os.getpid()))
    until(lambda: os.getppid() != parent, 60)
    threading.Event().wait(2.0)  # several looks of the one who watches for the parent
    (folder / "finished").touch()
threading.Event().wait()
"""

_PARENT = "import subprocess, sys; subprocess.run([sys.executable, '-c', *sys.argv[1:]])"


@pytest.mark.parametrize("decided", ["decided", "undecided"])
def test_driver_without_parent_finishes_decided_batch_and_ends(tmp_path: Path, decided: str) -> None:
    """Whoever kills the JVM takes it from the driver: that finishes what is decided, begins nothing, and ends."""
    command = [sys.executable, "-c", _PARENT, _DRIVER, str(tmp_path), decided]
    with subprocess.Popen(command, env=os.environ | {"PYSPARK_GATEWAY_PORT": "1"}) as parent:  # as of a JVM's child
        assert until((tmp_path / "driver.pid").exists, 2 * ENDS_WITHIN_SECONDS)
        parent.kill()
    driver = int((tmp_path / "driver.pid").read_text())

    assert until(lambda: not Path("/proc", str(driver)).exists(), ENDS_WITHIN_SECONDS)
    assert (tmp_path / "finished").exists() == (decided == "decided")
