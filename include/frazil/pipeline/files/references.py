"""References in a file to the environment, other files, Airflow connections or the embedded stack, which keep secrets out of
it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from frazil.pipeline.syntax import java_properties

REFERENCE: Final = re.compile(
    r"(?P<escape>\$)?\$\{(?P<kind>[a-z]+):(?P<name>(?:(?!:-|\$\{)[^}])++)(?::-(?P<default>(?:(?!\$\{)[^}])*+))?\}"
)
"""A reference, or with another dollar before it, `$${env:NAME}`, the text itself."""

CONNECTION_VARIABLE: Final = "FRAZIL_CONNECTION__"
"""Begins the names of variables that hold fields of Airflow's connections."""

_KINDS: Final = "env, file, airflow, local"


@dataclass(frozen=True, slots=True)
class References:
    """Resolves references; ``:-`` gives a default for unset or empty variables, as in shells.

    ``${env:NAME}`` is an environment variable. ``${file:PATH:KEY}`` is a key of a properties file, as of Kafka Connect's
    FileConfigProvider. ``${airflow:CONNECTION:FIELD}`` is a field of an Airflow connection, which Airflow's tasks find: elsewhere
    it is a variable, or stays as it is until somebody needs the entry. ``${local:NAME}`` is the embedded stack.

    Settings may refer to everything. Pipelines and captures, which many people write, may refer to what the settings allow.

    Attributes:
        env: Environment variables.
        local: Values of the embedded stack, including passwords.
        allow: References that pipelines and captures may use, such as `env:REGION`.
        shipped: Values by reference, as text: those of the machine that a job was submitted from.
    """

    env: Mapping[str, str]
    local: Mapping[str, str]
    allow: frozenset[str] = frozenset()
    shipped: Mapping[str, str] = field(default_factory=dict, repr=False)

    def allowing(self, names: Iterable[str]) -> References:
        """The same with other references that pipelines and captures may use."""
        return replace(self, allow=frozenset(names))

    def resolve_allowed(self, match: re.Match[str]) -> str:
        """Value of one reference of a pipeline or capture file.

        Raises:
            KeyError: The settings don't allow it, or as `resolve`.
        """
        name = f"{match['kind']}:{match['name']}"
        if name not in self.allow:
            raise KeyError(
                f"{match[0]} is refused: this file may only refer to what the settings list under references.allow, such as"
                f' references: {{allow: ["{name}"]}}; the text itself is written ${match[0]}'
            )
        return self.resolve(match)

    def to_ship(self, settings: object, files: Iterable[str]) -> dict[str, str]:
        """Values of the references in the settings, and of those in the texts of other files that the settings allow."""
        matches = [match for text in files for match in references_in(text)]
        allowed = [match for match in matches if f"{match['kind']}:{match['name']}" in self.allow]
        values: dict[str, str] = {}
        for match in [*references_in(settings), *allowed]:
            with suppress(KeyError):  # whoever needs it says that it is missing
                values[match[0]] = self.resolve(match)
        return values

    def hidden(self, text: str) -> str:
        """A text with allowed references in place of their values."""
        values: dict[str, str] = {}
        for name in self.allow:
            if (match := REFERENCE.fullmatch(f"${{{name}}}")) is not None:
                with suppress(KeyError):
                    values[match[0]] = self.resolve(match)
        return hide(text, values)

    def resolve(self, match: re.Match[str]) -> str:
        """Value of one reference.

        Raises:
            KeyError: Unknown kind or name, or no such file, with a readable message as its argument.
        """
        if match[0] in self.shipped:
            return self.shipped[match[0]]
        kind, name, default = match["kind"], match["name"], match["default"]
        if kind == "file":
            return _of_file(name, default)
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
    """A text with references in place of their values."""
    for reference, value in sorted(values.items(), key=lambda pair: -len(pair[1])):
        for written in filter(None, (value, repr(value)[1:-1], json.dumps(value)[1:-1])):
            text = text.replace(written, reference)
    return text


def connection_variable(connection: str, field: str) -> str:
    """Name of the variable that contains a field of an Airflow connection: `kafka_prod`, `password` ->
    `FRAZIL_CONNECTION__KAFKA_PROD__PASSWORD`.
    """
    return CONNECTION_VARIABLE + "__".join(re.sub(r"\W", "_", part).upper() for part in (connection, field))


def connection_fields(node: object) -> Iterator[tuple[str, str]]:
    """Airflow connections that a file refers to, each with the field. Malformed references are skipped."""
    for match in _references(node, "airflow"):
        with suppress(KeyError):
            yield _connection(match)


def referenced_files(node: object) -> Iterator[Path]:
    """Files that the values of a file take keys from."""
    return (Path(match["name"].rpartition(":")[0]) for match in _references(node, "file"))


def ambiguous_connections(node: object) -> Iterator[str]:
    """Fields of different connections that map to the same environment variable, so that its value would be ambiguous."""
    first: dict[str, tuple[str, str]] = {}
    for connection_field in connection_fields(node):
        first_field = first.setdefault(variable := connection_variable(*connection_field), connection_field)
        if first_field != connection_field:
            written = " and ".join(f"${{airflow:{':'.join(pair)}}}" for pair in (first_field, connection_field))
            yield f"{written} are both the variable {variable}: give one of the connections another name"


def references_in(node: object) -> Iterator[re.Match[str]]:
    """References in the values of a file, as YAML gives them."""
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


def _of_file(name: str, default: str | None) -> str:
    path, _, key = name.rpartition(":")
    if not path.startswith("/"):
        raise KeyError(f"${{file:{name}}}: expected ${{file:/absolute/path:key}}")
    try:
        properties = java_properties.read(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        # Not the error's own text: of undecodable bytes it would quote some.
        reason = error.strerror if isinstance(error, OSError) else "it is no properties file"
        raise KeyError(f"${{file:{name}}}: {path} can't be read: {reason}") from error
    if key in properties:
        return properties[key]
    if default is not None:
        return default
    raise KeyError(f"${{file:{name}}}: {path} has no key {key!r}")
