"""Through which instant a pipeline is complete, as its runs told Airflow: also those that found nothing new.

A run that lands records says it in the snapshot. One that finds nothing new commits nothing, so the instant is only in
Airflow: as an event of the asset ``<pipeline>/complete``.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from frazil.runtime.airflow_api import AirflowApi

THROUGH = "complete_through"
"""Key of the instant in the extra of an event."""


def asset_name(pipeline: str) -> str:
    """Return the name of the asset whose events tell through when a pipeline is complete."""
    return f"{pipeline}/complete"


def complete_through(api: AirflowApi, pipeline: str) -> datetime | None:
    """Return the instant that the last event told; None if there is none: never complete, or Airflow forgot it.

    Everything that Kafka had accepted by then, in the topics of the pipeline, is in its tables. An event that somebody
    made by hand tells no instant.

    Raises:
        Retryable: Airflow does not answer.
        Terminal: Airflow refused the request.
    """
    instant = (api.last_event(asset_name(pipeline)) or {}).get(THROUGH)
    return datetime.fromisoformat(str(instant)) if instant else None
