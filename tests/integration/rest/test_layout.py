"""How a new table is laid out, when a server of Iceberg's own makes it."""

from __future__ import annotations

from tests.layouts import EXPECTED, LAYOUT, created, described, land, orders
from tests.rest_catalog import RestServer


def test_server_creates_table_as_file_declares(rest_server: RestServer) -> None:
    """Ten partition fields at once, the sort order, identifier fields, properties and nested namespaces."""
    rest_server.empty()
    created(rest_server.lake())

    assert described(rest_server.lake().load_table(LAYOUT.table)) == EXPECTED
    land(rest_server.lake(), orders())
    read = rest_server.lake().load_table(LAYOUT.table).scan().to_arrow().sort_by("id")["id"].to_pylist()
    assert read == list(range(40))
