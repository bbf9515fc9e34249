"""The page of reports: whoever may read the DAG's task logs sees it, nobody else, and it runs nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity, DagDetails
from airflow.api_fastapi.core_api import security
from fastapi.testclient import TestClient

from frazil.project import Project
from frazil.report.letter_reports import reports_folder
from frazil_airflow.outputs.links import REPORTS, ReportLink, report_address
from frazil_airflow.outputs.report_page import create_app

pytestmark = pytest.mark.dags

NAME = "20261121T120000000Z"
PAGE = f"/dead_letters__orders/{NAME}"


@pytest.fixture
def client(write_pipeline: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> Iterator[TestClient]:
    """Somebody who may read the task logs of one pipeline's report."""
    for name in ("orders", "returns"):
        write_pipeline(name)
        folder = reports_folder(Project.load(), Project.load().pipeline(name))
        for ending, text in ((".html", f"<p>{name}</p>"), (".json", "{}")):
            folder.write(f"{NAME}{ending}", text)

    def is_authorized(*, method: str, access_entity: DagAccessEntity | None, details: DagDetails, user: Any) -> bool:
        """Every reader sees the DAG of returns, and not its logs."""
        assert (method, user.get_name()) == ("GET", "ana")
        logs = access_entity is DagAccessEntity.TASK_LOGS
        return details.id in ("dead_letters__orders", "returns") if logs else details.id == "dead_letters__returns"

    manager = SimpleNamespace(is_authorized_dag=is_authorized)
    monkeypatch.setattr(security, "get_auth_manager", lambda: manager)
    monkeypatch.setattr("airflow.models.dag.DagModel.get_team_name", lambda *_, **__: None)
    app = create_app()
    app.dependency_overrides[security.get_user] = lambda: SimpleNamespace(get_name=lambda: "ana")
    with TestClient(app) as opened:
        yield opened


@pytest.mark.parametrize(
    ("path", "status"),
    [
        (PAGE, 200),
        (PAGE.replace("orders", "returns"), 403),
        (PAGE.replace("dead_letters__orders", "ingest__orders"), 403),
        (PAGE.replace("dead_letters__orders", "returns"), 404),
        ("/dead_letters__orders/20261121T120000001Z", 404),
        ("/dead_letters__orders/..%2Freturns", 404),
        ("/", 404),
    ],
)
def test_report_is_shown_only_to_who_may_read_task_logs(client: TestClient, path: str, status: int):
    """Its samples quote records. Airflow is asked of the DAG in the address, which says whose report it is; a name leads
    nowhere else.
    """
    answer = client.get(path)

    assert answer.status_code == status
    assert ("<p>" in answer.text) == (status == 200)


def test_report_page_runs_no_script(client: TestClient):
    """No script, no other server, no copy on the way."""
    headers = client.get(PAGE).headers

    assert "default-src 'none'" in headers["content-security-policy"]
    assert "script" not in headers["content-security-policy"]
    assert headers["cache-control"] == "no-store"


def test_link_of_report_leads_to_its_page(client: TestClient):
    """The task's link and the app agree on the address; a task without a report has none."""
    operator = SimpleNamespace(pipeline="orders", report_name=NAME)
    address = ReportLink().get_link(operator, ti_key=None)  # type: ignore[arg-type]

    assert address == report_address("orders", NAME) == f"{REPORTS}{PAGE}"
    assert ReportLink().get_link(SimpleNamespace(pipeline="orders", report_name=None), ti_key=None) == ""  # type: ignore[arg-type]
