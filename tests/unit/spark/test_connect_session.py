"""Ids of sessions that servers keep: who has one, and who may take it over."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from frazil.spark.connect import lend_session


def test_session_serves_one_job_at_a_time(tmp_path: Path) -> None:
    """An id is one job's alone; when it has ended the next job has it."""
    with lend_session(tmp_path) as first, lend_session(tmp_path) as second:
        assert first.id != second.id
        first.is_reusable = second.is_reusable = True
    with lend_session(tmp_path) as third:
        assert third.id in (first.id, second.id)
        third.is_reusable = True
    assert len(list(tmp_path.iterdir())) == 2


def test_session_that_was_never_released_is_not_reused(tmp_path: Path) -> None:
    """Nobody said that it may be kept: the next job begins with a new one."""
    with lend_session(tmp_path) as unfit:
        pass

    with lend_session(tmp_path) as session:
        assert session.id != unfit.id


def test_session_of_a_failed_job_is_reused(tmp_path: Path) -> None:
    """Whether a session can be used again is not a matter of how its job ended: the next one has it."""
    ids = []

    def fail() -> None:
        with lend_session(tmp_path) as session:
            session.is_reusable = True
            ids.append(session.id)
            raise ValueError("of the job")

    for _ in range(2):
        with pytest.raises(ValueError, match="of the job"):
            fail()

    assert ids[0] == ids[1]


def test_session_that_its_server_ended_is_not_reused(tmp_path: Path) -> None:
    """An id that nobody used for days is of no use to anybody, and its file goes."""
    with lend_session(tmp_path) as old:
        old.is_reusable = True
    long_ago = time.time() - 3 * 86_400
    os.utime(old.file, (long_ago, long_ago))

    with lend_session(tmp_path) as session:
        assert session.id != old.id
    assert not old.file.exists()
