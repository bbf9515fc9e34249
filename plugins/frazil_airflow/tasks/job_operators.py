"""Jobs that an Airflow operator of the user's own starts, anywhere: plan -> that operator -> outcome.

`plan` leaves the order in storage, the operator starts a driver with three arguments, `outcome` reads what the driver left. So
the operator needs to know nothing of Frazil, may be deferrable, and may lose its job.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow.providers.standard.operators.python import PythonOperator
from airflow.sdk import BaseOperator, TriggerRule

from frazil.error_codes import BAD_ARGUMENT, BAD_SETTING, RUN_FAILED
from frazil.errors import FrazilError
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
"""What `plan` pushes beside its plan."""

_PULLED = "{{{{ ti.xcom_pull(task_ids='plan', key='{}') }}}}"
"""Template of one of them."""


@dataclass(frozen=True, slots=True)
class Job:
    """What an operator starts: `python APPLICATION ARGUMENTS`, or spark-submit with the same.

    Attributes:
        task_id: Id that the operator must have.
        pipeline: Name of the pipeline.
        application: The program's path in the project; where the job runs it may be elsewhere.
        arguments: Its arguments. Some are templates: the operator must take them in a templated field.
        conf: Spark's configuration that it needs wherever it runs.
        environment: Variables by which the driver finds the project, with the paths of this machine.
    """

    task_id: str
    pipeline: str
    application: str
    arguments: tuple[str, ...]
    conf: Mapping[str, str]
    environment: Mapping[str, str]


JobOperator = Callable[[Job], BaseOperator]
"""Makes the operator of a job. A DAG file hands one over for each engine: `dags.load_with({"emr": on_emr})`."""


def job_task(project: Project, pipeline: Pipeline, engine: EngineSettings, make: JobOperator) -> BaseOperator:
    """Make the task that runs a pipeline's batches, by the user's operator.

    Raises:
        Terminal: That is no operator with the id that was asked for.
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
    """Make the task that reads what the job left. It runs whether the operator says well or ill of its job."""
    return PythonOperator(
        task_id="outcome",
        doc_md="Reads what the job left in storage: its result, or its error, which is this task's.",
        python_callable=outcome,
        op_args=[pipeline.name, _PULLED.format(_ORDER), _PULLED.format(_ATTEMPT)],
        trigger_rule=TriggerRule.ALL_DONE_MIN_ONE_SUCCESS,  # of plan and the job: without a plan there is none
        **kwargs,
    )


def plan(pipeline: str, *, ti: Any, dag_run: AirflowRun, params: Mapping[str, Any], outlet_events: Any) -> str | None:
    """Plan the run as `ingest_tasks.plan` does, and leave the plan as the order of a job.

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
    """Return the result that the job left. Waits as long as its driver reports that it works, even if the operator has ended.

    Order and outcome stay, for another try of this task, until orphan removal takes them.

    Raises:
        AirflowFailException: The error of the job, or it left no outcome: then the next run finds in the tables what it did.
        Retryable: The storage is not available now.
    """
    with terminal_is_final():
        arguments = ["--pipeline", pipeline, "--order", order, "--attempt", attempt]
        job_outcome = Handover.from_arguments(load_project(), "outcome", arguments).await_outcome()
    error: FrazilError | None = RUN_FAILED.retryable(
        f"the job of pipeline {pipeline} left no outcome: it was lost, or failed before it reached the storage",
        next_step="read its log, from the task before this one; the next run reads from the tables what the job did",
    )
    if job_outcome is not None:
        error = job_outcome.error
    if error is not None:
        raise AirflowFailException(str(error)) from error
    return None if job_outcome is None else job_outcome.result
