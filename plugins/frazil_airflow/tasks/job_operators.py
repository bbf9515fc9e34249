"""Jobs that an Airflow operator of the user's own starts, anywhere: plan -> that operator -> outcome.

`plan` writes the order to storage, the operator starts a driver with three arguments, and `outcome` reads the outcome that
the driver wrote to storage. So the operator needs to know nothing of Frazil, may be deferrable, and may lose its job.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow.providers.standard.operators.python import PythonOperator
from airflow.sdk import BaseOperator, TriggerRule

from frazil.error_codes import BAD_ARGUMENT, BAD_SETTING, RUN_FAILED
from frazil.pipeline.models.pipeline_file import Pipeline
from frazil.pipeline.settings.settings import EngineSettings
from frazil.spark.submit.configuration import job_conf, job_file
from frazil.spark.submit.handover import Handover, local_storage, storage_of
from frazil_airflow.compat import AirflowFailException
from frazil_airflow.project.run_request import AirflowRun
from frazil_airflow.project.secrets import load_project, terminal_is_final
from frazil_airflow.tasks import ingest_tasks

if TYPE_CHECKING:
    from frazil.project import Project

_log = logging.getLogger(__name__)

_ORDER, _ATTEMPT = "order", "attempt"
"""Keys of the XComs that `plan` pushes besides its plan."""

_PULLED = "{{{{ ti.xcom_pull(task_ids='plan', key='{}') }}}}"
"""Template for the value of such an XCom."""


@dataclass(frozen=True, slots=True)
class Job:
    """What an operator starts: `python APPLICATION ARGUMENTS`, or spark-submit with the same.

    Attributes:
        task_id: The task id that the operator must have.
        pipeline: Name of the pipeline.
        application: Path of the program in this project; where the job runs, the path may be another.
        arguments: Arguments of the program. Some are templates, so the operator must take them in a templated field.
        conf: Spark configuration that the job needs wherever it runs.
        environment: Variables by which the driver finds the project, with paths of this machine.
    """

    task_id: str
    pipeline: str
    application: str
    arguments: tuple[str, ...]
    conf: Mapping[str, str]
    environment: Mapping[str, str]


JobOperator = Callable[[Job], BaseOperator]
"""Makes the operator of a job. A DAG file passes one for each engine: `dags.load_with({"emr": on_emr})`."""


def job_task(project: Project, pipeline: Pipeline, engine: EngineSettings, make: JobOperator) -> BaseOperator:
    """Make the task that runs a pipeline's batches: the user's operator.

    Raises:
        Terminal: `make` returned no operator with the task id of the job.
    """
    job = Job(
        "ingest",
        pipeline.name,
        str(job_file("ingest.py")),
        (
            *("--pipeline", pipeline.name),
            *("--order", _PULLED.format(_ORDER)),
            *("--attempt", _PULLED.format(_ATTEMPT)),
        ),
        job_conf(writes=any(template.by_engine for template in pipeline.declared.values())),
        project.environment(),
    )
    operator: object = make(job)
    if not isinstance(operator, BaseOperator) or operator.task_id != job.task_id:
        raise BAD_SETTING.terminal(
            f"engine {pipeline.engine}: expected an operator with task_id {job.task_id!r}, found {operator!r}",
            next_step=f"have the function for {pipeline.engine} return one: task_id=job.task_id",
        )
    operator.pool = engine.pool
    operator.max_active_tis_per_dag = 1  # across scheduled, manual and backfill runs
    return operator


def outcome_task(pipeline: Pipeline, **kwargs: Any) -> BaseOperator:
    """Make the task that reads the job's outcome. It runs even if the operator failed, since the job may have succeeded."""
    return PythonOperator(
        task_id="outcome",
        doc_md="Reads the job's outcome from storage: its result, or its error, with which this task fails.",
        python_callable=outcome,
        op_args=[pipeline.name, _PULLED.format(_ORDER), _PULLED.format(_ATTEMPT)],
        trigger_rule=TriggerRule.ALL_DONE_MIN_ONE_SUCCESS,  # of `plan` and the job: if `plan` failed, nothing succeeded
        **kwargs,
    )


def plan(pipeline: str, *, ti: Any, dag_run: AirflowRun, params: Mapping[str, Any], outlet_events: Any) -> str | None:
    """Plan the run as `ingest_tasks.plan` does, and write the plan to storage as the order of a job.

    Raises:
        AirflowFailException: A person must act; the message says what to do.
        Retryable: Kafka, the catalog or the storage is not available now.
    """
    order = ingest_tasks.plan(pipeline, dag_run=dag_run, params=params, outlet_events=outlet_events)
    if order is None:
        return None
    with terminal_is_final():
        handover = _hand_over(pipeline, dag_run.run_id, order)
    arguments = dict(zip(handover.arguments[::2], handover.arguments[1::2], strict=True))
    for key in (_ORDER, _ATTEMPT):
        ti.xcom_push(key, arguments[f"--{key}"])
    return order


def _hand_over(pipeline: str, run: str, order: str) -> Handover:
    project = load_project()
    location = storage_of(project, project.pipeline(pipeline))
    if location == local_storage(project.home):
        raise BAD_ARGUMENT.terminal(
            f"pipeline {pipeline} has no tables yet, and a dry run on another machine needs a table's storage to pass its plan",
            next_step=f"frazil run {pipeline} --dry-run --engine inline",
        )
    handover = Handover.begin(project, location, pipeline, run)
    handover.hand_over(order, outlives=True)
    return handover


def outcome(pipeline: str, order: str, attempt: str) -> str | None:
    """Return the job's result. Waits while its driver reports that it works, even if the operator has ended.

    Order and outcome stay in storage for another try of this task, until orphan removal deletes them.

    Raises:
        AirflowFailException: The job failed, or left no outcome. Another try would read the same; the next run carries on.
        Retryable: The storage is not available now.
    """
    with terminal_is_final():
        arguments = ["--pipeline", pipeline, "--order", order, "--attempt", attempt]
        job_outcome = Handover.from_arguments(load_project(), "outcome", arguments).await_outcome()
    if job_outcome is None:
        lost = RUN_FAILED.retryable(
            f"the job of pipeline {pipeline} left no outcome: it was lost, or failed before it reached the storage",
            next_step="read its log, from the task before this one; the next run reads from the tables what the job did",
        )
        raise AirflowFailException(str(lost))
    if job_outcome.error is not None:
        raise AirflowFailException(str(job_outcome.error)) from job_outcome.error
    return job_outcome.result
