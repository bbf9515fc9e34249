"""A Kafka cluster with its client properties, whose secrets are never shown; and records to send to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

MASK = "***"
_SECRET_MARKS = ("password", "secret", "token", "jaas", "key", "oauthbearer.config")
"""Parts of property names, of librdkafka and of Java clients, whose values are secret: `sasl.password`,
`sasl.oauthbearer.client.secret`, `ssl.key.pem`, `ssl.keystore.password`, `sasl.jaas.config`, …; also the argument of token
providers, `sasl.oauthbearer.config`."""


@dataclass(frozen=True, slots=True, repr=False)
class Cluster:
    """A Kafka cluster.

    Attributes:
        properties: Properties of librdkafka, `bootstrap.servers` among them.
    """

    name: str
    properties: Mapping[str, str]

    @property
    def bootstrap_servers(self) -> str:
        """The bootstrap servers: `host:port`, separated by commas."""
        return self.properties.get("bootstrap.servers", "")

    def redact(self, text: str) -> str:
        """A client's text without the values of secret properties."""
        for key, value in self.properties.items():
            if value and is_secret(key):
                text = text.replace(value, MASK)
        return text

    def __str__(self) -> str:
        return f"Kafka cluster {self.name!r} ({self.bootstrap_servers})"

    def __repr__(self) -> str:
        shown = {key: MASK if is_secret(key) else value for key, value in self.properties.items()}
        return f"Cluster(name={self.name!r}, properties={shown!r})"


def is_secret(key: str) -> bool:
    """Return whether the value of a property must not be shown."""
    lowered = key.lower()
    return any(mark in lowered for mark in _SECRET_MARKS)


Header = tuple[str, bytes | None]


@dataclass(frozen=True, slots=True)
class OutgoingRecord:
    """One record to produce.

    Attributes:
        key: Bytes of the key; None for a record without key.
        value: Bytes of the value; None for a tombstone, which is not the same as empty.
        headers: Name and bytes of each header, in order; names may repeat.
        timestamp_ms: Create time in milliseconds since 1970 UTC, above 0; None for the time of sending.
        kind: Why a generator broke this record on purpose; None for a sound one. Never sent.
    """

    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()
    timestamp_ms: int | None = None
    kind: str | None = None

    @property
    def size(self) -> int:
        """Bytes of key, value and headers, before they are compressed."""
        headers = sum(len(name.encode()) + len(value or b"") for name, value in self.headers)
        return len(self.key or b"") + len(self.value or b"") + headers
