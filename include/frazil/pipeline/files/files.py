"""Reads files of a project: bounded text, strict YAML, Java's properties, the owner of any file, and references such as
`${env:NAME}`, which keep secrets out of files.
"""

from __future__ import annotations

import json
import re
from collections.abc import Hashable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, cast

import yaml
from yaml.constructor import SafeConstructor
from yaml.resolver import Resolver

MAX_BYTES: Final = 2**20
"""Most bytes of a file, and of a schema with all its imports. Brokers accept no larger message by default either."""

MAX_DEPTH: Final = 64
"""Deepest nesting of values, because code that walks through a file recurses."""

MAX_VALUES: Final = 100_000
"""Most values in a file, including those that aliases repeat. A pipeline with 500 columns has 3,000."""

MAX_DIGITS: Final = 100
"""Most characters of a number: Python writes no integer of 4,300 digits, and reads a long one in quadratic time."""

_NUMBERS: Final = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
"""YAML's types of numbers."""

_UNSTORABLE: Final = re.compile("[\0\ud800-\udfff]")
"""Characters that an escape can put into a text, but that no file name, message or database of Airflow can have."""

_MERGE: Final = "tag:yaml.org,2002:merge"
"""The key ``<<``, which adds the keys of another mapping."""


class UnreadableFileError(ValueError):
    """A file can't be read; the message says why."""


def read_text(file: Path, folder: Path | None = None) -> str:
    """Read a regular file of a bounded size.

    Args:
        file: The file.
        folder: The folder that the file must be in, after all links are followed; None: any.

    Raises:
        UnreadableFileError: The file is elsewhere, not a regular file, too large, or can't be read.
    """
    if _UNSTORABLE.search(str(file)):
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
    except UnicodeDecodeError as error:  # its own text quotes bytes of the file
        raise UnreadableFileError(f"{file} can't be read: byte {error.start:,} is no UTF-8") from None
    except OSError as error:
        raise UnreadableFileError(f"{file} can't be read: {error.strerror}") from error
    except RuntimeError as error:  # how Python 3.11 and 3.12 report links that lead to each other
        raise UnreadableFileError(f"{file} can't be read: its links lead to each other") from error


class UnfitYamlError(yaml.MarkedYAMLError):
    """A YAML text has too many or too deeply nested values, a number that is too long, or a text that can't be stored."""


def parse_yaml(text: str) -> object:
    """Parse a YAML text.

    Raises:
        UnfitYamlError: It has too many or too deeply nested values, a number that is too long, or a text that can't be stored.
        yaml.YAMLError: It isn't YAML, or a key is written twice.
    """
    if yaml.__with_libyaml__:
        try:
            return _parsed(text, _FastLoader)
        except UnfitYamlError:
            raise
        except yaml.YAMLError:
            pass  # the other parser has better messages
    return _parsed(text, _Loader)


class _Strict(SafeConstructor, Resolver):
    """YAML in which a repeated key is an error and `1:30` is a text, not a number to base 60 as in YAML 1.1. Every error has a line
    number.
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
            # PyYAML does not catch these for a date such as 2024-13-45, or for `!!int five`.
            raise yaml.MarkedYAMLError(problem=f"unreadable value: {error}", problem_mark=node.start_mark) from error


def _check_scalar(node: yaml.ScalarNode) -> None:
    if unstorable := _UNSTORABLE.search(node.value):
        problem = (
            f"a text holds {ascii(unstorable[0])[1:-1]}, which can't be stored, as neither NUL nor half of a character can; the escape"
            " of a character beyond \\uffff has eight digits, such as \\U0001f600"
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
    """PyYAML's parser in Python, which has the better error messages."""


if yaml.__with_libyaml__:

    class _FastLoader(_Strict, yaml.CSafeLoader):
        """PyYAML's parser in C, which takes a seventh of the time."""


def _parsed(text: str, loader: type[Any]) -> object:
    _check_size(text, loader)
    return yaml.load(text, loader)  # noqa: S506 - a SafeLoader


