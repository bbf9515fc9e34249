"""A REST catalog behind OAuth 2.0: tokens for client credentials, from an endpoint with TLS of an authority of one's own."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from frazil.devstack.certificates import Authority
from frazil.errors import Terminal
from frazil.iceberg.catalog.catalog import Lake
from tests.rest_catalog import RestServer
from tests.token_server import Tokens, token_server

CLIENT, SECRET = "frazil", "hunter2-of-the-catalog"


@pytest.fixture
def tokens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Tokens]:
    """An issuer that this process trusts."""
    authority = Authority.make("catalogs")
    certificate, _ = authority.identity.store(tmp_path, "ca")
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(certificate))
    with token_server(Tokens({CLIENT: SECRET}, "catalog"), authority, tmp_path) as issuer:
        yield issuer


@pytest.fixture
def guarded(rest_server: RestServer, tokens: Tokens) -> Iterator[str]:
    """The catalog, for those who come with a token of the issuer."""
    rest_server.empty()
    behind = urlsplit(rest_server.uri)

    class Gate(BaseHTTPRequestHandler):
        def _pass(self) -> None:
            content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if self.headers.get("Authorization", "").removeprefix("Bearer ") not in tokens.issued:
                self._answer(401, b'{"error": {"message": "no token", "type": "NotAuthorizedException", "code": 401}}')
                return
            connection = HTTPConnection(behind.hostname or "", behind.port or 0, timeout=30)
            connection.request(
                self.command, behind.path.rstrip("/") + self.path, content, {"Content-Type": "application/json"}
            )
            answer = connection.getresponse()
            self._answer(answer.status, answer.read())
            connection.close()

        do_GET = do_POST = do_HEAD = do_DELETE = _pass  # noqa: N815 - the library's names

        def _answer(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body if self.command != "HEAD" else b"")

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Gate)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_catalog_is_asked_with_token(guarded: str, tokens: Tokens) -> None:
    """Client id and secret of the settings become a token, and the catalog takes it."""
    properties = {"credential": f"{CLIENT}:{SECRET}", "oauth2-server-uri": tokens.url}

    lake = Lake("lake", guarded, None, properties, kind="rest")

    assert lake.tables() == []
    assert set(tokens.asked) == {CLIENT}


@pytest.mark.parametrize(
    "properties", [{"credential": f"{CLIENT}:wrong-secret"}, {"token": "wrong-secret"}], ids=["secret", "token"]
)
def test_wrong_secret_of_catalog_is_not_retried(guarded: str, tokens: Tokens, properties: dict[str, str]) -> None:
    """A refused client or token needs a person, and is not quoted."""
    catalog_properties = properties | ({"oauth2-server-uri": tokens.url} if "credential" in properties else {})

    with pytest.raises(Terminal, match="opening catalog lake") as caught:
        Lake("lake", guarded, None, catalog_properties, kind="rest").tables()

    assert "wrong-secret" not in f"{caught.value}"
