"""What the demo reads off the page."""

from __future__ import annotations

import pytest

from frazil.cli.demo.run import parse_page, read_at
from frazil.monitor.condition import STATES
from tests.dags.page.source import NOW, Allowed, MadeUp, condition, pipeline


@pytest.fixture(scope="module", autouse=True)
def _database() -> None:
    from airflow.utils import db

    db.initdb()


def test_demo_reads_page_as_it_is():
    """State, rows, dead letters and health, as the page has them."""
    from airflow.api_fastapi.core_api.security import get_user
    from fastapi.testclient import TestClient

    from frazil_airflow.page import request
    from frazil_airflow.page.app import create_app

    source = MadeUp({"payments": pipeline("payments")}, {"payments": condition("payments")})
    allowed, app = Allowed(frozenset({"ingest__payments"}), frozenset()), create_app()
    app.dependency_overrides |= {
        request.shared_source: lambda: source,
        request.access: lambda: allowed,
        get_user: lambda: None,
    }
    html = TestClient(app).get("/pipelines/payments").text

    page = parse_page(html)

    assert read_at(html) == NOW
    assert page.state in STATES
    assert (page.rows, page.dead, page.health) == ("1.2M", "42", {"shop.payments": 91})
