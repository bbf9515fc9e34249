"""The order in which tasks of pipelines get free slots of the executor and of pools."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow.task.priority_strategy import PriorityWeightStrategy

if TYPE_CHECKING:
    from airflow.models.taskinstance import TaskInstance

BY_THE_CLOCK = ("scheduled__", "backfill__")
"""How ids of runs begin that nobody, and no lag, called for."""


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
