"""A listener beside those of the secured broker, for a login that Kafka's own classes do not know or that needs a server of its own."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from frazil.devstack.secured import Secured
from frazil.runtime.home import LOOPBACK, Home
from frazil.runtime.jars import jar_paths

JAVAC = shutil.which("javac")
REGION = "eu-central-1"
ACCESS_KEY = "AKIDFRAZIL"
SECRET_KEY = "known-to-broker-and-client"
RACKS = "RackLog"
"""Begins the lines of the broker's log that say which rack a consumer named."""


@dataclass(frozen=True)
class WithListener(Secured):
    """A secured broker with one listener more.

    Attributes:
        listener: Its name, also that of its properties.
        port: Its port.
        protocol: How it is secured.
        more: Properties of the broker, those that begin with a dot of the listener.
        options: Options of the JVM.
    """

    listener: str = ""
    port: int = 0
    protocol: str = "SASL_SSL"
    more: Mapping[str, str] = field(default_factory=dict)
    options: tuple[str, ...] = ()

    @classmethod
    def beside(
        cls, own: Secured, listener: str, port: int, more: Mapping[str, str], options: tuple[str, ...]
    ) -> WithListener:
        """A broker that is secured as another one, with one listener more."""
        return cls(
            own.folder, own.sasl, own.ssl, own.users, own.keys, listener=listener, port=port, more=more, options=options
        )

    @property
    def jvm(self) -> tuple[str, ...]:
        """Options of the broker's JVM, those of the listener too."""
        return (*super().jvm, *self.options)

    def server_properties(self, plaintext: int, controller: int) -> dict[str, str]:
        """Properties of the broker, the listener among its listeners."""
        properties = super().server_properties(plaintext, controller)
        properties["listener.security.protocol.map"] += f",{self.listener}:{self.protocol}"
        for key in ("listeners", "advertised.listeners"):
            properties[key] += f",{self.listener}://{LOOPBACK}:{self.port}"
        own = f"listener.name.{self.listener.lower()}"
        return properties | {f"{own}{key}" if key.startswith(".") else key: text for key, text in self.more.items()}


def with_msk(own: Secured, port: int, user: str, folder: Path) -> Secured:
    """The broker with a listener that takes tokens as Amazon MSK does, and a log of consumers' racks; needs a Java compiler."""
    if JAVAC is None:
        return own
    jars = ":".join(str(path) for path in jar_paths(Home.resolve(), "broker"))
    sources = [str(path) for path in sorted((Path(__file__).parent / "java").glob("*.java"))]
    subprocess.run([JAVAC, "-d", str(folder), "-cp", jars, *sources], check=True)
    login = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
    options = {"region": REGION, "accessKey": ACCESS_KEY, "secretKey": SECRET_KEY, "user": user}
    more = {
        ".sasl.enabled.mechanisms": "OAUTHBEARER",
        ".oauthbearer.sasl.jaas.config": f"{login};",
        ".oauthbearer.sasl.server.callback.handler.class": "SignedAddresses",
        "replica.selector.class": RACKS,
    }
    jvm = ("-cp", f"{folder}:{jars}", *(f"-Dsigned.{name}={text}" for name, text in options.items()))
    return WithListener.beside(own, "MSK", port, more, jvm)