@dataclass(slots=True)
class _Size:
    """Number of values within a value, including itself, and their deepest nesting."""

    values: int = 1
    levels: int = 1
    anchor: str | None = None

    def add(self, inner: _Size) -> None:
        self.values += inner.values
        self.levels = max(self.levels, inner.levels + 1)


@dataclass(slots=True)
class _Sizes:
    """Sizes of the values that are being parsed, outermost first, and of finished ones with an anchor."""

    open: list[_Size] = field(default_factory=lambda: [_Size()])
    anchored: dict[str, _Size] = field(default_factory=dict)

    def close(self, size: _Size) -> None:
        if size.anchor is not None:
            self.anchored[size.anchor] = size
        self.open[-1].add(size)


def _unfit(event: yaml.Event, problem: str) -> UnfitYamlError:
    return UnfitYamlError(problem=problem, problem_mark=cast("yaml.Mark | None", event.start_mark))


def _check_size(text: str, loader: type[Any]) -> None:
    """Refuse a text with too many or too deeply nested values. It is neither loaded nor walked recursively; an alias counts as much as
    the value that it repeats.

    Raises:
        UnfitYamlError: The values are too many, or too deeply nested, or a value is part of itself.
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
                problem = f"alias *{event.anchor} has no anchor before it, or is part of the value with that anchor"
                raise _unfit(event, problem)
            sizes.open[-1].add(repeated)
        else:
            continue
        if len(sizes.open) - 1 + sizes.open[-1].levels > MAX_DEPTH + 1:
            raise _unfit(event, f"expected at most {MAX_DEPTH} values within each other, found more")
        if sizes.open[-1].values > MAX_VALUES:
            problem = f"expected at most {MAX_VALUES:,} values, aliases (*) counted as what they stand for, found more"
            raise _unfit(event, problem)


_OWNER_LINE: Final = re.compile(r"^owner\s*:\s(.*)$", re.MULTILINE)


def stated_owner(file: Path) -> str | None:
    """The `owner` of a pipeline file, even of one that is invalid; None if it can't be determined."""
    try:
        owners = [parse_yaml(line) for line in _OWNER_LINE.findall(read_text(file, file.parent))]
    except (UnreadableFileError, yaml.YAMLError):
        return None
    owner = owners[0] if len(owners) == 1 else None
    return owner if isinstance(owner, str) and owner.strip() and "${" not in owner else None


_ESCAPE = re.compile(r"\\(u[0-9A-Fa-f]{4}|.)", re.DOTALL)
_PLAIN = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_KEY = re.compile(r"(?P<key>(?:\\.|[^\\=:\s])*)[ \t\f]*(?:[=:][ \t\f]*|(?<=[ \t\f])|$)(?P<value>.*)", re.DOTALL)
_SPECIAL = re.compile(r"[\\=:#! \t\f\r\n]")
_LETTERS = {plain: letter for letter, plain in _PLAIN.items()}


class UnreadableProperties(ValueError):
    """A text is not in the form of Java's properties; the message never quotes it."""


def read(text: str) -> dict[str, str]:
    """Parse Java's properties. Of a repeated key the last one counts.

    Raises:
        UnreadableProperties: The text is not in that form.
    """
    properties = {}
    for line in _logical_lines(text.removeprefix("\ufeff")):
        match = _KEY.match(line)
        if match is None:
            raise UnreadableProperties("a line has no key")
        properties[_unescaped(match["key"])] = _unescaped(match["value"])
    return properties


def write(properties: Mapping[str, str]) -> str:
    """The properties as a text that `read`, and Java, can parse."""
    return "".join(f"{_escaped(key)}={_escaped(value)}\n" for key, value in properties.items())


def _escaped(text: str) -> str:
    return _SPECIAL.sub(lambda match: "\\" + _LETTERS.get(match[0], match[0]), text)


