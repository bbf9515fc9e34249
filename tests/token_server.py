"""A token endpoint (OAuth 2.0, client credentials) on the loopback interface, over TLS: signs what Kafka and REST catalogs take."""

from __future__ import annotations

import base64
import json
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs
from uuid import uuid4

from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.hashes import SHA256

from frazil.devstack.certificates import Authority

ISSUER = "https://tokens.example.org"
KEY_ID = "of-the-test"


@dataclass
class Tokens:
    """Who issues tokens.

    Attributes:
        clients: Client id -> secret.
        audience: Whom tokens are meant for.
        url: Where they are asked for.
        asked: Client ids that asked, in turn.
        issued: The tokens that they got.
    """

    clients: dict[str, str]
    audience: str
    url: str = ""
    asked: list[str] = field(default_factory=list)
    issued: set[str] = field(default_factory=set)
    key: rsa.RSAPrivateKey = field(default_factory=lambda: rsa.generate_private_key(65537, 2048), repr=False)

    def write_keys(self, path: Path) -> Path:
        """Write the public key as a JWKS file."""
        numbers = self.key.public_key().public_numbers()
        own = {
            "kty": "RSA",
            "kid": KEY_ID,
            "alg": "RS256",
            "use": "sig",
            "n": _number(numbers.n),
            "e": _number(numbers.e),
        }
        path.write_text(json.dumps({"keys": [own]}))
        return path

    def token(self, subject: str, seconds: int = 3600) -> str:
        """A signed token (JWT)."""
        now = int(time.time())
        claims = {
            "sub": subject,
            "aud": self.audience,
            "iss": ISSUER,
            "jti": uuid4().hex,
            "iat": now,
            "exp": now + seconds,
        }
        parts = [_base64(json.dumps(part).encode()) for part in ({"alg": "RS256", "typ": "JWT", "kid": KEY_ID}, claims)]
        signature = self.key.sign(".".join(parts).encode(), padding.PKCS1v15(), SHA256())
        return ".".join([*parts, _base64(signature)])


@contextmanager
def token_server(tokens: Tokens, authority: Authority, folder: Path) -> Iterator[Tokens]:
    """Serve an issuer's endpoint with a certificate of an authority, on a free port."""

    class Endpoint(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
            client, secret = self._client(form)
            if tokens.clients.get(client) != secret:
                self._answer(401, {"error": "invalid_client", "error_description": "no such client, or another secret"})
                return
            tokens.asked.append(client)
            token = tokens.token(client)
            tokens.issued.add(token)
            self._answer(200, {"access_token": token, "token_type": "bearer", "expires_in": 3600})

        def _client(self, form: dict[str, list[str]]) -> tuple[str, str]:
            basic = self.headers.get("Authorization", "").removeprefix("Basic ")
            if basic:
                name, _, secret = base64.b64decode(basic).decode().partition(":")
                return name, secret
            return form.get("client_id", [""])[0], form.get("client_secret", [""])[0]

        def _answer(self, status: int, body: dict[str, object]) -> None:
            content = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    certificate, key = authority.issue("tokens").store(folder, "tokens")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Endpoint)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        tokens.url = f"https://127.0.0.1:{server.server_address[1]}/token"
        yield tokens
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _base64(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def _number(value: int) -> str:
    return _base64(value.to_bytes((value.bit_length() + 7) // 8, "big"))
