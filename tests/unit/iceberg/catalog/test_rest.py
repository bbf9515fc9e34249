"""Time limits of a REST catalog, and the private part of PyIceberg they rest on."""

from __future__ import annotations

import inspect

from pyiceberg.catalog.rest import RestCatalog

from frazil.iceberg.catalog.rest import ANSWER, CONNECT, BoundedRestCatalog


def request_timeout(properties: dict[str, str]) -> object:
    """What a session of a catalog with these properties hands to every request; nothing is sent."""
    catalog = BoundedRestCatalog.__new__(BoundedRestCatalog)
    catalog.name, catalog.uri = "lake", "http://127.0.0.1:1"
    catalog.properties = {"uri": catalog.uri, **properties}
    with catalog._create_session() as session:
        return session.request.keywords["timeout"]


def test_every_request_has_a_time_limit() -> None:
    """Every session has limits, also the one that signs for AWS; the settings may choose others."""
    assert request_timeout({}) == (10.0, 60.0)
    assert request_timeout({CONNECT: "500", ANSWER: "90000"}) == (0.5, 90.0)
    assert request_timeout({"token": "t", "header.X-Key": "k"}) == (10.0, 60.0)


def test_limits_are_set_before_the_first_request() -> None:
    """A new session gets its headers, and with them the limits, before a token is fetched with it."""
    source = inspect.getsource(RestCatalog._create_session)

    assert list(inspect.signature(RestCatalog._config_headers).parameters) == ["self", "session"]
    assert source.index("_config_headers(session)") < source.index("_create_legacy_oauth2_auth_manager(session)")
