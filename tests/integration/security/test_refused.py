"""Whoever comes with wrong credentials, an old certificate or too few grants is told so, once and for all, and what mends it."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from frazil.devstack.certificates import Authority
from frazil.errors import FrazilError, Retryable, Terminal
from frazil.kafka.admin.consumer_group import group_offsets
from frazil.kafka.admin.grants import Grant
from frazil.kafka.admin.observe import observe
from frazil.kafka.client.cluster import Cluster, OutgoingRecord
from frazil.kafka.write.produce import produce
from tests.integration.security.conftest import GRANTED, USER

SECONDS = 60.0
"""Within which whoever waits at a terminal hears what is wrong; 15 s on a machine that does nothing else."""


@contextmanager
def old_server(authority: Authority, folder: Path) -> Iterator[str]:
    """Address of a server whose certificate has expired."""
    certificate, key = authority.issue("old", timedelta(days=-1)).store(folder, "old-server")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listening.accept()
                    context.wrap_socket(connection, server_side=True).close()
                except ssl.SSLError:
                    connection.close()
                except OSError:
                    if listening.fileno() < 0:
                        return

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield f"127.0.0.1:{listening.getsockname()[1]}"
        finally:
            listening.shutdown(socket.SHUT_RDWR)
    thread.join()


def refusal(ask: Callable[[], object]) -> tuple[FrazilError, float]:
    """What a question fails with, and after how many seconds."""
    began = time.monotonic()
    with pytest.raises(FrazilError) as caught:
        ask()
    return caught.value, time.monotonic() - began


def test_wrong_credentials_are_terminal_and_name_their_setting(guarded: Any, tmp_path: Path) -> None:
    """Password, user, mechanism, authority, each side's certificate, token: each is Terminal in time, and names its setting."""
    clients, authority = guarded.clients(), guarded.secured.authority

    def with_certificate(name: str, signer: Authority, valid: timedelta) -> dict[str, str]:
        certificate, key = signer.issue(USER, valid).store(tmp_path, name)
        own = {"ssl.certificate.location": str(certificate), "ssl.key.location": str(key)}
        return {**clients["SSL"], **own}

    nothing_shown = {
        key: client for key, client in clients["SSL"].items() if "certificate" not in key and "key" not in key
    }
    other_ca = Authority.make("other").identity.store(tmp_path, "other-ca")[0]
    with old_server(authority, tmp_path) as old:
        cases = {
            "sasl.password": {**clients["SCRAM-SHA-512"], "sasl.password": "wrong-password"},
            "a wrong password": {**clients["PLAIN"], "sasl.password": "wrong-password"},
            "or a user": {**clients["SCRAM-SHA-512"], "sasl.username": "nobody"},
            "sasl.mechanism": {**clients["SCRAM-SHA-512"], "sasl.mechanism": "SCRAM-SHA-256"},
            "ssl.ca.location": {**clients["PLAIN"], "ssl.ca.location": str(other_ca)},
            "renew the broker's certificate": {**clients["PLAIN"], "bootstrap.servers": old},
            "renew the certificate that clusters.prod": with_certificate("old", authority, timedelta(days=-1)),
            "an authority that the broker trusts": with_certificate(
                "foreign", Authority.make("other"), timedelta(days=1)
            ),
            "set ssl.certificate.location": nothing_shown,
            "no token was received": {**clients["OAUTHBEARER"], "sasl.oauthbearer.client.secret": "wrong-secret"},
        }
        with ThreadPoolExecutor(len(cases)) as pool:
            futures = {
                mends: pool.submit(refusal, lambda client=case: observe(Cluster("prod", client), ["orders"]))
                for mends, case in cases.items()
            }
            refusals = {mends: future.result() for mends, future in futures.items()}

    for mends, (failure, seconds) in refusals.items():
        assert type(failure) is Terminal, failure
        assert mends in (failure.next_step or ""), failure
        assert "clusters.prod" in str(failure) or "broker's" in mends, failure
        assert "wrong-password" not in str(failure)
        assert "wrong-secret" not in str(failure)
        assert seconds < SECONDS, f"{failure} after {seconds:.1f} s"


def test_unavailable_token_issuer_is_retryable(guarded: Any) -> None:
    """A token that can't be fetched because nobody answers is worth another try."""
    nobody = {**guarded.clients()["OAUTHBEARER"], "sasl.oauthbearer.token.endpoint.url": "https://127.0.0.1:9/token"}

    failure, seconds = refusal(lambda: observe(Cluster("prod", nobody), ["orders"]))

    assert type(failure) is Retryable
    assert "the token endpoint does not answer" in failure.message
    assert seconds < SECONDS


MISSING = [
    (("topic", "{topic}", "Read"), "grant Read on topic {topic}"),
    (("topic", "{letters}", "Create"), "Create to make it"),
    (
        ("topic", "{letters}", "Write"),
        "topic {letters} to ingest it (Read includes Describe), Write to send to it",
    ),
]


@pytest.mark.parametrize(
    ("missing", "mend"), MISSING, ids=lambda case: " ".join(case) if isinstance(case, tuple) else ""
)
def test_each_missing_grant_is_refused_by_name(ward: Any, missing: tuple[str, str, str], mend: str) -> None:
    """Without any one of the listed grants the run is refused in time, names the grant, and has published nothing."""
    kind, name, operation = (part.format(**ward.names) for part in missing)
    all_but_one = [one for one in ward.needed() if (one.resource, one.name, one.operation) != (kind, name, operation)]
    assert len(all_but_one) == len(ward.needed()) - 1
    ward.guarded.allow(*all_but_one)
    shop = ward.shop(ward.guarded.clients()["SCRAM-SHA-512"])

    failure, seconds = refusal(shop.run)

    assert type(failure) is Terminal, failure
    assert mend.format(**ward.names) in (failure.next_step or ""), failure
    assert seconds < SECONDS, failure
    assert shop.history() == []


def test_unwritable_consumer_group_does_not_stop_pipeline(ward: Any) -> None:
    """Without the grant of the mirror the records land all the same, and the run says which group could not be moved."""
    ward.guarded.allow(*ward.needed(*(role for role in GRANTED if role != "mirror")))
    shop, lines = ward.shop(ward.guarded.clients()["SCRAM-SHA-512"]), list[str]()

    assert shop.run(report=lines.append).written == 2
    assert any(f"consumer group {ward.names['group']} could not be moved" in line for line in lines)


def test_invisible_consumer_group_is_reported_as_missing_grant(ward: Any) -> None:
    """A client looks for the coordinator of such a group without end; it is a missing grant, of that group."""
    ward.guarded.allow(*ward.needed("ingest"))
    own = Cluster("prod", ward.guarded.clients()["SCRAM-SHA-512"])

    failure, seconds = refusal(lambda: group_offsets(own, "connect-sink", [(ward.names["topic"], 0)]))

    assert type(failure) is Terminal
    assert "group connect-sink" in (failure.next_step or "")
    assert seconds < SECONDS


def test_producer_without_grants_names_missing_grant(ward: Any) -> None:
    """An idempotent producer without any topic gets a fatal error of the cluster; it is a missing grant, of the topic."""
    ward.guarded.allow(Grant("topic", ward.names["topic"], "Describe"))
    own = Cluster("prod", ward.guarded.clients()["SSL"])

    failure, seconds = refusal(lambda: produce(own, ward.names["topic"], [OutgoingRecord(key=None, value=b"1")]))

    assert type(failure) is Terminal
    assert f"topic {ward.names['topic']!r}" in failure.message
    assert "Write" in (failure.next_step or "")
    assert seconds < SECONDS
