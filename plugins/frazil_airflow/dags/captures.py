"""Makes the DAG of a capture, with one task: files are captured in the task's own process, a database in a Spark job."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import DAG, BaseOperator, Context

from frazil import shutdown
from frazil.capture.position import CaptureOrder
from frazil.error_codes import FILES_OUTDATED
from frazil.pipeline.settings.capture import Capture, FileCapture, dag_of
from frazil.project import Project
from frazil.spark.submit.handover import Handover, local_storage
from frazil_airflow.alerts.callbacks import deadline
from frazil_airflow.dags.dag_defaults import dag_arguments, timetable
from frazil_airflow.outputs.lineage import CaptureLineage
from frazil_airflow.project.pipelines import valid_captures
from frazil_airflow.project.secrets import load_project, load_project_for_job, terminal_is_final
from frazil_airflow.tasks.operators import SparkJobOperator

if TYPE_CHECKING:
    from frazil.capture.run import CaptureResult

CAPTURE_TIMEOUT = timedelta(hours=2)
"""Bounds a task that hangs. A capture that takes longer loses no work: committed transactions stay, and the next try goes on."""


def capture_dags(project: Project, only: str | None = None) -> list[DAG]:
    """Make the DAG of every valid capture, or `only` the DAG with this id."""
    return [
        capture_dag(project, capture)
        for capture in valid_captures(project)
        if only in (None, dag_of(capture.unique_name))
    ]


def capture_dag(project: Project, capture: Capture) -> DAG:
    """Make the DAG of a capture."""
    with DAG(
        dag_of(capture.unique_name),
        description=capture.description or f"Captures into topic {capture.topic}",
        doc_md=_doc(capture),
        schedule=timetable(capture.every),
        deadline=deadline(project, capture),
        **dag_arguments("capture", capture, project=project, ends_failure=True),
    ) as dag:
        _task(project, capture)
    return dag


def _task(project: Project, capture: Capture) -> BaseOperator:
    shared: dict[str, Any] = {
        "task_id": "capture",
        "capture": capture.name,
        "execution_timeout": CAPTURE_TIMEOUT,
        # A second task would end the first one, since each takes over the producer's transactions.
        "max_active_tis_per_dag": 1,
    }
    if isinstance(capture, FileCapture):
        return CaptureFilesOperator(**shared)
    engine = project.engine_entry(capture.engine)
    return CaptureRowsOperator(
        conn_id=engine.connection, driver_memory=engine.driver_memory, pool=engine.pool, **shared
    )


class CaptureFilesOperator(CaptureLineage, BaseOperator):
    """Capture files in the task's own process, on a worker that has the files."""

    def __init__(self, *, capture: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.capture = capture

    def execute(self, context: Context) -> str:
        """Capture new lines.

        Returns:
            The result as JSON.

        Raises:
            AirflowFailException: A person must act; the message says what to do.
            Retryable: Another try continues after what was committed.
        """
        from frazil.capture.run import capture_files

        shutdown.end_with_parent()  # without its worker Airflow starts another try, beside this one
        with terminal_is_final():
            project = load_project()
            chosen = project.capture(self.capture)
            if not isinstance(chosen, FileCapture):
                raise _changed_kind(self.capture)
            result = capture_files(project, chosen, _order(context), self.log.info)
        _report(chosen, result, context)
        return result.to_json()


class CaptureRowsOperator(CaptureLineage, SparkJobOperator):
    """Capture a database in a Spark job."""

    def __init__(self, *, capture: str, **kwargs: Any) -> None:
        super().__init__(pipeline=capture, plan_json="", asset_name="", **kwargs)
        self.capture = capture

    def execute(self, context: Context) -> str | None:  # type: ignore[override]  # the provider's returns nothing
        """Run the job and wait for it.

        Returns:
            The result as JSON.

        Raises:
            AirflowFailException, AirflowException, FrazilError: As `SparkJobOperator.execute`.
        """
        from frazil.capture.run import CaptureResult

        self.plan_json = _order(context).to_json()
        result = super().execute(context)
        if result is not None:
            _report(load_project().capture(self.capture), CaptureResult.from_json(result), context)
        return result

    def run_of(self, context: Context) -> str:
        """Return the id of the job's files and log."""
        from frazil.spark.submit.submission import capture_run

        return capture_run(context["run_id"])

    def handover(self, run: str) -> Handover:
        """Return the handover of a new attempt, on this machine's disk: a capture has no table in whose storage it could be."""
        project = load_project_for_job()
        return Handover.begin(project, local_storage(project.home), self.pipeline, run)

    def submission(self) -> Any:
        """Return the job's submission.

        Raises:
            Terminal: There is no such capture, or a database driver, jars or Java are missing.
        """
        from frazil.spark.submit.submission import capture_submission

        project = load_project_for_job()
        chosen = project.capture(self.pipeline)
        if isinstance(chosen, FileCapture):
            raise _changed_kind(self.pipeline)
        return capture_submission(project, chosen, "capture")


def _report(capture: Capture, result: CaptureResult, context: Context) -> None:
    """Report the result of a run in the run's note and as metrics."""
    from frazil.monitor.metrics import capture_samples
    from frazil_airflow.outputs.run_summary import emit, write_note

    emit(capture_samples(capture, result))
    write_note(context["dag_run"], result.summary)


def _order(context: Context) -> CaptureOrder:
    return CaptureOrder(context["run_id"], "airflow")


def _changed_kind(capture: str) -> Exception:
    return FILES_OUTDATED.terminal(
        f"capture {capture} is of another kind than when its DAG was parsed",
        next_step="run it again in a minute: Airflow then has read the new file",
    )


def _doc(capture: Capture) -> str:
    return f"""### Capture {capture.name}

Every `{capture.interval}` (UTC) this DAG sends new lines or rows to topic `{capture.topic}`, each exactly once, and commits
its position with them.

```
frazil capture {capture.name} --dry-run
```
"""
