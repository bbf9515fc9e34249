"""Shows stored reports on dead letters to users who may read the task logs of the DAG, because samples quote records."""

from __future__ import annotations

from http import HTTPStatus

from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
from airflow.api_fastapi.core_api.security import get_user, requires_access_dag
from fastapi import Depends, FastAPI, HTTPException
from fastapi.responses import HTMLResponse

from frazil.errors import Retryable, Terminal
from frazil.report.letter_reports import open_report
from frazil_airflow.project.pipelines import REPORT
from frazil_airflow.project.secrets import load_project

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'self'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
"""Headers that allow no scripts and only inline styles. Samples quote records, so caches must not store the page."""


def create_app() -> FastAPI:
    """Make the application that Airflow's api-server mounts. A mounted application must require the login itself."""
    app = FastAPI(
        title="Frazil reports", docs_url=None, redoc_url=None, openapi_url=None, dependencies=[Depends(get_user)]
    )
    may_read = Depends(requires_access_dag("GET", DagAccessEntity.TASK_LOGS))
    app.add_api_route("/{dag_id}/{name}", show, response_class=HTMLResponse, dependencies=[may_read])
    return app


def show(dag_id: str, name: str) -> HTMLResponse:
    """Return a stored report, by the id of its report DAG and its name.

    Raises:
        HTTPException: There is no such report, or the storage can't be read now.
    """
    if not dag_id.startswith(REPORT):  # permission to read another DAG is none to read reports
        raise HTTPException(HTTPStatus.NOT_FOUND, f"{dag_id} reports no dead letters")
    try:
        project = load_project()
        page = open_report(project, project.pipeline(dag_id.removeprefix(REPORT)), name)
    except Terminal as error:
        raise HTTPException(HTTPStatus.NOT_FOUND, error.message_with_code) from error
    except Retryable as error:
        raise HTTPException(HTTPStatus.SERVICE_UNAVAILABLE, error.message_with_code) from error
    return HTMLResponse(page, headers=HEADERS)
