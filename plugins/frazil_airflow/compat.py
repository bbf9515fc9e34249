"""One interface to Airflow 3.1, 3.2 and 3.3: imports names from the modules of the installed version.

Other modules read Airflow's version only from here. Type checkers read the imports of the newest version.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow import __version__
from airflow.sdk.definitions.deadline import DeadlineAlert
from packaging.version import Version

AIRFLOW = Version(__version__).release[:2]
"""Major and minor version of the installed Airflow."""

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
"""Whether assets have a state store. A pipeline's `trigger` needs it: its watcher stores the last call there."""


def named_deadline(name: str, **deadline: Any) -> DeadlineAlert:
    """Return a deadline. From Airflow 3.3 on it has a name."""
    if AIRFLOW >= (3, 3):
        deadline["name"] = name
    return DeadlineAlert(**deadline)
