"""A TCP proxy before PostgreSQL that loses the answer to a commit, exactly where a test says."""

from __future__ import annotations

import re
import select
import socket
import socketserver
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Lock, Thread

LOOPBACK = "127.0.0.1"
_SECONDS = 30.0
"""Bounds the wait for the server behind and for a thread; both take milliseconds."""

_CHUNK = 65536


class CommitProxy:
    """What a test tells the proxy. Statements are known by their text, which PostgreSQL's protocol carries as it is.

    Attributes:
        port: Where the proxy listens.
    """

    def __init__(self, port: int) -> None:
        self.port = port
        self._struck: list[re.Pattern[bytes]] = []
        self._to_refuse = 0
        self._lock = Lock()

    def lose_answer(self, table: str, *, then_refuse: int = 0) -> None:
        """Lose the answer to the next commit that changes a table of an Iceberg catalog, by its name without namespace.

        Args:
            table: The table.
            then_refuse: So many connections are closed without a word afterwards.
        """
        with self._lock:
            self._struck.append(re.compile(rb"UPDATE iceberg_tables.*table_name = '%b'" % table.encode(), re.DOTALL))
            self._refuse_then = then_refuse

    @property
    def unused(self) -> int:
        """Faults that have not struck, connections that were not refused."""
        return len(self._struck) + self._to_refuse

    def is_meant(self, commit_body: bytes) -> bool:
        """Whether a commit is struck on a connection that said this before; then it is used up."""
        with self._lock:
            script = next((script for script in self._struck if script.search(commit_body)), None)
            if script is None:
                return False
            self._struck.remove(script)
            self._to_refuse = self._refuse_then
            return True

    def is_refused(self) -> bool:
        """Whether a new connection is closed at once."""
        with self._lock:
            refused = self._to_refuse > 0
            self._to_refuse -= refused
            return refused


@contextmanager
def commit_proxy(upstream_port: int) -> Iterator[CommitProxy]:
    """A proxy before a server on the loopback interface."""

    class Handler(_Handler):
        upstream = upstream_port

    with _Server((LOOPBACK, 0), Handler) as server:
        Handler.proxy = CommitProxy(server.server_address[1])
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield Handler.proxy
        finally:
            server.shutdown()
            thread.join(_SECONDS)


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    block_on_close = False  # connections that a pool keeps end with the test
    allow_reuse_address = True


class _Handler(socketserver.BaseRequestHandler):
    proxy: CommitProxy
    upstream: int

    def handle(self) -> None:
        if self.proxy.is_refused():
            return
        with socket.create_connection((LOOPBACK, self.upstream), _SECONDS) as server, suppress(OSError):
            self._pass_on(self.request, server)

    def _pass_on(self, client: socket.socket, server: socket.socket) -> None:
        output = b""
        while True:
            ready, _, _ = select.select([client, server], [], [])
            for event in ready:
                data = event.recv(_CHUNK)
                if not data:
                    return
                if event is server:
                    client.sendall(data)
                    continue
                server.sendall(data)
                output += data
                if b"COMMIT" in data:
                    if self.proxy.is_meant(output):
                        server.recv(_CHUNK)  # it is done, and nobody hears of it
                        return
                    output = b""
