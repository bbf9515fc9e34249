"""The processes of an Airflow task that runs batches: who they are while one is staged, and whether they have ended."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from frazil.runtime.drivers import drivers
from frazil.runtime.home import Home
from frazil.runtime.process import Stat, stat_of, until

STAGING_SECONDS = 600
"""Bounds the wait until a run stages; about 15 s with two idle cores, most of it the start of Spark, and minutes with busy ones."""

_OFTEN_SECONDS = 0.02
"""Between two looks: a batch takes less than a second."""

_SPARK = (b"org.apache.spark", b"spark_jobs", b"pyspark")
"""What the command of each process of a Spark job holds one of: JVM, driver, Python workers."""


@dataclass(frozen=True)
class AtWork:
    """Where the processes are of a run in the middle of its batches.

    Attributes:
        driver: What runs the batches: Python under a JVM, or the task's own process with the inline engine.
        task: Airflow's process that executes the task.
        worker: Airflow's process that watches over the task, and tells of it to the API server.
        spark: Every process of the Spark job, its driver included; none with the inline engine.
    """

    driver: Stat
    task: Stat
    worker: Stat
    spark: tuple[Stat, ...]

    @property
    def jvm(self) -> Stat:
        """The JVM that started the driver, and runs Spark."""
        return _parent(self.driver)

    def still_alive(self) -> list[Stat]:
        """Those that have not ended of the task and what it started."""
        return [process for process in {self.driver, self.task, *self.spark} if _is_alive(process)]


def mid_batch(home: Home, pipeline: str, dag_id: str, run_id: str) -> AtWork:
    """Wait until a run has landed a batch and stages the next one; return where its processes are."""
    log = home.airflow / "logs" / f"dag_id={dag_id}" / f"run_id={run_id}" / "task_id=ingest" / "attempt=1.log"

    def stages() -> bool:
        return log.exists() and log.read_text().count(": staging ") > 1

    assert until(stages, STAGING_SECONDS, _OFTEN_SECONDS), log.read_text() if log.exists() else f"there is no {log}"
    (found,) = drivers(home, pipeline, run_id)
    driver = stat_of(found.pid)
    assert driver is not None
    is_inline = not _is_spark(driver)
    task = driver if is_inline else _parent(_parent(driver))
    return AtWork(driver, task, _parent(task), () if is_inline else tuple(spark_of(home)))


def spark_of(home: Home) -> Iterator[Stat]:
    """Live processes of Spark jobs of this home."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            stat = stat_of(int(entry.name))
            if stat is not None and not stat.has_ended and _is_spark(stat) and _is_of(home, stat):
                yield stat


def _is_spark(process: Stat) -> bool:
    try:
        command = Path("/proc", str(process.pid), "cmdline").read_bytes()
    except OSError:  # it ended meanwhile
        return False
    return any(word in command for word in _SPARK)


def _is_of(home: Home, process: Stat) -> bool:
    try:
        return str(home.root).encode() in Path("/proc", str(process.pid), "environ").read_bytes()
    except OSError:  # it ended meanwhile
        return False


def _is_alive(process: Stat) -> bool:
    stat = stat_of(process.pid)
    return stat is not None and not stat.has_ended and stat.start_ticks == process.start_ticks


def _parent(process: Stat) -> Stat:
    lines = Path("/proc", str(process.pid), "status").read_text().splitlines()
    (line,) = (line for line in lines if line.startswith("PPid:"))
    stat = stat_of(int(line.split()[1]))
    assert stat is not None
    return stat
