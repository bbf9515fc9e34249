"""The tables of a pipeline: made if the pipeline is new, and what they hold of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from frazil.batch.position import BatchMark, Position
from frazil.errors import Retryable, Terminal
from frazil.iceberg.catalog import Lake
from frazil.iceberg.holdings import BATCH_KEY, CLOSING_KEY, DONE_KEY, POSITION_KEY, Held, held
from frazil.iceberg.ledger import DEAD_LETTER_SCHEMA, LEDGER_SCHEMA, PARTITIONED_LAYOUT, TABLE_PROPERTIES, UNPARTITIONED
from frazil.iceberg.schema import declared_schema, declared_spec
from frazil.iceberg.table import Table
from frazil.pipeline.model import Pipeline

MANIFEST_KEY = "frazil.manifest"
"""Summary key: path of the batch's manifest."""


@dataclass(frozen=True)
class Tables:
    """The tables of a pipeline as loaded at one moment."""

    destination: Table
    dead_letters: Table
    ledger: Table


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a pipeline stands, from what its tables hold.

    Attributes:
        position: The position, or None before the first run.
        mark: The batch that the closing table holds last.
        manifest: Path of that batch's manifest, as far as its snapshot is still there.
        done: The last finished batch, from the ledger.
        dead_letters: The batch that the dead-letter table holds last.
    """

    position: Position | None
    mark: BatchMark | None
    manifest: str | None
    done: BatchMark | None
    dead_letters: BatchMark | None

    @property
    def unfinished(self) -> bool:
        """Whether the last decided batch still has to be rolled forward."""
        return self.mark is not None and self.mark != self.done


def open_tables(lake: Lake, pipeline: Pipeline) -> Tables:
    """Load the tables of a pipeline; make those that are missing, if the pipeline never ran.

    Raises:
        Terminal: A table is gone although the pipeline ran before, or the pipeline ran with another destination.
        Retryable: The catalog can't be reached.
    """
    destination = pipeline.destinations[0]
    # Followers before the closing table: whatever a rival finishes meanwhile, the ledger is never seen ahead of it.
    names = (pipeline.ledger_table, pipeline.dead_letters_table, destination.table)
    found = {name: lake.find_table(name) for name in names}
    missing = [name for name, table in found.items() if table is None]
    if missing:
        # A rival may have made them while we looked.
        found |= {name: lake.find_table(name) for name in missing}
        missing = [name for name in missing if found[name] is None]
    if missing:
        _refuse_if_moved(lake, pipeline)
        _refuse_if_known(pipeline, {name: table for name, table in found.items() if table is not None}, missing)
        schema = declared_schema(destination)
        spec = declared_spec(destination, schema)
        layout = {} if spec.is_unpartitioned() else PARTITIONED_LAYOUT
        recipes = {
            destination.table: (schema, spec, TABLE_PROPERTIES | layout | destination.properties),
            pipeline.dead_letters_table: (DEAD_LETTER_SCHEMA, UNPARTITIONED, TABLE_PROPERTIES),
            pipeline.ledger_table: (LEDGER_SCHEMA, UNPARTITIONED, TABLE_PROPERTIES),
        }
        for name in missing:
            found[name] = lake.create_table(name, *recipes[name])
    ledger, dead_letters, closing = (found[name] for name in names)
    if ledger is None or dead_letters is None or closing is None:
        raise Retryable(f"pipeline {pipeline.name}: a table vanished while the tables were opened")
    return Tables(closing, dead_letters, ledger)


def _refuse_if_known(pipeline: Pipeline, found: Mapping[str, Table], missing: list[str]) -> None:
    for name, table in found.items():
        if any(key.format(pipeline.name) in table.metadata.properties for key in (POSITION_KEY, BATCH_KEY, DONE_KEY)):
            raise Terminal(
                f"pipeline {pipeline.name}: table {', '.join(missing)} is gone, but {name} was written by this pipeline",
                next_step="restore the table (the catalog may still have its last metadata file); a pipeline does not start anew by itself",
            )


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


def standing(pipeline: Pipeline, tables: Tables) -> Standing:
    """Where the pipeline stands.

    Raises:
        Terminal: The tables contradict each other: rolled back, replaced, or written under another closing table.
    """
    name = pipeline.name
    destination = pipeline.destinations[0].table
    position = held(tables.destination.metadata, POSITION_KEY.format(name), destination)
    mark = held(tables.destination.metadata, BATCH_KEY.format(name), destination)
    done = held(tables.ledger.metadata, DONE_KEY.format(name), pipeline.ledger_table)
    dead = held(tables.dead_letters.metadata, BATCH_KEY.format(name), pipeline.dead_letters_table)
    closing = tables.ledger.metadata.properties.get(CLOSING_KEY.format(name))
    if closing is not None and closing != destination:
        raise Terminal(
            f"pipeline {name}: its position is kept in table {closing}, the pipeline file now names {destination}",
            next_step=f"name {closing} again; a renamed table needs a new pipeline, for its rows would begin anew",
        )
    if position is None and (done is not None or dead is not None):
        raise Terminal(
            f"pipeline {name}: table {destination} holds no position, but the ledger or the dead letters were written by this pipeline",
            next_step=f"was {destination} dropped and made anew? Restore it, or give the pipeline a new name to start from the beginning",
        )
    now = Standing(
        Position.from_json(position.value) if position else None,
        _mark(mark),
        mark.summary.get(MANIFEST_KEY) if mark else None,
        _mark(done),
        _mark(dead),
    )
    _refuse_rollback(pipeline, now)
    return now


def _refuse_rollback(pipeline: Pipeline, now: Standing) -> None:
    """The ledger follows the closing table: it can be one batch behind, never ahead or beside."""
    if now.done is None or now.mark is None or now.done == now.mark or now.done.n == now.mark.n - 1:
        return
    table = pipeline.destinations[0].table
    raise Terminal(
        f"pipeline {pipeline.name}: the ledger knows batch {now.done.n} ({now.done.batch}) as finished, table {table} holds"
        f" batch {now.mark.n} ({now.mark.batch}): one of them was rolled back or replaced",
        next_step=f"bring {table} and {pipeline.ledger_table} back to the same batch; frazil history {pipeline.name} shows the snapshots",
    )


def _mark(value: Held | None) -> BatchMark | None:
    return BatchMark.from_json(value.value) if value else None
