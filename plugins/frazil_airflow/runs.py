"""What Airflow knows of the runs of pipelines, over its REST API: tasks may not ask its database."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from airflow.sdk import Connection
from airflow.sdk.exceptions import AirflowNotFoundException

from frazil.errors import FrazilError
from frazil.pipeline.model import Pipeline

if TYPE_CHECKING:
    from frazil.monitor.condition import Runs

_log = logging.getLogger(__name__)


def runs_of(pipelines: Sequence[Pipeline]) -> Mapping[str, Runs]:
    """Return what Airflow knows of the runs of pipelines; nothing without its API, then the tables tell."""
    from frazil.local.airflow_api import AirflowApi
    from frazil.monitor.airflow_runs import told_by
    from frazil_airflow.notes import CONNECTION, address

    try:
        login = Connection.get(CONNECTION)
        with AirflowApi(address(login), login.login or "", login.password or "") as api:
            return told_by(api, [of.name for of in pipelines])
    except AirflowNotFoundException:
        _log.info("there is no Airflow connection %r: the tables tell how runs went", CONNECTION)
    except FrazilError as error:
        _log.warning("Airflow does not say how runs went, the tables do: %s", error)
    return {}
