"""The project for processes that run for weeks while its files are edited."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Final

from frazil.error_codes import BAD_FILE
from frazil.errors import FrazilError
from frazil.pipeline.files.load import SCHEMAS, ConfigError, read_yaml
from frazil.pipeline.files.references import referenced_files
from frazil.project import Places, Project

_LOG: Final = logging.getLogger(__name__)
_LOG.addHandler(logging.NullHandler())  # nothing is drawn over a screen

LOOK_SECONDS: Final = 1.0
"""From one look for changed files to the next: a page asks for the project once per pipeline."""

_Stamp = tuple[tuple[str, int, int], ...]


class ProjectFiles:
    """Reads the project, and reloads it only when one of its files changed: until then its catalogs stay open."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self._env = env
        self._lock = Lock()
        self._loaded: tuple[_Stamp, Project] | None = None
        self._own: _Stamp = ()
        self._named: tuple[Path, ...] = ()
        self._looked_at = 0.0

    def project(self) -> Project:
        """The present settings and pipelines; while the files are broken, the last valid ones.

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

    def take(self, env: Mapping[str, str]) -> None:
        """Use other environment variables for the location of the files and for references, from the next read on."""
        with self._lock:
            if env != self._env:
                self._env, self._own, self._looked_at = env, (), -math.inf
                self._loaded = ((), self._loaded[1]) if self._loaded is not None else None

    def look_again(self) -> None:
        """Check for changed files at the next read, however recent the last check: a file that was just written must be read."""
        with self._lock:
            self._looked_at = -math.inf

    def _stamp(self) -> _Stamp:
        try:
            places = Places.resolve(self._env)
            stamp_of_files = _stamp(_files(places))
            if stamp_of_files != self._own:
                self._own, self._named = stamp_of_files, _secret_files(places)
            return stamp_of_files + _stamp(self._named, absent=OSError)  # what else is wrong with them, loading says
        except OSError as problem:  # a folder that vanishes, a share that is away
            if self._loaded is None:
                raise BAD_FILE.retryable(
                    f"the files of the project can't be read: {problem}",
                    next_step="check that its folders exist and can be read",
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
    """Read all files at once: a project in use must not depend on later edits."""
    project = Project.load(env)
    _ = project.pipelines.usable
    return project


def _files(places: Places) -> list[Path]:
    """The files of the project."""
    return [*_written_files(places), *sorted((places.pipelines_folder.parent / SCHEMAS).rglob("*"))]


def _written_files(places: Places) -> list[Path]:
    """Those with references."""
    folders = (places.pipelines_folder, places.captures_folder)
    return [places.settings_file, *(file for folder in folders for file in sorted(folder.glob("*.y*ml")))]


def _secret_files(places: Places) -> tuple[Path, ...]:
    """Files from which settings and pipelines take secrets."""
    referenced: set[Path] = set()
    for file in _written_files(places):
        folder = None if file == places.settings_file else file.parent
        with suppress(ConfigError):  # loading says it
            referenced.update(referenced_files(read_yaml(file, folder)))
    return tuple(sorted(referenced))


def _stamp(files: Iterable[Path], absent: type[OSError] = FileNotFoundError) -> _Stamp:
    """A stamp that changes when one of the files does. Files removed meanwhile are left out."""
    stamps = []
    for file in files:
        try:
            status = file.stat()
        except absent:
            continue
        stamps.append((str(file), status.st_mtime_ns, status.st_size))
    return tuple(stamps)
