"""Loads the project in Airflow's tasks and pages, with the fields of Airflow connections that its settings refer to. Turns
errors into task outcomes, and stores texts in Airflow's Variables.

Connections are read each time the settings are loaded, so a changed password counts from then on. Parsing a DAG reads none:
it needs no secret, and a secrets backend would be too slow.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager

from airflow.sdk import Connection, Variable

from frazil.errors import Terminal
from frazil.pipeline.files.files import connection_fields, connection_variable
from frazil.pipeline.files.load import read_yaml
from frazil.project import Places, Project
from frazil_airflow.compat import AirflowFailException, AirflowNotFoundException


def load_project() -> Project:
    """Load the project.

    Raises:
        ConfigError: The settings are broken.
    """
    return Project.load(os.environ | connection_environment())


def load_project_for_job() -> Project:
    """Load the project in a task that starts a job. The fields of connections become environment variables, which the job inherits.

    Raises:
        ConfigError: As `load_project`.
    """
    os.environ.update(connection_environment())  # this process ends with the task
    return Project.load()


def connection_environment() -> dict[str, str]:
    """Environment variables with the connection fields that the settings refer to, except those already set.

    A missing connection or field is left out: the default of its reference applies, or using the reference is an error.

    Raises:
        ConfigError: The settings are not YAML.
    """
    fields = {
        connection_variable(*field): field
        for field in connection_fields(read_yaml(Places.resolve(os.environ).settings_file))
    }
    values = {variable: _field(*field) for variable, field in fields.items() if variable not in os.environ}
    return {variable: value for variable, value in values.items() if value is not None}


def _field(connection: str, field: str) -> str | None:
    try:
        airflow_connection = Connection.get(connection)
    except AirflowNotFoundException:
        return None
    standard_fields = ("login", "password", "host", "schema", "port")
    value = (
        getattr(airflow_connection, field) if field in standard_fields else airflow_connection.extra_dejson.get(field)
    )
    return None if value is None else str(value)


class Variables:
    """A store of texts by name: Airflow's Variables, which its UI shows with their descriptions."""

    def get(self, name: str) -> str | None:
        """Return the value; None if there is no such variable."""
        text: str | None = Variable.get(name, default=None)
        return text

    def names(self, prefix: str) -> list[str]:
        """Return the names of variables in Airflow's database that begin with a prefix."""
        return [name for name in Variable.keys(prefix) if name.startswith(prefix)]

    def set(self, name: str, text: str, description: str) -> None:
        """Create a variable, or replace its value."""
        Variable.set(name, text, description=description)

    def delete(self, name: str) -> None:
        """Delete a variable."""
        Variable.delete(name)


_EXIT_CODE = re.compile(r"Error code is: (-?\d+)")
"""Finds spark-submit's exit code in an error of the Spark provider, which has no attribute for it."""


@contextmanager
def terminal_is_final() -> Iterator[None]:
    """Turn a `Terminal` into a task failure without retry; other errors pass unchanged.

    Raises:
        AirflowFailException: In place of a Terminal.
    """
    try:
        yield
    except Terminal as error:
        raise AirflowFailException(str(error)) from error


def exit_code(message: str) -> int | None:
    """Return spark-submit's exit code from an error of the Spark provider; None if the message has none."""
    match = _EXIT_CODE.search(message)
    return int(match[1]) if match else None
