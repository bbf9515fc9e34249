"""The tables of a pipeline: loaded, and made if the pipeline is new."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from frazil.errors import Retryable, Terminal
from frazil.iceberg.catalog import Lake
from frazil.iceberg.holdings import BATCH_KEY, CLOSING_KEY, DONE_KEY, POSITION_KEY
from frazil.iceberg.ledger import (
    DEAD_LETTER_SCHEMA,
    LEDGER_PROPERTIES,
    LEDGER_SCHEMA,
    PARTITIONED_LAYOUT,
    TABLE_PROPERTIES,
    UNPARTITIONED,
    with_all_columns,
)
from frazil.iceberg.schema import declared_schema, declared_spec
from frazil.iceberg.table import Table
from frazil.pipeline.model import Pipeline


@dataclass(frozen=True)
class Tables:
    """The tables of a pipeline as loaded at one moment."""

    destination: Table
    dead_letters: Table
    ledger: Table


def open_tables(lake: Lake, pipeline: Pipeline, recreate: Collection[str] = ()) -> Tables:
    """Load the tables of a pipeline; make those that are missing, if the pipeline never ran.

    Args:
        lake: The catalog.
        pipeline: The pipeline.
        recreate: Tables that may be made anew although the pipeline ran.

    Raises:
        Terminal: A table is gone although the pipeline ran before, or the pipeline ran with another destination.
        Retryable: The catalog can't be reached.
    """
    destination = pipeline.destinations[0]
    names = _names(pipeline)
    found = _found(lake, names)
    missing = [name for name, table in found.items() if table is None]
    if missing:
        _refuse_if_moved(lake, pipeline)
        gone = [name for name in missing if name not in recreate]
        if gone:
            _refuse_if_known(pipeline, {name: table for name, table in found.items() if table is not None}, gone)
        schema = declared_schema(destination)
        spec = declared_spec(destination, schema)
        layout = {} if spec.is_unpartitioned() else PARTITIONED_LAYOUT
        recipes = {
            destination.table: (schema, spec, TABLE_PROPERTIES | layout | destination.properties),
            pipeline.dead_letters_table: (DEAD_LETTER_SCHEMA, UNPARTITIONED, TABLE_PROPERTIES),
            pipeline.ledger_table: (LEDGER_SCHEMA, UNPARTITIONED, TABLE_PROPERTIES | LEDGER_PROPERTIES),
        }
        for name in missing:
            found[name] = lake.create_table(name, *recipes[name])
    ledger, dead_letters, closing = (found[name] for name in names)
    if ledger is None or dead_letters is None or closing is None:
        raise Retryable(f"pipeline {pipeline.name}: a table vanished while the tables were opened")
    return Tables(
        closing,
        with_all_columns(dead_letters, pipeline.dead_letters_table, DEAD_LETTER_SCHEMA),
        with_all_columns(ledger, pipeline.ledger_table, LEDGER_SCHEMA),
    )


def find_tables(lake: Lake, pipeline: Pipeline) -> Tables | None:
    """Load the tables of a pipeline and change nothing; None if the pipeline never ran and not all of them exist.

    Raises:
        Terminal: As `open_tables`.
        Retryable: The catalog can't be reached.
    """
    ledger, dead_letters, closing = (found := _found(lake, _names(pipeline))).values()
    if ledger is not None and dead_letters is not None and closing is not None:
        return Tables(closing, dead_letters, ledger)
    _refuse_if_moved(lake, pipeline)
    known = {name: table for name, table in found.items() if table is not None}
    _refuse_if_known(pipeline, known, [name for name in found if name not in known])
    return None


def _names(pipeline: Pipeline) -> tuple[str, str, str]:
    """Followers before the closing table: whatever a rival finishes meanwhile, the ledger is never seen ahead of it."""
    return pipeline.ledger_table, pipeline.dead_letters_table, pipeline.destinations[0].table


def _found(lake: Lake, names: tuple[str, ...]) -> dict[str, Table | None]:
    found = {name: lake.find_table(name) for name in names}
    # A rival may have made them while we looked.
    return found | {name: lake.find_table(name) for name, table in found.items() if table is None}


def _refuse_if_known(pipeline: Pipeline, found: Mapping[str, Table], missing: list[str]) -> None:
    closing = pipeline.destinations[0].table
    for name, table in found.items():
        if any(key.format(pipeline.name) in table.metadata.properties for key in (POSITION_KEY, BATCH_KEY, DONE_KEY)):
            raise Terminal(
                f"pipeline {pipeline.name}: table {', '.join(missing)} is gone, but {name} was written by this pipeline",
                next_step="restore the table (the catalog may still have its last metadata file), or "
                + _instead(pipeline, closing if closing in missing else missing[0]),
            )


def _instead(pipeline: Pipeline, missing: str) -> str:
    if missing == pipeline.destinations[0].table:
        return f"land everything Kafka still holds again: frazil reset {pipeline.name} --to earliest --reason …"
    return f"make it anew: frazil settle {pipeline.name} --table {missing} --restage --reason …"


def _refuse_if_moved(lake: Lake, pipeline: Pipeline) -> None:
    """A pipeline whose destination was renamed or moved would begin anew there, and land everything twice."""
    ledgers = [name for name in lake.tables() if name.rpartition(".")[2] == pipeline.ledger_table.rpartition(".")[2]]
    for name in ledgers:
        closing = lake.load_table(name).metadata.properties.get(CLOSING_KEY.format(pipeline.name))
        if closing not in (None, pipeline.destinations[0].table):
            raise Terminal(
                f"pipeline {pipeline.name} keeps its position in table {closing}, the pipeline file now names"
                f" {pipeline.destinations[0].table}",
                next_step=f"name {closing} again, or give the pipeline a new name: its rows begin anew then",
            )
