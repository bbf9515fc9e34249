"""A partition's log that loses its tail, as after an unclean leader election or on a disk restored from a copy."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

from frazil.local import broker
from frazil.local.home import Home
from frazil.local.process import Processes

_HEAD = struct.Struct(">qi")
"""How each batch of a log begins: its first offset, and the bytes that follow."""


def truncate(home: Home, processes: Processes, topic: str, partition: int, offset: int) -> None:
    """Cut a partition's log at an offset: the embedded broker is stopped and comes back, with a new leader epoch.

    The cut is made between batches of records: the one that holds the offset goes as a whole.
    """
    broker.stop(processes)
    _cut(home.kafka / "data" / f"{topic}-{partition}", offset)
    broker.start(home, processes, lambda _: None)


def _cut(folder: Path, offset: int) -> None:
    """Take batches from the one with the offset on out of a log; the broker makes the files beside it anew."""
    segments = sorted(folder.glob("*.log"))
    for file in folder.iterdir():
        if file.suffix in {".index", ".timeindex", ".txnindex", ".snapshot"}:
            file.unlink()
    for segment in segments:
        content = segment.read_bytes()
        end = next((start for start, last in _batches(content) if last >= offset), len(content))
        segment.write_bytes(content[:end])
        if not end and segment is not segments[0]:
            segment.unlink()


def _batches(content: bytes) -> Iterator[tuple[int, int]]:
    """Where each batch begins in a segment, and the last offset that it has."""
    start = 0
    while start + _HEAD.size <= len(content):
        base, length = _HEAD.unpack_from(content, start)
        (delta,) = struct.unpack_from(">i", content, start + 23)
        yield start, base + delta
        start += _HEAD.size + length
