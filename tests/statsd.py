"""A receiver of StatsD: what was sent over UDP, line by line."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread

_LARGEST = 65_536
_END = b"end of the tests"


@contextmanager
def statsd_receiver() -> Iterator[tuple[int, list[str]]]:
    """Port of the loopback interface, and the lines that came, which grow."""
    lines: list[str] = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        receiver.bind(("127.0.0.1", 0))

        def receive() -> None:
            while (packet := receiver.recv(_LARGEST)) != _END:
                lines.extend(packet.decode().splitlines())

        thread = Thread(target=receive, daemon=True)
        thread.start()
        try:
            yield receiver.getsockname()[1], lines
        finally:
            receiver.sendto(_END, receiver.getsockname())
            thread.join()
