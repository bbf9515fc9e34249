"""The interface of an engine that runs Iceberg's maintenance procedures."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from frazil.errors import Retryable


@dataclass(frozen=True, slots=True)
class Before:
    """A filter for rows before an instant: path of a column, its type (date, timestamp, timestamptz), and the instant."""

    column: tuple[str, ...]
    type: str
    instant: datetime


@dataclass(frozen=True, slots=True)
class ZOrder:
    """A Z-order by several columns."""

    columns: tuple[str, ...]


Argument = str | int | bool | datetime | tuple[str, ...] | Mapping[str, str] | Before | ZOrder
"""An argument of a procedure."""


class Conflict(Retryable):
    """Another process changed the files that a step was about to replace. The step changed nothing."""


class Procedures(Protocol):
    """An engine that is connected to the catalogs and calls Iceberg's procedures."""

    def call(self, catalog: str, procedure: str, arguments: Mapping[str, Argument]) -> Iterator[dict[str, Any]]:
        """Call a procedure in a catalog, and return an iterator over its result's rows.

        Raises:
            Conflict: Another process changed the same files meanwhile.
        """

    def listed(self, paths: Iterable[str]) -> AbstractContextManager[str]:
        """A context with a view that lists these files for a procedure; its value is the view's name."""

    def note(self, catalog: str, table: str, key: str, value: str) -> None:
        """Set a property of a table."""
