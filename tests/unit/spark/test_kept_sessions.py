"""Ids of sessions that servers keep: who has one, and who may take it over."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from frazil.spark.kept_sessions import lent


def test_session_serves_two_jobs_at_once(tmp_path: Path) -> None:
    """An id is one job's alone; when it has ended the next job has it."""
    with lent(tmp_path) as first, lent(tmp_path) as second:
        assert first.id != second.id
    with lent(tmp_path) as third:
        assert third.id in (first.id, second.id)
    assert len(list(tmp_path.iterdir())) == 2


def test_session_of_a_failed_job_is_taken_over(tmp_path: Path) -> None:
    """What it left in the session is nobody's: the next job begins with a new one."""
    with pytest.raises(ValueError, match="of the job"), lent(tmp_path) as failed:
        raise ValueError("of the job")
    with lent(tmp_path) as closed:
        closed.is_kept = False

    with lent(tmp_path) as session:
        assert session.id not in (failed.id, closed.id)


def test_session_is_taken_over_after_its_server_ended_it(tmp_path: Path) -> None:
    """An id that nobody used for days is of no use to anybody, and its file goes."""
    with lent(tmp_path) as old:
        pass
    long_ago = time.time() - 3 * 86_400
    os.utime(old.file, (long_ago, long_ago))

    with lent(tmp_path) as session:
        assert session.id != old.id
    assert not old.file.exists()
