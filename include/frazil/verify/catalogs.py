"""The catalogs of a pipeline and the branches of its tables, looked up for this check alone."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError
from pyiceberg.table import Table

from frazil.errors import Terminal
from frazil.pipeline.catalogs import CatalogSettings
from frazil.pipeline.model import Pipeline
from frazil.verify.faults import reading_tables
from frazil.verify.rest import BoundSqlCatalog, TimedRestCatalog


class Catalogs:
    """The catalogs of a pipeline, each opened when a table of it is asked for.

    Args:
        pipeline: The pipeline.
        settings: Entries of the settings, by name.
    """

    def __init__(self, pipeline: Pipeline, settings: Mapping[str, CatalogSettings]) -> None:
        self._pipeline = pipeline
        self._settings = settings
        self._opened: dict[str, Catalog] = {}

    def table(self, name: str) -> Table:
        """A table as it is now, on the branch that the pipeline lands on.

        Raises:
            Terminal: There is no such table, or no such branch.
            Retryable: The catalog is not available now.
        """
        declared = {of.table: of for of in self._pipeline.destinations}.get(name)
        home = self._pipeline.home_catalog
        catalog = home if declared is None else declared.catalog or self._pipeline.catalog
        with reading_tables(f"loading table {name}"):
            try:
                table = self._catalog(catalog).load_table(name)
            except (NoSuchTableError, NoSuchNamespaceError) as error:
                raise Terminal(
                    f"pipeline {self._pipeline.name}: there is no table {name} in catalog {catalog}",
                    next_step=f"run it first: frazil run {self._pipeline.name}. If it ran before, the table was dropped:"
                    " restore it",
                ) from error
        if declared is not None and declared.branch is not None:
            _look_at(table, name, declared.branch)
        return table

    def _catalog(self, name: str) -> Catalog:
        if name not in self._opened:
            _require_database(self._pipeline, name, self._settings[name])
            with reading_tables(f"opening catalog {name}"):
                self._opened[name] = _opened(name, self._settings[name])
        return self._opened[name]


def _look_at(table: Table, name: str, branch: str) -> None:
    """Make a branch what scans of a table read."""
    ref = table.metadata.refs.get(branch)
    if ref is None:
        raise Terminal(
            f"table {name} has no branch {branch}, which the pipeline file names",
            next_step="was it dropped? frazil run says what to do",
        )
    table.metadata = table.metadata.model_copy(update={"current_snapshot_id": ref.snapshot_id})


def _require_database(pipeline: Pipeline, name: str, settings: CatalogSettings) -> None:
    """A check must not make what it looks for: opening a SQLite file that is not there would."""
    file = settings.uri.removeprefix("sqlite:///")
    if file != settings.uri and not Path(file).is_file():
        raise Terminal(
            f"catalog {name} is empty: there is no database {file}, so there is no table of {pipeline.name}",
            next_step=f"run the pipeline first: frazil run {pipeline.name}",
        )


def _opened(name: str, settings: CatalogSettings) -> Catalog:
    places = {"uri": settings.address, "warehouse": settings.warehouse}
    given = {key: value for key, value in places.items() if value is not None}
    if settings.type == "rest":
        return TimedRestCatalog(name, **settings.properties, **given)
    return BoundSqlCatalog(name, **settings.properties, **given)
