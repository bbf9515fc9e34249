"""Pipelines become report DAGs: what is new among their dead letters, kept as a page and told."""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG

from frazil.pipeline.interval import parse_interval
from frazil.pipeline.model import Pipeline
from frazil.project import Project
from frazil_airflow.head import head
from frazil_airflow.letter_operators import LetterReportOperator
from frazil_airflow.pipelines import REPLAY_PREFIX, REPORT_PREFIX, wanted_pipelines
from frazil_airflow.timetable import timetable

REPORT_TIMEOUT = timedelta(minutes=30)
"""Bounds reading codes and places of the new letters and of those before: a second or two, of millions a minute."""

RUN_TIMEOUT = timedelta(hours=2)
"""Bounds a whole run with all tries."""


def letters_dag_id(pipeline: str) -> str:
    """Return the id of the DAG that reports a pipeline's dead letters."""
    return f"{REPORT_PREFIX}{pipeline}"


def letter_dags(project: Project, only: str | None = None) -> list[DAG]:
    """Make the report DAG of every pipeline that wants one.

    Args:
        project: Settings and pipelines.
        only: Id of the one DAG to make; None for all.
    """
    return [
        letter_dag(project, pipeline, reporting.schedule)
        for pipeline in wanted_pipelines(project, letters_dag_id, only)
        if (reporting := pipeline.dead_letters.report) is not False
    ]


def letter_dag(project: Project, pipeline: Pipeline, schedule: str) -> DAG:
    """Make the report DAG of a pipeline."""
    with DAG(
        letters_dag_id(pipeline.name),
        description=f"Reports new dead letters of {pipeline.name}",
        doc_md=_doc(pipeline, schedule),
        schedule=timetable(parse_interval(schedule)),
        dagrun_timeout=RUN_TIMEOUT,
        **head("dead_letters", pipeline, told=project, forgets=True),
    ) as dag:
        LetterReportOperator(
            task_id="report",
            pipeline=pipeline.name,
            doc_md="Sums up what is new since the last report, keeps it, tells people. Nothing new: it is skipped.",
            max_active_tis_per_dag=1,
            execution_timeout=REPORT_TIMEOUT,
        )
    return dag


def _doc(pipeline: Pipeline, schedule: str) -> str:
    return f"""### Dead letters of {pipeline.name}

Looks every `{schedule}` (UTC) for dead letters of batches that finished since the last report: how many by code and topic,
against the period before, with samples. Nothing new: no report. Cleared, or started twice, it tells no letter again.

```
frazil dead-letters list {pipeline.name}
frazil dead-letters report {pipeline.name} --since 7d
```

`{pipeline.dead_letters_table}` holds the letters; DAG `{REPLAY_PREFIX}{pipeline.name}` lands those that are good now.
"""
