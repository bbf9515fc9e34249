"""Logs of the jobs that a process starts: where they go, and how many stay."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

from frazil.local.files import private_folder
from frazil.local.home import Home

KEPT_LOGS = 50
"""Logs of a pipeline's jobs that stay, with that of the job that starts: about four hours of one every five minutes."""


def log_of(home: Home, pipeline: str, run_id: str) -> Path:
    """Where a job's log goes. Of a pipeline's older ones the last few stay: a run every few minutes leaves hundreds a day."""
    folder = private_folder(home.logs)
    logs = sorted(folder.glob(f"spark-{pipeline}-*.log"), key=_written_at, reverse=True)
    for old in logs[KEPT_LOGS - 1 :]:
        old.unlink(missing_ok=True)
    return folder / f"spark-{pipeline}-{quote(run_id, safe=':+')}.log"


def _written_at(file: Path) -> float:
    try:
        return file.stat().st_mtime
    except FileNotFoundError:  # another run of the pipeline removes old ones, too
        return 0.0
