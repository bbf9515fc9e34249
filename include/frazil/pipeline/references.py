"""What a file takes from elsewhere: the environment, other files, Airflow's connections, the embedded stack. How secrets stay out of it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from frazil.pipeline import java_properties

REFERENCE: Final = re.compile(r"\$\{(?P<kind>[a-z]+):(?P<name>[^}]+?)(?::-(?P<default>[^}]*))?\}")

CONNECTION_VARIABLE: Final = "FRAZIL_CONNECTION__"
"""Begins the names of variables that hold fields of Airflow's connections."""

_KINDS: Final = "env, file, airflow, local"


@dataclass(frozen=True, slots=True)
class References:
    """What references stand for; ``:-`` gives a default for unset or empty, as in shells.

    ``${env:NAME}`` is an environment variable. ``${file:PATH:KEY}`` is a key of a properties file, as of Kafka Connect's
    FileConfigProvider. ``${airflow:CONNECTION:FIELD}`` is a field of an Airflow connection, which Airflow's tasks find: elsewhere
    it is a variable, or stays as it is until somebody needs the entry. ``${local:NAME}`` is the embedded stack.
    """

    env: Mapping[str, str]
    local: Mapping[str, str]

    def resolve(self, match: re.Match[str]) -> str:
        """Value of one reference.

        Raises:
            KeyError: Unknown kind or name, or no such file, with a readable message as its argument.
        """
        kind, name, default = match["kind"], match["name"], match["default"]
        if kind == "file":
            return _of_file(name, default)
        if kind == "airflow":
            return self.env.get(connection_variable(*_connection(match))) or default or match[0]
        known = {"env": self.env, "local": self.local}.get(kind)
        if known is None:
            raise KeyError(f"{match[0]}: unknown kind {kind!r}; known: {_KINDS}")
        if name in known and (known[name] or default is None):
            return known[name]
        if default is not None:
            return default
        if kind == "env":
            raise KeyError(f"environment variable {name} is not set (or give a default: ${{env:{name}:-value}})")
        raise KeyError(f"{match[0]}: unknown name; known: {', '.join(sorted(known))}")


def connection_variable(connection: str, field: str) -> str:
    """Name of the variable that holds a field of an Airflow connection: `kafka_prod`, `password` ->
    `FRAZIL_CONNECTION__KAFKA_PROD__PASSWORD`.
    """
    return CONNECTION_VARIABLE + "__".join(re.sub(r"\W", "_", part).upper() for part in (connection, field))


def connection_fields(text: str) -> Iterator[tuple[str, str]]:
    """Airflow connections that a text refers to, each with the field."""
    for match in REFERENCE.finditer(text):
        if match["kind"] == "airflow" and ":" in match["name"]:
            yield _connection(match)


def _connection(match: re.Match[str]) -> tuple[str, str]:
    connection, _, field = match["name"].partition(":")
    if not field:
        raise KeyError(f"{match[0]}: expected ${{airflow:CONNECTION:FIELD}}, such as ${{airflow:kafka_prod:password}}")
    return connection, field


def _of_file(name: str, default: str | None) -> str:
    path, _, key = name.rpartition(":")
    if not path.startswith("/"):
        raise KeyError(f"${{file:{name}}}: expected ${{file:/absolute/path:key}}")
    try:
        found = java_properties.read(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        # Not the error's own text: of undecodable bytes it would quote some.
        said = error.strerror if isinstance(error, OSError) else "it is no properties file"
        raise KeyError(f"${{file:{name}}}: {path} can't be read: {said}") from error
    if key in found:
        return found[key]
    if default is not None:
        return default
    raise KeyError(f"${{file:{name}}}: {path} has no key {key!r}")
