"""The closing table: whose commits decide the batches of a pipeline. Chosen at its first commit, then only read."""

from __future__ import annotations

from collections.abc import Mapping

from frazil.errors import Terminal
from frazil.iceberg.holdings import BATCH_KEY, CLOSING_KEY, POSITION_KEY
from frazil.iceberg.table import Table
from frazil.pipeline.model import Pipeline


def closing_table(pipeline: Pipeline, found: Mapping[str, Table | None]) -> str:
    """Name of the closing table, from what the tables of a pipeline say; for a new pipeline, what it will be.

    The ledger's word counts. Before its first rows, or where it was lost, the table that holds the position is the one.
    A pipeline that begins with one destination keeps its position there. One that begins with several, or with one that only
    an engine can write, or with `route.create`, keeps it in the ledger.

    Args:
        pipeline: The pipeline.
        found: Its tables by name, None for one that is not there.

    Raises:
        Terminal: Two tables hold a position: two files began the pipeline at the same moment.
    """
    name = pipeline.name
    holding = [table for table, of in found.items() if _has(of, POSITION_KEY.format(name))]
    if len(holding) > 1:
        raise Terminal(
            f"pipeline {name}: tables {' and '.join(sorted(holding))} both hold a position of it: it was begun by two"
            " pipeline files at the same moment",
            next_step="drop these tables if nothing landed in them yet, and run again; else give the pipeline a new name",
        )
    ledger = found.get(pipeline.ledger_table)
    told = ledger.metadata.properties.get(CLOSING_KEY.format(name)) if ledger is not None else None
    if told is not None:
        return told
    if holding:
        return holding[0]
    # A follower's mark without a position anywhere: the ledger, which held it, was lost.
    is_follower = any(_has(found.get(table), BATCH_KEY.format(name)) for table in pipeline.tables)
    return pipeline.ledger_table if is_follower else closing_of_new(pipeline)


def closing_of_new(pipeline: Pipeline) -> str:
    """Name of the table that will close if the pipeline begins with this file."""
    if pipeline.create is not None or len(pipeline.tables) > 1 or pipeline.destinations[0].by_engine:
        return pipeline.ledger_table
    return pipeline.destinations[0].table


def _has(table: Table | None, key: str) -> bool:
    return table is not None and key in table.metadata.properties


def refuse_other_closing(pipeline: Pipeline, closing: str) -> None:
    """Refuse a pipeline file that does not name the closing table any more, or says that only an engine can write it.

    Raises:
        Terminal: It does; the position moves in commits of PyIceberg.
    """
    namespace, _, own = closing.rpartition(".")
    if closing != pipeline.ledger_table and pipeline.create is not None and own == f"{pipeline.name}__ledger":
        raise Terminal(
            f"pipeline {pipeline.name} keeps its position in its ledger {closing}, and by the pipeline file its ledger would be"
            f" {pipeline.ledger_table}",
            next_step=f"say so in the pipeline file: route.create.namespace: {namespace}",
        )
    if closing != pipeline.ledger_table and pipeline.create is not None:
        raise Terminal(
            f"pipeline {pipeline.name} keeps its position in table {closing}, and one that makes tables (route.create) keeps it"
            " in its ledger",
            next_step="list the tables under destinations, or give the pipeline a new name: its rows begin anew then",
        )
    if closing in pipeline.tables and pipeline.destination(closing).by_engine:
        raise Terminal(
            f"pipeline {pipeline.name} keeps its position in table {closing}, and the pipeline file now declares it as one that"
            " only Spark can write (write: upsert or cdc, format version 3, or no Parquet)",
            next_step=f"declare {closing} as it was, or give the pipeline a new name and another table",
        )
    if closing not in (*pipeline.tables, pipeline.ledger_table):
        raise Terminal(
            f"pipeline {pipeline.name} keeps its position in table {closing}, the pipeline file now names"
            f" {', '.join(pipeline.tables)}",
            next_step=f"name {closing} again, or give the pipeline a new name: its rows begin anew then",
        )
