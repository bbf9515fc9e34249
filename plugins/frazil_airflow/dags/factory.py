"""Makes the ingest DAG of a pipeline: plan -> ingest -> record, with documentation of what the pipeline does."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.providers.standard.operators.python import PythonOperator, ShortCircuitOperator
from airflow.sdk import DAG, BaseOperator

from frazil.pipeline.models.destination import TableTemplate
from frazil.pipeline.models.pipeline_file import AUTO_ENGINE, INLINE_ENGINE, Column, Pipeline
from frazil.project import Project
from frazil_airflow.alerts.callbacks import deadline
from frazil_airflow.compat import AIRFLOW, HAS_ASSET_STATE, AssetOrTimeSchedule
from frazil_airflow.dags.dag_defaults import FairOrder, dag_arguments, timetable
from frazil_airflow.outputs.assets import completeness_alias, completeness_asset, destination_assets, waiting_asset
from frazil_airflow.project.pipelines import INGEST
from frazil_airflow.project.run_request import params
from frazil_airflow.tasks import ingest_tasks, job_operators
from frazil_airflow.tasks.job_operators import JobOperator
from frazil_airflow.tasks.operators import (
    AutoIngestOperator,
    InlineIngestOperator,
    SparkConnectIngestOperator,
    SparkIngestOperator,
)

if TYPE_CHECKING:
    from airflow.sdk.bases.timetable import BaseTimetable


def doc_md(pipeline: Pipeline) -> str:
    """Return the DAG's documentation as Markdown. It depends on the pipeline file only: another text is a new DAG version."""
    return "\n".join([*_head(pipeline), *_columns(pipeline), *_behavior(pipeline)])


def _head(pipeline: Pipeline) -> Iterator[str]:
    first = next(iter(pipeline.declared.values()))
    yield f"### {pipeline.name}"
    yield ""
    yield pipeline.description or "No description in the pipeline file."
    yield ""
    yield "| | |"
    yield "|---|---|"
    yield f"| Topics | {_topics(pipeline)} of cluster `{pipeline.source.cluster}` |"
    yield f"| Table{'s' if pipeline.tables[1:] else ''} | {_tables(pipeline)} |"
    yield f"| Partitioned by | {_code(first.partition_by) or 'nothing'} |"
    yield f"| Interval | `{pipeline.interval}` (UTC) |"
    if pipeline.session_for is not None:
        yield f"| A run of the schedule stays for | `{pipeline.session_for}`: `ingest` lands a batch at every interval |"
    yield f"| The first run begins at | {pipeline.start} |"
    yield f"| Records per batch | at most {pipeline.limits.max_records:,} |"
    yield f"| Engine | `{pipeline.engine}` |"
    yield ""


def _tables(pipeline: Pipeline) -> str:
    """The destinations, catalog by catalog."""
    by_catalog: dict[str, list[str]] = {}
    for destination in pipeline.destinations:
        branch = f" on branch `{destination.branch}`" if destination.branch is not None else ""
        by_catalog.setdefault(destination.catalog or pipeline.catalog, []).append(
            f"{_code((destination.table,))}{branch}"
        )
    listed = [f"{', '.join(tables)} in catalog `{catalog}`" for catalog, tables in by_catalog.items()]
    return "; ".join([*listed, *(["those that records name"] if pipeline.create is not None else [])])


def _topics(pipeline: Pipeline) -> str:
    pattern = pipeline.source.topics_pattern
    return _code(pipeline.source.topics) if pattern is None else f"all that match `{pattern}`".replace("|", r"\|")


def _columns(pipeline: Pipeline) -> Iterator[str]:
    for destination in pipeline.declared.values():
        if len(pipeline.declared) > 1 or pipeline.create is not None:
            yield f"Columns of {destination.title if destination is pipeline.create else f'`{destination.title}`'}:"
            yield ""
        yield from _column_table(destination)


def _column_table(destination: TableTemplate) -> Iterator[str]:
    yield "| Column | Type | |"
    yield "|---|---|---|"
    for name, column in destination.columns.items():
        yield f"| `{name}` | `{column.type}` | {_remark(column)} |"
    if destination.added_columns:
        yield ""
        yield f"Every row tells where it came from: {_code(destination.added_columns)}."
    yield ""


