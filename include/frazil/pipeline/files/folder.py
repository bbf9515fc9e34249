"""Loads folders of pipeline files and of capture files, compares two versions of them, and stores the rules of a pipeline: the parts
of its file that decide outcomes.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property, partial
from itertools import chain, count
from pathlib import Path
from typing import Any, Final, Generic, Literal, Protocol, TypeVar

from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from frazil.error_codes import BAD_FILE, CAPTURE_FILE_INVALID, NAME_UNKNOWN, PIPELINE_FILE_INVALID
from frazil.errors import ErrorCode
from frazil.pipeline.files.files import References, UnreadableFileError, read_text
from frazil.pipeline.files.load import (
    ConfigError,
    as_config_error,
    load_model,
    load_pipeline,
    read_yaml,
    resolve_references,
)
from frazil.pipeline.models.pipeline_file import Pipeline
from frazil.pipeline.settings.capture import KINDS, Capture, FileCapture, Flow

_NAME_LINE = re.compile(r"""^["']?name["']?[ \t]*:(.*)$""", re.MULTILINE)
"""A line that may have the pipeline's name: top-level keys are not indented, unless the whole file is in braces."""

_PLAIN = re.compile(r"[ \t]+([a-z0-9_]+)[ \t]*(?:[ \t]#.*)?\r?")


class Named(Protocol):
    """A pipeline or capture, whose name is unique in its folder."""

    @property
    def name(self) -> str: ...  # noqa: D102


N = TypeVar("N", bound=Named)


class Pipelines:
    """The pipeline files of a folder: the valid ones, and the errors of the others. They are read at the first access.

    Attributes:
        references: Resolves the references in the files.

    Raises:
        Terminal: There is no such folder.
    """

    def __init__(self, folder: Path, references: References) -> None:
        if not folder.is_dir():
            raise BAD_FILE.terminal(
                f"the folder of pipeline files does not exist: {folder}",
                next_step="create it, or set FRAZIL_PIPELINES to the folder of the pipeline files",
            )
        self._folder = folder
        self.references = references

    def reloaded(self) -> Pipelines:
        """The pipelines of the folder, read again."""
        return Pipelines(self._folder, self.references)

    @property
    def usable(self) -> Mapping[str, Pipeline]:
        """The valid pipelines by name."""
        return self._all[0]

    @property
    def broken(self) -> tuple[ConfigError, ...]:
        """The errors of the other files."""
        return self._all[1]

    def hidden(self, text: str) -> str:
        """The text with values of references replaced by the references."""
        return self.references.hidden(text)

    def find(self, name: str) -> Pipeline | None:
        """The pipeline of that name; None if there is none, or if its file is invalid."""
        return self._load_only(name) or self.usable.get(name)

    def get(self, name: str) -> Pipeline:
        """The pipeline of that name.

        Raises:
            ConfigError: The file of that name is invalid.
            Terminal: No pipeline has that name.
        """
        return self.find(name) or find_by_name("pipeline", name, self.usable, self.broken)

    def _load_only(self, name: str) -> Pipeline | None:
        """The pipeline of that name, if exactly one valid file has it, found without loading the other files; None if all files
        are loaded already.
        """
        if "_all" in self.__dict__:
            return None
        candidates: list[Pipeline] = []
        for path in filter(lambda path: _may_be(path, name), _files(self._folder)):
            try:
                pipeline = load_pipeline(path, self.references)
            except ConfigError:
                continue  # reported when all files are loaded, if no other has the name
            if pipeline.name == name:
                candidates.append(pipeline)
        return candidates[0] if len(candidates) == 1 else None

    @cached_property
    def _all(self) -> tuple[Mapping[str, Pipeline], tuple[ConfigError, ...]]:
        return load_folder(self._folder, lambda path: load_pipeline(path, self.references), PIPELINE_FILE_INVALID)


def find_by_name(kind: str, name: str, usable: Mapping[str, N], broken: Iterable[ConfigError], hint: str = "none") -> N:
    """Return the pipeline or capture (`kind`) of a name. `hint` is the next step if there are none at all.

    Raises:
        ConfigError: The file of that name is invalid.
        Terminal: Nothing has that name.
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
    """Read every ``*.yaml`` and ``*.yml`` of a folder now, unlike `Pipelines`; an invalid file does not hide the others.

    Raises:
        Terminal: There is no such folder.
    """
    pipelines = Pipelines(folder, references)
    _ = pipelines.usable
    return pipelines


def load_folder(
    folder: Path, load: Callable[[Path], N], code: ErrorCode
) -> tuple[dict[str, N], tuple[ConfigError, ...]]:
    """Read every ``*.yaml`` and ``*.yml`` of a folder with `load`. Returns the valid ones by name, and the errors of the others."""
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
        if len(files) > 1:  # none of them is valid: a copy must not take over the position of the original
            paths = ", ".join(str(path) for path, _ in files)
            broken += [
                ConfigError(path, [f"name: {name!r} is the name of several files: {paths}"], code) for path, _ in files
            ]
    return usable, tuple(broken)


def file_of(folder: Path, name: str) -> Path:
    """The file of a pipeline: the one that states its name, else one with that file name that states no name, else a new path."""
    usual, short_ending = folder / f"{name}.yaml", folder / f"{name}.yml"
    if (stated := _read_name(usual)) == name:
        return usual
    if _read_name(short_ending) == name:
        return short_ending
    stating = (path for path in _files(folder) if _may_be(path, name) and _read_name(path) == name)
    named_so = (path for path in _files(folder) if path.stem == name and _read_name(path) is None)
    new_paths = (folder / f"{name}.connector{number or ''}.yaml" for number in count())
    free = (path for path in new_paths if not os.path.lexists(path))  # existing ones belong to other pipelines
    return next(chain(stating, named_so), usual if stated is None else next(free))


def files_of_same_name(file: Path) -> list[Path]:
    """Other files in the folder of a file that state the same name, so that none of them is valid."""
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
    """Whether a file may be the one of that pipeline, because it does not clearly state another name."""
    return _stated_name(path) in (None, name)


def _stated_name(path: Path) -> str | None:
    """The name that a file states, found without parsing it; None if that is not certain."""
    try:
        lines = _NAME_LINE.findall(read_text(path, path.parent))
    except UnreadableFileError:
        return None
    plain = _PLAIN.fullmatch(lines[0]) if len(lines) == 1 else None
    return None if plain is None else plain[1]


def named_files(folder: Path) -> dict[str, Path]:
    """The files of a folder by the names that they state, and by their file names, even if they are invalid."""
    files = _files(folder)
    return {path.stem: path for path in files} | {_stated_name(path) or path.stem: path for path in files}


CAPTURES: Final = "captures"
"""Name of the folder of capture files, beside the folder of pipeline files."""


@dataclass(frozen=True, slots=True)
class Captures:
    """The capture files of a folder: the valid ones by name, and the errors of the others."""

    usable: Mapping[str, Capture]
    broken: tuple[ConfigError, ...] = ()

    def get(self, name: str) -> Capture:
        """The capture of that name.

        Raises:
            ConfigError: The file of that name is invalid.
            Terminal: No capture has that name.
        """
        return find_by_name("capture", name, self.usable, self.broken, "none; docs/capture.md says how to make one")


@partial(as_config_error, code=CAPTURE_FILE_INVALID)
def load_capture(path: Path, references: References) -> Capture:
    """Read one capture file.

    Raises:
        ConfigError: The file can't be read, isn't YAML, or does not fit the model of its kind.
    """
    kind = read_yaml(path, path.parent).get("capture")
    if not isinstance(kind, str) or kind not in KINDS:
        raise ConfigError(path, [f"capture: expected {' or '.join(KINDS)}, found {kind!r}"])
    return load_model(path, KINDS[kind], references)


def load_captures(folder: Path, references: References) -> Captures:
    """Read every ``*.yaml`` and ``*.yml`` of a folder, which need not exist; an invalid file does not hide the others."""
    return Captures(*load_folder(folder, lambda path: load_capture(path, references), CAPTURE_FILE_INVALID))


F = TypeVar("F", bound=Flow)

Weight = Literal["info", "warning", "refused"]


@dataclass(frozen=True, slots=True)
class Impact:
    """One effect of a change.

    Attributes:
        weight: `info`; `warning`: the effect may not be intended; `refused`: the next run would refuse the change.
        text: Description of the effect.
    """

    weight: Weight
    text: str


Kind = Literal["new", "removed", "renamed", "changed"]

_HIDDEN = ("properties", "conf")
"""Keys whose values may contain passwords, so that changed values are not shown."""


@dataclass(frozen=True, slots=True)
class KeyChange:
    """A key whose value differs between two versions.

    Attributes:
        path: Its path in the file, such as `limits.max_records`; entries of `destinations` by the name of their table.
        before: Its value in the old version; None if it had none.
        after: Its value in the new version; None if it has none.
    """

    path: str
    before: str | None
    after: str | None

    def __str__(self) -> str:
        if any(part in _HIDDEN for part in self.path.split(".")):
            return self.path
        before, after = ("(none)" if value is None else value for value in (self.before, self.after))
        return f"{self.path}: {before} -> {after}"


@dataclass(frozen=True, slots=True)
class Change(Generic[F]):
    """A pipeline or capture that differs between two versions.

    `before` is None for a new one, `after` for a removed one; `keys` are the changed keys if both versions have it.
    """

    kind: Kind
    name: str
    before: F | None
    after: F | None
    keys: tuple[KeyChange, ...] = ()

    def touches(self, *paths: str) -> bool:
        """Whether one of these keys, or a key below one of them, differs."""
        return any(key.path == path or key.path.startswith(f"{path}.") for key in self.keys for path in paths)


PipelineChange = Change[Pipeline]
CaptureChange = Change[Capture]


def difference(before: Mapping[str, Pipeline], after: Mapping[str, Pipeline]) -> tuple[PipelineChange, ...]:
    """Compare the pipelines of two versions by name. A removed and a new one with the same topics and tables count as renamed."""
    return _difference(before, after, _is_same)


def capture_difference(before: Mapping[str, Capture], after: Mapping[str, Capture]) -> tuple[CaptureChange, ...]:
    """Compare the captures of two versions by name. A removed and a new one with the same source and topic count as renamed."""
    return _difference(before, after, lambda old, new: source_of(old) == source_of(new) and old.topic == new.topic)


def source_of(capture: Capture) -> tuple[object, ...]:
    """The source of a capture: its paths, or its database with table or query."""
    if isinstance(capture, FileCapture):
        return (capture.paths,)
    return (capture.database, capture.table, capture.query)


def _difference(
    before: Mapping[str, F], after: Mapping[str, F], is_same: Callable[[F, F], bool]
) -> tuple[Change[F], ...]:
    changes = [
        Change("changed", name, before[name], after[name], keys)
        for name in sorted(before.keys() & after.keys())
        if (keys := key_changes(before[name], after[name]))
    ]
    removed = {name: before[name] for name in sorted(before.keys() - after.keys())}
    for name in sorted(after.keys() - before.keys()):
        former = next((candidate for candidate in removed.values() if is_same(candidate, after[name])), None)
        if former is None:
            changes.append(Change("new", name, None, after[name]))
        else:
            changes.append(Change("renamed", name, removed.pop(former.name), after[name]))
    return (*changes, *(Change("removed", name, last, None) for name, last in removed.items()))


def key_changes(before: BaseModel, after: BaseModel) -> tuple[KeyChange, ...]:
    """The keys in which two models of one kind differ, sorted by path."""
    old, new = (dict(_leaves("", model.model_dump(mode="json", by_alias=True))) for model in (before, after))
    return tuple(
        KeyChange(path, old.get(path), new.get(path))
        for path in sorted(old.keys() | new.keys())
        if old.get(path) != new.get(path)
    )


def _leaves(path: str, value: object) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping) and value:
        for key, below in value.items():
            yield from _leaves(f"{path}.{key}" if path else str(key), below)
    elif isinstance(value, list) and value and all(isinstance(member, Mapping) for member in value):
        for number, below in enumerate(value):
            yield from _leaves(f"{path}.{below.get('table', number)}", below)
    elif value is not None and value not in ({}, []):
        yield path, str(value)


def _is_same(before: Pipeline, after: Pipeline) -> bool:
    shared = set(before.tables) & set(after.tables)
    return bool(shared or before.create is not None) and before.source == after.source


_VERSION: Final = 2

_NAME: Final = re.compile(r"frazil-[a-z0-9_]+-rules-[0-9a-f]{12}\.json(\.\w+)?")

_TEXTS: Final = ("schema_", "schema_imports")
"""Fields of `value` and `key` that a schema file fills."""


class UnfitRulesError(ValueError):
    """A stored text does not have the rules of its fingerprint."""


def rules_file(pipeline: str, fingerprint: str) -> str:
    """Name of the file with the rules of this fingerprint, in the metadata folder of the ledger."""
    return f"frazil-{pipeline}-rules-{fingerprint}.json"


def is_rules_file(path: str) -> bool:
    """Whether a path is that of a file with rules, of any pipeline. Such files are needed as long as the ledger has their batches."""
    return _NAME.fullmatch(path.rpartition("/")[2]) is not None


def rules_text(pipeline: Pipeline) -> str:
    """The rules of a pipeline as text: parts of its file, with references unresolved, and the texts of its schema files."""
    halves = {"value": pipeline.file.value, "key": pipeline.file.key}
    texts = {
        half: {name: getattr(half_settings, name) for name in _TEXTS if name in half_settings.model_fields_set}
        for half, half_settings in halves.items()
        if half_settings is not None and half_settings.schema_file is not None
    }
    # YAML's times are written as in the hash, with a T, where Python's own text has a blank.
    return json.dumps(to_jsonable_python({"v": _VERSION, "parts": pipeline.parts, "texts": texts}))


def pipeline_of(text: str | bytes, present: Pipeline, fingerprint: str, references: References) -> Pipeline:
    """The pipeline with the rules of a stored text, and with the other keys of the present file.

    Raises:
        UnfitRulesError: The rules have another fingerprint: another version of Frazil wrote them, a reference has another value now,
            or somebody edited the text.
    """
    own = present.file.model_dump(mode="json", by_alias=True, include={"name", "source", "catalog"}, exclude_unset=True)
    try:
        rules = json.loads(text)
        parts: dict[str, Any] = resolve_references(rules["parts"], references)
        pipeline = Pipeline.model_validate({**own, **parts})
        halves = {half: getattr(pipeline, half).model_copy(update=texts) for half, texts in rules["texts"].items()}
        pipeline = pipeline.model_copy(update=halves)
        has_fingerprint = pipeline.outcome_fingerprint == fingerprint
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UnfitRulesError(f"can't be read ({type(error).__name__})") from error
    if not has_fingerprint:
        raise UnfitRulesError(
            "gives another hash: of another version of Frazil, with other values of references, or edited"
        )
    return pipeline
