"""Where Python finds pyspark in the processes that Spark starts. Nothing else is imported here: this comes first."""

from __future__ import annotations

import sys
from pathlib import PurePath
from typing import Final

_ZIPS: Final = ("pyspark", "python", "lib")
"""The folder, inside the installed package, of the zip files that Spark puts at the head of the path."""


def prefer_unzipped() -> None:
    """Find pyspark as it was installed, not in the zip of it that lies in the installation.

    Both are the same, but modules in a zip are compiled each time they are read: 0.7 CPU seconds for every driver, and again
    for its workers, before either does anything. A zip that lies elsewhere, in a Spark of a cluster, stays the first choice.
    """
    sys.path[:] = [entry for entry in sys.path if not _is_installed_twice(PurePath(entry), sys.path)]


def _is_installed_twice(entry: PurePath, path: list[str]) -> bool:
    if entry.suffix != ".zip" or entry.parent.parts[-len(_ZIPS) :] != _ZIPS:
        return False
    return str(entry.parents[len(_ZIPS)]) in path
