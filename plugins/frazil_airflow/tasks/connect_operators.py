"""The operators that run jobs whose Spark session is on a spark connect server."""

from __future__ import annotations

from typing import Any

from airflow.sdk import BaseOperator, Context

from frazil import shutdown
from frazil.batch.plan import RunPlan
from frazil_airflow.outputs.lineage import IngestLineage
from frazil_airflow.outputs.links import TableLink
from frazil_airflow.project.failures import terminal_is_final
from frazil_airflow.project.secrets import load_project_for_job
from frazil_airflow.tasks import ingest_tasks


class SparkConnectJobOperator(BaseOperator):
    """Run a job that has its session on a Spark Connect server, in its own process, and wait for it."""

    operator_extra_links = (TableLink(),)
    template_fields = ("plan_json",)

    def __init__(self, *, pipeline: str, plan_json: str, asset_name: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.pipeline = pipeline
        self.plan_json = plan_json
        self.asset_name = asset_name

    def execute(self, context: Context) -> str | None:
        """Run the job.

        Returns:
            The job's result as JSON; None for an ingest that is no dry run.

        Raises:
            AirflowFailException: A person must act; the message says what to do.
            Retryable, OutcomeUnknown: Another try reads the tables and carries on.
        """
        shutdown.end_with_parent()  # without its worker Airflow starts another try, beside this one
        with terminal_is_final():
            return self.carry_out(context["run_id"])

    def carry_out(self, run_id: str) -> str | None:
        """Do the job."""
        raise NotImplementedError


class SparkConnectIngestOperator(IngestLineage, SparkConnectJobOperator):
    """Run the planned batches on a spark connect server, or, where the pipeline leaves the choice, in this process.

    In a session this process waits for the first records; then the job stays until the session ends.
    """

    def execute(self, context: Context) -> str | None:
        """Run them; in a session, wait for records first. Returns and raises what `SparkConnectJobOperator` and a session do."""
        if ingest_tasks.handed_plan(self.plan_json).until is not None:
            return self._stay(context["outlet_events"])
        if ingest_tasks.is_for_spark(self.pipeline, self.plan_json):
            return super().execute(context)
        shutdown.end_with_parent()  # as above
        return ingest_tasks.ingest_inline(self.pipeline, self.plan_json)

    def carry_out(self, run_id: str) -> str | None:  # noqa: ARG002, the plan has it
        """Run them on the server."""
        return self._submit(RunPlan.from_json(self.plan_json))

    def _stay(self, outlet_events: Any) -> str:
        from frazil.spark.submit.watch import STOP_SECONDS

        shutdown.end_with_parent()  # as above
        with shutdown.handled(
            self.log.info, STOP_SECONDS
        ):  # also what was asked while a job was about to end by itself
            return ingest_tasks.stay(self.pipeline, self.plan_json, outlet_events, self._submit)

    def _submit(self, plan: RunPlan) -> str | None:
        from frazil.spark.submit.submission import run_spark

        project = load_project_for_job()
        return run_spark(project, project.pipeline(self.pipeline), plan, self.log.info)


class SparkConnectMaintainOperator(SparkConnectJobOperator):
    """Run due maintenance on a Spark Connect server. The return value is the result as JSON."""

    def carry_out(self, run_id: str) -> str | None:
        """Do it."""
        from frazil.spark.submit.submission import maintenance_run, run_maintenance

        project = load_project_for_job()
        pipeline = project.pipeline(self.pipeline)
        return run_maintenance(project, pipeline, maintenance_run(run_id), self.plan_json, self.log.info)
