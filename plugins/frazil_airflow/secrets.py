"""The project as Airflow's tasks and pages see it: with the fields of Airflow connections that its settings refer to.

Asked for whenever the settings are loaded, so a rotated password counts from then on. Parsing a DAG asks for none: it needs no
secret, and a secrets backend is too slow for it.
"""

from __future__ import annotations

import os

from airflow.sdk import Connection
from airflow.sdk.exceptions import AirflowNotFoundException

from frazil.errors import Terminal
from frazil.pipeline.references import connection_fields, connection_variable
from frazil.project import Places, Project


def load_project() -> Project:
    """Load the project.

    Raises:
        Terminal: The settings are broken, or there is no such connection, or it lacks the field.
    """
    return Project.load(os.environ | connection_environment())


def load_project_for_job() -> Project:
    """Load the project in a task that starts a job: the job inherits this process's variables, and finds the fields there.

    Raises:
        Terminal: As `load_project`.
    """
    os.environ.update(connection_environment())  # of a process that lives as long as the task
    return Project.load()


def connection_environment() -> dict[str, str]:
    """Variables with the fields that the settings refer to, but for those that are set already.

    Raises:
        Terminal: There is no such connection, or it lacks the field.
    """
    file = Places.resolve(os.environ).settings_file
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return {}  # loading says it better
    wanted = {connection_variable(*reference): reference for reference in connection_fields(text)}
    return {variable: _field(*of) for variable, of in wanted.items() if variable not in os.environ}


def _field(connection: str, field: str) -> str:
    try:
        found = Connection.get(connection)
    except AirflowNotFoundException as error:
        raise Terminal(
            f"the settings refer to field {field!r} of the Airflow connection {connection!r}, which is not there",
            next_step=f"airflow connections add {connection}, or add it to Airflow's secrets backend",
        ) from error
    own = {name: getattr(found, name) for name in ("login", "password", "host", "schema", "port")}
    value = own[field] if field in own else found.extra_dejson.get(field)
    if value is None:
        raise Terminal(
            f"the settings refer to field {field!r} of the Airflow connection {connection!r}, which has none of that name",
            next_step=f"set it there: {', '.join(own)}, or a key of the extra",
        )
    return str(value)
