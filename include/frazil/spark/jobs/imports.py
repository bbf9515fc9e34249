"""Prepares the imports of a process: pyspark from its unzipped installation, and without unused libraries."""

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
"""The folder, below that of installed packages, of the zip files that Spark puts first on the path."""

_OWN_PARTS: Final = {"frazil.formats", "frazil.kafka_tokens", "frazil.transforms"}
"""Entry points by which other packages bring formats, providers of tokens and transforms."""


def prefer_unzipped() -> None:
    """Import pyspark from its installed folder, not from the zip file in that folder.

    Both have the same modules, but those of a zip are compiled at each import: 0.7 CPU seconds for each driver and its workers.
    A zip elsewhere, such as that of a cluster's Spark, keeps its precedence.
    """
    sys.path[:] = [entry for entry in sys.path if not _is_superfluous(PurePath(entry), sys.path)]


def _is_superfluous(entry: PurePath, path: list[str]) -> bool:
    """Whether an entry of the path is a zip of a package that is also on the path."""
    if entry.suffix != ".zip" or entry.parent.parts[-len(_ZIPS) :] != _ZIPS:
        return False
    return str(entry.parents[len(_ZIPS)]) in path


def leave_out_pandas() -> None:
    """Let imports of pandas fail in this process, unless formats or transforms of users may need it.

    PyArrow imports pandas wherever it is installed: 0.2 CPU seconds, and Frazil has no data frames. Started processes import it
    as usual.
    """
    if not _OWN_PARTS & entry_points().groups:
        sys.meta_path.insert(0, _Absent("pandas"))


def restore_pandas() -> None:
    """Let imports of pandas succeed again, in a process that was forked from one that left it out."""
    sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, _Absent)]


class _Absent(MetaPathFinder):
    """Makes the import of one library fail as if it were not installed."""

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
