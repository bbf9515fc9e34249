"""Ids of sessions that a spark connect server keeps for the next job. No pyspark here.

A session's first batch starts a daemon of Python workers on the server, a second or two, and Spark 4.1 ends that daemon only
with the server (SPARK-54055). So a job takes over the session of one that has ended, and a server has as many as jobs ran at
once. An id is its user's alone while a lock is held, which ends with the process; a job that was killed leaves its session, too.
"""

from __future__ import annotations

import fcntl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final
from uuid import uuid4

from frazil.local.files import private_folder

_SUFFIX: Final = ".session"

_FORGOTTEN_SECONDS: Final = 2 * 86_400.0
"""Age from which an id is of no use: a server ends what nobody used for about a day, or sooner."""


@dataclass(slots=True)
class KeptSession:
    """A session that this process has for itself.

    Attributes:
        file: Stands for it; its name has the id.
        is_kept: Whether another job may take it over at the end: who has it says so once it is fit for that.
    """

    file: Path
    is_kept: bool = False

    @property
    def id(self) -> str:
        """The session's id, a UUID."""
        return self.file.stem


@contextmanager
def lent(folder: Path) -> Iterator[KeptSession]:
    """Lend a session that nobody uses, or a new one.

    Args:
        folder: Holds the ids of sessions that are alike: same server, same settings, same code.
    """
    session, held = _taken(private_folder(folder))
    with held:
        try:
            session.file.touch()
            yield session
        finally:
            if not session.is_kept:
                session.file.unlink(missing_ok=True)


def _taken(folder: Path) -> tuple[KeptSession, IO[str]]:
    for file in sorted(folder.glob(f"*{_SUFFIX}")):
        held = _locked(file)
        if held is not None:
            return KeptSession(file), held
    while True:
        file = folder / f"{uuid4()}{_SUFFIX}"
        file.touch(exist_ok=False)
        held = _locked(file)
        if held is not None:  # else another job was quicker
            return KeptSession(file), held


def _locked(file: Path) -> IO[str] | None:
    """The file with its lock; None if somebody has it, it is gone, or nobody used it for long."""
    try:
        held = file.open("r+", encoding="utf-8")
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if time.time() - file.stat().st_mtime < _FORGOTTEN_SECONDS:
            return held
        file.unlink()
    except (BlockingIOError, FileNotFoundError):
        pass
    held.close()
    return None
