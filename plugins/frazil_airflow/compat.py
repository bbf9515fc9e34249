"""One interface to Airflow 3.1, 3.2 and 3.3: imports names from each version's modules, and adds missing ones.

Only this module asks which Airflow it runs under. Type checkers read the newest version's side.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow import __version__
from airflow.sdk.definitions.deadline import DeadlineAlert
from packaging.version import Version

AIRFLOW = Version(__version__).release[:2]
"""Major and minor version of the Airflow that runs."""

if TYPE_CHECKING or AIRFLOW >= (3, 2):
    from airflow.sdk import AssetOrTimeSchedule, CronDataIntervalTimetable, DeltaDataIntervalTimetable
    from airflow.sdk.configuration import conf
    from airflow.sdk.definitions.callback import AsyncCallback
    from airflow.sdk.exceptions import (
        AirflowException,
        AirflowFailException,
        AirflowNotFoundException,
        AirflowSkipException,
    )
    from airflow.sdk.observability.stats import Stats
    from airflow.sdk.types import TaskInstanceKey
else:
    from airflow.configuration import conf
    from airflow.exceptions import (
        AirflowException,
        AirflowFailException,
        AirflowNotFoundException,
        AirflowSkipException,
    )
    from airflow.models.taskinstancekey import TaskInstanceKey
    from airflow.sdk.definitions.deadline import AsyncCallback
    from airflow.stats import Stats
    from airflow.timetables.assets import AssetOrTimeSchedule
    from airflow.timetables.interval import CronDataIntervalTimetable, DeltaDataIntervalTimetable

__all__ = [
    "AIRFLOW",
    "HAS_ASSET_STATE",
    "AirflowException",
    "AirflowFailException",
    "AirflowNotFoundException",
    "AirflowSkipException",
    "AssetOrTimeSchedule",
    "AsyncCallback",
    "CronDataIntervalTimetable",
    "DeltaDataIntervalTimetable",
    "Stats",
    "TaskInstanceKey",
    "conf",
    "named_deadline",
]

HAS_ASSET_STATE = AIRFLOW >= (3, 3)
"""Whether an asset has a state store, in which a watcher notes its last call: `trigger` of a pipeline needs it."""


def named_deadline(name: str, **deadline: Any) -> DeadlineAlert:
    """Return a deadline, with a name where this Airflow shows one: from 3.3 on."""
    if AIRFLOW >= (3, 3):
        deadline["name"] = name
    return DeadlineAlert(**deadline)
