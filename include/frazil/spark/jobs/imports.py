"""Prepares imports, before all others: pyspark comes from its installation, and unused libraries are not loaded."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.metadata import entry_points
from pathlib import PurePath
from types import ModuleType
from typing import Final

_ZIPS: Final = ("pyspark", "python", "lib")
"""The folder, inside the installed package, of the zip files that Spark puts at the head of the path."""

_OWN_PARTS: Final = {"frazil.formats", "frazil.kafka_tokens", "frazil.transforms"}
"""Entry points by which other packages bring formats, providers of tokens and transforms."""


def prefer_unzipped() -> None:
    """Import pyspark from its installed folder, not from the zip in its installation.

    Both are the same, but modules in a zip are compiled each time they are read: 0.7 CPU seconds for every driver, and again
    for its workers, before either does anything. A zip that lies elsewhere, in a Spark of a cluster, stays the first choice.
    """
    sys.path[:] = [entry for entry in sys.path if not _is_installed_twice(PurePath(entry), sys.path)]


def _is_installed_twice(entry: PurePath, path: list[str]) -> bool:
    if entry.suffix != ".zip" or entry.parent.parts[-len(_ZIPS) :] != _ZIPS:
        return False
    return str(entry.parents[len(_ZIPS)]) in path


def leave_out_pandas() -> None:
    """Let every later import of pandas fail in this process, unless formats or transforms of users may want it.

    PyArrow loads it where it finds it: 0.2 CPU seconds, for no data frame. Child processes are not concerned.
    """
    if not _OWN_PARTS & entry_points().groups:
        sys.meta_path.insert(0, _Absent("pandas"))


def restore_pandas() -> None:
    """Let pandas be imported again: for a process forked from one that left it out."""
    sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, _Absent)]


class _Absent(MetaPathFinder):
    """Answers for one library as if it were not installed."""

    def __init__(self, library: str) -> None:
        self.library = library

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,  # noqa: ARG002 - the import system's signature
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> ModuleSpec | None:
        if fullname == self.library:
            raise ModuleNotFoundError(f"{fullname} is left out of this process", name=fullname)
        return None
