"""The tasks of a maintenance DAG that run in their own process, without a JVM."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from airflow.sdk.exceptions import AirflowFailException

from frazil_airflow.failures import terminal_is_final
from frazil_airflow.secrets import load_project

_log = logging.getLogger(__name__)


def look(pipeline: str, *, dag_run: Any, params: Mapping[str, Any]) -> str | None:
    """Say which steps are due, with the numbers.

    Returns:
        What the job is to do, as JSON; None if nothing is due, or only a look was asked for: Airflow then skips the rest.

    Raises:
        AirflowFailException: A person must act; the message says what to do.
        Retryable: The catalog or the storage is not available now.
    """
    from frazil.maintain.need import Order
    from frazil.maintain.run import look as looked
    from frazil.run.scope import Scope
    from frazil_airflow.metrics import emit_maintenance
    from frazil_airflow.notes import write_note

    order = Order(params["table"], tuple(params["steps"]), params["force"])
    with terminal_is_final():
        project = load_project()
        found = looked(Scope.of(project, project.pipeline(pipeline)), order)
    for table in found.tables:
        for line in table.said:
            _log.info("%s", line)
    emit_maintenance(found)
    due = found.with_status("due")
    if params["dry_run"] or not due:
        scores = ", ".join(f"{table.table} {table.before.score}" for table in found.tables)
        write_note(
            dag_run.dag_id, dag_run.run_id, f"{len(due)} steps due, nothing done; health: {scores or 'no table yet'}"
        )
        return None
    return order.to_json()


def report(pipeline: str, done: str, *, dag_run: Any) -> dict[str, Any]:
    """Say what was done: the log, the run's note, and the return value.

    Raises:
        AirflowFailException: A step failed. The next run tries again what is due then.
    """
    import json

    from frazil.maintain.result import MaintenanceResult
    from frazil_airflow.metrics import emit_maintenance
    from frazil_airflow.notes import write_note

    result = MaintenanceResult.from_json(done)
    for table in result.tables:
        for line in table.said:
            _log.info("%s", line)
    emit_maintenance(result)
    write_note(dag_run.dag_id, dag_run.run_id, result.summary)
    failed = result.with_status("failed")
    if failed:
        raise AirflowFailException(
            f"pipeline {pipeline}: " + "; ".join(f"{table}: {step.said}" for table, step in failed)
        )
    found: dict[str, Any] = json.loads(done)
    return found
