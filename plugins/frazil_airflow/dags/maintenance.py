"""Makes the maintenance DAG of a pipeline: look -> maintain -> report."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from airflow.providers.standard.operators.python import PythonOperator, ShortCircuitOperator
from airflow.sdk import DAG, BaseOperator, Param

from frazil.pipeline.models.pipeline_file import AUTO_ENGINE, Pipeline
from frazil.pipeline.settings.settings import EngineSettings
from frazil.pipeline.syntax.interval import parse_interval
from frazil.project import Project
from frazil_airflow.compat import AirflowFailException
from frazil_airflow.dags.dag_defaults import dag_arguments, timetable
from frazil_airflow.outputs.assets import destination_assets
from frazil_airflow.project.pipelines import MAINTAIN
from frazil_airflow.project.secrets import load_project, terminal_is_final
from frazil_airflow.tasks.operators import SparkConnectMaintainOperator, SparkMaintainOperator

_log = logging.getLogger(__name__)


def look_at_tables(pipeline: str, *, dag_run: Any, params: Mapping[str, Any]) -> str | None:
    """Report which steps are due, with the reasons.

    Returns:
        The order for the job as JSON; None if nothing is due or this is a dry run: then Airflow skips the other tasks.

    Raises:
        AirflowFailException: A person must act; the message says what to do.
        Retryable: The catalog or the storage is not available now.
    """
    from frazil.maintain.need import Order
    from frazil.maintain.run import preview
    from frazil.monitor.metrics import maintenance_samples
    from frazil.run.state.context import RunContext
    from frazil_airflow.outputs.run_summary import emit, write_note

    order = Order(params["table"], tuple(params["steps"]), params["force"])
    with terminal_is_final():
        project = load_project()
        result = preview(RunContext.open(project, project.pipeline(pipeline)), order)
    for table in result.tables:
        for line in table.lines:
            _log.info("%s", line)
    emit(maintenance_samples(result))
    due = result.with_status("due")
    if params["dry_run"] or not due:
        scores = ", ".join(f"{table.table} {table.before.score}" for table in result.tables)
        write_note(dag_run, f"{len(due)} steps due, nothing done; health: {scores or 'no table yet'}")
        return None
    return order.to_json()


def report_outcome(pipeline: str, result_json: str, *, dag_run: Any) -> dict[str, Any]:
    """Report the result of the job in the log, the run's note and the return value.

    Raises:
        AirflowFailException: A step failed. The next run tries it again if it is still due.
    """
    import json

    from frazil.maintain.run import MaintenanceResult
    from frazil.monitor.metrics import maintenance_samples
    from frazil_airflow.outputs.run_summary import emit, write_note

    result = MaintenanceResult.from_json(result_json)
    for table in result.tables:
        for line in table.lines:
            _log.info("%s", line)
    emit(maintenance_samples(result))
    write_note(dag_run, result.summary)
    failed = result.with_status("failed")
    if failed:
        raise AirflowFailException(
            f"pipeline {pipeline}: " + "; ".join(f"{table}: {step.line}" for table, step in failed)
        )
    body: dict[str, Any] = json.loads(result_json)
    return body


LOOK_TIMEOUT = timedelta(minutes=30)
"""Bounds reading the manifests of all tables: a second or two per table, some more for very large ones."""

MAINTAIN_TIMEOUT = timedelta(hours=6)
"""Bounds a job that hangs. Its commits stay, and the next run goes on from there."""

STEPS = ("position_deletes", "compaction", "manifests", "expiry", "orphans", "stats")
"""The same as in `frazil.maintain.need`, which a DAG file may not import: it loads too much."""

_ORDER = "{{ ti.xcom_pull(task_ids='look') }}"
_RESULT = "{{ ti.xcom_pull(task_ids='maintain') }}"


def maintenance_schedule(project: Project, pipeline: Pipeline) -> str | None:
    """Return the interval at which Airflow checks whether maintenance is due; None without a schedule or an engine for it."""
    if pipeline.maintenance_engine not in (*project.settings.engines, AUTO_ENGINE):
        return None
    return pipeline.maintenance.schedule or None


def _maintain_task(pipeline: Pipeline, engine: EngineSettings) -> BaseOperator:
    shared: dict[str, Any] = {
        "task_id": "maintain",
        "pipeline": pipeline.name,
        "plan_json": _ORDER,
        "asset_name": next(iter(destination_assets(pipeline).values())).name,
        "pool": engine.maintenance_pool,
        "max_active_tis_per_dag": 1,
        "execution_timeout": MAINTAIN_TIMEOUT,
        "doc_md": "Runs the due steps in a Spark job, table by table. Its return value has the figures before and after.",
    }
    if not engine.has_connection:
        return SparkConnectMaintainOperator(**shared)
    return SparkMaintainOperator(conn_id=engine.connection, driver_memory=engine.driver_memory, **shared)


def maintain_dag(project: Project, pipeline: Pipeline) -> DAG | None:
    """Make the maintenance DAG of a pipeline; None without a schedule or an engine for it."""
    schedule = maintenance_schedule(project, pipeline)
    if schedule is None:
        return None
    engine = project.engine_entry(pipeline.maintenance_engine)
    with DAG(
        f"{MAINTAIN}{pipeline.name}",
        description=f"Keeps the tables of {pipeline.name} in shape",
        doc_md=_doc(pipeline, schedule),
        schedule=timetable(parse_interval(schedule)),
        params=_params(pipeline),
        **dag_arguments("maintain", pipeline, project=project, ends_failure=True),
    ) as dag:
        look = ShortCircuitOperator(
            task_id="look",
            doc_md="Counts files, delete files, manifests and snapshots, without a JVM. If nothing is due, the other tasks are skipped.",
            python_callable=look_at_tables,
            op_args=[pipeline.name],
            execution_timeout=LOOK_TIMEOUT,
        )
        maintain = _maintain_task(pipeline, engine)
        report = PythonOperator(
            task_id="report",
            doc_md="Reports the result in the log and the run's note; fails if a step failed.",
            python_callable=report_outcome,
            op_args=[pipeline.name, _RESULT],
            execution_timeout=LOOK_TIMEOUT,
        )
        look >> maintain >> report
    return dag


def _params(pipeline: Pipeline) -> dict[str, Param]:
    tables = [*pipeline.tables, pipeline.dead_letters_table, pipeline.ledger_table]
    # Tables that records name may be created after this file was parsed, so any name is allowed then.
    choices = {"enum": [None, *tables]} if pipeline.create is None else {"examples": tables}
    return {
        "table": Param(None, type=["null", "string"], title="Table", description="Empty: all.", **choices),
        "steps": Param(
            [],
            type="array",
            items={"type": "string", "enum": list(STEPS)},
            examples=list(STEPS),
            title="Steps",
            description="Empty: all, in their order.",
        ),
        "force": Param(
            default=False, type="boolean", title="Force", description="Run the steps even if they are not due."
        ),
        "dry_run": Param(
            default=False, type="boolean", title="Dry run", description="Only report which steps are due, and why."
        ),
    }


def _doc(pipeline: Pipeline, schedule: str) -> str:
    return f"""### Maintenance of {pipeline.name}

Checks the pipeline's tables every `{schedule}` (UTC) and runs the steps that are due: compacts small files, merges manifests,
removes old snapshots and orphan files. The position stays.

```
frazil maintain {pipeline.name} --dry-run
```
"""
