"""Reads pipeline and settings files: YAML, references, models. Every complaint names the file and the key path."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError
from yaml.constructor import SafeConstructor

from frazil.errors import Terminal
from frazil.pipeline.model import Pipeline
from frazil.pipeline.problems import problems
from frazil.pipeline.references import REFERENCE, References, ambiguous_connections
from frazil.pipeline.settings import Settings
from frazil.pipeline.value import Decoding

M = TypeVar("M", bound=BaseModel)

SCHEMAS = "schemas"
"""Folder of schema files, beside the folder of pipeline files."""


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


def load_pipeline(path: Path, references: References) -> Pipeline:
    """Read one pipeline file.

    Raises:
        ConfigError: It can't be read, isn't YAML, or does not fit the model.
    """
    pipeline = load_model(path, Pipeline, references)
    if found := list(_without_source(pipeline)):
        raise ConfigError(path, found)
    halves = {"value": pipeline.value, "key": pipeline.key}
    schemas = {half: _with_schema(path, half, of) for half, of in halves.items() if of is not None and of.schema_file}
    return pipeline.model_copy(update=schemas) if schemas else pipeline


def _without_source(pipeline: Pipeline) -> Iterator[str]:
    """Columns of keys that nothing decodes, and a value that no column takes."""
    has_keys = pipeline.key is not None or any(step.name == "ValueToKey" for step in pipeline.transforms)
    for at, destination in pipeline.declared.items():
        of_key = [name for name, column in destination.columns.items() if column.of == "key"]
        for name in () if has_keys else of_key:
            yield (
                f"{at}.columns.{name}.of: keys are not decoded: declare how under key, or let the transform"
                " ValueToKey make them"
            )
        if of_key and len(of_key) == len(destination.columns) and destination.evolves == "none":
            yield f"{at}.columns: all are of the key: at least one must be of the value"


def _with_schema(path: Path, half: str, decoding: Decoding) -> Decoding:
    """`value` or `key` with the text of its schema file, which decides outcomes as the pipeline file does."""
    file = path.parent.parent / SCHEMAS / str(decoding.schema_file)
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(path, [f"{half}.schema_file: {file} can't be read: {error}"]) from error
    return decoding.model_copy(update={"schema_": text})


def load_settings(path: Path, references: References) -> Settings:
    """Read the settings file.

    Raises:
        ConfigError: It can't be read, isn't YAML, or does not fit the model.
    """
    return load_model(path, Settings, references)


def load_model(path: Path, model: type[M], references: References) -> M:
    """Read a file as a model.

    Raises:
        ConfigError: It can't be read, isn't YAML, or does not fit the model.
    """
    raw = read_yaml(path)
    unresolved = list(ambiguous_connections(raw))
    resolved = _substitute(raw, references, (), unresolved)
    if unresolved:
        raise ConfigError(path, unresolved)
    try:
        return model.model_validate(resolved)
    except ValidationError as error:
        raise ConfigError(path, problems(model, error)) from error


_MERGE = "tag:yaml.org,2002:merge"
"""The key ``<<``, which takes the keys of another mapping over."""


class _Strict(SafeConstructor):
    """YAML without the silent last-one-wins of repeated keys, and with a line number for every complaint."""

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:  # noqa: FBT001, FBT002 - PyYAML's signature
        try:
            return super().construct_object(node, deep)
        except (ValueError, TypeError, LookupError, AttributeError) as error:
            # What PyYAML lets out for a date such as 2024-13-45, or `!!int five`.
            raise yaml.MarkedYAMLError(problem=f"unreadable value: {error}", problem_mark=node.start_mark) from error


def _mapping(loader: _Strict, node: yaml.MappingNode) -> dict[Any, Any]:
    written: list[Any] = []
    for key, _ in node.value:
        if key.tag == _MERGE:
            continue
        written.append(loader.construct_object(key, deep=True))
        if written[-1] in written[:-1]:
            raise yaml.MarkedYAMLError(problem=f"key {written[-1]!r} is written twice", problem_mark=key.start_mark)
    return loader.construct_mapping(node, deep=True)


_Strict.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)  # type: ignore[type-var]  # stubs want a whole loader


class _Loader(_Strict, yaml.SafeLoader):
    """PyYAML's own parser, whose complaints say most."""


if yaml.__with_libyaml__:

    class _FastLoader(_Strict, yaml.CSafeLoader):
        """The parser in C, in a seventh of the time."""


_OPENER = re.compile(r"[\[{?-]")
"""Without one of these no value of YAML holds another on the same line."""

_OPENERS = 5_000
"""Bounds how deep values may lie within each other where the parser in C reads them: beyond some 20,000 its stack overflows, and
with it the process."""


def _parsed(text: str) -> object:
    if yaml.__with_libyaml__ and len(_OPENER.findall(text)) < _OPENERS:
        with suppress(yaml.YAMLError):  # the other one says better what is wrong
            return yaml.load(text, _FastLoader)  # noqa: S506 - a SafeLoader
    return yaml.load(text, _Loader)  # noqa: S506 - a SafeLoader


def read_yaml(path: Path) -> dict[Any, Any]:
    """Read a YAML file that has keys and values, without resolving references.

    Raises:
        ConfigError: It is none.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(path, [f"can't be read: {error}"]) from error
    try:
        raw = _parsed(text)
    except yaml.MarkedYAMLError as error:
        where = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
        raise ConfigError(path, [f"{where}not YAML: {error.problem}"]) from error
    except yaml.YAMLError as error:
        raise ConfigError(path, [f"not YAML: {error}"]) from error
    except RecursionError as error:
        raise ConfigError(path, ["values lie within each other too deep to be read"]) from error
    if not isinstance(raw, dict):
        raise ConfigError(
            path, ["expected keys and values, found " + ("an empty file" if raw is None else type(raw).__name__)]
        )
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

    return REFERENCE.sub(replace, node)
