"""Write state files so that a kill leaves the old content or the new; one writer at a time."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

PRIVATE_FILE = 0o600
PRIVATE_FOLDER = 0o700


def write_atomically(path: Path, text: str, *, mode: int = 0o644) -> None:
    """Replace a file in one step.

    Its folder is created. The permission bits are in force before any content is in the file.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # created with mode 600
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        os.fchmod(file.fileno(), mode)
        file.write(text)
    Path(name).replace(path)


def write_new(path: Path, text: str) -> None:
    """Write a file in one step: a kill leaves the whole of it or none.

    Raises:
        FileExistsError: It is there already, and stays as it is.
    """
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            os.fchmod(file.fileno(), 0o644)
            file.write(text)
        os.link(name, path)  # unlike a rename it replaces nothing
    finally:
        Path(name).unlink()


def private_folder(path: Path) -> Path:
    """Create a folder that only its owner can enter: its files may hold secrets."""
    path.mkdir(parents=True, exist_ok=True, mode=PRIVATE_FOLDER)
    path.chmod(PRIVATE_FOLDER)
    return path


@contextmanager
def exclusive(path: Path, on_wait: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Hold a lock among processes while the block runs; a killed holder releases it.

    The file stays: removing it would let two holders in. `on_wait` is called once if another process holds the lock.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            on_wait()
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
