"""The embedded broker with passwords and certificates: its listeners, its users, and the properties of their clients.

It has four listeners on the loopback interface. PLAINTEXT is as without security, but its clients are `User:ANONYMOUS`. SASL_SSL
takes passwords (PLAIN, SCRAM-SHA-512) and, if it gets the keys of an issuer, tokens (OAUTHBEARER). SSL and the controller's take
certificates. The authorizer is on: a client may only do what it was granted; the broker may do everything.

Names of the broker's settings: https://kafka.apache.org/41/configuration/broker-configs/
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from frazil.extras import require
from frazil.runtime.home import LOOPBACK, PRIVATE_FILE, private_folder, write_atomically

if TYPE_CHECKING:
    from frazil.devstack.certificates import Authority

SUPER_USER: Final = "broker"
"""Common name of the broker's own certificate. A client with this certificate may do everything."""

ANONYMOUS: Final = "ANONYMOUS"
"""Kafka's name of clients that do not log in."""

AUDIENCE: Final = "kafka"
"""The audience that tokens must have."""

_AUTHORITY: Final = "ca"
_USERS: Final = "users.json"
_SCRAM: Final = "SCRAM-SHA-512"
_PROTOCOLS: Final = "CONTROLLER:SSL,PLAINTEXT:PLAINTEXT,SASL_SSL:SASL_SSL,SSL:SSL"
_LOGIN: Final = "org.apache.kafka.common.security"


@dataclass(frozen=True, slots=True)
class Secured:
    """Users and certificates of a secured broker. They are stored in its folder, so a later start has the same.

    Attributes:
        folder: Folder of certificates, keys and passwords, readable by its owner only.
        sasl: Port of the listener SASL_SSL.
        ssl: Port of the listener SSL.
        users: Name -> password, for PLAIN and SCRAM-SHA-512.
        keys: File with the public keys (JWKS) of the issuer of tokens; None: no OAUTHBEARER.
    """

    folder: Path
    sasl: int
    ssl: int
    users: Mapping[str, str] = field(repr=False)
    keys: Path | None = None

    @property
    def authority(self) -> Authority:
        """The authority that signs the certificates of broker and clients."""
        from frazil.devstack.certificates import Authority

        return Authority.load(self.folder, _AUTHORITY)

    @property
    def ca(self) -> Path:
        """The authority's certificate, which clients must trust."""
        return self.folder / f"{_AUTHORITY}.pem"

    @property
    def jvm(self) -> tuple[str, ...]:
        """Options of the broker's JVM: Kafka reads keys of issuers only from addresses that an option allows."""
        return () if self.keys is None else (f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={self.keys.as_uri()}",)

    def server_properties(self, plaintext: int, controller: int) -> dict[str, str]:
        """Properties that a secured broker has instead of, or besides, those of an unsecured one. They contain passwords."""
        listeners = f"PLAINTEXT://{LOOPBACK}:{plaintext},SASL_SSL://{LOOPBACK}:{self.sasl},SSL://{LOOPBACK}:{self.ssl}"
        return {
            "listener.security.protocol.map": _PROTOCOLS,
            "listeners": f"{listeners},CONTROLLER://{LOOPBACK}:{controller}",
            "advertised.listeners": listeners,
            "inter.broker.listener.name": "SSL",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": f"User:{SUPER_USER}",
            "allow.everyone.if.no.acl.found": "false",
            # Kafka's name of a client is only the common name of its certificate.
            "ssl.principal.mapping.rules": "RULE:^CN=([^,]+).*$/$1/,DEFAULT",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.folder / "keystore.pem"),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.ca),
            # The TLS handshake refuses clients without a certificate of the authority.
            "listener.name.ssl.ssl.client.auth": "required",
            "listener.name.controller.ssl.client.auth": "required",
            **self._sasl(),
        }

    def _sasl(self) -> dict[str, str]:
        listener = "listener.name.sasl_ssl"
        users = " ".join(f'user_{name}="{password}"' for name, password in self.users.items())
        enabled = ["PLAIN", _SCRAM]
        properties = {
            f"{listener}.plain.sasl.jaas.config": f"{_LOGIN}.plain.PlainLoginModule required {users};",
            f"{listener}.scram-sha-512.sasl.jaas.config": f"{_LOGIN}.scram.ScramLoginModule required;",
        }
        if self.keys is not None:
            enabled.append("OAUTHBEARER")
            tokens = f"{listener}.oauthbearer"
            properties |= {
                f"{tokens}.sasl.jaas.config": f"{_LOGIN}.oauthbearer.OAuthBearerLoginModule required;",
                f"{tokens}.sasl.server.callback.handler.class": f"{_LOGIN}.oauthbearer.OAuthBearerValidatorCallbackHandler",
                f"{tokens}.sasl.oauthbearer.jwks.endpoint.url": self.keys.as_uri(),
                f"{tokens}.sasl.oauthbearer.expected.audience": AUDIENCE,
            }
        return {"sasl.enabled.mechanisms": ",".join(enabled), **properties}

    def super_user(self) -> dict[str, str]:
        """Properties of librdkafka for a client that may do everything, such as create users and grant rights."""
        return self.with_certificate(SUPER_USER)

    def with_certificate(self, name: str) -> dict[str, str]:
        """Properties of librdkafka for a client of the listener SSL, with a certificate of the folder."""
        return {
            "bootstrap.servers": f"{LOOPBACK}:{self.ssl}",
            "security.protocol": "SSL",
            "ssl.ca.location": str(self.ca),
            "ssl.certificate.location": str(self.folder / f"{name}.pem"),
            "ssl.key.location": str(self.folder / f"{name}.key"),
        }


def secured(folder: Path, sasl: int, ssl: int, users: Iterable[str], keys: Path | None = None) -> Secured:
    """Create certificates and passwords of a secured broker, unless an earlier call did. New users get both."""
    require("devstack", "a broker with certificates")
    from frazil.devstack.certificates import Authority

    private_folder(folder)
    if not (folder / f"{_AUTHORITY}.pem").is_file():
        Authority.make("frazil").identity.store(folder, _AUTHORITY)
    authority = Authority.load(folder, _AUTHORITY)
    users_file = folder / _USERS
    stored = json.loads(users_file.read_text()) if users_file.is_file() else {}
    passwords = {name: stored.get(name) or secrets.token_urlsafe(24) for name in users}
    for name in (SUPER_USER, *passwords):
        if not (folder / f"{name}.pem").is_file():
            authority.issue(name).store(folder, name)
    chain = "".join((folder / f"{SUPER_USER}.{kind}").read_text() for kind in ("key", "pem"))
    for path, text in ((folder / "keystore.pem", chain), (users_file, json.dumps(passwords))):
        if not path.is_file() or path.read_text() != text:  # every command that uses the stack comes here
            write_atomically(path, text, mode=PRIVATE_FILE)
    return Secured(folder, sasl, ssl, MappingProxyType(passwords), keys)
