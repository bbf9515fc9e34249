"""Pipelines become DAGs: plan -> ingest -> record."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.providers.standard.operators.python import PythonOperator, ShortCircuitOperator
from airflow.sdk import DAG, BaseOperator

from frazil.pipeline.models.engines import AUTO_ENGINE, INLINE_ENGINE
from frazil.pipeline.models.pipeline_file import Pipeline
from frazil.project import Project
from frazil_airflow.alerts.callbacks import deadline
from frazil_airflow.compat import AIRFLOW, HAS_ASSET_STATE, AssetOrTimeSchedule
from frazil_airflow.dags.dag_defaults import dag_arguments, timetable
from frazil_airflow.dags.docs import doc_md
from frazil_airflow.dags.priority import FairOrder
from frazil_airflow.outputs.assets import completeness_alias, completeness_asset, destination_assets, waiting_asset
from frazil_airflow.project.pipelines import INGEST
from frazil_airflow.project.run_request import params
from frazil_airflow.tasks import ingest_tasks
from frazil_airflow.tasks.connect_operators import SparkConnectIngestOperator
from frazil_airflow.tasks.operators import AutoIngestOperator, InlineIngestOperator, SparkIngestOperator

if TYPE_CHECKING:
    from airflow.sdk.bases.timetable import BaseTimetable

PLAN_TIMEOUT = timedelta(minutes=5)
"""Bounds planning: 1-2 s, and some seconds more when it finishes a batch that a crash left."""

INGEST_TIMEOUT = timedelta(hours=2)
"""Bounds a job that hangs. A backlog that takes longer loses no work: finished batches stay, the next try goes on."""

RECORD_TIMEOUT = timedelta(minutes=5)
"""Bounds reading a few rows of the ledger."""

RUN_TIMEOUT = timedelta(hours=6, minutes=30)
"""Bounds a whole run with all tries, and the wait for a slot of the pool: another run may begin after it."""

_log = logging.getLogger(__name__)

_PLAN_JSON = "{{ ti.xcom_pull(task_ids='plan') }}"
_FOUND_JSON = "{{ ti.xcom_pull(task_ids='ingest') }}"


def ingest_dag(project: Project, pipeline: Pipeline) -> DAG:
    """Make the DAG of a pipeline."""
    with DAG(
        f"{INGEST}{pipeline.name}",
        description=pipeline.description or f"Lands {pipeline.source.described}",
        doc_md=doc_md(pipeline),
        schedule=_schedule(pipeline),
        dagrun_timeout=RUN_TIMEOUT + (pipeline.session or timedelta()),
        params=params(),
        deadline=deadline(project, pipeline),
        **dag_arguments("ingest", pipeline, project=project) | _side_by_side(pipeline),
    ) as dag:
        record = _record_task(pipeline)
        _plan_task(pipeline) >> _ingest_task(project, pipeline) >> record
        if pipeline.catch_up is not None:
            record >> _catch_up_task(pipeline, pipeline.catch_up)
    for (
        task
    ) in dag.tasks:  # not among the default arguments: as one of them it is written down with its address in memory
        task.weight_rule = FairOrder()
    return dag


def _side_by_side(pipeline: Pipeline) -> dict[str, Any]:
    """While one session reports what it landed, the next one may begin: `ingest` itself runs once at a time."""
    return {} if pipeline.session is None else {"max_active_runs": 2}


def _schedule(pipeline: Pipeline) -> BaseTimetable:
    ticks = timetable(pipeline.schedule)
    if pipeline.trigger is None:
        return ticks
    if not HAS_ASSET_STATE:
        _log.warning(
            "pipeline %s: `trigger` is off, runs start by the schedule alone: Airflow %s.%s has no state store of assets,"
            " 3.3 has one",
            pipeline.name,
            *AIRFLOW,
        )
        return ticks
    return AssetOrTimeSchedule(
        timetable=ticks, assets=[waiting_asset(pipeline, f"{INGEST}{pipeline.name}", pipeline.trigger)]
    )


def _plan_task(pipeline: Pipeline) -> BaseOperator:
    return ShortCircuitOperator(
        task_id="plan",
        doc_md="Fixes what the run reads, without a JVM. Nothing new: the rest is skipped.",
        python_callable=ingest_tasks.plan,
        op_args=[pipeline.name],
        inlets=[completeness_asset(pipeline.name)],  # so that Airflow knows it before its first event
        outlets=[completeness_alias(pipeline.name)],
        execution_timeout=PLAN_TIMEOUT,
    )


def _ingest_task(project: Project, pipeline: Pipeline) -> BaseOperator:
    shared: dict[str, Any] = {
        "task_id": "ingest",
        "execution_timeout": INGEST_TIMEOUT + (pipeline.session or timedelta()),
        # Holds across scheduled, manual and backfill runs, which max_active_runs does not.
        "max_active_tis_per_dag": 1,
        "outlets": [completeness_alias(pipeline.name)] if pipeline.session is not None else [],
    }
    if pipeline.engine == INLINE_ENGINE:
        return InlineIngestOperator(
            pipeline=pipeline.name,
            plan_json=_PLAN_JSON,
            doc_md="Runs the planned batches in this task's process.",
            **shared,
        )
    engine = project.engine_entry(pipeline.engine)
    operator = AutoIngestOperator if pipeline.engine == AUTO_ENGINE else SparkIngestOperator
    shared |= {
        "pipeline": pipeline.name,
        "plan_json": _PLAN_JSON,
        "asset_name": next(iter(destination_assets(pipeline).values())).name,
        "pool": engine.pool,
        "doc_md": operator.doc_md,
    }
    if engine.type == "connect":
        return SparkConnectIngestOperator(**shared)
    return operator(conn_id=engine.connection, driver_memory=engine.driver_memory, **shared)


def _record_task(pipeline: Pipeline) -> BaseOperator:
    return PythonOperator(
        task_id="record",
        doc_md="Reports the run: asset event, note, log.",
        python_callable=ingest_tasks.record,
        op_args=[pipeline.name, _PLAN_JSON, _FOUND_JSON],
        outlets=[*destination_assets(pipeline).values(), completeness_alias(pipeline.name)],
        execution_timeout=RECORD_TIMEOUT,
    )


def _catch_up_task(pipeline: Pipeline, records: int) -> BaseOperator:
    # Not at the top: it brings the models of Airflow's database, which few DAGs need.
    from frazil_airflow.tasks.ingest_tasks import CatchUpOperator

    return CatchUpOperator(
        task_id="catch_up",
        pipeline=pipeline.name,
        dag_id=f"{INGEST}{pipeline.name}",
        records=records,
        doc_md=f"Starts the next run at once if {records:,} records or more wait by now.",
        execution_timeout=RECORD_TIMEOUT,
    )
