"""The form that starts a run, filled in. Airflow's own can't be opened with values, so the fields are asked of its REST
API, which also checks what is sent, and whether this person may.
"""

# No `from __future__ import annotations`: FastAPI reads the signatures.

import json
from typing import Annotated

from fastapi import APIRouter, HTTPException, Query, Request
from fastapi.responses import HTMLResponse

from frazil_airflow.page.asking import AskingDep
from frazil_airflow.page.naming import pipeline_of
from frazil_airflow.page.rendering import render

router = APIRouter()


@router.get("/start/{dag_id}")
def start(
    request: Request,
    asking: AskingDep,
    dag_id: str,
    conf: Annotated[str, Query(max_length=20_000)] = "{}",
) -> HTMLResponse:
    """The fields of a DAG's run form, with these values in them. Nothing starts before the button is pressed."""
    name = pipeline_of(dag_id)
    if name is None or name not in asking.source.pipelines() or dag_id not in asking.access.readable():
        raise HTTPException(404, f"There is no DAG {dag_id} of a pipeline, or you may not see it")
    if dag_id not in asking.access.startable({dag_id}):
        raise HTTPException(403, f"You may not start runs of {dag_id}")
    values = _values(conf)
    back = name if asking.sees(name) else None
    return render(request, "start.html.j2", dag_id=dag_id, conf=values, back=back)


def _values(conf: str) -> dict[str, object]:
    try:
        values = json.loads(conf)
    except (ValueError, RecursionError) as error:
        raise HTTPException(422, f"conf is not JSON: {error}") from error
    if not isinstance(values, dict):
        raise HTTPException(422, "conf is not a JSON object")
    return values
