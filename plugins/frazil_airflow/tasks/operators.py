"""Operators that run planned batches or maintenance: as a Spark job, on a Spark Connect server, or in the task's own process."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator, Connection, Context

from frazil import shutdown
from frazil.batch.plan import RunPlan
from frazil.error_codes import BAD_SETTING, PROGRAM_MISSING
from frazil.errors import FrazilError, OutcomeUnknown, Retryable, without_values
from frazil.runtime.home import interpreter_bin
from frazil.spark.submit.handover import Handover, local_storage, storage_of
from frazil_airflow.compat import AirflowException, AirflowFailException, AirflowNotFoundException
from frazil_airflow.outputs.lineage import IngestLineage, not_loaded_if_off
from frazil_airflow.outputs.links import TableLink
from frazil_airflow.project.secrets import exit_code, load_project_for_job, terminal_is_final
from frazil_airflow.tasks import ingest_tasks

if TYPE_CHECKING:
    from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook

    from frazil.spark.submit.submission import Submission


with not_loaded_if_off():
    from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator


class SparkJobOperator(SparkSubmitOperator):
    """Submit a job of a pipeline to the Spark master of an Airflow connection.

    The job's jars, configuration and environment are determined when the task runs, so that neither the DAG nor a rendered template
    has them.

    Args:
        pipeline: Name of the pipeline.
        plan_json: Template that takes the plan, or the order, from an earlier task.
        asset_name: Name of the table's asset, for the link on the task's page.
        conn_id: Airflow connection of the Spark master.
        kwargs: As for the provider's operator.
    """

    operator_extra_links = (TableLink(),)
    template_fields = (*SparkSubmitOperator.template_fields, "plan_json")

    def __init__(self, *, pipeline: str, plan_json: str, asset_name: str, conn_id: str, **kwargs: Any) -> None:
        super().__init__(conn_id=conn_id, **kwargs)
        self.spark_connection = conn_id
        self.pipeline = pipeline
        self.plan_json = plan_json
        self.asset_name = asset_name
        self.is_killed = False

    def execute(self, context: Context) -> str | None:  # type: ignore[override]  # the provider's returns nothing
        """Run the job and wait for it.

        Returns:
            The job's result as JSON; None for an ingest that is no dry run.

        Raises:
            AirflowFailException: A person must act: the job failed for good, or can't be started.
            FrazilError: The job failed in another way. Another try reads the tables and carries on.
            AirflowException: The provider could not start the job.
        """
        from frazil.spark.submit.job_process import private_properties

        shutdown.end_with_parent()  # without its worker Airflow starts another try, beside this one
        self._require_connection()
        run = self.run_of(context)
        with terminal_is_final():
            job = self.submission()
            self.use(job)
            handover = self.handover(run)
            if (earlier := handover.collect(self.plan_json)) is not None:
                self.log.info("an earlier attempt finished this; its result is used")
                return earlier.result
            handover.hand_over(self.plan_json)
        with private_properties(handover.project.home, self.pipeline, run, job.private) as properties:
            self.application_args = handover.arguments
            self.properties_file = str(properties) if properties is not None else None
            lost = self._watch(context)
        with terminal_is_final():
            return handover.take_result(lost)

    def _watch(self, context: Context) -> FrazilError:
        """Run the job by the provider. Return the error to raise if the job leaves no outcome."""
        from frazil.spark.submit.job_process import lost_job

        code, lines = 0, list[str]()
        try:
            super().execute(context)
        except AirflowException as error:
            exited = exit_code(str(error))
            if exited is None:  # the job was not started
                raise
            code, lines = exited, str(error).splitlines()
        return lost_job(code, lines, "the log of this task")

    def run_of(self, context: Context) -> str:
        """Return the id of the job's files and log."""
        return context["run_id"]

    def handover(self, run: str) -> Handover:
        """Return the handover of a new attempt, which begins in the storage of the pipeline's tables."""
        project = load_project_for_job()
        location = storage_of(project, project.pipeline(self.pipeline))
        return Handover.begin(project, location, self.pipeline, run)

    def submission(self) -> Submission:
        """Return the job's submission.

        Raises:
            Terminal: There is no such pipeline, or jars or Java are missing.
        """
        from frazil.spark.submit.submission import submission

        project = load_project_for_job()
        return submission(project, project.pipeline(self.pipeline), RunPlan.from_json(self.plan_json))

    def use(self, job: Submission) -> None:
        """Set the provider operator's attributes from a submission.

        Raises:
            Terminal: Airflow's Kubernetes provider is missing.
        """
        self.application = str(job.application)
        self.name = job.name
        self.jars = ",".join(job.jars)
        self.conf = dict(job.conf)
        # A worker that was started by its full path may not have the folder of its Python, with spark-submit in it, in PATH.
        path = os.pathsep.join([os.environ.get("PATH", os.defpath), str(interpreter_bin())])
        self.env_vars = {**job.env, "PATH": path}
        self._hook = None  # the provider's hook has the arguments of an earlier job of this task
        connection = Connection.get(self.spark_connection)
        if "k8s" in f"{connection.conn_type}://{connection.host}":
            _require_kubernetes()
            # On Kubernetes the provider passes env_vars only to drivers in pods. This driver inherits those of the task's process.
            os.environ.update(job.env)
            self.env_vars = None

    def _get_hook(self) -> SparkSubmitHook:
        """Return the provider's hook. It logs Spark's output without the values that paths of data files have in them."""
        hook = super()._get_hook()
        log_lines = hook._process_spark_submit_log  # noqa: SLF001 - a test holds this against the provider
        hook._process_spark_submit_log = lambda itr: log_lines(map(without_values, itr))  # type: ignore[method-assign]  # noqa: SLF001
        return hook

    def on_kill(self) -> None:
        """End the job when Airflow ends the task, and prevent further jobs of this task."""
        self.is_killed = True
        super().on_kill()

    def _require_connection(self) -> None:
        """Require that the Spark connection exists and is in client mode.

        The provider treats a missing connection as YARN, and can't watch a driver in a cluster.
        """
        try:
            connection = Connection.get(self.spark_connection)
        except AirflowNotFoundException as error:
            raise AirflowFailException(
                f"there is no Airflow connection {self.spark_connection!r} for the Spark master [{BAD_SETTING}]\n"
                f"  next: airflow connections add {self.spark_connection} --conn-type spark --conn-host 'local[2]'"
            ) from error
        if connection.extra_dejson.get("deploy-mode") == "cluster":
            raise AirflowFailException(
                f"connection {self.spark_connection!r}: deploy-mode is cluster, but the driver of a job must run beside its task"
                f" [{BAD_SETTING}]\n  next: set deploy-mode to client; for a driver on YARN set deploy_mode: cluster"
                " of the engine; docs/spark-on-a-cluster.md"
            )


