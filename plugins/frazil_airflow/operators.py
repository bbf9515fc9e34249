"""The operators that run planned batches: as a Spark job, or in the task's own process; and maintenance."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator, Connection, Context
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowNotFoundException

from frazil import stopping
from frazil.errors import Terminal
from frazil.local.home import Home
from frazil.project import Project
from frazil_airflow import tasks
from frazil_airflow.failures import exit_code, job_lines, terminal_is_final
from frazil_airflow.lineage import IngestLineage, not_loaded_if_off
from frazil_airflow.links import TableLink

with not_loaded_if_off():
    from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator

if TYPE_CHECKING:
    from frazil.pipeline.model import Pipeline
    from frazil.spark.submit import Submission


class SparkJobOperator(SparkSubmitOperator):
    """Submit a job of a pipeline, on the master of an Airflow connection.

    What the job is started with (jars, configuration, environment) is found when the task runs, so neither the DAG nor
    the rendered templates hold it.

    Args:
        pipeline: Name of the pipeline.
        plan_json: The plan, a template that takes it from the plan task.
        asset_name: Name of the table's asset, for the link on the task's page.
        conn_id: Airflow connection of the Spark master.
        kwargs: As for the provider's operator.
    """

    operator_extra_links = (TableLink(),)
    template_fields = (*SparkSubmitOperator.template_fields, "plan_json")

    def __init__(self, *, pipeline: str, plan_json: str, asset_name: str, conn_id: str, **kwargs: Any) -> None:
        super().__init__(conn_id=conn_id, **kwargs)
        self.pipeline = pipeline
        self.plan_json = plan_json
        self.asset_name = asset_name

    def execute(self, context: Context) -> str | None:  # type: ignore[override]  # the provider's returns nothing
        """Run the job and wait for it.

        Returns:
            Of a dry run what it found, as JSON; else None.

        Raises:
            AirflowFailException: A person must act: the job said so, or it can't even be started.
            AirflowException: The job failed otherwise. Another try reads the tables and carries on.
        """
        from frazil.spark.submit import handed_over

        stopping.end_with_parent()  # without its worker Airflow starts another try, beside this one
        self._require_connection()
        with terminal_is_final():
            self.take(self.submission())
            home = Home.resolve()
        with handed_over(home, self.pipeline, self.run_of(context), self.plan_json) as handover:
            self.application_args = handover.arguments
            try:
                super().execute(context)
            except AirflowException as error:
                if exit_code(str(error)) == Terminal.exit_code:
                    raise AirflowFailException(_said(str(error))) from error
                raise
            return handover.found()

    def run_of(self, context: Context) -> str:
        """Return the id under which the job is known: of its files and its log."""
        return context["run_id"]

    def submission(self) -> Submission:
        """Return how the job is started.

        Raises:
            Terminal: There is no such pipeline, or jars or a Java are missing.
        """
        from frazil.batch.plan import RunPlan
        from frazil.spark.submit import submission

        project = Project.load()
        return submission(project, project.pipeline(self.pipeline), RunPlan.from_json(self.plan_json))

    def take(self, job: Submission) -> None:
        """Fill in what the provider's operator submits."""
        self.application = str(job.application)
        self.name = job.name
        self.jars = ",".join(job.jars)
        self.conf = dict(job.conf)
        self.env_vars = dict(job.env)

    def _require_connection(self) -> None:
        """The provider would take a missing connection for a YARN cluster."""
        try:
            Connection.get(self._conn_id)
        except AirflowNotFoundException as error:
            raise AirflowFailException(
                f"there is no Airflow connection {self._conn_id!r} for the Spark master\n"
                f"  next: airflow connections add {self._conn_id} --conn-type spark --conn-host 'local[2]'"
            ) from error


class SparkIngestOperator(IngestLineage, SparkJobOperator):
    """Submit the ingest job of a pipeline: it runs the planned batches."""


class SparkConnectJobOperator(BaseOperator):
    """Run a job of a pipeline whose session is on a spark connect server, in a process of its own, and wait for it.

    Args:
        pipeline: Name of the pipeline.
        plan_json: The plan, a template that takes it from the plan task.
        asset_name: Name of the table's asset, for the link on the task's page.
        kwargs: As for every operator.
    """

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
            What it handed back, as JSON; of an ingest that is no dry run None.

        Raises:
            AirflowFailException: A person must act; the message says what to do.
            Retryable, OutcomeUnknown: Another try reads the tables and carries on.
        """
        stopping.end_with_parent()  # as above
        with terminal_is_final():
            project = Project.load()
            return self.carry_out(project, project.pipeline(self.pipeline), context["run_id"])

    def carry_out(self, project: Project, pipeline: Pipeline, run_id: str) -> str | None:
        """Do the job."""
        raise NotImplementedError


class SparkConnectIngestOperator(IngestLineage, SparkConnectJobOperator):
    """Run the planned batches on a spark connect server."""

    def carry_out(self, project: Project, pipeline: Pipeline, run_id: str) -> str | None:  # noqa: ARG002, the plan has it
        """Run them."""
        from frazil.batch.plan import RunPlan
        from frazil.spark.submit import run_spark

        return run_spark(project, pipeline, RunPlan.from_json(self.plan_json), self.log.info)


class SparkConnectMaintainOperator(SparkConnectJobOperator):
    """Do the maintenance that is due on a spark connect server. Its return value is what was done, as JSON."""

    def carry_out(self, project: Project, pipeline: Pipeline, run_id: str) -> str | None:
        """Do it."""
        from frazil.spark.submit import maintenance_run, run_maintenance

        return run_maintenance(project, pipeline, maintenance_run(run_id), self.plan_json, self.log.info)


class InlineIngestOperator(IngestLineage, BaseOperator):
    """Run the planned batches in the task's own process: the `inline` engine.

    Args:
        pipeline: Name of the pipeline.
        plan_json: The plan, a template that takes it from the plan task.
        kwargs: As for every operator.
    """

    template_fields = ("plan_json",)

    def __init__(self, *, pipeline: str, plan_json: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.pipeline = pipeline
        self.plan_json = plan_json

    def execute(self, context: Context) -> str | None:  # noqa: ARG002, Airflow's signature
        """Run them.

        Returns:
            Of a dry run what it found, as JSON; else None.

        Raises:
            AirflowFailException: A person must act; the message says what to do.
            Retryable, OutcomeUnknown: Another try reads the tables and carries on.
        """
        stopping.end_with_parent()  # as above
        return tasks.ingest_inline(self.pipeline, self.plan_json)


class SparkMaintainOperator(SparkJobOperator):
    """Submit the maintenance job of a pipeline: the same way, with what is asked for in place of a plan.

    Its return value is what was done, as JSON.
    """

    def run_of(self, context: Context) -> str:
        """Return the id under which the job is known: an ingest run may have been scheduled for the same instant."""
        from frazil.spark.submit import maintenance_run

        return maintenance_run(context["run_id"])

    def submission(self) -> Submission:
        """Return how the job is started.

        Raises:
            Terminal: There is no such pipeline, or jars or a Java are missing.
        """
        from frazil.spark.submit import maintenance_submission

        project = Project.load()
        return maintenance_submission(project, project.pipeline(self.pipeline), "maintenance")


def _said(message: str) -> str:
    """The job's last line for people, without the command line that the provider puts before it."""
    from frazil.spark.watch import REPORT_PREFIX

    lines = job_lines(message, REPORT_PREFIX)
    return lines[-1] if lines else message
