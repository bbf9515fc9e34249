"""Files of a project's folder: how they are read, and whose a file is, also one that can't be used."""

from __future__ import annotations

import re
from collections.abc import Hashable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, cast

import yaml
from yaml.constructor import SafeConstructor
from yaml.resolver import Resolver

MAX_BYTES: Final = 2**20
"""Bounds a file of the project, and a schema with all that it imports. Brokers take no larger schema by default either."""

MAX_DEPTH: Final = 64
"""Bounds the nesting of values, because code that walks through a file recurses."""

MAX_VALUES: Final = 100_000
"""Bounds the values of a file, those that aliases repeat included. A pipeline with 500 columns has 3,000."""

MAX_DIGITS: Final = 100
"""Bounds the characters of a number: Python refuses to write an integer of 4,300 digits, and reads a long one in quadratic time."""

_NUMBERS: Final = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
"""Types that PyYAML reads digits for."""

_UNWRITABLE: Final = re.compile("[\0\ud800-\udfff]")
"""Characters that an escape can put into a text, and that no file name, message or database of Airflow takes."""

_MERGE: Final = "tag:yaml.org,2002:merge"
"""The key ``<<``, which takes the keys of another mapping over."""


class UnreadableFileError(ValueError):
    """Why a file is not read."""


def read_text(file: Path, folder: Path | None = None) -> str:
    """Text of a regular file of a bounded size.

    Args:
        file: The file.
        folder: Where it must lie, whatever links lead to it; None: anywhere.

    Raises:
        UnreadableFileError: It does not, it is none, it is too large, or it can't be read.
    """
    if _UNWRITABLE.search(str(file)):
        raise UnreadableFileError(f"{str(file)!a} can't be read: expected a name in UTF-8")
    try:
        place = file.resolve(strict=True)
        if folder is not None and not place.is_relative_to(folder.resolve()):
            raise UnreadableFileError(f"{file} is outside of {folder}: only files of that folder are read")
        if not place.is_file():
            raise UnreadableFileError(f"{file} can't be read: it is no regular file")
        with place.open("rb") as stream:
            content = stream.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise UnreadableFileError(f"{file}: expected at most {MAX_BYTES:,} bytes, found more")
        return content.decode()
    except UnicodeDecodeError as error:  # whose own text quotes bytes
        raise UnreadableFileError(f"{file} can't be read: byte {error.start:,} is no UTF-8") from None
    except OSError as error:
        raise UnreadableFileError(f"{file} can't be read: {error.strerror}") from error
    except RuntimeError as error:  # Python 3.11 and 3.12, of links that lead to each other
        raise UnreadableFileError(f"{file} can't be read: its links lead to each other") from error


class UnfitYamlError(yaml.MarkedYAMLError):
    """YAML that has too many, too deep or too long values, or a text that can't be stored."""


def parse_yaml(text: str) -> object:
    """The values of a YAML text.

    Raises:
        UnfitYamlError: They are too many, aliases included, or lie too deep within each other; a number is too long, or a
            text contains what nothing can store.
        yaml.YAMLError: It isn't YAML, or a key is written twice.
    """
    if yaml.__with_libyaml__:
        try:
            return _parsed(text, _FastLoader)
        except UnfitYamlError:
            raise
        except yaml.YAMLError:
            pass  # the other parser says better what is wrong
    return _parsed(text, _Loader)


class _Strict(SafeConstructor, Resolver):
    """YAML without the silent last-one-wins of repeated keys, without YAML 1.1's numbers to base 60 (`1:30` is a text),
    and with a line number for every complaint.
    """

    def resolve(self, kind: Any, value: Any, implicit: Any) -> Any:
        tag = super().resolve(kind, value, implicit)  # type: ignore[no-untyped-call]
        is_text = implicit and kind is yaml.ScalarNode and tag in _NUMBERS and ":" in value
        return self.DEFAULT_SCALAR_TAG if is_text else tag

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:  # noqa: FBT001, FBT002 - PyYAML's signature
        if isinstance(node, yaml.ScalarNode):
            _check_scalar(node)
        try:
            return super().construct_object(node, deep)
        except (ArithmeticError, ValueError, TypeError, LookupError, AttributeError) as error:
            # What PyYAML lets out for a date such as 2024-13-45, or `!!int five`.
            raise yaml.MarkedYAMLError(problem=f"unreadable value: {error}", problem_mark=node.start_mark) from error


