"""One broker with all listeners and the authorizer on, an issuer of tokens, and pipelines whose user may do only what was granted."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from uuid import uuid4

import pytest

from frazil.devstack import broker as local_broker
from frazil.devstack.secured import ANONYMOUS, AUDIENCE, Secured, secured
from frazil.kafka.admin.grants import Grant, grant, grants, set_passwords
from frazil.kafka.admin.topics import create_topic
from frazil.kafka.client.cluster import Cluster, OutgoingRecord
from frazil.kafka.write.produce import produce
from frazil.kafka_properties import TOKEN_PROVIDER
from frazil.pipeline.files import files
from frazil.project import Project
from frazil.runtime.home import Home
from frazil.runtime.process import Processes
from tests.integration.conftest import Shop
from tests.integration.security.listeners import REGION, with_msk
from tests.servers import with_password, with_ports
from tests.token_server import Tokens, token_server

USER = "frazil"
"""Whose rights are looked at; so is the client id of tokens, and the common name of the certificate."""

GRANTED = ("ingest", "mirror", "dead_letter_topic", "make_dead_letter_topic")
"""Roles of `frazil.kafka.admin.grants` that a pipeline with all of it needs."""

PIPELINE = """
name: {name}
source: {{topics: [{topic}], cluster: guarded}}
engine: inline
destinations:
  - table: shop.orders
    columns: {{id: {{type: long, required: true}}}}
dead_letters: {{topic: {letters}, tolerance: all}}
"""


@dataclass(frozen=True)
class Guarded:
    """The broker.

    Attributes:
        secured: Its listeners, users and certificates.
        tokens: Who issues tokens.
        plaintext: Address of the listener that asks nothing.
        listener: Address of one more listener: that of Amazon MSK, or of Kerberos.
        log: The broker's log.
    """

    secured: Secured
    tokens: Tokens
    plaintext: str
    listener: str
    log: Path

    @property
    def ruler(self) -> Cluster:
        """A client that may do everything."""
        return Cluster("ruler", self.secured.super_user())

    def clients(self) -> dict[str, dict[str, str]]:
        """The entry of the settings that each way to say who one is takes."""
        scram = with_password(self.secured, USER)
        return {
            "PLAINTEXT": {"bootstrap.servers": self.plaintext},
            "SSL": self.secured.with_certificate(USER),
            "PLAIN": with_password(self.secured, USER, "PLAIN"),
            "SCRAM-SHA-512": scram,
            "OAUTHBEARER": {
                **{key: scram[key] for key in ("bootstrap.servers", "security.protocol", "ssl.ca.location")},
                "sasl.mechanism": "OAUTHBEARER",
                "sasl.oauthbearer.method": "oidc",
                "sasl.oauthbearer.client.id": USER,
                "sasl.oauthbearer.client.secret": self.tokens.clients[USER],
                "sasl.oauthbearer.token.endpoint.url": self.tokens.url,
                "https.ca.location": str(self.secured.ca),
            },
            "MSK": {
                "bootstrap.servers": self.listener,
                "security.protocol": "SASL_SSL",
                "ssl.ca.location": str(self.secured.ca),
                "sasl.mechanism": "OAUTHBEARER",
                "sasl.oauthbearer.config": f"region={REGION}",
                TOKEN_PROVIDER: "msk-iam",
            },
        }

    def allow(self, *grants: Grant, user: str = USER) -> None:
        """Grant something to a user."""
        grant(self.ruler, user, grants)


@contextmanager
def serving(root: Path, ports: list[int], extend: Callable[[Secured, int], Secured]) -> Iterator[Guarded]:
    """A broker that asks everybody who they are, and lets nobody do what isn't granted, with one listener more."""
    kafka, controller, sasl, ssl, listener = ports
    home = with_ports(replace(Home.resolve(), root=root), kafka=kafka, controller=controller)
    processes = Processes(home.run, home.logs, home.root)
    tokens = Tokens({USER: uuid4().hex}, AUDIENCE)
    own = secured(root / "secrets", sasl, ssl, [USER], tokens.write_keys(root / "keys.json"))
    own = extend(own, listener)
    log = processes.log(local_broker.NAME)
    with token_server(tokens, own.authority, root):
        try:
            local_broker.start(home, processes, print, secured=own)
            guarded = Guarded(own, tokens, f"127.0.0.1:{kafka}", f"127.0.0.1:{listener}", log)
            set_passwords(guarded.ruler, own.users)
            yield guarded
        finally:
            local_broker.stop(processes)


