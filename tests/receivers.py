"""Servers on the loopback interface that take what is sent to people: mail, and JSON by POST."""

from __future__ import annotations

import json
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email import message_from_bytes, policy
from email.message import EmailMessage
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

from aiosmtpd.controller import Controller


@dataclass
class Posts:
    """A web server; `status` is what it answers, `got` what came: (path, headers, body)."""

    port: int = 0
    status: int = 200
    got: list[tuple[str, dict[str, str], Any]] = field(default_factory=list)

    @property
    def bodies(self) -> list[Any]:
        """What came, without paths and headers."""
        return [body for _, _, body in self.got]


@contextmanager
def posts(tls: ssl.SSLContext | None = None) -> Iterator[Posts]:
    """A web server that takes JSON, over TLS if a context is given."""
    posts = Posts()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            posts.got.append((self.path, dict(self.headers), body))
            answer = json.dumps({"dedup_key": body.get("dedup_key")}).encode() if posts.status < 300 else b"no"
            self.send_response(posts.status)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    posts.port = server.server_address[1]
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield posts
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@dataclass
class Mails:
    """A mail server; `refuses` makes it answer that it can't take mail."""

    port: int = 0
    refuses: bool = False
    got: list[EmailMessage] = field(default_factory=list)

    async def handle_DATA(self, _server: Any, _session: Any, envelope: Any) -> str:  # noqa: N802 - aiosmtpd's name
        """Take a mail, or refuse it."""
        if self.refuses:
            return "451 try again later"
        self.got.append(message_from_bytes(envelope.content, policy=policy.default))
        return "250 OK"

    @property
    def subjects(self) -> list[str]:
        """What the mails are about."""
        return [str(mail["Subject"]) for mail in self.got]


@contextmanager
def mails(port: int) -> Iterator[Mails]:
    """A mail server on a free port."""
    mails = Mails(port)
    controller = Controller(mails, hostname="127.0.0.1", port=port, ready_timeout=60)
    controller.start()
    try:
        yield mails
    finally:
        controller.stop()
