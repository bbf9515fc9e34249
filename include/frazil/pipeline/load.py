"""Reads pipeline and settings files: YAML, references, models. Every complaint names the file and the key path."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from frazil.errors import Terminal
from frazil.pipeline.model import Pipeline
from frazil.pipeline.settings import Settings

M = TypeVar("M", bound=BaseModel)

_REFERENCE = re.compile(r"\$\{(?P<kind>[a-z]+):(?P<name>[^}:]+)(?::-(?P<default>[^}]*))?\}")


class ConfigError(Terminal):
    """A pipeline or settings file that can't be used.

    Attributes:
        file: The file.
        problems: One line per problem, each beginning with its key path.
    """

    def __init__(self, file: Path, problems: list[str]) -> None:
        self.file = file
        self.problems = problems
        super().__init__(
            f"{file}:\n" + "\n".join(f"  {problem}" for problem in problems),
            next_step=f"mend the file, then check it: frazil validate {file}",
        )


@dataclass(frozen=True, slots=True)
class References:
    """What ``${env:NAME}`` and ``${local:NAME}`` may stand for."""

    env: Mapping[str, str]
    local: Mapping[str, str]

    def resolve(self, match: re.Match[str]) -> str:
        """Value of one reference.

        Raises:
            KeyError: Unknown kind or name, with a readable message as its argument.
        """
        kind, name, default = match["kind"], match["name"], match["default"]
        known = {"env": self.env, "local": self.local}.get(kind)
        if known is None:
            raise KeyError(f"{match[0]}: unknown kind {kind!r}; known: env, local")
        if name in known:
            return known[name]
        if default is not None:
            return default
        if kind == "env":
            raise KeyError(f"environment variable {name} is not set (or give a default: ${{env:{name}:-value}})")
        raise KeyError(f"{match[0]}: unknown name; known: {', '.join(sorted(known))}")


def load_pipeline(path: Path, references: References) -> Pipeline:
    """Read one pipeline file.

    Raises:
        ConfigError: It can't be read, isn't YAML, or does not fit the model.
    """
    return _load(path, Pipeline, references)


def load_settings(path: Path, references: References) -> Settings:
    """Read the settings file.

    Raises:
        ConfigError: It can't be read, isn't YAML, or does not fit the model.
    """
    return _load(path, Settings, references)


@dataclass(frozen=True, slots=True)
class Pipelines:
    """All pipeline files of a folder: those that can be used, and the complaints about the others."""

    usable: Mapping[str, Pipeline]
    broken: tuple[ConfigError, ...]

    def get(self, name: str) -> Pipeline:
        """The pipeline of that name.

        Raises:
            ConfigError: Its own file is broken.
            Terminal: There is none of that name.
        """
        if name in self.usable:
            return self.usable[name]
        for error in self.broken:
            if error.file.stem == name:
                raise error
        near = get_close_matches(name, self.usable, 1)
        raise Terminal(
            f"no pipeline is named {name!r}" + (f", did you mean {near[0]!r}?" if near else ""),
            next_step=f"known pipelines: {', '.join(sorted(self.usable)) or 'none'}",
        )


def load_pipelines(folder: Path, references: References) -> Pipelines:
    """Read every ``*.yaml`` and ``*.yml`` of a folder; one broken file does not hide the others."""
    usable: dict[str, Pipeline] = {}
    files: dict[str, Path] = {}
    broken: list[ConfigError] = []
    for path in sorted([*folder.glob("*.yaml"), *folder.glob("*.yml")]):
        try:
            pipeline = load_pipeline(path, references)
        except ConfigError as error:
            broken.append(error)
            continue
        if pipeline.name in usable:
            broken.append(ConfigError(path, [f"name: {pipeline.name!r} is taken by {files[pipeline.name]}"]))
            continue
        usable[pipeline.name], files[pipeline.name] = pipeline, path
    return Pipelines(usable, tuple(broken))


def _load(path: Path, model: type[M], references: References) -> M:
    raw = _read_yaml(path)
    problems: list[str] = []
    resolved = _substitute(raw, references, (), problems)
    if problems:
        raise ConfigError(path, problems)
    try:
        return model.model_validate(resolved)
    except ValidationError as error:
        raise ConfigError(path, [_problem(model, details) for details in error.errors()]) from error


class _StrictLoader(yaml.SafeLoader):
    """YAML without the silent last-one-wins of repeated keys."""


def _mapping(loader: _StrictLoader, node: yaml.MappingNode) -> dict[Any, Any]:
    keys = [loader.construct_object(key) for key, _ in node.value]
    for at, key in enumerate(keys):
        if key in keys[:at]:
            mark = node.value[at][0].start_mark
            raise yaml.MarkedYAMLError(problem=f"key {key!r} is written twice", problem_mark=mark)
    return dict(loader.construct_pairs(node, deep=True))


_StrictLoader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)


def _read_yaml(path: Path) -> object:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(path, [f"can't be read: {error}"]) from error
    try:
        raw = yaml.load(text, _StrictLoader)  # noqa: S506 - a SafeLoader
    except yaml.MarkedYAMLError as error:
        where = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
        raise ConfigError(path, [f"{where}not YAML: {error.problem}"]) from error
    except yaml.YAMLError as error:
        raise ConfigError(path, [f"not YAML: {error}"]) from error
    if not isinstance(raw, dict):
        raise ConfigError(path, ["expected keys and values, found " + ("an empty file" if raw is None else type(raw).__name__)])
    return raw


def _substitute(node: object, references: References, at: tuple[str, ...], problems: list[str]) -> object:
    """`node` with every reference replaced; complaints are collected, not raised, so that all show at once."""
    if isinstance(node, dict):
        return {key: _substitute(value, references, (*at, str(key)), problems) for key, value in node.items()}
    if isinstance(node, list):
        return [_substitute(value, references, (*at, str(index)), problems) for index, value in enumerate(node)]
    if not isinstance(node, str):
        return node

    def replace(match: re.Match[str]) -> str:
        try:
            return references.resolve(match)
        except KeyError as error:
            problems.append(f"{'.'.join(at)}: {error.args[0]}")
            return ""

    return _REFERENCE.sub(replace, node)


def _problem(model: type[BaseModel], details: Any) -> str:
    """One line for one complaint of pydantic, with the nearest known key where a key is unknown."""
    path = ".".join(str(part) for part in details["loc"])
    if details["type"] == "extra_forbidden":
        known = list(_keys_at(model, details["loc"][:-1]))
        near = get_close_matches(str(details["loc"][-1]), known, 1)
        return f"{path}: unknown key" + (f", did you mean {near[0]!r}?" if near else f"; known keys: {', '.join(known)}")
    message = details["msg"].removeprefix("Value error, ")
    if details["type"] == "missing":
        message = "is required and missing"
    found = "" if isinstance(details["input"], dict | list) or details["type"] in ("missing", "value_error") else f", found {details['input']!r}"
    return f"{path or 'file'}: {message}{found}"


def _keys_at(model: type[BaseModel], loc: tuple[str | int, ...]) -> Iterator[str]:
    """Keys the model knows at a place of the file."""
    here: set[type[BaseModel]] = {model}
    for part in loc:
        fields = [m.model_fields[part] for m in here if isinstance(part, str) and part in m.model_fields]
        if fields:
            here = {m for field in fields for m in _models_in(field.annotation)}
    for found in here:
        yield from found.model_fields


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in getattr(annotation, "__args__", ()):
        yield from _models_in(inner)
