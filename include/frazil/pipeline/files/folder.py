"""The folders of pipeline files and of capture files. To load one pipeline, only its file is read, not hundreds of others."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property, partial
from itertools import chain, count
from pathlib import Path
from typing import Final, Protocol, TypeVar

from frazil.error_codes import BAD_FILE, CAPTURE_FILE_INVALID, NAME_UNKNOWN, PIPELINE_FILE_INVALID
from frazil.errors import ErrorCode
from frazil.pipeline.files.files import UnreadableFileError, read_text
from frazil.pipeline.files.load import ConfigError, load_model, load_pipeline, read_yaml, refuses_by_name
from frazil.pipeline.files.references import References
from frazil.pipeline.models.pipeline_file import Pipeline
from frazil.pipeline.settings.capture import KINDS, Capture

_NAME_LINE = re.compile(r"""^["']?name["']?[ \t]*:(.*)$""", re.MULTILINE)
"""A line that may say how the pipeline is called: keys of the file itself stand at its left edge, unless all of it is in braces."""

_PLAIN = re.compile(r"[ \t]+([a-z0-9_]+)[ \t]*(?:[ \t]#.*)?\r?")


class Named(Protocol):
    """Anything with a unique name in a folder of files."""

    @property
    def name(self) -> str: ...  # noqa: D102


N = TypeVar("N", bound=Named)


class Pipelines:
    """All pipeline files of a folder: those that can be used, and the complaints about the others.

    Read when they are asked for, and then kept.

    Raises:
        Terminal: There is no such folder.
    """

    def __init__(self, folder: Path, references: References) -> None:
        if not folder.is_dir():
            raise BAD_FILE.terminal(
                f"the folder of pipeline files is not there: {folder}",
                next_step="create it, or set FRAZIL_PIPELINES to the folder of the pipeline files",
            )
        self._folder = folder
        self._references = references

    @property
    def references(self) -> References:
        """The values of references in the files."""
        return self._references

    def again(self) -> Pipelines:
        """Reread the folder."""
        return Pipelines(self._folder, self._references)

    @property
    def usable(self) -> Mapping[str, Pipeline]:
        """The valid ones by name."""
        return self._all[0]

    @property
    def broken(self) -> tuple[ConfigError, ...]:
        """The complaints about the others."""
        return self._all[1]

    def hidden(self, text: str) -> str:
        """A text about pipelines, with references in place of their values."""
        return self._references.hidden(text)

    def find(self, name: str) -> Pipeline | None:
        """The pipeline of that name; None if there is none, or if it can't be used."""
        return self._alone(name) or self.usable.get(name)

    def get(self, name: str) -> Pipeline:
        """The pipeline of that name.

        Raises:
            ConfigError: Its own file is broken.
            Terminal: Nothing has that name.
        """
        return self.find(name) or find_by_name("pipeline", name, self.usable, self.broken)

    def _alone(self, name: str) -> Pipeline | None:
        """The pipeline of that name, if exactly one valid file has it, found without loading all files; None if all are
        loaded already.
        """
        if "_all" in self.__dict__:
            return None
        candidates: list[Pipeline] = []
        for path in filter(lambda path: _may_be(path, name), _files(self._folder)):
            try:
                pipeline = load_pipeline(path, self._references)
            except ConfigError:
                continue  # told when all are read, if nothing else has the name
            if pipeline.name == name:
                candidates.append(pipeline)
        return candidates[0] if len(candidates) == 1 else None

    @cached_property
    def _all(self) -> tuple[Mapping[str, Pipeline], tuple[ConfigError, ...]]:
        return load_folder(self._folder, lambda path: load_pipeline(path, self._references), PIPELINE_FILE_INVALID)


def find_by_name(kind: str, name: str, usable: Mapping[str, N], broken: Iterable[ConfigError], hint: str = "none") -> N:
    """Return what has a name among the files of a folder.

    Raises:
        ConfigError: Its own file is broken.
        Terminal: Nothing has that name; `hint` says what to do if there is none at all.
    """
    if name in usable:
        return usable[name]
    for error in broken:
        if error.file.stem == name:
            raise error
    similar = get_close_matches(name, usable, 1)
    raise NAME_UNKNOWN.terminal(
        f"no {kind} is named {name!r}" + (f", did you mean {similar[0]!r}?" if similar else ""),
        next_step=f"known {kind}s: {', '.join(sorted(usable)) or hint}",
    )


def load_pipelines(folder: Path, references: References) -> Pipelines:
    """Read every ``*.yaml`` and ``*.yml`` of a folder at once; one broken file does not hide the others.

    Raises:
        Terminal: There is no such folder.
    """
    pipelines = Pipelines(folder, references)
    _ = pipelines.usable
    return pipelines


def load_folder(
    folder: Path, load: Callable[[Path], N], code: ErrorCode
) -> tuple[dict[str, N], tuple[ConfigError, ...]]:
    """Read every ``*.yaml`` and ``*.yml`` of a folder with `load`: the valid ones by name, and the problems of the others."""
    files_by_name: dict[str, list[tuple[Path, N]]] = {}
    broken: list[ConfigError] = []
    for path in _files(folder):
        try:
            loaded = load(path)
        except ConfigError as error:
            broken.append(error)
            continue
        files_by_name.setdefault(loaded.name, []).append((path, loaded))
    usable = {name: files[0][1] for name, files in files_by_name.items() if len(files) == 1}
    for name, files in files_by_name.items():
        if len(files) > 1:  # none of them runs: a copy must not take over the other's position
            paths = ", ".join(str(path) for path, _ in files)
            broken += [
                ConfigError(path, [f"name: {name!r} is the name of several files: {paths}"], code) for path, _ in files
            ]
    return usable, tuple(broken)


def file_of(folder: Path, name: str) -> Path:
    """The file of a pipeline, which need not be there: the one that states its name; else one that is called so and states none."""
    usual, short_ending = folder / f"{name}.yaml", folder / f"{name}.yml"
    if (stated := _read_name(usual)) == name:
        return usual
    if _read_name(short_ending) == name:
        return short_ending
    stating = (path for path in _files(folder) if _may_be(path, name) and _read_name(path) == name)
    called = (path for path in _files(folder) if path.stem == name and _read_name(path) is None)
    further_files = (folder / f"{name}.connector{number or ''}.yaml" for number in count())
    free = (path for path in further_files if not os.path.lexists(path))  # whoever has the others is another pipeline
    return next(chain(stating, called), usual if stated is None else next(free))


def files_of_same_name(file: Path) -> list[Path]:
    """Further files of a folder that state the name which a file states: none of them runs."""
    name = _read_name(file)
    further = (path for path in _files(file.parent) if path != file)
    return [path for path in further if isinstance(name, str) and _may_be(path, name) and _read_name(path) == name]


def _read_name(path: Path) -> object:
    try:
        return read_yaml(path, path.parent).get("name")
    except ConfigError:
        return None


def _files(folder: Path) -> list[Path]:
    return sorted([*folder.glob("*.yaml"), *folder.glob("*.yml")])


def _may_be(path: Path, name: str) -> bool:
    """Whether a file may hold the pipeline of that name: any file that does not clearly state another name."""
    return _stated_name(path) in (None, name)


def _stated_name(path: Path) -> str | None:
    """The name that a file clearly states."""
    try:
        lines = _NAME_LINE.findall(read_text(path, path.parent))
    except UnreadableFileError:
        return None
    plain = _PLAIN.fullmatch(lines[0]) if len(lines) == 1 else None
    return None if plain is None else plain[1]


def named_files(folder: Path) -> dict[str, Path]:
    """The files of a folder by the names that they state, and by their own. They need not be usable."""
    files = _files(folder)
    return {path.stem: path for path in files} | {_stated_name(path) or path.stem: path for path in files}


CAPTURES: Final = "captures"
"""Folder of capture files, beside the folder of pipeline files."""


@dataclass(frozen=True, slots=True)
class Captures:
    """All capture files of a folder: those that can be used, and the complaints about the others."""

    usable: Mapping[str, Capture]
    broken: tuple[ConfigError, ...] = ()

    def get(self, name: str) -> Capture:
        """The capture of that name.

        Raises:
            ConfigError: Its own file is broken.
            Terminal: Nothing has that name.
        """
        return find_by_name("capture", name, self.usable, self.broken, "none; docs/capture.md says how to make one")


@partial(refuses_by_name, code=CAPTURE_FILE_INVALID)
def load_capture(path: Path, references: References) -> Capture:
    """Read one capture file.

    Raises:
        ConfigError: It can't be read, isn't YAML, or does not fit the model of its kind.
    """
    kind = read_yaml(path, path.parent).get("capture")
    if not isinstance(kind, str) or kind not in KINDS:
        raise ConfigError(path, [f"capture: expected {' or '.join(KINDS)}, found {kind!r}"])
    return load_model(path, KINDS[kind], references)


def load_captures(folder: Path, references: References) -> Captures:
    """Read every ``*.yaml`` and ``*.yml`` of a folder, none where there is no folder; one broken file does not hide the others."""
    return Captures(*load_folder(folder, lambda path: load_capture(path, references), CAPTURE_FILE_INVALID))
