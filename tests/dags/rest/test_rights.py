"""Who may do what: each route without a login, with a login that has no such right, and with one that has it."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import anyio
import anyio.to_thread
import httpx
import pytest
import requests

from tests.connector_configs import OWN
from tests.dags.rest.conftest import Login, mounted, token

ORDERS = {**OWN, "name": "orders"}
OFFSETS = {"offsets": [{"partition": {"kafka_topic": "orders", "kafka_partition": 0}, "offset": {"kafka_offset": 1}}]}

LOOKS: tuple[tuple[str, str, Any, int], ...] = (
    ("GET", "/", None, 200),
    ("GET", "/openapi.json", None, 200),
    ("GET", "/connector-plugins", None, 200),
    ("GET", "/connectors", None, 200),
    ("GET", "/connectors/", None, 200),
    ("GET", "/admin/loggers", None, 501),
    ("GET", "/nothing", None, 404),
)
"""What everybody may ask who is logged in."""

READS: tuple[tuple[str, str, Any, int], ...] = (
    ("GET", "/connectors/orders", None, 200),
    ("GET", "/connectors/orders/config", None, 200),
    ("GET", "/connectors/orders/status", None, 200),
    ("GET", "/connectors/orders/tasks", None, 200),
    ("GET", "/connectors/orders/tasks/0/status", None, 200),
    ("GET", "/connectors/orders/topics", None, 200),
    ("GET", "/connectors/orders/offsets", None, 200),
)

CHANGES: tuple[tuple[str, str, Any, int], ...] = (
    ("PUT", "/connectors/orders/config", ORDERS, 200),
    ("PATCH", "/connectors/orders/config", {"owner": "shop"}, 200),
    (
        "POST",
        "/connectors",
        {"name": "more", "config": {**OWN, "destinations": [{"table": "shop.m", "columns": {"id": "long"}}]}},
        201,
    ),
    ("PUT", "/connector-plugins/frazil.Pipeline/config/validate", ORDERS, 200),
    ("PUT", "/connectors/orders/resume", None, 202),
    ("PUT", "/connectors/orders/pause", None, 202),
    ("PUT", "/connectors/orders/stop", None, 204),
    ("POST", "/connectors/orders/restart", None, 204),
    ("POST", "/connectors/orders/tasks/0/restart", None, 204),
    ("PUT", "/connectors/orders/topics/reset", None, 403),
    ("PATCH", "/connectors/orders/offsets", OFFSETS, 400),  # it never ran
    ("DELETE", "/connectors/orders/offsets", None, 400),
    ("DELETE", "/connectors/orders", None, 204),
)
"""In an order in which all of them can be done."""


@pytest.fixture
def orders(login: Login, airflow_reads: Callable[[], None]) -> None:
    """A pipeline whose DAG Airflow knows, paused."""
    assert login("admin").put("/connectors/orders/config", json=ORDERS).status_code == 201
    airflow_reads()
    assert login("admin").put("/connectors/orders/pause").status_code == 202


def test_nothing_is_answered_without_a_login(login: Login, orders: None):
    """Neither that a connector is there, nor that a path is unknown."""
    client = login(None)
    for method, path, body, _ in (*LOOKS, *READS, *CHANGES):
        answer = client.request(method, path, json=body)
        assert (answer.status_code, path) == (401, path)
        assert set(answer.json()) == {"error_code", "message"}


def test_login_without_any_right_sees_no_connector(login: Login, orders: None):
    """A connector looks as if it were not there; nothing can be changed."""
    client = login("")

    assert client.get("/connectors").json() == []
    for method, path, body, status in LOOKS:
        assert client.request(method, path, json=body).status_code == status, path
    for method, path, body, _ in (*READS, *CHANGES):
        answer = client.request(method, path, json=body)
        assert answer.status_code in (403, 404), path
        if "orders" not in path:
            continue
        hidden = client.request(method, path.replace("orders", "nothing"), json=body and {**body, "name": "nothing"})
        assert hidden.text.replace("nothing", "orders") == answer.text


def test_viewer_reads_and_changes_nothing(login: Login, orders: None):
    """Airflow's role decides, by method and DAG."""
    client = login("viewer")

    for method, path, body, status in (*LOOKS, *READS):
        assert client.request(method, path, json=body).status_code == status, path
    for method, path, body, _ in CHANGES:
        answer = client.request(method, path, json=body)
        assert answer.status_code == 403, path
        assert answer.json()["error_code"] == 403
    assert client.get("/connectors").json() == ["orders"]
    assert client.get("/connectors/orders/status").json()["connector"]["state"] == "PAUSED"