@pytest.fixture(scope="session")
def guarded(tmp_path_factory: pytest.TempPathFactory, free_ports: Callable[[int], list[int]]) -> Iterator[Guarded]:
    """The broker of all tests here, which takes the tokens of Amazon MSK too."""
    root = tmp_path_factory.mktemp("guarded")
    with serving(root, free_ports(5), lambda own, port: with_msk(own, port, USER, root)) as broker:
        yield broker


@dataclass
class Ward:
    """A pipeline over a fresh topic with two good orders and a bad one; nobody may do anything with it yet."""

    guarded: Guarded
    root: Path
    name: str

    @property
    def names(self) -> dict[str, str]:
        """What the grants are for."""
        return {
            "topic": f"{self.name}-orders",
            "letters": f"{self.name}-letters",
            "group": f"frazil-{self.name}",
            "pipeline": self.name,
        }

    def needed(self, *roles: str) -> list[Grant]:
        """What roles need here."""
        return grants(*(roles or GRANTED), **self.names)

    def project(self, properties: dict[str, str], **more: str) -> Project:
        """The project under one entry of the settings, with more keys. What it keeps secret comes out of a file."""
        client_properties = dict(properties)
        servers = client_properties.pop("bootstrap.servers")
        hidden = {key: client_properties[key] for key in client_properties if key.endswith((".password", ".secret"))}
        (self.root / "secrets.properties").write_text(files.write(hidden))
        client_properties |= {key: f"${{file:{self.root}/secrets.properties:{key}}}" for key in hidden}
        entry = {"bootstrap_servers": servers, "token_provider": client_properties.pop(TOKEN_PROVIDER, None)}
        catalog = {"uri": f"sqlite:///{self.root}/catalog.db", "warehouse": f"file://{self.root}/warehouse"}
        settings = {
            "clusters": {"guarded": {**entry, **more, "properties": client_properties}},
            "catalogs": {"lake": catalog},
        }
        (self.root / "settings.yaml").write_text(json.dumps(settings))
        return Project.load(self.environment)

    @property
    def environment(self) -> dict[str, str]:
        """Variables that make a process see this project."""
        return {
            "FRAZIL_HOME": str(self.root / "home"),
            "FRAZIL_JARS": str(Home.resolve().jars),
            "FRAZIL_SETTINGS": str(self.root / "settings.yaml"),
            "FRAZIL_PIPELINES": str(self.root / "pipelines"),
        }

    def shop(self, properties: dict[str, str], **more: str) -> Shop:
        """The pipeline as somebody sees it who comes with these properties."""
        return Shop(self.project(properties, **more), self.guarded.ruler, self.names["topic"], self.name)


@pytest.fixture
def ward(guarded: Guarded, tmp_path: Path) -> Ward:
    """A pipeline of its own."""
    ward = Ward(guarded, tmp_path, f"o{uuid4().hex[:10]}")
    topic = ward.names["topic"]
    create_topic(guarded.ruler, topic, 1)
    values = [b'{"id": 1}', b"broken", b'{"id": 2}']
    produce(guarded.ruler, topic, [OutgoingRecord(key=None, value=value) for value in values])
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines" / "orders.yaml").write_text(
        PIPELINE.format(name=ward.name, **{k: ward.names[k] for k in ("topic", "letters")})
    )
    return ward


def user_of(mechanism: str) -> str:
    """Kafka's name of who comes that way."""
    return ANONYMOUS if mechanism == "PLAINTEXT" else USER
