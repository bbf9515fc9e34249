"""The tasks of an ingest DAG that run in their own process, without a JVM.

Each loads the project when it runs: parsing a DAG must not import Kafka, PyIceberg or Arrow.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NoReturn

from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator
from airflow.sdk import Context

from frazil import shutdown
from frazil.batch.plan import RunPlan, SessionEnd, session_end, session_order
from frazil.batch.position import RunRequest
from frazil.error_codes import FILES_OUTDATED
from frazil.errors import FrazilError
from frazil.pipeline.models.pipeline_file import AUTO_ENGINE, Pipeline
from frazil.project import Project
from frazil_airflow.compat import AirflowSkipException
from frazil_airflow.outputs.assets import THROUGH, emit_completeness
from frazil_airflow.project.run_request import (
    BACKFILL,
    FROM,
    MAX_RECORDS,
    MODE,
    REASON,
    TO,
    AirflowRun,
    is_session,
    limit_records,
    request_of,
)
from frazil_airflow.project.secrets import load_project, terminal_is_final

if TYPE_CHECKING:
    from frazil.run.batches.plan import PlannedRun
    from frazil.run.batches.session import Session, Submit


_log = logging.getLogger(__name__)


def plan(pipeline: str, *, dag_run: AirflowRun, params: Mapping[str, Any], outlet_events: Any) -> str | None:
    """Plan the run, after finishing an unfinished batch (except in a dry run). Without new records, emit an event with the
    instant through which the pipeline is complete.

    Returns:
        The plan JSON, or None when there is nothing to read: then Airflow skips the rest and the run succeeds.

    Raises:
        AirflowFailException: A person must act; the message says what to do.
        Retryable: Kafka or the catalog is not available now.
    """
    shutdown.end_with_parent()  # it finishes batches; without its worker Airflow starts another try, beside this one
    with terminal_is_final():
        project = load_project()
        chosen_pipeline, request = project.pipeline(pipeline), request_of(dag_run, params)
        if is_session(chosen_pipeline, dag_run):
            return _session(chosen_pipeline, request, dag_run.run_after)
        planned, complete_through = _planned(project, chosen_pipeline, request)
    if planned is None:
        if complete_through is not None:
            _emit_completeness(outlet_events, pipeline, dag_run.run_id, complete_through)
        return None
    chosen = limit_records(planned, params[MAX_RECORDS])
    _log.info("%s offsets of %s partitions to read", f"{chosen.records:,}", len(chosen.ranges))
    return chosen.to_json()


def _session(pipeline: Pipeline, request: RunRequest, due: datetime) -> str:
    """The order for a session: it plans at every tick, and ends when the next run is due."""
    now = datetime.now(UTC)
    order = session_order(pipeline.name, request, now, session_end(due, pipeline.session or timedelta(), now))
    _log.info("a session until %s, a batch every %s", order.until, pipeline.interval)
    return order.to_json()


def _planned(project: Project, pipeline: Pipeline, request: RunRequest) -> tuple[RunPlan | None, str | None]:
    """A plan; without one, the instant through which the pipeline is complete, if that is known."""
    from frazil.run.batches.dry_run import plan_dry_run
    from frazil.run.batches.plan import plan_run

    if request.mode == "dry_run":
        looked_at = plan_dry_run(project, pipeline, request, _log.info)
        if not looked_at.ranges:
            _log.info("nothing to look at: the range has no offsets")
        return looked_at if looked_at.ranges else None, None
    planned = plan_run(project, pipeline, request, _log.info)
    if planned.plan is None:
        _log.info("%s", _nothing(request, planned))
    return planned.plan, planned.complete_through


def _emit_completeness(outlet_events: Any, pipeline: str, run_id: str, through: str) -> None:
    emit_completeness(outlet_events, {"pipeline": pipeline, "run": run_id, THROUGH: through})


def _nothing(request: RunRequest, planned: PlannedRun) -> str:
    if request.mode == "replay":
        return "nothing to replay: the range has no offsets below the position"
    if request.end is not None:
        return (
            f"nothing to land: what came before {request.end} lies below the position, so it is landed already;"
            ' mode replay lands a range again, in a backfill by --dag-run-conf \'{"mode": "replay"}\''
        )
    return f"nothing new; the table is complete through {planned.complete_through or 'an unknown instant'}"


def ingest_inline(pipeline: str, plan_json: str) -> str | None:
    """Run the batches of a plan in this process: the `inline` engine.

    Returns:
        Of a dry run what it found, as JSON; else None.

    Raises:
        AirflowFailException: A person must act; the message says what to do.
        Retryable, OutcomeUnknown: Another try reads the tables and carries on.
    """
    from frazil.run.batches.dry_run import dry_run
    from frazil.run.batches.session import ingest
    from frazil.run.staging.stage import stage_inline

    with terminal_is_final():
        project = load_project()
        chosen_pipeline, planned = project.pipeline(pipeline), RunPlan.from_json(plan_json)
        if planned.mode == "dry_run":
            return dry_run(project, chosen_pipeline, planned, stage_inline, _log.info).to_json()
        ingest(project, chosen_pipeline, planned, stage_inline, _log.info)
        return None


def handed_plan(plan_json: str) -> RunPlan:
    """Return the plan that a task was handed over.

    Raises:
        AirflowFailException: It is none of this version.
    """
    with terminal_is_final():
        return RunPlan.from_json(plan_json)


def is_for_spark(pipeline: str, plan_json: str) -> bool:
    """Whether a Spark job does a run of `engine: auto`; says why. What a session does is chosen at every tick.

    Raises:
        AirflowFailException: There is no such pipeline.
    """
    from frazil.run.state.context import chosen_engine

    plan = handed_plan(plan_json)
    if plan.until is not None:
        return True
    with terminal_is_final():
        project = load_project()
        engine = chosen_engine(project.pipeline(pipeline), project.settings.auto, plan)
    _log.info("engine %s", engine.description)
    return not engine.is_inline


def stay(pipeline: str, order: str, outlet_events: Any, submit: Submit | None = None) -> str:
    """Land batches until a session ends. `submit` does a plan in a Spark job, which stays if the plan says until when.

    Returns:
        What the session tells when it ends, as JSON.

    Raises:
        AirflowFailException: A person must act; the message says what to do.
        Retryable, OutcomeUnknown: A tick failed repeatedly. Another try reads the tables and carries on.
        FrazilError: The file names an engine that this task can't start. Another try is of the DAG that follows the file.
    """
    from frazil.run.batches.session import Session, inline_lander, run_session_with_jobs

    def load() -> tuple[Project, Pipeline]:
        project = load_project()
        return project, project.pipeline(pipeline)

    plan = handed_plan(order)
    with terminal_is_final():
        session = Session(plan, load, _log.info)
        engine = _engine_of_jobs(session)

        def submitted(waits: RunPlan) -> str | None:
            # No Retryable, which the session would try again by itself: in this process that can't help.
            if submit is None or _engine_of_jobs(session) != engine:
                raise FrazilError(
                    f"pipeline {pipeline} names another engine than its DAG; Airflow will read the new file soon",
                    code=FILES_OUTDATED,
                )
            return submit(waits)

        run_session_with_jobs(session, inline_lander(_log.info), submitted)
        end = session.end
    if end.complete_through is not None:
        _emit_completeness(outlet_events, pipeline, plan.run, end.complete_through)
    return end.to_json()


def _engine_of_jobs(session: Session) -> str:
    engine = session.pipeline.engine
    return session.project.settings.auto.engine if engine == AUTO_ENGINE else engine


def record(pipeline: str, plan_json: str, outcome: str, *, dag_run: Any, outlet_events: Any) -> dict[str, Any]:
    """Report the run's result in the extra of the asset event, the run's note, the log and the return value. `outcome`: JSON
    of a dry run's or a session's result.

    Raises:
        AirflowSkipException: There is nothing to announce: a dry run, or another run landed these records meanwhile.
        AirflowFailException: A person must act; the message says what to do.
    """
    from frazil.monitor.metrics import run_samples
    from frazil.run.batches.plan import run_result
    from frazil_airflow.outputs.run_summary import emit, event_extras, facts_of, sentence, write_note

    with terminal_is_final():
        project = load_project()
        chosen_pipeline = project.pipeline(pipeline)
        planned = RunPlan.from_json(plan_json)
        if planned.mode == "dry_run":
            _record_look(outcome, dag_run)
        result = run_result(project, chosen_pipeline, planned.run)
    is_session = planned.until is not None
    if result.batches == 0:
        raise AirflowSkipException("nothing came" if is_session else "another run landed the planned records")
    facts = facts_of(result, planned)
    if is_session:
        facts[THROUGH] = SessionEnd.from_json(outcome).complete_through
    for asset, extra in event_extras(chosen_pipeline, result, facts):
        outlet_events[asset].extra = extra
    if facts[THROUGH] is not None and not is_session:  # which told it when it ended
        _emit_completeness(outlet_events, pipeline, planned.run, facts[THROUGH])
    _log.info("%s", sentence(facts))
    write_note(dag_run, sentence(facts))
    with terminal_is_final():
        # A run that was cleared plans again under its id: what its first plan landed was counted then. Last, so that another
        # try of this task counts nothing twice.
        if dag_run.clear_number:
            result = run_result(project, chosen_pipeline, planned.run, planned.planned_at)
        emit(run_samples(result))
    return facts


def _record_look(outcome: str, dag_run: Any) -> NoReturn:
    from frazil.run.batches.dry_run import DryRun
    from frazil_airflow.outputs.run_summary import look_sentence, sample_lines, write_note

    look = DryRun.from_json(outcome)
    for line in (look_sentence(look), *look.remarks, *sample_lines(look)):
        _log.info("%s", line)
    write_note(dag_run, look_sentence(look))
    raise AirflowSkipException(look_sentence(look))


AT_WORK = ("queued", "running")


class CatchUpOperator(TriggerDagRunOperator):
    """Trigger the next run of this DAG if more waits than a threshold; else the task is skipped.

    The next run is queued until this one ends: never two at once. It does the same at its end, so runs follow each other
    until the pipeline is caught up. It is not started for a run that was asked to do less than all (limits, a replay, a dry
    run, a backfill), nor while another run is queued, which continues from here just as well.
    """

    def __init__(self, *, pipeline: str, dag_id: str, records: int, **kwargs: Any) -> None:
        super().__init__(
            trigger_dag_id=dag_id,
            logical_date=None,
            skip_when_already_exists=True,  # another try finds the run that the first one made
            openlineage_inject_parent_info=False,
            **kwargs,
        )
        self.pipeline, self.records = pipeline, records

    def execute(self, context: Context) -> None:
        """Measure the unread records, and trigger a run.

        Raises:
            AirflowSkipException: The next run waits for its interval; the message says why.
            AirflowFailException: A person must act.
            Retryable: Kafka or the catalog is not available now.
        """
        run = context["dag_run"]
        if reads_less(run.run_type, context["params"]):
            self._rest("this run was asked for less than all there is")
        with terminal_is_final():
            records = self._waiting()
        if records < self.records:
            self._rest(f"caught up: {records:,} records wait, fewer than {self.records:,}")
        if context["ti"].get_dr_count(self.trigger_dag_id, states=list(AT_WORK)) > 1:
            self._rest(f"{records:,} records wait, and so does a run that takes them")
        self.trigger_run_id = (
            f"catch_up__{run.run_after.isoformat()}"  # of the run that it follows: the same in another try
        )
        self.conf = {REASON: f"catch up: {records:,} records waited"}
        self.log.info("%s records wait: the next run starts at once", f"{records:,}")
        super().execute(context)

    def _rest(self, reason: str) -> NoReturn:
        self.log.info("%s", reason)  # Airflow keeps a skip's reason apart from the lines of the log
        raise AirflowSkipException(reason)

    def _waiting(self) -> int:
        from frazil.report.lag import Watch
        from frazil_airflow.project.secrets import load_project

        project = load_project()
        return Watch(project, project.pipeline(self.pipeline)).look().records


def reads_less(run_type: Any, params: Mapping[str, Any]) -> bool:
    """Whether the run's request is for less than landing everything new."""
    return run_type == BACKFILL or params[MODE] != "ingest" or any(params[limit] for limit in (FROM, TO, MAX_RECORDS))
