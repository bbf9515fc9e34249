"""The tables of a pipeline: loaded, made where pipeline or destination is new, which one closes, and which are shared with others."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from frazil.batch.manifest import Manifest
from frazil.batch.position import Position
from frazil.errors import Retryable, Terminal
from frazil.iceberg.branch_table import BranchTable
from frazil.iceberg.catalog import Lake
from frazil.iceberg.holdings import (
    BATCH_KEY,
    CLOSING_KEY,
    DONE_KEY,
    LETTERS_KEY,
    MANIFEST_KEY,
    POSITION_KEY,
    TABLES_KEY,
    TOPICS_KEY,
    Held,
    ledger_tables,
    lookup,
    mirrored,
)
from frazil.iceberg.ledger import (
    DEAD_LETTER_SCHEMA,
    LEDGER_PROPERTIES,
    LEDGER_SCHEMA,
    PARTITIONED_LAYOUT,
    TABLE_PROPERTIES,
    UNPARTITIONED,
)
from frazil.iceberg.own_tables import with_all_columns
from frazil.iceberg.schema import declared_order, declared_schema, declared_spec
from frazil.iceberg.table import Table, TableMetadata, read_text
from frazil.pipeline.catalogs import refused_properties
from frazil.pipeline.model import Destination, Pipeline
from frazil.run.identifier import lacks_key, no_key


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


T = TypeVar("T")
R = TypeVar("R")

AT_ONCE: Final = 8
"""Tables that are asked at the same time: a catalog answers in milliseconds, a hundred tables need not queue."""


@dataclass(frozen=True)
class Tables:
    """The tables of a pipeline as loaded at one moment.

    Attributes:
        destinations: By name, in the order of the pipeline file.
        dead_letters: The dead letters.
        ledger: The ledger.
        closing_name: Name of the one whose commits decide: a destination, or the ledger.
    """

    destinations: Mapping[str, Table]
    dead_letters: Table
    ledger: Table
    closing_name: str

    @property
    def closing(self) -> Table:
        """The closing table."""
        return self.destinations.get(self.closing_name, self.ledger)

    @property
    def followers(self) -> Mapping[str, Table]:
        """Destinations that follow."""
        return {name: table for name, table in self.destinations.items() if name != self.closing_name}


def open_tables(lake: Lake, pipeline: Pipeline, recreate: Collection[str] = ()) -> Tables:
    """Load the tables of a pipeline; make those that are missing, if the pipeline or the destination is new.

    A new destination whose key nothing tells is left out.

    Args:
        lake: The catalog.
        pipeline: The pipeline.
        recreate: Tables that may be made anew although the pipeline ran.

    Raises:
        Terminal: A table is gone although the pipeline ran before, or the pipeline ran with another destination; or it
            never ran, and nothing tells the key of a merged table.
        Retryable: The catalog can't be reached.
    """
    found, closing = load_tables(lake, pipeline)
    missing = [name for name, table in found.items() if table is None]
    if missing:
        _refuse_if_moved(lake, pipeline)
        gone = [name for name in _known(pipeline, found, missing) if name not in recreate]
        if gone:
            _refuse_if_known(pipeline, found, gone, closing)
        _leave_out_without_key(pipeline, found, missing)
        for name in missing:
            if name in found:
                found[name] = _make(lake, pipeline, name)
    for name, table in found.items():
        if isinstance(table, BranchTable) and not table.is_begun:  # never one that a batch may be on: see load_tables
            found[name] = lake.begin_branch(name)
    return _tables(pipeline, found, closing)


def _leave_out_without_key(pipeline: Pipeline, found: dict[str, Table | None], missing: list[str]) -> None:
    """A table is not made before its key is known. That stops what the pipeline begins, not what it has to finish."""
    for name in (of for of in missing if of in pipeline.tables and lacks_key(pipeline.destination(of))):
        if found[pipeline.ledger_table] is None:
            raise no_key(pipeline.destination(name), is_there=False)
        del found[name]


def find_tables(lake: Lake, pipeline: Pipeline) -> Tables | None:
    """Load the tables of a pipeline and change nothing; None if the pipeline never ran and not all of them exist.

    A destination that is new to the pipeline and is not there yet is left out.

    Raises:
        Terminal: As `open_tables`.
        Retryable: The catalog can't be reached.
    """
    found, closing = load_tables(lake, pipeline)
    missing = [name for name, table in found.items() if table is None]
    if missing:
        _refuse_if_moved(lake, pipeline)
        gone = _known(pipeline, found, missing)
        if gone:
            _refuse_if_known(pipeline, found, gone, closing)
            return None
    there = {name: table for name, table in found.items() if table is not None}
    return tables_of(pipeline, there, closing)


def _tables(pipeline: Pipeline, found: Mapping[str, Table | None], closing: str) -> Tables:
    there = {name: table for name, table in found.items() if table is not None}
    if there.keys() < found.keys():
        raise Retryable(f"pipeline {pipeline.name}: a table vanished while the tables were opened")
    return with_own_columns(pipeline, tables_of(pipeline, there, closing))


def with_own_columns(pipeline: Pipeline, tables: Tables, missing: Collection[str] = ()) -> Tables:
    """The tables, dead letters and ledger with the columns of this Frazil; but for those that are not there."""
    letters, ledger = pipeline.dead_letters_table, pipeline.ledger_table
    if letters not in missing:
        tables = replace(tables, dead_letters=with_all_columns(tables.dead_letters, letters, DEAD_LETTER_SCHEMA))
    if ledger not in missing:
        tables = replace(tables, ledger=with_all_columns(tables.ledger, ledger, LEDGER_SCHEMA))
    return tables


def tables_of(pipeline: Pipeline, there: Mapping[str, Table], closing: str) -> Tables:
    """Tables by name as the tables of a pipeline."""
    destinations = {name: there[name] for name in pipeline.tables if name in there}
    return Tables(destinations, there[pipeline.dead_letters_table], there[pipeline.ledger_table], closing)


def load_tables(lake: Lake, pipeline: Pipeline) -> tuple[dict[str, Table | None], str]:
    """The tables by name, None for one that is not there, and the name of the closing one.

    Followers are read before the closing table: whatever a rival finishes meanwhile, none is ever seen ahead of it. Which one
    closes is known once all are read, so the likely one is read last, and only if it is another one, that one again.
    """
    last = closing_of_new(pipeline)
    names = [pipeline.ledger_table, pipeline.dead_letters_table, *pipeline.tables]
    found = _found(lake, [name for name in names if name != last])
    found |= _found(lake, [last])
    missing = [name for name in names if found[name] is None]
    if found[last] is not None and missing:
        # The closing table is made with the others: a rival's first run may have begun and ended between our two looks.
        found |= _found(lake, missing)
        found |= _found(lake, [last])
    found = {name: found[name] for name in names}
    closing = closing_table(pipeline, found)
    refuse_other_closing(pipeline, closing)
    if closing != last and found[closing] is not None:
        found[closing] = lake.find_table(closing)
    return found, closing


def _found(lake: Lake, names: list[str]) -> dict[str, Table | None]:
    """Tables by name; a rival may have made those that are missing while we looked."""
    found = dict(zip(names, in_parallel(lake.find_table, names), strict=True))
    missing = [name for name, table in found.items() if table is None]
    return found | dict(zip(missing, in_parallel(lake.find_table, missing), strict=True))


def in_parallel(work: Callable[[T], R], items: Iterable[T]) -> list[R]:
    """The results of `work`, in the order of `items`; a few at the same time if there are several."""
    wanted = list(items)
    if len(wanted) <= 1:
        return [work(item) for item in wanted]
    with ThreadPoolExecutor(min(AT_ONCE, len(wanted))) as pool:
        return list(pool.map(work, wanted))


def _make(lake: Lake, pipeline: Pipeline, name: str) -> Table:
    """Make a table that is missing: the one place where a table begins to be."""
    if name == pipeline.dead_letters_table:
        properties = TABLE_PROPERTIES | {LETTERS_KEY: pipeline.name}
        return lake.create_table(name, DEAD_LETTER_SCHEMA, UNPARTITIONED, properties)
    if name == pipeline.ledger_table:
        return lake.create_table(name, LEDGER_SCHEMA, UNPARTITIONED, TABLE_PROPERTIES | LEDGER_PROPERTIES)
    return make_destination(lake, pipeline.destination(name))


def make_destination(lake: Lake, destination: Destination, notes: Mapping[str, str] | None = None) -> Table:
    """Make the table of a destination, unless somebody else did it first.

    Args:
        lake: Where.
        destination: What it is like.
        notes: Further properties.
    """
    catalog = lake.catalog_of(destination.table)
    if refused := next(refused_properties(destination.properties, catalog.table_properties), None):
        raise Terminal(
            f"table {destination.table} is not made: its pipeline gives it the property {refused}, which may run code, or have a say in"
            " the storage, for all who open it",
            next_step=f"take it out of the file, or list it in the settings: catalogs.{catalog.name}.table_properties",
        )
    schema = declared_schema(destination)
    spec = declared_spec(destination, schema)
    layout = PARTITIONED_LAYOUT if destination.partition_by else {}
    version = {"format-version": destination.format_version}
    modes = {f"write.{of}.mode": destination.merge for of in ("merge", "update", "delete")}
    merged: dict[str, str] = {**modes, **_whole_bounds(destination)} if destination.is_merged else {}
    properties = TABLE_PROPERTIES | layout | version | merged | destination.properties | dict(notes or {})
    return lake.create_table(destination.table, schema, spec, properties, declared_order(destination, schema))


def _whole_bounds(destination: Destination) -> dict[str, str]:
    """Texts as keys often begin alike ("order-0000…"): cut bounds would have every merge look into every file."""
    texts = [name for name in destination.identifier if destination.columns[name].type == "string"]
    return {f"write.metadata.metrics.column.{name}": "full" for name in texts}


def _known(pipeline: Pipeline, found: Mapping[str, Table | None], missing: list[str]) -> list[str]:
    """Missing tables that the pipeline had, or may have had. A destination that the ledger does not know is new."""
    ledger = found.get(pipeline.ledger_table)
    told = ledger_tables(ledger.metadata, pipeline.name, pipeline.ledger_table) if ledger is not None else {}
    # The ledger itself is known, too: a pipeline that was given no other table yet has begun all the same.
    begun = ledger is not None and TABLES_KEY.format(pipeline.name) in ledger.metadata.properties
    return known_missing(pipeline, (pipeline.ledger_table, *told) if begun else _started_with(pipeline, found), missing)


def _started_with(pipeline: Pipeline, found: Mapping[str, Table | None]) -> frozenset[str]:
    """Tables of a first batch that is decided and not recorded yet; empty if that is not how the pipeline stands."""
    for name, table in found.items():
        holds = None if table is None else lookup(table.metadata, BATCH_KEY.format(pipeline.name), name)
        path = holds.summary.get(MANIFEST_KEY) if isinstance(holds, Held) else None
        if table is None or path is None or POSITION_KEY.format(pipeline.name) not in table.metadata.properties:
            continue
        manifest = Manifest.from_json(read_text(table, path))
        return frozenset(part.table for part in manifest.parts) if manifest.kind == "start" else frozenset()
    return frozenset()


def known_missing(pipeline: Pipeline, told: Collection[str], missing: list[str]) -> list[str]:
    """Missing tables that the pipeline had, or may have had, by what the ledger tells: a new destination is none."""
    return [name for name in missing if not told or name in told or name not in pipeline.tables]


def _refuse_if_known(pipeline: Pipeline, found: Mapping[str, Table | None], missing: list[str], closing: str) -> None:
    for name, table in found.items():
        if table is None:
            continue
        if any(key.format(pipeline.name) in table.metadata.properties for key in (POSITION_KEY, BATCH_KEY, DONE_KEY)):
            raise Terminal(
                f"pipeline {pipeline.name}: table {', '.join(missing)} is gone, but {name} was written by this pipeline",
                next_step="restore the table (the catalog may still have its last metadata file), or "
                + _instead(pipeline, closing if closing in missing else missing[0], closing),
            )


def _instead(pipeline: Pipeline, missing: str, closing: str) -> str:
    if missing == closing:
        return f"land everything Kafka still holds again: frazil reset {pipeline.name} --to earliest --reason …"
    return f"make it anew: frazil repair {pipeline.name} {missing} --reason …"


def _refuse_if_moved(lake: Lake, pipeline: Pipeline) -> None:
    """A pipeline whose first destination was renamed or moved would begin anew there, and land everything twice."""
    own = pipeline.ledger_table.rpartition(".")[2]
    ledgers = [(of, name) for of in lake.catalogs for name in of.tables() if name.rpartition(".")[2] == own]
    for catalog, name in ledgers:
        closing = catalog.load_table(name).metadata.properties.get(CLOSING_KEY.format(pipeline.name))
        if closing is None:
            continue
        refuse_other_closing(pipeline, closing)
        if (catalog.name, name) != (lake.catalogs[0].name, pipeline.ledger_table):
            raise Terminal(
                f"pipeline {pipeline.name} has its ledger in {name} of catalog {catalog.name}; beside the first destination of"
                f" the pipeline file it would be {pipeline.ledger_table} of catalog {lake.catalogs[0].name}",
                next_step=f"name a destination of namespace {name.rpartition('.')[0]}, in catalog {catalog.name}, first again",
            )


def refuse_shared(pipeline: Pipeline, tables: Tables) -> None:
    """Refuse a table in which another pipeline's rows could be taken for this one's.

    Rows say topic, partition and offset, not the cluster or the pipeline: two pipelines may write one destination as
    long as no topic name is in both. A dead-letter table belongs to one pipeline.

    Raises:
        Terminal: A topic of this pipeline landed in the destination by another one, or the letters are another's.
    """
    letters = pipeline.dead_letters_table
    metadata = tables.dead_letters.metadata
    owner = {metadata.properties[LETTERS_KEY]} if LETTERS_KEY in metadata.properties else set[str]()
    others = (mirrored(metadata, BATCH_KEY, letters).keys() | owner) - {pipeline.name}
    if others:
        raise Terminal(
            f"pipeline {pipeline.name}: dead-letter table {letters} is for letters of pipeline {min(others)}: a replay or reset"
            " of one would take out the other's",
            next_step=f"give pipeline {pipeline.name} a dead-letter table of its own (dead_letters.table; without the key"
            " it gets one)",
        )
    for name, table in tables.destinations.items():
        refuse_same_topics(pipeline, name, table.metadata)


def refuse_same_topics(pipeline: Pipeline, table: str, metadata: TableMetadata) -> None:
    """Refuse a destination in which another pipeline landed a topic of the same name.

    Args:
        pipeline: The pipeline.
        table: Name of the destination.
        metadata: What it is now.

    Raises:
        Terminal: It did.
    """
    read = topics_landed(metadata, table)
    own, all_read = read.get(pipeline.name), frozenset[str]().union(*read.values())
    topics = frozenset(topic for topic in all_read if topic in (own or ()) or pipeline.source.reads(topic))
    rival = landed_by_another(pipeline.name, topics, metadata, table)
    if rival is not None:
        raise Terminal(
            f"{rival.said} already: with pipeline {pipeline.name} every record would be there twice, and neither could tell its"
            " rows from the other's",
            next_step=f"was it renamed? Call it {rival.pipeline} again; otherwise give it a table of its own"
            if own is None
            else rival.left_out(pipeline.name),
        )


@dataclass(frozen=True, slots=True)
class Rival:
    """Another pipeline that landed topics in a table."""

    pipeline: str
    topics: tuple[str, ...]
    table: str

    @property
    def said(self) -> str:
        """What it did."""
        return f"pipeline {self.pipeline} landed topic {', '.join(self.topics)} in table {self.table}"

    def left_out(self, pipeline: str) -> str:
        """What ends it for a pipeline that has rows of other topics there."""
        return (
            f"leave {', '.join(self.topics)} out of the source of pipeline {pipeline}: list its other topics under source.topics, in"
            " place of a pattern that matches it"
        )


def landed_by_another(pipeline: str, topics: frozenset[str], metadata: TableMetadata, table: str) -> Rival | None:
    """The first other pipeline that landed one of these topics in a table."""
    for other, read in sorted(topics_landed(metadata, table).items()):
        if other != pipeline and topics & read:
            return Rival(other, tuple(sorted(topics & read)), table)
    return None


def topics_landed(metadata: TableMetadata, table: str) -> dict[str, frozenset[str]]:
    """The topics that each pipeline lands in a table, whose closing table it is or which follows."""
    following = {name: frozenset(json.loads(text)) for name, text in mirrored(metadata, TOPICS_KEY, table).items()}
    closing = mirrored(metadata, POSITION_KEY, table)
    return following | {name: frozenset(Position.from_json(text).topics) for name, text in closing.items()}
