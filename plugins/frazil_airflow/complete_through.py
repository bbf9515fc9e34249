"""A task for other DAGs: wait until a pipeline is complete through an instant."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from airflow.sdk import BaseSensorOperator, Context, PokeReturnValue

from frazil.error_codes import BAD_ARGUMENT
from frazil_airflow.compat import AirflowFailException
from frazil_airflow.outputs.assets import THROUGH, completeness_asset


class CompleteThrough(BaseSensorOperator):
    """Wait until all records that Kafka had accepted by an instant are in the tables of a pipeline.

    Between two looks it takes no worker (``mode="reschedule"``). Its return value is the instant that was reached.

    Args:
        pipeline: Name of the pipeline.
        instant: ISO 8601 with an offset from UTC, a template: the end of the run's data interval unless it is given.
        kwargs: As for any sensor. A look every minute, for as long as `timeout` says.
    """

    template_fields = ("instant",)

    def __init__(self, *, pipeline: str, instant: str = "{{ data_interval_end }}", **kwargs: Any) -> None:
        super().__init__(**{"mode": "reschedule", "inlets": [completeness_asset(pipeline)], **kwargs})
        self.pipeline = pipeline
        self.instant = instant

    def poke(self, context: Context) -> PokeReturnValue:
        """Compare the instant with the one in the pipeline's last event.

        Raises:
            AirflowFailException: The instant is not valid, or names no offset from UTC.
        """
        instant = self._parsed_instant()
        last = context["inlet_events"][completeness_asset(self.pipeline)].ascending(ascending=False).limit(1)
        through = (last[0].extra or {}).get(THROUGH) if last else None
        reached = datetime.fromisoformat(str(through)) if through else None
        self.log.info("pipeline %s is complete through %s, wanted: %s", self.pipeline, reached or "no instant", instant)
        if reached is None or reached < instant:
            return PokeReturnValue(is_done=False)
        return PokeReturnValue(is_done=True, xcom_value=reached.isoformat())

    def _parsed_instant(self) -> datetime:
        try:
            instant = datetime.fromisoformat(str(self.instant))
        except ValueError:
            instant = None
        if instant is None or instant.tzinfo is None:
            raise AirflowFailException(
                f"{self.instant!r} is no instant with an offset from UTC [{BAD_ARGUMENT}]\n  next: a run started by hand has no data interval:"
                " give instant=, such as '{{ dag_run.run_after }}'"
            )
        return instant