def _remark(column: Column) -> str:
    remarks = [*(["required"] if column.required else []), *([column.doc] if column.doc else [])]
    return "; ".join(remarks).replace("|", r"\|").replace("\n", " ")


def _code(texts: Iterable[str]) -> str:
    return ", ".join(f"`{text}`" for text in texts)


def _behavior(pipeline: Pipeline) -> Iterator[str]:
    tolerance = pipeline.dead_letters.limits
    dead = pipeline.dead_letters_table
    yield (
        f"Records that can't be decoded or converted are kept whole in `{dead}`. A batch of"
        f" {tolerance.min_records:,} records or more with over {tolerance.max_rate:.0%} of them is not published."
    )
    yield ""
    yield "```"
    yield f"frazil history {pipeline.name}"
    yield f"frazil sql 'SELECT code, count(*) FROM {dead} GROUP BY code'"  # noqa: S608, text to read
    yield f"frazil sql 'SELECT code, message, topic, partition, \"offset\" FROM {dead} LIMIT 20'"  # noqa: S608
    yield "```"
    yield ""
    yield "`plan` fixes what is read, `ingest` lands it, `record` reports it. Nothing new: the last two are skipped."
    yield "Clearing a run, or any other second try, plans again from what the tables say: no record lands twice."
    yield ""
    yield "Started by hand: `ingest` goes on at the position, `replay` lands a range again in place of what it landed"
    yield "before, `dry_run` only counts. A backfill catches up through its intervals; below the position it does nothing,"
    yield 'unless its conf says `{"mode": "replay"}`.'


PLAN_TIMEOUT = timedelta(minutes=5)
"""Bounds planning, which takes 1-2 s, and some seconds more if it finishes a batch of a run that crashed."""

INGEST_TIMEOUT = timedelta(hours=2)
"""Bounds a job that hangs. A backlog that takes longer loses no work: finished batches stay, and the next try goes on."""

RECORD_TIMEOUT = timedelta(minutes=5)
"""Bounds the task `record`, which reads a few rows of the ledger."""

RUN_TIMEOUT = timedelta(hours=6, minutes=30)
"""Bounds a whole run with all tries and the wait for a slot of the pool: the next run can't begin before it ends."""

_log = logging.getLogger(__name__)

_PLAN_JSON = "{{ ti.xcom_pull(task_ids='plan') }}"
_OUTCOME_JSON = "{{{{ ti.xcom_pull(task_ids='{}') }}}}"


def ingest_dag(project: Project, pipeline: Pipeline, operators: Mapping[str, JobOperator] | None = None) -> DAG:
    """Make the ingest DAG of a pipeline. `operators`: engine of type operator -> function that makes the operator of its jobs."""
    with DAG(
        f"{INGEST}{pipeline.name}",
        description=pipeline.description or f"Lands {pipeline.source.described}",
        doc_md=doc_md(pipeline),
        schedule=_schedule(pipeline),
        dagrun_timeout=RUN_TIMEOUT + (pipeline.session or timedelta()),
        params=params(),
        deadline=deadline(project, pipeline),
        **dag_arguments("ingest", pipeline, project=project)
        # The next session may begin while the previous one still reports. Their tasks `ingest` never run at once.
        | ({} if pipeline.session is None else {"max_active_runs": 2}),
    ) as dag:
        if operators is not None:
            record = _by_operator(project, pipeline, operators[pipeline.engine])
        else:
            record = _record_task(pipeline, "ingest")
            _plan_task(pipeline, ingest_tasks.plan) >> _ingest_task(project, pipeline) >> record
        if pipeline.catch_up is not None:
            record >> _catch_up_task(pipeline, pipeline.catch_up)
    # Not by default_args: Airflow would serialize it there with its address in memory, so each parse would be a new DAG version.
    for task in dag.tasks:
        task.weight_rule = FairOrder()
    return dag


def is_by_operator(project: Project, pipeline: Pipeline) -> bool:
    """Return whether the pipeline's engine is of type operator: then an operator of the user's own DAG file starts its jobs."""
    engine = project.settings.engines.get(pipeline.engine)
    return engine is not None and engine.type == "operator"