def _check_scalar(node: yaml.ScalarNode) -> None:
    if unwritable := _UNWRITABLE.search(node.value):
        problem = (
            f"a text holds {ascii(unwritable[0])[1:-1]}, which can't be stored: NUL can't, nor half of a character; the escape of a"
            " character beyond \\uffff has eight digits, such as \\U0001f600"
        )
        raise UnfitYamlError(problem=problem, problem_mark=node.start_mark)
    if node.tag in _NUMBERS and len(node.value) > MAX_DIGITS:
        problem = f"expected a number of at most {MAX_DIGITS} characters, found {len(node.value):,}"
        raise UnfitYamlError(problem=problem, problem_mark=node.start_mark)


def _mapping(loader: _Strict, node: yaml.MappingNode) -> dict[Any, Any]:
    written: set[Any] = set()
    for key_node, _ in node.value:
        if key_node.tag == _MERGE:
            continue
        key = loader.construct_object(key_node, deep=True)
        if not isinstance(key, Hashable):
            raise yaml.MarkedYAMLError(problem="found unhashable key", problem_mark=key_node.start_mark)
        if key in written:
            raise yaml.MarkedYAMLError(problem=f"key {key!r} is written twice", problem_mark=key_node.start_mark)
        written.add(key)
    return loader.construct_mapping(node, deep=True)


_Strict.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)  # type: ignore[type-var]  # stubs want a whole loader


class _Loader(_Strict, yaml.SafeLoader):
    """PyYAML's own parser, whose error messages are the most precise."""


if yaml.__with_libyaml__:

    class _FastLoader(_Strict, yaml.CSafeLoader):
        """The parser in C, in a seventh of the time."""


def _parsed(text: str, loader: type[Any]) -> object:
    _check_size(text, loader)
    return yaml.load(text, loader)  # noqa: S506 - a SafeLoader


@dataclass(slots=True)
class _Size:
    """Number of values in a value, itself included, and its depth."""

    values: int = 1
    levels: int = 1
    anchor: str | None = None

    def add(self, inner: _Size) -> None:
        self.values += inner.values
        self.levels = max(self.levels, inner.levels + 1)


@dataclass(slots=True)
class _Sizes:
    """Sizes of the values being parsed, outermost first, and of those with an anchor."""

    open: list[_Size] = field(default_factory=lambda: [_Size()])
    anchored: dict[str, _Size] = field(default_factory=dict)

    def close(self, size: _Size) -> None:
        if size.anchor is not None:
            self.anchored[size.anchor] = size
        self.open[-1].add(size)


def _unfit(event: yaml.Event, problem: str) -> UnfitYamlError:
    return UnfitYamlError(problem=problem, problem_mark=cast("yaml.Mark | None", event.start_mark))


def _check_size(text: str, loader: type[Any]) -> None:
    """Count the values of a text, with each alias as large as what it stands for. Nothing is built, nothing recurses.

    Raises:
        UnfitYamlError: They are too many, or too deep, or a value is part of itself.
    """
    sizes = _Sizes()
    for event in yaml.parse(text, Loader=loader):
        if isinstance(event, yaml.CollectionStartEvent):
            sizes.open.append(_Size(anchor=event.anchor))
        elif isinstance(event, yaml.CollectionEndEvent):
            sizes.close(sizes.open.pop())
        elif isinstance(event, yaml.ScalarEvent):
            sizes.close(_Size(anchor=event.anchor))
        elif isinstance(event, yaml.AliasEvent):
            if (repeated := sizes.anchored.get(str(event.anchor))) is None:
                problem = f"alias *{event.anchor} has no anchor before it, or is part of what it stands for"
                raise _unfit(event, problem)
            sizes.open[-1].add(repeated)
        else:
            continue
        if len(sizes.open) - 1 + sizes.open[-1].levels > MAX_DEPTH + 1:
            problem = f"expected at most {MAX_DEPTH} values within each other, found more"
            raise _unfit(event, problem)
        if sizes.open[-1].values > MAX_VALUES:
            problem = f"expected at most {MAX_VALUES:,} values, aliases (*) counted as what they stand for, found more"
            raise _unfit(event, problem)


_LINE: Final = re.compile(r"^owner\s*:\s(.*)$", re.MULTILINE)


def stated_owner(file: Path) -> str | None:
    """The `owner` that a pipeline file states, whatever else is in it; None if it can't be determined."""
    try:
        owners = [parse_yaml(line) for line in _LINE.findall(read_text(file, file.parent))]
    except (UnreadableFileError, yaml.YAMLError):
        return None
    owner = owners[0] if len(owners) == 1 else None
    return owner if isinstance(owner, str) and owner.strip() and "${" not in owner else None
