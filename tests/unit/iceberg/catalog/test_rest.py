"""Time limits of a REST catalog, and the private part of PyIceberg they rest on."""

from __future__ import annotations

import inspect
import os
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.rest import RestCatalog

from frazil.errors import Terminal
from frazil.iceberg.catalog.rest import ANSWER, CONNECT, BoundedRestCatalog
from frazil.iceberg.errors import translated

KEYS = {"client.access-key-id": "a", "client.secret-access-key": "b"}
SIGNING = {"rest.sigv4-enabled": "true", "rest.signing-region": "here"}


def session_of(properties: dict[str, str]) -> Any:
    """A session of a catalog with these properties; nothing is sent."""
    catalog = BoundedRestCatalog.__new__(BoundedRestCatalog)
    catalog.name, catalog.uri = "lake", "http://127.0.0.1:1"
    catalog.properties = {"uri": catalog.uri, **properties}
    return catalog._create_session()


def request_timeout(properties: dict[str, str]) -> object:
    """What a session of a catalog with these properties hands to every request."""
    with session_of(properties) as session:
        return session.request.keywords["timeout"]


def test_every_request_has_a_time_limit() -> None:
    """Every session has limits, also the one that signs for AWS; the settings may choose others."""
    assert request_timeout({}) == (10.0, 60.0)
    assert request_timeout({CONNECT: "500", ANSWER: "90000"}) == (0.5, 90.0)
    assert request_timeout({"token": "t", "header.X-Key": "k"}) == (10.0, 60.0)


def test_signed_request_is_sent_as_often_as_a_bare_one() -> None:
    """Once: eleven waits for a silent server are eleven minutes."""
    for properties in ({}, SIGNING | KEYS):
        with session_of(properties) as session:
            assert session.get_adapter("http://127.0.0.1:1").max_retries.total == 0


@pytest.mark.parametrize(("properties", "missing"), [({}, "Unable to locate credentials"), (KEYS, "specify a region")])
def test_signing_without_key_or_region_is_refused_by_name(
    properties: dict[str, str], missing: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Before anything is sent, with what to check."""
    for name in [*(name for name in os.environ if name.startswith("AWS_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("HOME", str(tmp_path))

    with pytest.raises(Terminal, match=missing) as refusal, translated("opening catalog lake"):
        session_of({"rest.sigv4-enabled": "true", **properties})

    assert "region and keys of the catalog's entry" in str(refusal.value.next_step)


def test_limits_are_set_before_the_first_request() -> None:
    """A new session gets its headers, and with them the limits, before a token is fetched with it."""
    source = inspect.getsource(RestCatalog._create_session)

    assert list(inspect.signature(RestCatalog._config_headers).parameters) == ["self", "session"]
    assert source.index("_config_headers(session)") < source.index("_create_legacy_oauth2_auth_manager(session)")
