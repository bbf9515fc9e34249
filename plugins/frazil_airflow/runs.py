"""What Airflow knows of the runs of pipelines, over its REST API: tasks may not ask its database."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from airflow.sdk import Connection
from airflow.sdk.exceptions import AirflowNotFoundException

from frazil.errors import FrazilError, Terminal
from frazil.pipeline.model import Pipeline
from frazil_airflow.factory import dag_id

if TYPE_CHECKING:
    from frazil.local.airflow_api import AirflowApi
    from frazil.monitor.condition import Runs

_RUNS_LOOKED_AT = 25

_log = logging.getLogger(__name__)


def runs_of(pipelines: Sequence[Pipeline]) -> Mapping[str, Runs]:
    """Return what Airflow knows of the runs of pipelines; nothing without its API, then the tables tell."""
    from frazil.local.airflow_api import AirflowApi
    from frazil.monitor.condition import Runs
    from frazil_airflow.notes import CONNECTION, address

    found = {of.name: Runs() for of in pipelines}
    try:
        login = Connection.get(CONNECTION)
        with AirflowApi(address(login), login.login or "", login.password or "") as api:
            for of in pipelines:
                try:
                    found[of.name] = _asked(api, dag_id(of.name))
                except Terminal as refusal:  # of this DAG, such as one that Airflow has not parsed yet
                    _log.warning("Airflow does not say how runs of %s went, the tables do: %s", of.name, refusal)
    except AirflowNotFoundException:
        _log.info("there is no Airflow connection %r: the tables tell how runs went", CONNECTION)
    except FrazilError as error:
        _log.warning("Airflow does not say how runs went, the tables do: %s", error)
    return found


def _asked(api: AirflowApi, dag: str) -> Runs:
    from frazil.monitor.airflow_runs import summed

    return summed(api.newest_runs(dag, _RUNS_LOOKED_AT), is_paused=api.is_paused(dag))