def _require_kubernetes() -> None:
    """Require the Kubernetes provider. Without it, the Spark provider fails with `name 'kube_client' is not defined`."""
    from airflow.providers.apache.spark.hooks import spark_submit

    if not hasattr(spark_submit, "kube_client"):
        raise PROGRAM_MISSING.terminal(
            "the Spark master is on Kubernetes, and Airflow's Kubernetes provider is not installed",
            next_step="install apache-airflow-providers-cncf-kubernetes wherever tasks run; docs/spark-on-a-cluster.md",
        )


class SparkIngestOperator(IngestLineage, SparkJobOperator):
    """Submit the ingest job of a pipeline, which runs the planned batches.

    In a session this process waits for the first records, without a JVM; the job then stays until the session ends.
    """

    doc_md = "Runs the planned batches as a Spark job."

    def execute(self, context: Context) -> str | None:  # type: ignore[override]  # as above
        """Run the job and wait for it; in a session, wait for records first.

        Returns:
            The result of a dry run or a session as JSON; else None.

        Raises:
            AirflowFailException, AirflowException, FrazilError: As `SparkJobOperator.execute`.
        """
        if ingest_tasks.parse_plan(self.plan_json).until is None:
            return super().execute(context)

        def submit(plan: RunPlan) -> str | None:
            self.plan_json = plan.to_json()
            try:
                result = super(SparkIngestOperator, self).execute(context)
            except (Retryable, OutcomeUnknown) as error:
                if self.is_killed:  # Airflow ended the task: the session must not start another job
                    raise AirflowException(str(error)) from error
                raise
            if self.is_killed:  # even if the job succeeded just before
                raise AirflowException("somebody ended this task; finished batches of its job stay")
            return result

        shutdown.end_with_parent()  # as above
        session_plan = self.plan_json
        try:
            return ingest_tasks.run_session(self.pipeline, session_plan, context["outlet_events"], submit)
        finally:
            self.plan_json = session_plan  # for lineage

    def handover(self, run: str) -> Handover:
        """Return the handover of a new attempt. For a dry run it is on this machine's disk: there may be no table yet."""
        if ingest_tasks.parse_plan(self.plan_json).mode != "dry_run":
            return super().handover(run)
        project = load_project_for_job()
        return Handover.begin(project, local_storage(project.home), self.pipeline, run)