def _logical_lines(text: str) -> Iterator[str]:
    """Lines without comments and blank ones; a backslash at the end of a line joins the next one."""
    pending = ""
    for raw in re.split(r"\r\n|\r|\n", text):
        line = raw.lstrip(" \t\f")
        if not pending and (not line or line[0] in "#!"):
            continue
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            pending += line[:-1]
            continue
        yield pending + line
        pending = ""
    if pending:
        yield pending


def _unescaped(text: str) -> str:
    def plain(match: re.Match[str]) -> str:
        escaped = match[1]
        if len(escaped) > 1:
            return chr(int(escaped[1:], 16))
        if escaped == "u":
            raise UnreadableProperties("a \\u escape is not followed by four hexadecimal digits")
        return _PLAIN.get(escaped, escaped)

    return _ESCAPE.sub(plain, text)


REFERENCE: Final = re.compile(
    r"(?P<escape>\$)?\$\{(?P<kind>[a-z]+):(?P<name>(?:(?!:-|\$\{)[^}])++)(?::-(?P<default>(?:(?!\$\{)[^}])*+))?\}"
)
"""A reference. With another dollar before it, `$${env:NAME}`, it stands for the text `${env:NAME}`."""

CONNECTION_VARIABLE: Final = "FRAZIL_CONNECTION__"
"""Prefix of the names of environment variables with fields of Airflow's connections."""

_KINDS: Final = "env, file, airflow, local"


@dataclass(frozen=True, slots=True)
class References:
    """Resolves references; ``:-`` begins a default for unset or empty variables, as in shells.

    ``${env:NAME}`` is an environment variable. ``${file:PATH:KEY}`` is a key of a properties file, as in Kafka Connect's
    FileConfigProvider. ``${airflow:CONNECTION:FIELD}`` is a field of an Airflow connection: Airflow's tasks put it into an environment
    variable, and without that variable the reference stays unresolved. ``${local:NAME}`` is a value of the embedded stack.

    Settings may use every reference. Pipelines and captures, which many people write, may only use those that the settings allow.

    Attributes:
        env: Environment variables.
        local: Values of the embedded stack, including passwords.
        allow: References that pipelines and captures may use, such as `env:REGION`.
        shipped: Reference -> value on the machine that submitted the job.
    """

    env: Mapping[str, str]
    local: Mapping[str, str]
    allow: frozenset[str] = frozenset()
    shipped: Mapping[str, str] = field(default_factory=dict, repr=False)

    def allowing(self, names: Iterable[str]) -> References:
        """The same references, with these allowed in pipelines and captures."""
        return replace(self, allow=frozenset(names))

    def resolve_allowed(self, match: re.Match[str]) -> str:
        """Value of a reference in a pipeline or capture file.

        Raises:
            KeyError: The settings don't allow the reference, or as `resolve`.
        """
        name = f"{match['kind']}:{match['name']}"
        if name not in self.allow:
            raise KeyError(
                f"{match[0]} is refused: this file may only refer to what the settings list under references.allow, such as"
                f' references: {{allow: ["{name}"]}}; the text itself is written ${match[0]}'
            )
        return self.resolve(match)

    def to_ship(self, settings: object, files: Iterable[str]) -> dict[str, str]:
        """Reference -> value, for all references in the settings, and for allowed ones in the texts of other files."""
        matches = [match for text in files for match in references_in(text)]
        allowed = [match for match in matches if f"{match['kind']}:{match['name']}" in self.allow]
        values: dict[str, str] = {}
        for match in [*references_in(settings), *allowed]:
            with suppress(KeyError):  # an error comes if something needs the value
                values[match[0]] = self.resolve(match)
        return values

    def hidden(self, text: str) -> str:
        """The text with values of allowed references replaced by these references."""
        values: dict[str, str] = {}
        for name in self.allow:
            if (match := REFERENCE.fullmatch(f"${{{name}}}")) is not None:
                with suppress(KeyError):
                    values[match[0]] = self.resolve(match)
        return hide(text, values)

    def resolve(self, match: re.Match[str]) -> str:
        """Value of a reference.

        Raises:
            KeyError: The kind or name is unknown, or there is no such file. Its argument is a message for users.
        """
        if match[0] in self.shipped:
            return self.shipped[match[0]]
        kind, name, default = match["kind"], match["name"], match["default"]
        if kind == "file":
            return _file_value(name, default)
        if kind == "airflow":
            connection_field = self.env.get(connection_variable(*_connection(match)))
            return connection_field or (match[0] if default is None else default)
        sources = {"env": self.env, "local": self.local}.get(kind)
        if sources is None:
            raise KeyError(f"{match[0]}: unknown kind {kind!r}; known: {_KINDS}")
        if name in sources and (sources[name] or default is None):
            return sources[name]
        if default is not None:
            return default
        if kind == "env":
            raise KeyError(f"environment variable {name} is not set (or give a default: ${{env:{name}:-value}})")
        raise KeyError(f"{match[0]}: unknown name; known: {', '.join(sorted(sources))}")


