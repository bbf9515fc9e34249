"""Functions of the tasks of an ingest DAG, which work without a JVM.

They import Kafka's client, PyIceberg and Arrow when they run, since parsing a DAG must not import them.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NoReturn

from frazil import shutdown
from frazil.batch.plan import RunPlan, SessionEnd, session_end, session_order
from frazil.batch.position import RunRequest
from frazil.error_codes import FILES_OUTDATED
from frazil.errors import FrazilError
from frazil.pipeline.models.pipeline_file import AUTO_ENGINE, Pipeline
from frazil.project import Project
from frazil_airflow.compat import AirflowSkipException
from frazil_airflow.outputs.assets import THROUGH, emit_completeness
from frazil_airflow.project.run_request import MAX_RECORDS, AirflowRun, is_session, limit_records, request_of
from frazil_airflow.project.secrets import load_project, terminal_is_final

if TYPE_CHECKING:
    from frazil.run.batches.plan import PlannedRun
    from frazil.run.batches.session import Session, Submit


_log = logging.getLogger(__name__)


def plan(pipeline: str, *, dag_run: AirflowRun, params: Mapping[str, Any], outlet_events: Any) -> str | None:
    """Plan the run. First finish an unfinished batch, except in a dry run. Without new records, emit an event with the
    instant through which the pipeline is complete.

    Returns:
        The plan as JSON; None if there is nothing to read: then Airflow skips the other tasks, and the run succeeds.

    Raises:
        AirflowFailException: A person must act; the message says what to do.
        Retryable: Kafka or the catalog is not available now.
    """
    shutdown.end_with_parent()  # it finishes batches; without its worker Airflow starts another try, beside this one
    with terminal_is_final():
        project = load_project()
        chosen_pipeline, request = project.pipeline(pipeline), request_of(dag_run, params)
        if is_session(chosen_pipeline, dag_run):
            return _session_plan(chosen_pipeline, request, dag_run.run_after)
        planned, complete_through = _run_plan(project, chosen_pipeline, request)
    if planned is None:
        if complete_through is not None:
            _emit_completeness(outlet_events, pipeline, dag_run.run_id, complete_through)
        return None
    limited = limit_records(planned, params[MAX_RECORDS])
    _log.info("%s offsets of %s partitions to read", f"{limited.records:,}", len(limited.ranges))
    return limited.to_json()


def _session_plan(pipeline: Pipeline, request: RunRequest, due: datetime) -> str:
    """The plan of a session as JSON: only its end, when the next run is due. The session plans its batches itself."""
    now = datetime.now(UTC)
    order = session_order(pipeline.name, request, now, session_end(due, pipeline.session or timedelta(), now))
    _log.info("a session until %s, a batch every %s", order.until, pipeline.interval)
    return order.to_json()


def _run_plan(project: Project, pipeline: Pipeline, request: RunRequest) -> tuple[RunPlan | None, str | None]:
    """The plan of a run, and, without records to read, the instant through which the pipeline is complete, if it is known."""
    from frazil.run.batches.dry_run import plan_dry_run
    from frazil.run.batches.plan import plan_run

    if request.mode == "dry_run":
        plan = plan_dry_run(project, pipeline, request, _log.info)
        if plan.ranges:
            return plan, None
        _log.info("nothing to read: the range has no offsets")
        return None, None
    planned = plan_run(project, pipeline, request, _log.info)
    if planned.plan is None:
        _log.info("%s", _why_nothing(request, planned))
    return planned.plan, planned.complete_through


def _emit_completeness(outlet_events: Any, pipeline: str, run_id: str, through: str) -> None:
    emit_completeness(outlet_events, {"pipeline": pipeline, "run": run_id, THROUGH: through})


def _why_nothing(request: RunRequest, planned: PlannedRun) -> str:
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
        The result of a dry run as JSON; None for any other run.

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


def parse_plan(plan_json: str) -> RunPlan:
    """Return the plan that the task `plan` wrote.

    Raises:
        AirflowFailException: Another version of Frazil wrote it.
    """
    with terminal_is_final():
        return RunPlan.from_json(plan_json)


def is_for_spark(pipeline: str, plan_json: str) -> bool:
    """Whether a Spark job does a run of `engine: auto`, which is logged with the reason. A session chooses for each batch.

    Raises:
        AirflowFailException: There is no such pipeline.
    """
    from frazil.run.state.context import chosen_engine

    plan = parse_plan(plan_json)
    if plan.until is not None:
        return True
    with terminal_is_final():
        project = load_project()
        engine = chosen_engine(project.pipeline(pipeline), project.settings.auto, plan)
    _log.info("engine %s", engine.description)
    return not engine.is_inline


def run_session(pipeline: str, plan_json: str, outlet_events: Any, submit: Submit | None = None) -> str:
    """Land batches until a session ends. `submit` runs a plan in a Spark job; if the plan has an end, the job stays until then.

    Returns:
        The session's result as JSON.

    Raises:
        AirflowFailException: A person must act; the message says what to do.
        Retryable, OutcomeUnknown: A batch failed repeatedly. Another try reads the tables and carries on.
        FrazilError: The file now names an engine that this task can't start. By the next try Airflow has read the new file.
    """
    from frazil.run.batches.session import Session, inline_lander, run_session_with_jobs

    def load() -> tuple[Project, Pipeline]:
        project = load_project()
        return project, project.pipeline(pipeline)

    plan = parse_plan(plan_json)
    with terminal_is_final():
        session = Session(plan, load, _log.info)
        engine = _engine_of_jobs(session)

        def submit_checked(planned: RunPlan) -> str | None:
            # Not Retryable: the session would try that again by itself, but this process has no other engine.
            if submit is None or _engine_of_jobs(session) != engine:
                raise FrazilError(
                    f"pipeline {pipeline} names another engine than its DAG; Airflow will read the new file soon",
                    code=FILES_OUTDATED,
                )
            return submit(planned)

        run_session_with_jobs(session, inline_lander(_log.info), submit_checked)
        end = session.end
    if end.complete_through is not None:
        _emit_completeness(outlet_events, pipeline, plan.run, end.complete_through)
    return end.to_json()


def _engine_of_jobs(session: Session) -> str:
    engine = session.pipeline.engine
    return session.project.settings.auto.engine if engine == AUTO_ENGINE else engine


def record(pipeline: str, plan_json: str, outcome: str, *, dag_run: Any, outlet_events: Any) -> dict[str, Any]:
    """Report the run's result in the extra of asset events, the run's note, the log and the return value. `outcome`: the
    result of a dry run or a session as JSON.

    Raises:
        AirflowSkipException: There are no events to emit: this is a dry run, or another run landed these records meanwhile.
        AirflowFailException: A person must act; the message says what to do.
    """
    from frazil.monitor.metrics import run_samples
    from frazil.run.batches.plan import run_result
    from frazil_airflow.outputs.run_summary import emit, event_extras, run_facts, sentence, write_note

    with terminal_is_final():
        project = load_project()
        chosen_pipeline = project.pipeline(pipeline)
        planned = RunPlan.from_json(plan_json)
        if planned.mode == "dry_run":
            _record_dry_run(outcome, dag_run)
        result = run_result(project, chosen_pipeline, planned.run)
    is_session = planned.until is not None
    if result.batches == 0:
        raise AirflowSkipException("nothing came" if is_session else "another run landed the planned records")
    facts = run_facts(result, planned)
    if is_session:
        facts[THROUGH] = SessionEnd.from_json(outcome).complete_through
    for asset, extra in event_extras(chosen_pipeline, result, facts):
        outlet_events[asset].extra = extra
    if facts[THROUGH] is not None and not is_session:  # a session emitted it at its end
        _emit_completeness(outlet_events, pipeline, planned.run, facts[THROUGH])
    _log.info("%s", sentence(facts))
    write_note(dag_run, sentence(facts))
    with terminal_is_final():
        # Metrics come last, so that another try of this task does not count twice. A cleared run plans again under the same id:
        # batches of its earlier plan were counted then.
        if dag_run.clear_number:
            result = run_result(project, chosen_pipeline, planned.run, planned.planned_at)
        emit(run_samples(result))
    return facts


def _record_dry_run(outcome: str, dag_run: Any) -> NoReturn:
    from frazil.run.batches.dry_run import DryRun
    from frazil_airflow.outputs.run_summary import dry_run_sentence, sample_lines, write_note

    result = DryRun.from_json(outcome)
    summary = dry_run_sentence(result)
    for line in (summary, *result.remarks, *sample_lines(result)):
        _log.info("%s", line)
    write_note(dag_run, summary)
    raise AirflowSkipException(summary)