def _by_operator(project: Project, pipeline: Pipeline, make: JobOperator) -> BaseOperator:
    """Make the tasks of a pipeline whose jobs an operator of the user's own starts. Returns the last one."""
    plan, record = _plan_task(pipeline, job_operators.plan), _record_task(pipeline, "outcome")
    ingest = job_operators.job_task(project, pipeline, project.engine_entry(pipeline.engine), make)
    if ingest.execution_timeout is None:
        ingest.execution_timeout = INGEST_TIMEOUT + (pipeline.session or timedelta())
    outcome = job_operators.outcome_task(pipeline, execution_timeout=INGEST_TIMEOUT)
    plan >> ingest >> outcome >> record
    plan >> outcome
    return record


def _schedule(pipeline: Pipeline) -> BaseTimetable:
    ticks = timetable(pipeline.schedule)
    if pipeline.trigger is None:
        return ticks
    if not HAS_ASSET_STATE:
        _log.warning(
            "pipeline %s: `trigger` is off, runs start by the schedule alone: Airflow %s.%s has no state store of assets,"
            " 3.3 has one",
            pipeline.name,
            *AIRFLOW,
        )
        return ticks
    return AssetOrTimeSchedule(
        timetable=ticks, assets=[waiting_asset(pipeline, f"{INGEST}{pipeline.name}", pipeline.trigger)]
    )


def _plan_task(pipeline: Pipeline, plan: Callable[..., str | None]) -> BaseOperator:
    return ShortCircuitOperator(
        task_id="plan",
        doc_md="Fixes what the run reads, without a JVM. Nothing new: the rest is skipped.",
        python_callable=plan,
        op_args=[pipeline.name],
        inlets=[completeness_asset(pipeline.name)],  # so that Airflow knows the asset before its first event
        outlets=[completeness_alias(pipeline.name)],
        execution_timeout=PLAN_TIMEOUT,
    )


def _ingest_task(project: Project, pipeline: Pipeline) -> BaseOperator:
    shared: dict[str, Any] = {
        "task_id": "ingest",
        "execution_timeout": INGEST_TIMEOUT + (pipeline.session or timedelta()),
        # Unlike max_active_runs, this counts scheduled, manual and backfill runs together.
        "max_active_tis_per_dag": 1,
        "outlets": [completeness_alias(pipeline.name)] if pipeline.session is not None else [],
    }
    if pipeline.engine == INLINE_ENGINE:
        return InlineIngestOperator(
            pipeline=pipeline.name,
            plan_json=_PLAN_JSON,
            doc_md="Runs the planned batches in this task's process.",
            **shared,
        )
    engine = project.engine_entry(pipeline.engine)
    operator = AutoIngestOperator if pipeline.engine == AUTO_ENGINE else SparkIngestOperator
    shared |= {
        "pipeline": pipeline.name,
        "plan_json": _PLAN_JSON,
        "asset_name": next(iter(destination_assets(pipeline).values())).name,
        "pool": engine.pool,
        "doc_md": operator.doc_md,
    }
    if not engine.has_connection:
        return SparkConnectIngestOperator(**shared)
    return operator(conn_id=engine.connection, driver_memory=engine.driver_memory, **shared)


def _record_task(pipeline: Pipeline, outcome_task: str) -> BaseOperator:
    return PythonOperator(
        task_id="record",
        doc_md="Reports the run: asset event, note, log.",
        python_callable=ingest_tasks.record,
        op_args=[pipeline.name, _PLAN_JSON, _OUTCOME_JSON.format(outcome_task)],
        outlets=[*destination_assets(pipeline).values(), completeness_alias(pipeline.name)],
        execution_timeout=RECORD_TIMEOUT,
    )


def _catch_up_task(pipeline: Pipeline, records: int) -> BaseOperator:
    from frazil_airflow.tasks.catch_up import CatchUpOperator

    return CatchUpOperator(
        task_id="catch_up",
        pipeline=pipeline.name,
        dag_id=f"{INGEST}{pipeline.name}",
        records=records,
        doc_md=f"Starts the next run at once if {records:,} records or more wait by now.",
        execution_timeout=RECORD_TIMEOUT,
    )
