"""The tasks of an ingest DAG that run in their own process, without a JVM.

Each loads the project when it runs: parsing a DAG must not import Kafka, PyIceberg or Arrow.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from airflow.sdk.exceptions import AirflowSkipException

from frazil.batch.plan import RunPlan
from frazil.project import Project
from frazil_airflow.assets import table_asset
from frazil_airflow.failures import terminal_is_final
from frazil_airflow.manual import MAX_RECORDS, limited

_log = logging.getLogger(__name__)


def plan(pipeline: str, *, run_id: str, params: Mapping[str, Any]) -> str | None:
    """Fix what the run reads, after finishing what a crash left.

    Returns:
        The plan JSON, or None when there is nothing new: then Airflow skips the rest and the run succeeds.

    Raises:
        AirflowFailException: A person must act; the message says what to do.
        Retryable: Kafka or the catalog is not available now.
    """
    from frazil.run.plan import plan_run

    with terminal_is_final():
        project = Project.load()
        planned = plan_run(project, project.pipeline(pipeline), run_id)
    if planned.plan is None:
        _log.info("nothing new; the table is complete through %s", planned.complete_through or "an unknown instant")
        return None
    chosen = limited(planned.plan, params[MAX_RECORDS])
    _log.info("%s offsets of %s partitions to read", f"{chosen.records:,}", len(chosen.ranges))
    return chosen.to_json()


def ingest_inline(pipeline: str, plan_json: str) -> None:
    """Run the batches of a plan in this process: the `inline` engine.

    Raises:
        AirflowFailException: A person must act; the message says what to do.
        Retryable, OutcomeUnknown: Another try reads the tables and carries on.
    """
    from frazil.run.ingest import ingest
    from frazil.run.inline import stage_inline

    with terminal_is_final():
        project = Project.load()
        ingest(project, project.pipeline(pipeline), RunPlan.from_json(plan_json), stage_inline, _log.info)


def record(pipeline: str, plan_json: str, *, dag_run: Any, outlet_events: Any) -> dict[str, Any]:
    """Report what the run did: the extra of the table's asset event, the run's note, the log, and the return value.

    Raises:
        AirflowSkipException: Another run landed these records meanwhile, so this one has no event.
        AirflowFailException: A person must act; the message says what to do.
    """
    from frazil.run.result import run_result
    from frazil_airflow.facts import facts_of, sentence
    from frazil_airflow.notes import write_note

    with terminal_is_final():
        project = Project.load()
        known = project.pipeline(pipeline)
        planned = RunPlan.from_json(plan_json)
        result = run_result(project, known, planned.run)
    if result.batches == 0:
        raise AirflowSkipException("another run landed the planned records")
    facts = facts_of(result, planned)
    outlet_events[table_asset(known)].extra = facts
    _log.info("%s", sentence(facts))
    write_note(dag_run.dag_id, dag_run.run_id, sentence(facts))
    return facts
