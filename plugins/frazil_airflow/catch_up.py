"""The task that starts the next run at once while a pipeline is behind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator
from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowSkipException

from frazil_airflow.failures import terminal_is_final
from frazil_airflow.manual import FROM, MAX_RECORDS, MODE, REASON, TO
from frazil_airflow.request import BACKFILL

AT_WORK = ("queued", "running")


class CatchUpOperator(TriggerDagRunOperator):
    """Trigger the next run of this DAG if more waits than a threshold; else the task is skipped.

    The next run is queued until this one ends: never two at once. It does the same at its end, so runs follow each other
    until the pipeline is caught up. It is not started for a run that was asked to do less than all (limits, a replay, a dry
    run, a backfill), nor while another run is queued, which goes on from here just as well.

    Args:
        pipeline: Name of the pipeline.
        dag_id: Its DAG.
        records: Records that must wait.
        kwargs: As for any operator.
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
        """Look what waits, and trigger.

        Raises:
            AirflowSkipException: The next run waits for its interval; the message says why.
            AirflowFailException: A person must act.
            Retryable: Kafka or the catalog is not available now.
        """
        run = context["dag_run"]
        if narrowed(run.run_type, context["params"]):
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

    def _rest(self, said: str) -> NoReturn:
        self.log.info("%s", said)  # Airflow keeps a skip's reason apart from the lines of the log
        raise AirflowSkipException(said)

    def _waiting(self) -> int:
        from frazil.report.waiting import Watch
        from frazil_airflow.secrets import load_project

        project = load_project()
        return Watch(project, project.pipeline(self.pipeline)).look().records


def narrowed(run_type: Any, params: Mapping[str, Any]) -> bool:
    """Whether a run was asked to do less than land all there is."""
    return run_type == BACKFILL or params[MODE] != "ingest" or any(params[of] for of in (FROM, TO, MAX_RECORDS))