class AutoIngestOperator(SparkIngestOperator):
    """Run the planned batches where that is faster: in the task's own process, or as a Spark job."""

    doc_md = "Runs the planned batches in this task's process if they are few, else as a Spark job."

    def execute(self, context: Context) -> str | None:  # type: ignore[override]  # as above
        """Choose the engine and run the batches. Returns and raises what `SparkIngestOperator.execute` does."""
        if ingest_tasks.is_for_spark(self.pipeline, self.plan_json):
            return super().execute(context)
        shutdown.end_with_parent()  # as above
        return ingest_tasks.ingest_inline(self.pipeline, self.plan_json)


class InlineIngestOperator(IngestLineage, BaseOperator):
    """Run the planned batches in the task's own process: the `inline` engine."""

    template_fields = ("plan_json",)

    def __init__(self, *, pipeline: str, plan_json: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.pipeline = pipeline
        self.plan_json = plan_json

    def execute(self, context: Context) -> str | None:
        """Run the batches. Returns and raises what `SparkIngestOperator.execute` does, except AirflowException."""
        shutdown.end_with_parent()  # as above
        if ingest_tasks.parse_plan(self.plan_json).until is not None:
            return ingest_tasks.run_session(self.pipeline, self.plan_json, context["outlet_events"])
        return ingest_tasks.ingest_inline(self.pipeline, self.plan_json)


class SparkMaintainOperator(SparkJobOperator):
    """Submit the maintenance job of a pipeline. Its order is in `plan_json`. The return value is the result as JSON."""

    def run_of(self, context: Context) -> str:
        """Return the id of the job's files and log. An ingest run of the same instant has the same run id, so this one differs."""
        from frazil.spark.submit.submission import maintenance_run

        return maintenance_run(context["run_id"])

    def submission(self) -> Submission:
        """Return the job's submission."""
        from frazil.spark.submit.submission import maintenance_submission

        project = load_project_for_job()
        return maintenance_submission(project, project.pipeline(self.pipeline), "maintenance")


class SparkConnectJobOperator(BaseOperator):
    """Run a job with its Spark session on a Spark Connect server, or with its driver in a cluster, and wait for it."""

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
            return self.run_job(context["run_id"])

    def run_job(self, run_id: str) -> str | None:
        """Run the job and return its result as JSON."""
        raise NotImplementedError


class SparkConnectIngestOperator(IngestLineage, SparkConnectJobOperator):
    """Run the planned batches on a Spark Connect server, or in this process if the engine is `auto` and they are few.

    In a session this process waits for the first records; the job then stays until the session ends.
    """

    def execute(self, context: Context) -> str | None:
        """Run the batches; in a session, wait for records first. Returns and raises what `SparkIngestOperator.execute` does."""
        if ingest_tasks.parse_plan(self.plan_json).until is not None:
            return self._run_session(context["outlet_events"])
        if ingest_tasks.is_for_spark(self.pipeline, self.plan_json):
            return super().execute(context)
        shutdown.end_with_parent()  # as above
        return ingest_tasks.ingest_inline(self.pipeline, self.plan_json)

    def run_job(self, run_id: str) -> str | None:  # noqa: ARG002, the plan has it
        """Run the batches on the server."""
        return self._submit(RunPlan.from_json(self.plan_json))

    def _run_session(self, outlet_events: Any) -> str:
        from frazil.spark.submit.job_process import STOP_SECONDS

        shutdown.end_with_parent()  # as above
        with shutdown.handled(self.log.info, STOP_SECONDS):
            return ingest_tasks.run_session(self.pipeline, self.plan_json, outlet_events, self._submit)

    def _submit(self, plan: RunPlan) -> str | None:
        from frazil.spark.submit.submission import run_spark

        project = load_project_for_job()
        return run_spark(project, project.pipeline(self.pipeline), plan, self.log.info)


class SparkConnectMaintainOperator(SparkConnectJobOperator):
    """Run due maintenance on a Spark Connect server. The return value is the result as JSON."""

    def run_job(self, run_id: str) -> str | None:
        """Run maintenance on the server."""
        from frazil.spark.submit.submission import maintenance_run, run_maintenance

        project = load_project_for_job()
        pipeline = project.pipeline(self.pipeline)
        return run_maintenance(project, pipeline, maintenance_run(run_id), self.plan_json, self.log.info)
