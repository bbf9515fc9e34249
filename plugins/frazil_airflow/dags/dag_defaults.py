"""What all DAGs have in common: their arguments, intervals as timetables, and the order in which tasks of pipelines
get free slots.
"""

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
"""No run is older. Fixed, because a moving one would be a new DAG version at every parse; what is read is decided by
the position, never by dates."""

RETRIES = 2
RETRY_DELAY = timedelta(seconds=30)
"""Bridges a broker that restarts. A longer outage is left to the next scheduled run, which carries on by itself."""


def dag_arguments(
    what: str, pipeline: Flow | None = None, *, project: Project | None = None, forgets: bool = False
) -> dict[str, Any]:
    """Return the arguments that DAGs share, but for names, schedules and texts.

    Args:
        what: What the DAG is for, as its tag says.
        pipeline: Whose it is; None: of all, or none.
        project: The project whose people are notified of failures; None: they are not.
        forgets: Whether a run that succeeds ends what failed before: where no table tells.
    """
    is_noted = (
        project is not None
        and project.settings.alerts is not None
        and (pipeline is None or pipeline.alerts is not False)
    )
    of_run = {"on_failure_callback": note_failed_run} | ({"on_success_callback": forget_failure} if forgets else {})
    of_task = {"on_failure_callback": note_failed_task}
    return {
        "start_date": START_DATE,
        "catchup": False,
        "max_active_runs": 1,
        # A run that began before a deploy reads the pipeline file as it is now, as all others do.
        "disable_bundle_versioning": True,
        "default_args": {
            "owner": "frazil" if pipeline is None else pipeline.owner,
            "retries": RETRIES,
            "retry_delay": RETRY_DELAY,
            **(of_task if is_noted else {}),
        },
        "tags": ["frazil", what, *([pipeline.namespace] if isinstance(pipeline, Pipeline) else [])],
        **(of_run if is_noted else {}),
    }


_HOUR_MINUTES = 60
_DAY_HOURS = 24


def timetable(interval: Interval) -> CronDataIntervalTimetable | DeltaDataIntervalTimetable:
    """Return the timetable of an interval.

    A duration that divides the hour or the day ticks on the clock (5m: :00, :05 …), also after the interval was
    changed. Any other duration, such as 7m, counts on from 1970-01-01 00:00 UTC, and after a change from the last run.
    """
    if interval.every is None:
        return CronDataIntervalTimetable(str(interval.cron), timezone="UTC")
    expression = cron_of(interval.every)
    if expression is not None:
        return CronDataIntervalTimetable(expression, timezone="UTC")
    return DeltaDataIntervalTimetable(interval.every)


def cron_of(interval: timedelta) -> str | None:
    """Return the cron expression that ticks at the same distances; None if none does."""
    minutes, remainder = divmod(interval, timedelta(minutes=1))
    if remainder:
        return None
    if minutes < _HOUR_MINUTES:
        return f"{_step(minutes)} * * * *" if _HOUR_MINUTES % minutes == 0 else None
    hours, rest_minutes = divmod(minutes, _HOUR_MINUTES)
    if rest_minutes or hours > _DAY_HOURS or _DAY_HOURS % hours:
        return None
    return "0 0 * * *" if hours == _DAY_HOURS else f"0 {_step(hours)} * * *"


def _step(count: int) -> str:
    return "*" if count == 1 else f"*/{count}"


BY_THE_CLOCK = ("scheduled__", "backfill__")
"""How ids of runs begin that neither a person nor lag started."""


class FairOrder(PriorityWeightStrategy):
    """Priority of tasks: started runs first; then runs triggered by lag or by a person; then scheduled ones.

    Airflow's own rule gives the first task of a run the most weight. With more pipelines than slots, those that have nothing to
    land would plan again and again before any other lands what it planned. Tasks of the same weight go in the order in which
    their runs were due, so the one that waited longest is the next. Weights stay small: other DAGs share the slots.
    """

    def get_weight(self, ti: TaskInstance) -> int:
        """One more for each upstream task, and for a run that lag or a person triggered."""
        task = ti.task
        if task is None:
            return 1
        done = len(task.get_flat_relative_ids(upstream=True))
        is_called = not (ti.run_id or BY_THE_CLOCK[0]).startswith(BY_THE_CLOCK)
        return task.priority_weight + done + is_called
