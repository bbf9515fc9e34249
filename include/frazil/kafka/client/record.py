"""A record on its way to Kafka."""

from __future__ import annotations

from dataclasses import dataclass

Header = tuple[str, bytes | None]


@dataclass(frozen=True, slots=True)
class OutgoingRecord:
    """One record to produce.

    Attributes:
        key: Bytes of the key; None for a record without key.
        value: Bytes of the value; None for a tombstone, which is not the same as empty.
        headers: Name and bytes of each header, in order; names may repeat.
        timestamp_ms: Create time in milliseconds since 1970 UTC, above 0; None for the time of
            sending.
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
