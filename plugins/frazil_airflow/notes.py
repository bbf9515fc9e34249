"""The note of a run, written through Airflow's REST API.

Tasks may not touch Airflow's database, and their own API has no notes. The REST API wants a login, which the Airflow
connection `frazil_api` holds: host (an address such as ``https://airflow.example.com``), login, password. Without that
connection runs have no note; the facts are in the log and the asset event all the same.
"""

from __future__ import annotations

import logging

from airflow.sdk import Connection
from airflow.sdk.exceptions import AirflowNotFoundException

from frazil.errors import FrazilError
from frazil_airflow.facts import with_facts

CONNECTION = "frazil_api"

_log = logging.getLogger(__name__)


def write_note(dag_id: str, run_id: str, said: str) -> None:
    """Put a line into the note of a run. The data has landed by now, so a note that fails is a warning."""
    try:
        login = Connection.get(CONNECTION)
    except AirflowNotFoundException:
        _log.info("the run gets no note: there is no Airflow connection %r", CONNECTION)
        return
    try:
        _write(login, dag_id, run_id, said)
    except FrazilError as error:
        _log.warning("the run gets no note: %s", error)


def _write(login: Connection, dag_id: str, run_id: str, said: str) -> None:
    from frazil.local.airflow_api import AirflowApi

    with AirflowApi(address(login), login.login or "", login.password or "") as api:
        api.note(dag_id, run_id, with_facts(api.run(dag_id, run_id).note, said))


def address(login: Connection) -> str:
    """Return the base address of the API: the host as it is when it names its scheme, else http."""
    host = login.host or "localhost"
    base = host if "://" in host else f"{login.schema or 'http'}://{host}"
    return f"{base}:{login.port}" if login.port else base
