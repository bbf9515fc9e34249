"""Logs of Spark jobs that `frazil run` starts: one per run, and runs go on for years."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from frazil.runtime.home import Home
from frazil.spark.submit.submission import KEPT_LOGS, log_of


def test_logs_are_bounded_per_pipeline(tmp_path: Path) -> None:
    """The last ones of the pipeline stay; those of others, also of names that begin alike, and of processes are not its own."""
    home = replace(Home.resolve({}), root=tmp_path)
    home.logs.mkdir()
    other_logs = [home.logs / name for name in ("spark-orders_eu-r1.log", "kafka.log", "spark-orders.txt")]
    for other_log in other_logs:
        other_log.write_text("other")
    for number in range(KEPT_LOGS + 5):
        log = log_of(home, "orders", f"manual__2026-01-01T00:{number:02}:00+00:00")
        log.write_text("job")
        os.utime(log, (number, number))

    logs = sorted(home.logs.glob("spark-orders-*.log"))
    assert len(logs) == KEPT_LOGS
    assert log in logs
    assert logs[0].name.startswith("spark-orders-manual__2026-01-01T00:05")
    assert all(other_log.exists() for other_log in other_logs)
