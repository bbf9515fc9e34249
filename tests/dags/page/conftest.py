"""The page as a person with certain rights sees it, over what a test says there is to read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from frazil.report.dead_letters import WholeLetter
from tests.dags.page.source import HOSTILE, Allowed, MadeUp, condition, letter, pipeline

if TYPE_CHECKING:
    from fastapi.testclient import TestClient

Open = Callable[..., "TestClient"]


@pytest.fixture(scope="session", autouse=True)
def _database() -> None:
    from airflow.utils import db

    db.initdb()


@pytest.fixture
def source() -> MadeUp:
    """Two pipelines, one with hostile letters."""
    names = ("orders", "payments")
    hostile = letter(4, path=HOSTILE, topic="orders-topic")
    whole = WholeLetter(hostile, "fit", HOSTILE.encode(), HOSTILE.encode(), ((HOSTILE, HOSTILE.encode()),))
    refused = {"refusal": HOSTILE, "dead": 3}
    return MadeUp(
        {name: pipeline(name) for name in names},
        {"orders": condition("orders", **refused), "payments": condition("payments")},
        found=[letter(offset, topic="orders-topic") for offset in range(120)],
        whole=[whole, replace(whole, value=b"\x00\xff" + HOSTILE.encode()), replace(whole, value=None, key=b"")],
    )


@pytest.fixture
def open_page(source: MadeUp) -> Open:
    """The page as somebody sees it who may read and start these DAGs; those of all pipelines without any."""
    from airflow.api_fastapi.core_api.security import get_user
    from fastapi.testclient import TestClient

    from frazil_airflow.page import request
    from frazil_airflow.page.app import create_app

    def opened(
        read: set[str] | None = None,
        start: set[str] | None = None,
        logs: set[str] | None = None,
        *,
        login: bool = True,
    ) -> TestClient:
        app = create_app()
        everything = {f"ingest__{name}" for name in source.pipelines()}
        readable = frozenset(everything if read is None else read)
        allowed = Allowed(readable, frozenset(start or ()), None if logs is None else frozenset(logs))
        app.dependency_overrides |= {request.shared_source: lambda: source, request.access: lambda: allowed}
        if login:
            app.dependency_overrides[get_user] = lambda: None
        return TestClient(app, raise_server_exceptions=False)

    return opened
