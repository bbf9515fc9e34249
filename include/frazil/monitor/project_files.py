"""The project for a process that goes on for weeks while its files are edited."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from threading import Lock
from typing import Final

from frazil.errors import FrazilError, Retryable
from frazil.pipeline.load import SCHEMAS
from frazil.project import Places, Project

_LOG: Final = logging.getLogger(__name__)
_LOG.addHandler(logging.NullHandler())  # nothing is drawn over a screen

LOOK_SECONDS: Final = 1.0
"""From one look for changed files to the next: a page asks for the project once per pipeline."""

_Stamp = tuple[tuple[str, int, int], ...]


class ProjectFiles:
    """Reads the project, and reads it anew only when one of its files changed: its catalogs stay open that long.

    Args:
        env: Variables that say where the files are.
    """

    def __init__(self, env: Mapping[str, str]) -> None:
        self._env = env
        self._lock = Lock()
        self._loaded: tuple[_Stamp, Project] | None = None
        self._looked_at = 0.0

    def project(self) -> Project:
        """Settings and pipelines in force: while the files are broken, as they were before.

        Raises:
            ConfigError: They were broken from the start.
            Retryable: They could not be looked at from the start.
        """
        with self._lock:
            now = time.monotonic()
            if self._loaded is None or now - self._looked_at >= LOOK_SECONDS:
                stamp = self._stamp()
                if self._loaded is None or self._loaded[0] != stamp:
                    self._loaded = stamp, self._load()
                self._looked_at = now
            return self._loaded[1]

    def _stamp(self) -> _Stamp:
        try:
            return _stamp(Places.resolve(self._env))
        except OSError as problem:  # a folder that vanishes, a share that is away
            if self._loaded is None:
                raise Retryable(
                    f"the files of the project can't be read: {problem}",
                    next_step="look whether its folders are there, and may be read",
                ) from problem
            _LOG.warning("the files that were read before stay in force: %s", problem)
            return self._loaded[0]

    def _load(self) -> Project:
        if self._loaded is None:
            return _read(self._env)
        before = self._loaded[1]
        try:
            project = _read(self._env)
        except FrazilError as problem:
            # Of no concern to those who look; whoever edits the file is told by its own check.
            _LOG.warning("the settings that were read before stay in force: %s", problem)
            return before
        before.close()
        return project


def _read(env: Mapping[str, str]) -> Project:
    """All of it now: what stays in force must not depend on what becomes of the files."""
    project = Project.load(env)
    _ = project.pipelines.usable
    return project


def _stamp(places: Places) -> _Stamp:
    """What changes when a file does that the project was read from."""
    schemas = places.pipelines_folder.parent / SCHEMAS
    files = [places.settings_file, *sorted(places.pipelines_folder.glob("*.y*ml")), *sorted(schemas.rglob("*"))]
    found = []
    for file in files:
        try:
            status = file.stat()
        except FileNotFoundError:  # removed since the folder was listed
            continue
        found.append((str(file), status.st_mtime_ns, status.st_size))
    return tuple(found)
