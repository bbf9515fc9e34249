"""Airflow's Variables, in which callbacks, the monitor and the notes of runs keep what outlives a task."""

from __future__ import annotations

from airflow.sdk import Variable


class Variables:
    """Texts by name: Airflow's Variables, which people see with their descriptions in its UI."""

    def get(self, name: str) -> str | None:
        """Return the value; None if there is no such variable."""
        text: str | None = Variable.get(name, default=None)
        return text

    def names(self, prefix: str) -> list[str]:
        """Return the names of variables that begin so, of those in Airflow's database."""
        return [name for name in Variable.keys(prefix) if name.startswith(prefix)]

    def set(self, name: str, text: str, description: str) -> None:
        """Make the variable, or give it another value."""
        Variable.set(name, text, description=description)

    def delete(self, name: str) -> None:
        """Remove the variable."""
        Variable.delete(name)
