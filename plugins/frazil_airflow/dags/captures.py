"""Captures become DAGs of one task: lines of files in the task's own process, rows of a database as a Spark job."""

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
from frazil_airflow.project.pipelines import sound_captures
from frazil_airflow.project.secrets import load_project, load_project_for_job, terminal_is_final
from frazil_airflow.tasks.operators import SparkJobOperator

if TYPE_CHECKING:
    from frazil.capture.run import CaptureResult

CAPTURE_TIMEOUT = timedelta(hours=2)
"""Bounds a task that hangs. What takes longer loses no work: committed transactions stay, the next try goes on."""


def capture_dags(project: Project, only: str | None = None) -> list[DAG]:
    """Make the DAG of every valid capture; `only`: the id of the single DAG to make."""
    return [
        capture_dag(project, capture)
        for capture in sound_captures(project)
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
        **dag_arguments("capture", capture, project=project, forgets=True),
    ) as dag:
        _task(project, capture)
    return dag


def _task(project: Project, capture: Capture) -> BaseOperator:
    shared: dict[str, Any] = {
        "task_id": "capture",
        "capture": capture.name,
        "execution_timeout": CAPTURE_TIMEOUT,
        # A second one would only end the first: each takes the capture over.
        "max_active_tis_per_dag": 1,
    }
    if isinstance(capture, FileCapture):
        return CaptureFilesOperator(**shared)
    engine = project.engine_entry(capture.engine)
    return CaptureRowsOperator(
        conn_id=engine.connection, driver_memory=engine.driver_memory, pool=engine.pool, **shared
    )


class CaptureFilesOperator(CaptureLineage, BaseOperator):
    """Capture files in the task's own process. The worker's machine must have the files."""

    def __init__(self, *, capture: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.capture = capture

    def execute(self, context: Context) -> str:
        """Capture what is new.

        Returns:
            What was done, as JSON.

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
                raise _other_kind(self.capture)
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
            What was done, as JSON.

        Raises:
            AirflowFailException, AirflowException, FrazilError: As of every job.
        """
        from frazil.capture.run import CaptureResult

        self.plan_json = _order(context).to_json()
        done = super().execute(context)
        if done is not None:
            _report(load_project().capture(self.capture), CaptureResult.from_json(done), context)
        return done

    def run_of(self, context: Context) -> str:
        """Return the id under which the job is known."""
        from frazil.spark.submit.submission import capture_run

        return capture_run(context["run_id"])

    def handover(self, run: str) -> Handover:
        """Return a new attempt at the order of this task: a capture has no table, so it stays on this machine."""
        project = load_project_for_job()
        return Handover.begin(project, local_storage(project.home), self.pipeline, run)

    def submission(self) -> Any:
        """Return how the job is started.

        Raises:
            Terminal: There is no such capture, or a driver, jars or a Java are missing.
        """
        from frazil.spark.submit.submission import capture_submission

        project = load_project_for_job()
        chosen = project.capture(self.pipeline)
        if isinstance(chosen, FileCapture):
            raise _other_kind(self.pipeline)
        return capture_submission(project, chosen, "capture")


def _report(capture: Capture, result: CaptureResult, context: Context) -> None:
    """Say what a run did, in the run's note and as metrics."""
    from frazil.monitor.metrics import capture_samples
    from frazil_airflow.outputs.run_summary import emit, write_note

    emit(capture_samples(capture, result))
    write_note(context["dag_run"], result.summary)


def _order(context: Context) -> CaptureOrder:
    return CaptureOrder(context["run_id"], "airflow")


def _other_kind(capture: str) -> Exception:
    return FILES_OUTDATED.terminal(
        f"capture {capture} is of another kind than when its DAG was parsed",
        next_step="run it again in a minute: Airflow then has read the new file",
    )


def _doc(capture: Capture) -> str:
    return f"""### Capture {capture.name}

Every `{capture.interval}` (UTC) what is new goes to topic `{capture.topic}`, each line or row once, and the position with it.

```
frazil capture {capture.name} --dry-run
```
"""
