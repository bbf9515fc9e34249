"""Whether the files of a project are those that were read: a look that reads none of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from frazil.pipeline.load import SCHEMAS
from frazil.project import Project

Stamps = Mapping[str, tuple[int, int, int]]
"""Path -> what is different once a file was written or replaced: inode, size, time."""


def stamps(project: Project) -> Stamps:
    """Return the stamps of settings, pipeline files and schema files, as far as they are there."""
    return dict(_stamps(project))


def _stamps(project: Project) -> Iterator[tuple[str, tuple[int, int, int]]]:
    folder = project.pipelines_folder
    for file in (project.settings_file, *_files(folder), *_files(folder.parent / SCHEMAS)):
        try:
            found = file.stat()
        except FileNotFoundError:
            continue  # it goes at this moment: the next look sees that
        yield str(file), (found.st_ino, found.st_size, found.st_mtime_ns)


def _files(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*")) if folder.is_dir() else []
