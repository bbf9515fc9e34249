"""The task that triggers the next run at once while a pipeline is behind.

Import this only for pipelines with `catch_up`: Airflow's operator loads the models of Airflow's database, a quarter of a second
for each task's process.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator
from airflow.sdk import Context

from frazil_airflow.compat import AirflowSkipException
from frazil_airflow.project.run_request import BACKFILL, CURRENT_STATES, FROM, MAX_RECORDS, MODE, REASON, TO
from frazil_airflow.project.secrets import load_project, terminal_is_final


class CatchUpOperator(TriggerDagRunOperator):
    """Trigger the next run of this DAG if at least `records` records wait; else the task is skipped.

    The next run stays queued until this one ends, and does the same at its end. So runs follow each other until the pipeline has
    caught up. Nothing is triggered by a run that was to land only a part (limits, a replay, a dry run, a backfill), nor while
    another run is queued, which will read the records.
    """

    def __init__(self, *, pipeline: str, dag_id: str, records: int, **kwargs: Any) -> None:
        super().__init__(
            trigger_dag_id=dag_id,
            logical_date=None,
            skip_when_already_exists=True,  # for another try, after the first one triggered the run
            openlineage_inject_parent_info=False,
            **kwargs,
        )
        self.pipeline, self.records = pipeline, records

    def execute(self, context: Context) -> None:
        """Measure the unread records, and trigger a run.

        Raises:
            AirflowSkipException: No run is triggered; the message says why.
            AirflowFailException: A person must act.
            Retryable: Kafka or the catalog is not available now.
        """
        run = context["dag_run"]
        if lands_part(run.run_type, context["params"]):
            self._skip("this run was to land only a part of the new records")
        with terminal_is_final():
            records = self._unread_records()
        if records < self.records:
            self._skip(f"caught up: {records:,} records wait, fewer than {self.records:,}")
        if context["ti"].get_dr_count(self.trigger_dag_id, states=list(CURRENT_STATES)) > 1:
            self._skip(f"{records:,} records wait, and a run that will read them is queued")
        self.trigger_run_id = f"catch_up__{run.run_after.isoformat()}"  # the same in another try of this task
        self.conf = {REASON: f"catch up: {records:,} records waited"}
        self.log.info("%s records wait: the next run starts at once", f"{records:,}")
        super().execute(context)

    def _unread_records(self) -> int:
        from frazil.report.lag import LagWatch

        project = load_project()
        return LagWatch(project, project.pipeline(self.pipeline)).measure().records

    def _skip(self, reason: str) -> NoReturn:
        self.log.info("%s", reason)  # Airflow's log does not show the reason of a skip
        raise AirflowSkipException(reason)


def lands_part(run_type: Any, params: Mapping[str, Any]) -> bool:
    """Whether a run is to land only a part of the new records, or none."""
    return run_type == BACKFILL or params[MODE] != "ingest" or any(params[limit] for limit in (FROM, TO, MAX_RECORDS))
