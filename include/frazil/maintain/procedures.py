"""The port to an engine that carries out maintenance."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from frazil.errors import Retryable


@dataclass(frozen=True, slots=True)
class Before:
    """Rows of partitions before an instant: the path of their column, its type (date, timestamp, timestamptz), the instant."""

    column: tuple[str, ...]
    type: str
    instant: datetime


@dataclass(frozen=True, slots=True)
class ZOrder:
    """An order by several columns at once."""

    columns: tuple[str, ...]


Argument = str | int | bool | datetime | tuple[str, ...] | Mapping[str, str] | Before | ZOrder
"""An argument of a procedure."""


class Conflict(Retryable):
    """Another process changed the files that a step was about to replace. The step did nothing; the table is sound."""


class Procedures(Protocol):
    """Iceberg's procedures, called through an engine that is connected to the catalogs."""

    def call(self, catalog: str, procedure: str, arguments: Mapping[str, Argument]) -> Iterator[dict[str, Any]]:
        """Call a procedure of a catalog, and return its rows, which are read lazily.

        Raises:
            Conflict: Others changed the same files meanwhile.
        """

    def listed(self, paths: Iterable[str]) -> AbstractContextManager[str]:
        """The name under which a procedure finds these files, all of them old, as a list of files that there are."""

    def note(self, catalog: str, table: str, key: str, value: str) -> None:
        """Set a property of a table."""
