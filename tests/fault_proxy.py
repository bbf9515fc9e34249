"""An HTTP proxy that loses answers, delays requests and refuses them, exactly where a test says.

Requests of a method and path go through the steps of a script, one each; when it is used up they pass. Nothing here
waits for a time: a held request is forwarded when the test releases it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Lock, Thread

LOOPBACK = "127.0.0.1"
_SECONDS = 30.0
"""Bounds every wait for the server behind and for a thread; both take milliseconds."""

_HOP_BY_HOP = {"connection", "expect", "keep-alive", "transfer-encoding", "content-length"}


@dataclass(frozen=True)
class Answer:
    """What the server behind said."""

    status: int
    headers: Mapping[str, str]
    body: bytes


Forward = Callable[[], Answer]
Reply = Callable[[Answer | None], None]
Step = Callable[[Forward, Reply], None]
"""What happens to one request. A reply of None drops the connection without a word."""


def failed(status: int) -> Answer:
    """An answer of the proxy itself, in the form of Iceberg's errors."""
    body = f'{{"error": {{"message": "made up by the proxy", "type": "Proxy", "code": {status}}}}}'
    return Answer(status, {"Content-Type": "application/json"}, body.encode())


def slowed_down() -> Answer:
    """S3's answer to who asks too often."""
    body = (
        "<?xml version='1.0'?><Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"
    )
    return Answer(503, {"Content-Type": "application/xml"}, body.encode())


def passed(forward: Forward, reply: Reply) -> None:
    """The request passes untouched."""
    reply(forward())


def lost(status: int | None) -> Step:
    """The request is carried out, and the client hears a failure; None: the connection breaks."""

    def step(forward: Forward, reply: Reply) -> None:
        forward()
        reply(failed(status) if status is not None else None)

    return step


def refused(status: int | None) -> Step:
    """The request never arrives, and the client hears a failure; None: the connection breaks."""

    def step(_: Forward, reply: Reply) -> None:
        reply(failed(status) if status is not None else None)

    return step


def answered(answer: Answer) -> Step:
    """The request never arrives, and the client hears this."""

    def step(_: Forward, reply: Reply) -> None:
        reply(answer)

    return step


def after(action: Callable[[], object]) -> Step:
    """Something else happens before the request passes."""

    def step(forward: Forward, reply: Reply) -> None:
        action()
        reply(forward())

    return step


def hung(until: Event, *, carried_out: bool) -> Step:
    """The client hears nothing at all, whether the request was carried out or never arrived."""

    def step(forward: Forward, _: Reply) -> None:
        if carried_out:
            forward()
        until.wait(_SECONDS)

    return step


@dataclass
class HeldRequest:
    """A request that hangs on its way: the client hears 504 at once, the server gets it when it is released."""

    _arrived: Event = field(default_factory=Event)
    _released: Event = field(default_factory=Event)
    _carried_out: Event = field(default_factory=Event)
    _given_up: bool = False
    _status: int = 0

    def __call__(self, forward: Forward, reply: Reply) -> None:
        """Be the step of a script."""
        reply(failed(504))
        self._arrived.set()
        self._released.wait()
        if not self._given_up:
            self._status = forward().status
        self._carried_out.set()

    def release(self) -> int:
        """Let the request arrive now, and return what the server said to it."""
        assert self._arrived.wait(_SECONDS), "no request was held"
        self._released.set()
        assert self._carried_out.wait(_SECONDS), "the held request was not carried out"
        return self._status

    def give_up(self) -> None:
        """Let the request never arrive."""
        self._given_up = not self._released.is_set()
        self._released.set()


class FaultProxy:
    """What a test tells the proxy, and what came by.

    Attributes:
        uri: Where the proxy listens.
        seen: Method and path of every request, in order of arrival.
    """

    def __init__(self, uri: str) -> None:
        self.uri = uri
        self.seen: list[tuple[str, str]] = []
        self._scripts: list[tuple[str, re.Pattern[str], list[Step]]] = []
        self._lock = Lock()
        self._refused: tuple[bytes, int] | None = None

    def refuse(self, words: str, status: int) -> None:
        """From now on refuse every request with these words in its body."""
        self._refused = words.encode(), status

    def script(self, method: str, path: str, *steps: Step) -> None:
        """Let the next requests of this method, whose path (without its query) ends like this, go through the steps."""
        with self._lock:
            self._scripts.append((method, re.compile(f"{path}$"), list(steps)))

    @property
    def unused(self) -> int:
        """Steps that no request came for: a fault that never struck proves nothing."""
        return sum(len(steps) for _, _, steps in self._scripts)

    def next_step(self, method: str, target: str, body: bytes) -> Step:
        """Take the step for a request that just arrived."""
        if self._refused is not None and self._refused[0] in body:
            return refused(self._refused[1])
        path = target.partition("?")[0]
        with self._lock:
            self.seen.append((method, path))
            for name, pattern, steps in self._scripts:
                if name == method and steps and pattern.search(path):
                    return steps.pop(0)
        return passed


@contextmanager
def fault_proxy(upstream_port: int) -> Iterator[FaultProxy]:
    """A proxy before a server on the loopback interface."""

    class Handler(_Handler):
        upstream = upstream_port

    with ThreadingHTTPServer((LOOPBACK, 0), Handler) as server:
        Handler.proxy = FaultProxy(f"http://{LOOPBACK}:{server.server_port}")
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield Handler.proxy
        finally:
            server.shutdown()
            thread.join(_SECONDS)


class _Handler(BaseHTTPRequestHandler):
    """One request per connection (HTTP/1.0), so that no connection outlives its request."""

    proxy: FaultProxy
    upstream: int

    def do_GET(self) -> None:
        if self.headers.get("Expect") == "100-continue":  # else a client that asks waits a second
            self.wfile.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        body = self._chunks() if self._is_chunked else self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.proxy.next_step(self.command, self.path, body)(lambda: self._forward(body), self._reply)

    do_POST = do_PUT = do_DELETE = do_HEAD = do_GET  # noqa: N815 - the base class finds methods by these names

    @property
    def _is_chunked(self) -> bool:
        """Whether the body comes in pieces, each behind its length, as that of an upload to S3."""
        return self.headers.get("Transfer-Encoding", "") == "chunked"

    def _chunks(self) -> bytes:
        body = b""
        while size := int(self.rfile.readline(), 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def _forward(self, body: bytes) -> Answer:
        connection = HTTPConnection(LOOPBACK, self.upstream, timeout=_SECONDS)
        headers = {name: value for name, value in self.headers.items() if name.lower() not in _HOP_BY_HOP}
        request_body = {"body": [body], "encode_chunked": True} if self._is_chunked else {"body": body}
        try:
            connection.request(self.command, self.path, headers=headers, **request_body)
            answer = connection.getresponse()
            return Answer(answer.status, dict(answer.getheaders()), answer.read())
        finally:
            connection.close()

    def _reply(self, answer: Answer | None) -> None:
        if answer is None:
            return  # the connection ends without an answer
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            if name.lower() not in _HOP_BY_HOP:
                self.send_header(name, value)
        # To HEAD a server says how long the body would be.
        own = answer.headers.get("Content-Length") if self.command == "HEAD" else None
        self.send_header("Content-Length", own or str(len(answer.body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)
        self.wfile.flush()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Stay silent."""