def test_admin_does_it_all(login: Login, orders: None):
    """With the status codes of Kafka Connect."""
    client = login("admin")
    for method, path, body, status in (*LOOKS, *READS, *CHANGES):
        answer = client.request(method, path, json=body)
        assert (answer.status_code, path) == (status, path), answer.text


def test_every_route_asks_for_login_and_refuses_forged_changes(airflow: Any):
    """A route that is added without them would be open."""
    from airflow.api_fastapi.core_api.security import get_user
    from fastapi.routing import APIRoute

    from frazil_airflow.rest.request import refuse_forged

    routes = [route for each in mounted(airflow).routes for route in getattr(each, "routes", None) or [each]]
    rights = {
        route.path: {dependency.call for dependency in route.dependant.dependencies}
        for route in routes
        if isinstance(route, APIRoute)
    }

    assert len(rights) > 15
    assert {path for path, calls in rights.items() if not {get_user, refuse_forged} <= calls} == set()


def test_page_of_another_site_changes_nothing(login: Login, orders: None):
    """What a browser sends there unasked: the cookie, no header, and a body that is not said to be JSON."""
    browser = login(None)
    browser.cookies.set("_token", token("admin"))

    assert browser.get("/connectors").json() == ["orders"]
    forged = [
        browser.post("/connectors/orders/restart"),
        browser.put("/connectors/orders/resume"),
        browser.delete("/connectors/orders"),
        browser.put("/connectors/orders/config", content=b"{}", headers={"Content-Type": "text/plain"}),
        browser.post("/connectors", data={"name": "orders"}),
    ]
    assert {answer.status_code for answer in forged} == {403}
    assert browser.get("/connectors/orders/status").json()["connector"]["state"] == "PAUSED"
    assert browser.put("/connectors/orders/resume", headers={"Content-Type": "application/json"}).status_code == 202


def test_document_describes_every_route(login: Login):
    """An OpenAPI document of its own, with the address at which the API is mounted."""
    document = login("viewer").get("/openapi.json").json()

    assert document["servers"] == [{"url": "/frazil/connect"}]
    described = {(method.upper(), path) for path, methods in document["paths"].items() for method in methods}
    assert ("PUT", "/connectors/{name}/config") in described
    assert ("DELETE", "/connectors/{name}/offsets") in described
    assert len(described) >= 22


def test_one_request_tries_one_password(login: Login, monkeypatch: pytest.MonkeyPatch):
    """Each costs Airflow a look at a password, also of somebody who has none."""
    from frazil_airflow.rest import request

    tried: list[str] = []

    async def token_of(_: object, user: str, password: str) -> None:
        tried.append(f"{user}:{password}")

    monkeypatch.setattr(request, "_token", token_of)
    guesses = [("Authorization", f"Basic {b64encode(f'rob:{number}'.encode()).decode()}") for number in range(100)]

    assert login(None).get("/connectors", headers=guesses).status_code in (401, 403)  # type: ignore[arg-type]  # a list, too
    assert tried == ["rob:0"]


@pytest.mark.timeout(120)
def test_many_requests_at_once_leave_threads_for_airflow(
    login: Login, orders: None, served: str, monkeypatch: pytest.MonkeyPatch
):
    """Airflow does what they ask for in a thread: if all threads waited for that, the server would stand still for good."""
    from frazil_airflow.rest import request

    async def airflow_answers(*_: object) -> httpx.Response:
        await anyio.sleep(1)  # all requests have come
        await anyio.to_thread.run_sync(lambda: None)
        return httpx.Response(200)

    monkeypatch.setattr(request, "_call_airflow", airflow_answers)
    headers = {"Authorization": f"Bearer {token('admin')}"}

    def pause(_: int) -> int:
        return requests.put(f"{served}/connectors/orders/pause", headers=headers, timeout=60).status_code

    with ThreadPoolExecutor(80) as pool:
        statuses = set(pool.map(pause, range(80)))

    assert 202 in statuses
    assert statuses <= {202, 503}
    assert requests.get(f"{served}/connectors", headers=headers, timeout=10).json() == ["orders"]
