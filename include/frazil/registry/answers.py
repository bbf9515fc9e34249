"""Bounds of a registry's answers: bytes, and seconds until the last one."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from time import monotonic
from typing import Final, cast

from confluent_kafka.schema_registry import SchemaRegistryClient

# The client takes the first of two HTTP libraries that is installed; this is the one it took.
from confluent_kafka.schema_registry.common._httpx_compat import httpx

MAX_ANSWER: Final = 16 << 20
"""Bytes of one answer: several times the largest schema that is read."""

_EXPANSION: Final = 1_000
"""A compressed answer may grow so many times. None is asked for."""


class AnswerTooLarge(ValueError):
    """The registry sends more than a schema can have."""


class _BoundedStream(httpx.SyncByteStream):
    def __init__(self, stream: httpx.SyncByteStream, size: int, seconds: float) -> None:
        self._stream: Final = stream
        self._size: Final = size
        self._seconds: Final = seconds

    def __iter__(self) -> Iterator[bytes]:
        size, deadline = 0, monotonic() + self._seconds
        for part in self._stream:
            size += len(part)
            if size > self._size:
                raise AnswerTooLarge(f"the registry's answer has more than {self._size} bytes")
            if monotonic() > deadline:
                raise httpx.ReadTimeout(f"the answer is not whole after {self._seconds:.0f} s")
            yield part

    def close(self) -> None:
        self._stream.close()


def bound_answers(client: SchemaRegistryClient, seconds: float) -> None:
    """Let no answer to a client be larger than `MAX_ANSWER`, or take longer than some seconds once it begins.

    Args:
        client: Reads answers whole, whatever their size.
        seconds: How long an answer may take.
    """
    session = client._rest_client.session  # noqa: SLF001  # it takes no transport, and has no bound of its own
    session.headers["Accept-Encoding"] = "identity"
    session.event_hooks = {"response": [partial(_bound, seconds)]}


def _bound(seconds: float, response: httpx.Response) -> None:
    encoded = response.headers.get("Content-Encoding", "identity") != "identity"
    size = MAX_ANSWER // _EXPANSION if encoded else MAX_ANSWER
    stream = cast("httpx.SyncByteStream", response.stream)  # the client is no asynchronous one
    response.stream = _BoundedStream(stream, size, seconds)
