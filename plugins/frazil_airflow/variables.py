"""Airflow Variables as a store of texts: what monitor and callbacks keep between runs.

They live in Airflow's database, behind its API: tasks, callbacks of tasks and those of the DAG processor may use them, and
nothing else that lasts.
"""

from __future__ import annotations

from typing import Protocol

from airflow.sdk import Variable


class Store(Protocol):
    """Texts by name."""

    def get(self, name: str) -> str | None:
        """Return the text; None if there is none."""

    def names(self, prefix: str) -> list[str]:
        """Return the names that begin so."""

    def set(self, name: str, text: str, description: str) -> None:
        """Keep a text; people see it with its description in Airflow's UI."""

    def delete(self, name: str) -> None:
        """Forget a text."""


class Variables:
    """Airflow's Variables."""

    def get(self, name: str) -> str | None:
        """Return the value; None if there is no such variable."""
        found: str | None = Variable.get(name, default=None)
        return found

    def names(self, prefix: str) -> list[str]:
        """Return the names of variables that begin so, of those in Airflow's database."""
        return [name for name in Variable.keys(prefix) if name.startswith(prefix)]

    def set(self, name: str, text: str, description: str) -> None:
        """Make the variable, or give it another value."""
        Variable.set(name, text, description=description)

    def delete(self, name: str) -> None:
        """Remove the variable."""
        Variable.delete(name)
