"""A Schema Registry by name: how to reach it, without ever showing its secrets."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from urllib.parse import unquote

from frazil.records.model.format import Framing

MASK = "***"
_SECRET_MARKS = ("user.info", "password", "secret", "token")
"""Parts of property names whose values open a door: `basic.auth.user.info`, `ssl.key.password`, `bearer.auth.token`, …"""

_PASSWORD = re.compile(r"//[^/@:]*:([^/@]+)@")
"""Of an address with credentials. (Python's own reading of addresses fails on malformed ones.)"""


@dataclass(frozen=True, slots=True, repr=False)
class Registry:
    """A Schema Registry.

    Attributes:
        url: Root of its API; several with commas are asked in turn.
        properties: Further properties of confluent-kafka's registry client, or of Glue's.
        framing: How records name its schemas.
    """

    name: str
    url: str
    properties: Mapping[str, str | float] = field(default_factory=dict)
    framing: Framing = "confluent"

    @property
    def urls(self) -> tuple[str, ...]:
        """Root of the API of each server."""
        return tuple(url.strip() for url in self.url.split(","))

    def redact(self, text: str) -> str:
        """`text` without credentials, for messages that a client wrote."""
        for secret in sorted(self._secrets(), key=len, reverse=True):
            text = text.replace(secret, MASK)
        return text

    def __str__(self) -> str:
        return f"Schema Registry {self.name!r} ({self.redact(self.url) or 'AWS Glue'})"

    def __repr__(self) -> str:
        shown = {key: MASK if _is_secret(key) else value for key, value in self.properties.items()}
        return f"Registry(name={self.name!r}, url={self.redact(self.url)!r}, properties={shown!r})"

    def _secrets(self) -> Iterator[str]:
        for key, value in self.properties.items():
            if isinstance(value, str) and value and _is_secret(key):
                yield value
                yield from value.split(":", 1)[1:]  # of `user:password` the password alone, too
        for url in self.urls:
            for password in _PASSWORD.findall(url):
                yield from (password, unquote(password))


def _is_secret(key: str) -> bool:
    return any(mark in key.lower() for mark in _SECRET_MARKS)
