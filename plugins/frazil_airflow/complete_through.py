"""A sensor for other DAGs: it waits until a pipeline is complete through an instant."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from airflow.sdk import BaseSensorOperator, Context, PokeReturnValue

from frazil.error_codes import BAD_ARGUMENT
from frazil_airflow.compat import AirflowFailException
from frazil_airflow.outputs.assets import THROUGH, completeness_asset


class CompleteThrough(BaseSensorOperator):
    """Wait until the tables of a pipeline have all records that Kafka had accepted by an instant.

    Between two pokes it uses no worker (``mode="reschedule"``). It returns the instant through which the pipeline is complete.

    Args:
        pipeline: Name of the pipeline.
        instant: ISO 8601 with an offset from UTC, templated. The default is the end of the run's data interval.
        kwargs: As for any sensor. The default is a poke per minute.
    """

    template_fields = ("instant",)

    def __init__(self, *, pipeline: str, instant: str = "{{ data_interval_end }}", **kwargs: Any) -> None:
        super().__init__(**{"mode": "reschedule", "inlets": [completeness_asset(pipeline)], **kwargs})
        self.pipeline = pipeline
        self.instant = instant

    def poke(self, context: Context) -> PokeReturnValue:
        """Compare the instant with that in the pipeline's last event.

        Raises:
            AirflowFailException: The instant is not valid, or has no offset from UTC.
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
