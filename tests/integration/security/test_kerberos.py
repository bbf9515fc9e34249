"""A login by Kerberos, at a real key distribution center, with a client that was built for it (docs/logins.md, Kerberos)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from frazil.devstack.secured import Secured
from frazil.errors import Terminal
from frazil.kafka.admin.observe import observe
from frazil.kafka.client.cluster import Cluster
from frazil.runtime.home import project_root
from tests.integration.security.conftest import USER, Guarded, serving
from tests.integration.security.kdc import PROGRAMS, REALM, Realm, realm
from tests.integration.security.listeners import WithListener
from tests.topic_reader import values

pytestmark = pytest.mark.tried("Kafka: Kerberos, with a client that is built for it", "real")

CLIENT = os.environ.get("FRAZIL_KERBEROS_CLIENT", "")
"""Folder of a confluent-kafka built against a librdkafka with Cyrus SASL: `pip install --target FOLDER`."""


@pytest.fixture(scope="module")
def kingdom(tmp_path_factory: pytest.TempPathFactory, free_ports: Callable[[int], list[int]]) -> Iterator[Realm]:
    """A realm."""
    if missing := [name for name, path in PROGRAMS.items() if path is None]:
        pytest.skip(f"no {', '.join(missing)} here (Debian: krb5-kdc, krb5-admin-server, krb5-user)")
    with realm(tmp_path_factory.mktemp("realm"), free_ports(1)[0]) as own:
        yield own


@pytest.fixture(scope="module")
def guarded(
    kingdom: Realm, tmp_path_factory: pytest.TempPathFactory, free_ports: Callable[[int], list[int]]
) -> Iterator[Guarded]:
    """A broker whose further listener asks for a ticket."""
    login = "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true doNotPrompt=true"
    principal = "kafka/127.0.0.1"
    more = {
        ".sasl.enabled.mechanisms": "GSSAPI",
        ".gssapi.sasl.jaas.config": f'{login} keyTab="{kingdom.keytab(principal)}" principal="{principal}@{REALM}";',
        "sasl.kerberos.service.name": "kafka",
    }

    def extend(own: Secured, port: int) -> Secured:
        return WithListener.beside(own, "KERBEROS", port, more, (f"-Djava.security.krb5.conf={kingdom.configuration}",))

    with serving(tmp_path_factory.mktemp("kerberos"), free_ports(5), extend) as broker:
        yield broker


def properties(guarded: Any, keytab: Path, principal: str = USER) -> dict[str, str]:
    """Properties of a client with a key."""
    return {
        "bootstrap.servers": guarded.listener,
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(guarded.secured.ca),
        "sasl.mechanism": "GSSAPI",
        "sasl.kerberos.service.name": "kafka",
        "sasl.kerberos.principal": f"{principal}@{REALM}",
        "sasl.kerberos.keytab": str(keytab),
    }


@pytest.mark.full
@pytest.mark.skipif(not CLIENT, reason="FRAZIL_KERBEROS_CLIENT names no confluent-kafka built with Cyrus SASL")
@pytest.mark.parametrize("engine", ["inline", "spark"])
def test_every_client_logs_in_with_a_ticket(ward: Any, kingdom: Realm, engine: str) -> None:
    """Planner, reader, mirror and producer, and tasks of Spark; a wrong principal or service is told with what to check."""
    keytab = kingdom.keytab(USER)
    ward.guarded.allow(*ward.needed())
    ward.project(properties(ward.guarded, keytab))
    path = ward.root / "settings.yaml"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"engines": {"spark": {"master": "local[1]"}}}))
    packages = os.pathsep.join([CLIENT, str(project_root() / "include")])
    env = os.environ | ward.environment | kingdom.environment | {"PYTHONPATH": packages}

    def frazil(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "frazil.cli", *arguments]
        return subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=240)

    done = frazil("run", ward.name, "--engine", engine, "--json")
    assert done.returncode == 0, done.stderr
    assert '"written":2' in done.stdout
    assert values(ward.guarded.ruler, ward.names["letters"]) == [b"broken"]

    # Without a ticket nobody can tell a wrong key from a key distribution center that is down: that is tried again.
    for wrong, exit_code in (
        ({"sasl.kerberos.principal": f"nobody@{REALM}"}, 75),
        ({"sasl.kerberos.service.name": "kafak"}, 78),
    ):
        (kingdom.folder / "tickets").unlink(missing_ok=True)
        ward.project(properties(ward.guarded, keytab) | wrong)
        done = frazil("run", ward.name)
        assert done.returncode == exit_code, done.stderr
        assert "check sasl.kerberos.principal, .keytab and .service.name of clusters.guarded" in done.stderr


@pytest.mark.full
def test_wheel_without_kerberos_says_what_to_build(ward: Any, kingdom: Realm) -> None:
    """Who sets GSSAPI with the usual client is told that it can't, and where the recipe is."""
    with pytest.raises(Terminal, match="No provider for SASL mechanism GSSAPI") as caught:
        observe(Cluster("prod", properties(ward.guarded, kingdom.keytab(USER))), ["orders"])

    assert "docs/logins.md" in (caught.value.next_step or "")
