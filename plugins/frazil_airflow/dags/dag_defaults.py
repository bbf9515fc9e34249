"""Parts that all DAGs share: their arguments, timetables of intervals, and the priority of tasks that wait for a slot."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow.task.priority_strategy import PriorityWeightStrategy

from frazil.pipeline.models.pipeline_file import Pipeline
from frazil.pipeline.settings.capture import Flow
from frazil.pipeline.syntax.interval import Interval
from frazil.project import Project
from frazil_airflow.alerts.callbacks import forget_failure, note_failed_run, note_failed_task
from frazil_airflow.compat import CronDataIntervalTimetable, DeltaDataIntervalTimetable

if TYPE_CHECKING:
    from airflow.models.taskinstance import TaskInstance


START_DATE = datetime(2024, 1, 1, tzinfo=UTC)
"""Start date of all DAGs. It is fixed, because a date that moves would make a new DAG version at each parse. It has no influence
on what a run reads: the position decides that."""

RETRIES = 2
RETRY_DELAY = timedelta(seconds=30)
"""With the retries long enough for a broker to restart. After a longer outage the next scheduled run carries on by itself."""


def dag_arguments(
    purpose: str, pipeline: Flow | None = None, *, project: Project | None = None, ends_failure: bool = False
) -> dict[str, Any]:
    """Return the arguments that all DAGs share.

    Args:
        purpose: What the DAG is for, as a tag.
        pipeline: The pipeline or capture of the DAG; None if it belongs to all.
        project: Its project, so that failures are stored for alerts; None: they are not stored.
        ends_failure: Whether a successful run ends the alert on an earlier failure. For ingestion, the tables show the end.
    """
    stores_failures = (
        project is not None
        and project.settings.alerts is not None
        and (pipeline is None or pipeline.alerts is not False)
    )
    run_callbacks: dict[str, Any] = {"on_failure_callback": note_failed_run} if stores_failures else {}
    if stores_failures and ends_failure:
        run_callbacks["on_success_callback"] = forget_failure
    return {
        "start_date": START_DATE,
        "catchup": False,
        "max_active_runs": 1,
        # A run that began before a deployment uses the new code, as it reads the new pipeline file.
        "disable_bundle_versioning": True,
        "default_args": {
            "owner": "frazil" if pipeline is None else pipeline.owner,
            "retries": RETRIES,
            "retry_delay": RETRY_DELAY,
            **({"on_failure_callback": note_failed_task} if stores_failures else {}),
        },
        "tags": ["frazil", purpose, *([pipeline.namespace] if isinstance(pipeline, Pipeline) else [])],
        **run_callbacks,
    }


_HOUR_MINUTES = 60
_DAY_HOURS = 24


def timetable(interval: Interval) -> CronDataIntervalTimetable | DeltaDataIntervalTimetable:
    """Return the timetable of an interval.

    A duration that divides the hour or the day ticks by the clock (5m: :00, :05 …), even if it replaced another one. Any other
    duration, such as 7m, counts from 1970-01-01 00:00 UTC, and from the last run if it replaced another one.
    """
    if interval.every is None:
        return CronDataIntervalTimetable(str(interval.cron), timezone="UTC")
    expression = cron_of(interval.every)
    if expression is not None:
        return CronDataIntervalTimetable(expression, timezone="UTC")
    return DeltaDataIntervalTimetable(interval.every)


def cron_of(interval: timedelta) -> str | None:
    """Return the cron expression with the same interval between ticks; None if there is none."""
    minutes, remainder = divmod(interval, timedelta(minutes=1))
    if remainder:
        return None
    if minutes < _HOUR_MINUTES:
        return f"{_step(minutes)} * * * *" if _HOUR_MINUTES % minutes == 0 else None
    hours, minutes_left = divmod(minutes, _HOUR_MINUTES)
    if minutes_left or hours > _DAY_HOURS or _DAY_HOURS % hours:
        return None
    return "0 0 * * *" if hours == _DAY_HOURS else f"0 {_step(hours)} * * *"


def _step(count: int) -> str:
    return "*" if count == 1 else f"*/{count}"


UNTRIGGERED = ("scheduled__", "backfill__")
"""Prefixes of ids of runs that neither a person nor lag triggered."""


class FairOrder(PriorityWeightStrategy):
    """Priority of tasks: first those of runs that began, then those of runs that lag or a person triggered, then all others.

    Airflow's own rule gives the first task of a run the most weight. With more pipelines than slots, pipelines without new records
    would plan again and again before another pipeline lands what it planned. Tasks of equal weight start in the order in which
    their runs were due. Weights stay small, because other DAGs share the slots.
    """

    def get_weight(self, ti: TaskInstance) -> int:
        """Return the task's own weight plus one for each upstream task, plus one if lag or a person triggered the run."""
        task = ti.task
        if task is None:
            return 1
        upstream_tasks = len(task.get_flat_relative_ids(upstream=True))
        is_triggered = not (ti.run_id or UNTRIGGERED[0]).startswith(UNTRIGGERED)
        return task.priority_weight + upstream_tasks + is_triggered
