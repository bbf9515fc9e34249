"""A partition's log that loses its tail, as after an unclean leader election or on a disk restored from a copy."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from frazil.devstack import broker
from frazil.kafka.client.cluster import Cluster
from frazil.runtime.home import Home, bootstrap_servers
from frazil.runtime.process import Processes
from tests.servers import with_ports

_HEAD = struct.Struct(">qi")
"""How each batch of a log begins: its first offset, and the bytes that follow."""


@dataclass(frozen=True)
class Patient:
    """A broker whose logs are truncated."""

    home: Home
    processes: Processes

    @property
    def cluster(self) -> Cluster:
        """Where it is."""
        return Cluster("local", {"bootstrap.servers": bootstrap_servers(self.home)})

    def truncate(self, shop: Any, partition: int, offset: int) -> None:
        """Cut a partition's log at an offset: the broker is stopped and comes back, with a new leader epoch.

        The cut is made between batches of records: the one that holds the offset goes as a whole.
        """
        broker.stop(self.processes)
        _cut(self.home.kafka / "data" / f"{shop.topic}-{partition}", offset)
        broker.start(self.home, self.processes, lambda _: None)


@contextmanager
def running_patient(root: Path, ports: list[int]) -> Iterator[Patient]:
    """A broker of its own."""
    kafka, controller = ports
    home = with_ports(replace(Home.resolve(), root=root), kafka=kafka, controller=controller)
    processes = Processes(home.run, home.logs, home.root)
    try:
        broker.start(home, processes, print)
        yield Patient(home, processes)
    finally:
        broker.stop(processes)


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