def hide(text: str, values: Mapping[str, str]) -> str:
    """The text with each value (in `values`, by reference) replaced by its reference."""
    for reference, value in sorted(values.items(), key=lambda pair: -len(pair[1])):
        for written in filter(None, (value, repr(value)[1:-1], json.dumps(value)[1:-1])):
            text = text.replace(written, reference)
    return text


def connection_variable(connection: str, field: str) -> str:
    """Name of the environment variable with a field of an Airflow connection: `FRAZIL_CONNECTION__KAFKA_PROD__PASSWORD`, for
    example.
    """
    return CONNECTION_VARIABLE + "__".join(re.sub(r"\W", "_", part).upper() for part in (connection, field))


def connection_fields(node: object) -> Iterator[tuple[str, str]]:
    """Connection and field of each reference to an Airflow connection in the values of a file. Malformed ones are skipped."""
    for match in _references(node, "airflow"):
        with suppress(KeyError):
            yield _connection(match)


def referenced_files(node: object) -> Iterator[Path]:
    """Paths of properties files that the values of a file refer to."""
    return (Path(match["name"].rpartition(":")[0]) for match in _references(node, "file"))


def ambiguous_connections(node: object) -> Iterator[str]:
    """Problems of fields of different connections that map to the same environment variable, so that its value is ambiguous."""
    first: dict[str, tuple[str, str]] = {}
    for connection_field in connection_fields(node):
        first_field = first.setdefault(variable := connection_variable(*connection_field), connection_field)
        if first_field != connection_field:
            written = " and ".join(f"${{airflow:{':'.join(pair)}}}" for pair in (first_field, connection_field))
            yield f"{written} are both the variable {variable}: give one of the connections another name"


def references_in(node: object) -> Iterator[re.Match[str]]:
    """References in the values of a parsed YAML file."""
    if isinstance(node, str):
        yield from (match for match in REFERENCE.finditer(node) if not match["escape"])
    elif isinstance(node, Mapping):
        for value in node.values():
            yield from references_in(value)
    elif isinstance(node, list | tuple):
        for value in node:
            yield from references_in(value)


def _references(node: object, kind: str) -> Iterator[re.Match[str]]:
    return (match for match in references_in(node) if match["kind"] == kind)


def _connection(match: re.Match[str]) -> tuple[str, str]:
    connection, _, field = match["name"].partition(":")
    if not (connection and field):
        raise KeyError(f"{match[0]}: expected ${{airflow:CONNECTION:FIELD}}, such as ${{airflow:kafka_prod:password}}")
    return connection, field


def _file_value(name: str, default: str | None) -> str:
    path, _, key = name.rpartition(":")
    if not path.startswith("/"):
        raise KeyError(f"${{file:{name}}}: expected ${{file:/absolute/path:key}}")
    try:
        properties = read(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        # Not the error's own text, which may quote bytes of the file.
        reason = error.strerror if isinstance(error, OSError) else "it is no properties file"
        raise KeyError(f"${{file:{name}}}: {path} can't be read: {reason}") from error
    if key in properties:
        return properties[key]
    if default is not None:
        return default
    raise KeyError(f"${{file:{name}}}: {path} has no key {key!r}")
