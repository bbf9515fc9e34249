"""Reads configurations of connectors and workers: Kafka Connect's JSON in both shapes, and Java's properties."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from frazil.pipeline.syntax.java_properties import UnreadableProperties, read


@dataclass(frozen=True, slots=True)
class Connector:
    """One connector's configuration, unchanged.

    Attributes:
        file: Where it was read from.
        config: Keys and values as texts. Values may be secrets.
    """

    file: str
    config: Mapping[str, str] = field(repr=False)

    @property
    def name(self) -> str:
        """Its name, or what the file suggests."""
        return self.config.get("name", "").strip() or self.file.rpartition("/")[2].partition(".")[0]


def read_connectors(text: str, file: str) -> list[Connector]:
    """The connectors of a file: one object, `{"name": …, "config": {…}}` or flat, a list of them, or properties.

    Raises:
        UnreadableProperties: It is neither.
    """
    looks_so = not file.endswith(".properties") and text.lstrip("\ufeff \t\r\n")[:1] in ("{", "[")
    if file.endswith(".json") or looks_so:
        document = _json(text)
        return [Connector(file, _flat(item)) for item in (document if isinstance(document, list) else [document])]
    return [Connector(file, read(text))]


def _json(text: str) -> Any:
    try:
        return json.loads(text.lstrip("\ufeff"))
    except (ValueError, RecursionError) as error:
        where = f": line {error.lineno}, {error.msg}" if isinstance(error, json.JSONDecodeError) else ""
        raise UnreadableProperties(f"not JSON{where}") from error


def _flat(body: Any) -> dict[str, str]:
    if not isinstance(body, dict):
        raise UnreadableProperties("expected an object with the keys of a connector")
    inner = body.get("config")
    if not isinstance(inner, dict):
        return _texts(body)
    name = {"name": body["name"]} if "name" in body else {}
    return _texts({**name, **inner})


def _texts(config: Mapping[str, Any]) -> dict[str, str]:
    """Values as Kafka Connect reads them: strings. It treats null as absent."""
    return {key: _text(value) for key, value in config.items() if value is not None}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
