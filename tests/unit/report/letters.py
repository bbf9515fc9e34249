"""A pipeline with one destination, and rows of its dead-letter table."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

NAME = "shop.orders__dead_letters"
NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)

SETTINGS = """
clusters: {local: {bootstrap_servers: "127.0.0.1:9"}}
catalogs: {lake: {uri: "sqlite:///${local:home}/catalog.db", warehouse: "file://${local:home}/warehouse"}}
"""
ORDERS = """
name: orders
owner: team <b>
engine: inline
source: {topics: [orders]}
destinations: [{table: shop.orders, columns: {id: long}}]
"""


def letter(offset: int, **changed: Any) -> dict[str, Any]:
    """A row as batch 1 writes it."""
    about = {"topic": "orders", "partition": 0, "offset": offset, "timestamp": NOW - timedelta(hours=1)}
    reason = {"code": "WRONG_TYPE", "stage": "convert", "path": "id", "message": 'id: expected a long, found "x"'}
    record = {"key": b"k", "value": b'{"id": "x"}', "headers": [{"key": "h", "value": b"v"}]}
    return {
        **about,
        **reason,
        **record,
        "_frazil_batch": 1,
        "attempts": 1,
        "landed_batch": None,
        "destination": None,
        **changed,
    }
