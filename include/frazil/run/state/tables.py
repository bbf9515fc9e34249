"""The tables of a pipeline: loads them, creates missing ones of a new pipeline or destination, finds the closing table, and
refuses tables that another pipeline shares.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from frazil.batch.manifest import Manifest
from frazil.batch.position import Position
from frazil.error_codes import BAD_TABLE_PROPERTY, FILE_CONTRADICTS, RUN_OVERTAKEN, TABLE_LOST, TABLE_SHARED
from frazil.iceberg.catalog.catalog import Lake
from frazil.iceberg.catalog.table import (
    LEDGER_PROPERTIES,
    PARTITIONED_LAYOUT,
    TABLE_PROPERTIES,
    BranchTable,
    Table,
    TableMetadata,
    missing_files,
    read_text,
)
from frazil.iceberg.commit.summary_state import (
    BATCH_KEY,
    CLOSING_KEY,
    DONE_KEY,
    KIND_KEY,
    LETTERS_KEY,
    MANIFEST_KEY,
    POSITION_KEY,
    TABLES_KEY,
    TOPICS_KEY,
    SummaryValue,
    decode_property,
    ledger_tables,
    mirrored_values,
    read_summary,
)
from frazil.iceberg.ledger.ledger import DEAD_LETTER_SCHEMA, LEDGER_SCHEMA, UNPARTITIONED, with_all_columns
from frazil.iceberg.schema.schema import declared_order, declared_schema, declared_spec
from frazil.pipeline.models.pipeline_file import Destination, Pipeline
from frazil.pipeline.settings.catalogs import refused_properties
from frazil.run.state.context import lacks_key, missing_key_error


def closing_table(pipeline: Pipeline, loaded_tables: Mapping[str, Table | None]) -> str:
    """Name of the closing table, from the properties of the pipeline's tables; for a new pipeline, the one it will have.

    The ledger records it. Before the ledger's first rows, or if the ledger was lost, the closing table is the one with the position.
    A pipeline that begins with one destination keeps its position there. One that begins with several, or with one that only
    an engine can write, or with `route.create`, keeps it in the ledger.

    Raises:
        Terminal: Two tables contain a position: two files began the pipeline at the same moment.
    """
    name = pipeline.name
    holding = [table for table, loaded in loaded_tables.items() if _has_property(loaded, POSITION_KEY.format(name))]
    if len(holding) > 1:
        raise TABLE_SHARED.terminal(
            f"pipeline {name}: tables {' and '.join(sorted(holding))} both hold a position of it: two pipeline files"
            " started it at the same moment",
            next_step="drop these tables if nothing landed in them yet, and run again; else give the pipeline a new name",
        )
    ledger = loaded_tables.get(pipeline.ledger_table)
    recorded = ledger.metadata.properties.get(CLOSING_KEY.format(name)) if ledger is not None else None
    if recorded is not None:
        return recorded
    if holding:
        return holding[0]
    # A follower has a mark, and no table has a position: the ledger held it, and was lost.
    is_follower = any(_has_property(loaded_tables.get(table), BATCH_KEY.format(name)) for table in pipeline.tables)
    return pipeline.ledger_table if is_follower else closing_of_new_pipeline(pipeline)


def closing_of_new_pipeline(pipeline: Pipeline) -> str:
    """Name of the closing table that a pipeline gets if it begins with this file."""
    if pipeline.create is not None or len(pipeline.tables) > 1 or pipeline.destinations[0].by_engine:
        return pipeline.ledger_table
    return pipeline.destinations[0].table


def _has_property(table: Table | None, key: str) -> bool:
    return table is not None and key in table.metadata.properties


def refuse_other_closing(pipeline: Pipeline, closing: str) -> None:
    """Refuse a pipeline file that no longer names the closing table, or makes it one that only an engine can write.

    Raises:
        Terminal: The file does so: the position moves only in commits of PyIceberg.
    """
    namespace, _, own = closing.rpartition(".")
    if closing != pipeline.ledger_table and pipeline.create is not None and own == f"{pipeline.name}__ledger":
        raise FILE_CONTRADICTS.terminal(
            f"pipeline {pipeline.name} keeps its position in its ledger {closing}, and by the pipeline file its"
            f" ledger would be {pipeline.ledger_table}",
            next_step=f"set route.create.namespace: {namespace} in the pipeline file",
        )
    if closing != pipeline.ledger_table and pipeline.create is not None:
        raise FILE_CONTRADICTS.terminal(
            f"pipeline {pipeline.name} keeps its position in table {closing}, but a pipeline that creates tables (route.create)"
            " keeps it in its ledger",
            next_step="list the tables under destinations, or give the pipeline a new name: it then begins at its start",
        )
    if closing in pipeline.tables and pipeline.destination(closing).by_engine:
        raise FILE_CONTRADICTS.terminal(
            f"pipeline {pipeline.name} keeps its position in table {closing}, and the pipeline file now declares it as one that"
            " only Spark can write (write: upsert or cdc, format version 3, or no Parquet)",
            next_step=f"declare {closing} as it was, or give the pipeline a new name and another table",
        )
    if closing not in (*pipeline.tables, pipeline.ledger_table):
        raise FILE_CONTRADICTS.terminal(
            f"pipeline {pipeline.name} keeps its position in table {closing}, the pipeline file now names {', '.join(pipeline.tables)}",
            next_step=f"name {closing} again, or give the pipeline a new name: it then begins at its start",
        )


T = TypeVar("T")
R = TypeVar("R")

PARALLEL_CALLS: Final = 8
"""Tables that are loaded at the same time: a catalog takes milliseconds for each, and a pipeline may have a hundred."""


@dataclass(frozen=True)
class Tables:
    """The tables of a pipeline as loaded at one moment.

    Attributes:
        destinations: By name, in the order of the pipeline file.
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
        """Destinations other than the closing table."""
        return {name: table for name, table in self.destinations.items() if name != self.closing_name}


def open_tables(lake: Lake, pipeline: Pipeline, recreate: Collection[str] = ()) -> Tables:
    """Load the tables of a pipeline; create missing ones if the pipeline or the destination is new.

    A new destination whose merge key is unknown is left out. Tables of `recreate` are created again although the pipeline ran.

    Raises:
        Terminal: A table is gone although the pipeline ran before, or the pipeline ran with another destination; or it
            never ran, and the key of a merged table is unknown.
    """
    loaded_tables, closing, _ = _load_unless_lost(lake, pipeline, recreate)
    missing = [name for name, table in loaded_tables.items() if table is None]
    _drop_tables_without_key(pipeline, loaded_tables, missing)
    for name in missing:
        if name in loaded_tables:
            loaded_tables[name] = _create_table(lake, pipeline, name)
    for name, table in loaded_tables.items():
        if (
            isinstance(table, BranchTable) and not table.is_begun
        ):  # no batch landed there: load_tables refuses a lost branch
            loaded_tables[name] = lake.begin_branch(name)
    existing = {name: table for name, table in loaded_tables.items() if table is not None}
    if existing.keys() < loaded_tables.keys():
        raise RUN_OVERTAKEN.retryable(f"pipeline {pipeline.name}: a table vanished while the tables were opened")
    return with_current_columns(pipeline, tables_of(pipeline, existing, closing))


def _drop_tables_without_key(pipeline: Pipeline, loaded_tables: dict[str, Table | None], missing: list[str]) -> None:
    """Leave out missing destinations whose merge key is unknown, since their tables can't be created yet. An unfinished batch
    can still be finished.
    """
    for name in (name for name in missing if name in pipeline.tables and lacks_key(pipeline.destination(name))):
        if loaded_tables[pipeline.ledger_table] is None:
            raise missing_key_error(pipeline.destination(name), is_there=False)
        del loaded_tables[name]


def find_tables(lake: Lake, pipeline: Pipeline) -> Tables | None:
    """Load the tables of a pipeline and change nothing; None if the pipeline never ran and not all of them exist.

    A destination that is new to the pipeline and does not exist yet is left out.
    """
    loaded_tables, closing, lost = _load_unless_lost(lake, pipeline)
    existing = {name: table for name, table in loaded_tables.items() if table is not None}
    return None if lost else tables_of(pipeline, existing, closing)


def _load_unless_lost(
    lake: Lake, pipeline: Pipeline, recreate: Collection[str] = ()
) -> tuple[dict[str, Table | None], str, list[str]]:
    """What `load_tables` returns, and the names of lost tables. Refuses lost tables of a pipeline that ran."""
    loaded_tables, closing = load_tables(lake, pipeline)
    missing = [name for name, table in loaded_tables.items() if table is None]
    if missing:
        _refuse_if_moved(lake, pipeline)
    lost = [name for name in _lost_tables(pipeline, loaded_tables, missing) if name not in recreate] if missing else []
    if lost:
        _refuse_if_written(pipeline, loaded_tables, lost, closing)
    return loaded_tables, closing, lost


def with_current_columns(pipeline: Pipeline, tables: Tables, missing: Collection[str] = ()) -> Tables:
    """The tables, with the dead letters and the ledger upgraded to this version's columns, if they exist."""
    letters, ledger = pipeline.dead_letters_table, pipeline.ledger_table
    if letters not in missing:
        tables = replace(tables, dead_letters=with_all_columns(tables.dead_letters, letters, DEAD_LETTER_SCHEMA))
    if ledger not in missing:
        tables = replace(tables, ledger=with_all_columns(tables.ledger, ledger, LEDGER_SCHEMA))
    return tables


def tables_of(pipeline: Pipeline, existing: Mapping[str, Table], closing: str) -> Tables:
    """The tables of a pipeline, out of existing tables by name."""
    destinations = {name: existing[name] for name in pipeline.tables if name in existing}
    return Tables(destinations, existing[pipeline.dead_letters_table], existing[pipeline.ledger_table], closing)


def load_tables(lake: Lake, pipeline: Pipeline) -> tuple[dict[str, Table | None], str]:
    """The tables by name, None for one that does not exist, and the name of the closing one.

    Followers are read before the closing table: else a batch that another run finishes meanwhile would make them look ahead of it.
    Only the tables tell which one closes. So the likely one is read last; if it is another one, that one is read again.
    """
    last = closing_of_new_pipeline(pipeline)
    names = [pipeline.ledger_table, pipeline.dead_letters_table, *pipeline.tables]
    loaded_tables = _find_each(lake, [name for name in names if name != last])
    loaded_tables |= _find_each(lake, [last])
    missing = [name for name in names if loaded_tables[name] is None]
    if loaded_tables[last] is not None and missing:
        # The closing table is created with the others: another first run may have begun and ended between our two reads.
        loaded_tables |= _find_each(lake, missing)
        loaded_tables |= _find_each(lake, [last])
    loaded_tables = {name: loaded_tables[name] for name in names}
    closing = closing_table(pipeline, loaded_tables)
    refuse_other_closing(pipeline, closing)
    if closing != last and loaded_tables[closing] is not None:
        loaded_tables[closing] = lake.find_table(closing)
    return loaded_tables, closing


def _find_each(lake: Lake, names: list[str]) -> dict[str, Table | None]:
    """Tables by name. Missing ones are read twice: another run may create them during the first read."""
    tables = dict(zip(names, in_parallel(lake.find_table, names), strict=True))
    missing = [name for name, table in tables.items() if table is None]
    return tables | dict(zip(missing, in_parallel(lake.find_table, missing), strict=True))


def in_parallel(work: Callable[[T], R], inputs: Iterable[T]) -> list[R]:
    """The results of `work`, in the order of `inputs`; a few at the same time if there are several."""
    arguments = list(inputs)
    if len(arguments) <= 1:
        return [work(item) for item in arguments]
    with ThreadPoolExecutor(min(PARALLEL_CALLS, len(arguments))) as pool:
        return list(pool.map(work, arguments))


def _create_table(lake: Lake, pipeline: Pipeline, name: str) -> Table:
    if name == pipeline.dead_letters_table:
        properties = TABLE_PROPERTIES | {LETTERS_KEY: pipeline.name}
        return lake.create_table(name, DEAD_LETTER_SCHEMA, UNPARTITIONED, properties)
    if name == pipeline.ledger_table:
        return lake.create_table(name, LEDGER_SCHEMA, UNPARTITIONED, TABLE_PROPERTIES | LEDGER_PROPERTIES)
    return create_destination(lake, pipeline.destination(name))


def create_destination(lake: Lake, destination: Destination, owner: Mapping[str, str] | None = None) -> Table:
    """Create the table of a destination, unless another process did it first. `owner`: a property that names its creator."""
    refuse_properties(lake, destination, "created")
    schema = declared_schema(destination)
    spec = declared_spec(destination, schema)
    layout = PARTITIONED_LAYOUT if destination.partition_by else {}
    version = {"format-version": destination.format_version}
    modes = {f"write.{operation}.mode": destination.merge for operation in ("merge", "update", "delete")}
    merged: dict[str, str] = {**modes, **_full_metrics(destination)} if destination.is_merged else {}
    properties = TABLE_PROPERTIES | layout | version | merged | destination.properties | dict(owner or {})
    return lake.create_table(destination.table, schema, spec, properties, declared_order(destination, schema))


def refuse_properties(lake: Lake, destination: Destination, action: str) -> None:
    """Refuse table properties that the settings don't let a file set. `action` is for the message: created, changed.

    Raises:
        Terminal: The file sets one.
    """
    catalog = lake.catalog_of(destination.table)
    if refused := next(refused_properties(destination.properties, catalog.table_properties), None):
        raise BAD_TABLE_PROPERTY.terminal(
            f"table {destination.table} can't be {action}: the pipeline file sets its property {refused}, which may run code or change"
            " the storage in every program that opens the table",
            next_step=f"remove it from the file, or list it in the settings: catalogs.{catalog.name}.table_properties",
        )


def _full_metrics(destination: Destination) -> dict[str, str]:
    """Table properties that keep the bounds of text keys whole. Keys often begin alike ("order-0000…"), and with truncated bounds
    a merge could skip no file.
    """
    texts = [name for name in destination.identifier if destination.columns[name].type == "string"]
    return {f"write.metadata.metrics.column.{name}": "full" for name in texts}


def _lost_tables(pipeline: Pipeline, loaded_tables: Mapping[str, Table | None], missing: list[str]) -> list[str]:
    """Missing tables that the pipeline had, or may have had. A destination that the ledger does not list is new."""
    ledger = loaded_tables.get(pipeline.ledger_table)
    if ledger is not None and TABLES_KEY.format(pipeline.name) in ledger.metadata.properties:
        # The ledger counts as recorded, too: the pipeline has begun, even if the ledger lists no other table yet.
        recorded = [pipeline.ledger_table, *ledger_tables(ledger.metadata, pipeline.name, pipeline.ledger_table)]
    else:
        recorded = _first_batch_tables(pipeline, loaded_tables)
    return [name for name in missing if not recorded or name in recorded or name not in pipeline.tables]


def _first_batch_tables(pipeline: Pipeline, loaded_tables: Mapping[str, Table | None]) -> list[str]:
    """Tables of the pipeline's first batch, if it is decided and not in the ledger yet; else empty."""
    for name, table in loaded_tables.items():
        if table is None or not _has_property(table, POSITION_KEY.format(pipeline.name)):
            continue
        last, path = last_manifest(pipeline, name, table)
        # The manifest of a later batch does not list all tables, and may be gone.
        if last is not None and path is not None and last.summary.get(KIND_KEY) == "start":
            is_gone = bool(missing_files(table, [path]))
            return [] if is_gone else [part.table for part in Manifest.from_json(read_text(table, path)).parts]
    return []


def last_manifest(pipeline: Pipeline, name: str, table: Table) -> tuple[SummaryValue | None, str | None]:
    """The mark of the last batch in a table, and the path of its manifest; None for what is unknown, for example after a rollback."""
    last = read_summary(table.metadata, BATCH_KEY.format(pipeline.name), name)
    return (last, last.summary.get(MANIFEST_KEY)) if isinstance(last, SummaryValue) else (None, None)


def _refuse_if_written(
    pipeline: Pipeline, loaded_tables: Mapping[str, Table | None], missing: list[str], closing: str
) -> None:
    for name, table in loaded_tables.items():
        if table is None:
            continue
        if any(key.format(pipeline.name) in table.metadata.properties for key in (POSITION_KEY, BATCH_KEY, DONE_KEY)):
            raise TABLE_LOST.terminal(
                f"pipeline {pipeline.name}: table {', '.join(missing)} is gone, but {name} was written by this pipeline",
                next_step="restore the table (the catalog may still have its last metadata file), or "
                + _recovery_step(pipeline, closing if closing in missing else missing[0], closing, loaded_tables),
            )


def _recovery_step(pipeline: Pipeline, missing: str, closing: str, loaded_tables: Mapping[str, Table | None]) -> str:
    if missing == closing:
        return f"land everything Kafka still holds again: frazil reset {pipeline.name} --to earliest --reason …"
    table = loaded_tables.get(closing)
    if missing == pipeline.ledger_table and table is not None:
        _, path = last_manifest(pipeline, closing, table)
        if path is not None and missing_files(table, [path]):  # without it a repair can't finish the last batch
            return f"go on from what {closing} holds: {to_table_command(pipeline.name)}"
    return f"make it anew: frazil repair {pipeline.name} {missing} --reason …"


def to_table_command(pipeline: str) -> str:
    """The command that rewinds the position to what the closing table holds."""
    return f'frazil reset {pipeline} --to-table --reason "table was rolled back"'


def _refuse_if_moved(lake: Lake, pipeline: Pipeline) -> None:
    """Refuse a pipeline whose first destination was renamed or moved: it would begin again there, and land everything twice."""
    own = pipeline.ledger_table.rpartition(".")[2]
    ledgers = [
        (catalog, name) for catalog in lake.catalogs for name in catalog.tables() if name.rpartition(".")[2] == own
    ]
    for catalog, name in ledgers:
        closing = catalog.load_table(name).metadata.properties.get(CLOSING_KEY.format(pipeline.name))
        if closing is None:
            continue
        refuse_other_closing(pipeline, closing)
        if (catalog.name, name) != (lake.catalogs[0].name, pipeline.ledger_table):
            raise FILE_CONTRADICTS.terminal(
                f"pipeline {pipeline.name} has its ledger in {name} of catalog {catalog.name}; beside the first"
                f" destination of the pipeline file it would be {pipeline.ledger_table} of catalog {lake.catalogs[0].name}",
                next_step=f"name a destination of namespace {name.rpartition('.')[0]}, in catalog {catalog.name}, first again",
            )


def refuse_shared(pipeline: Pipeline, tables: Tables) -> None:
    """Refuse a table in which another pipeline's rows could be taken for this one's.

    Rows have topic, partition and offset, not the cluster or the pipeline. So two pipelines may write one destination only if
    they share no topic name. A dead-letter table belongs to one pipeline.

    Raises:
        Terminal: Another pipeline landed a topic of this one in a destination, or owns the dead-letter table.
    """
    letters = pipeline.dead_letters_table
    metadata = tables.dead_letters.metadata
    owner = {metadata.properties[LETTERS_KEY]} if LETTERS_KEY in metadata.properties else set[str]()
    rivals = (mirrored_values(metadata, BATCH_KEY, letters).keys() | owner) - {pipeline.name}
    if rivals:
        raise TABLE_SHARED.terminal(
            f"pipeline {pipeline.name}: dead-letter table {letters} belongs to pipeline {min(rivals)}: a replay or reset of one"
            " pipeline would remove dead letters of the other",
            next_step=f"give pipeline {pipeline.name} a dead-letter table of its own (dead_letters.table; without the key"
            " it gets one)",
        )
    for name, table in tables.destinations.items():
        refuse_same_topics(pipeline, name, table.metadata)


def refuse_same_topics(pipeline: Pipeline, table: str, metadata: TableMetadata) -> None:
    """Refuse a destination in which another pipeline landed a topic of the same name.

    Raises:
        Terminal: There is such a topic.
    """
    read = landed_topics(metadata, table)
    own, all_read = read.get(pipeline.name), frozenset[str]().union(*read.values())
    topics = frozenset(topic for topic in all_read if topic in (own or ()) or pipeline.source.reads(topic))
    rival = find_rival(pipeline.name, topics, metadata, table)
    if rival is not None:
        raise TABLE_SHARED.terminal(
            f"{rival.description} already: with pipeline {pipeline.name} every record would land twice, and neither pipeline could"
            " tell its own rows apart",
            next_step=_rival_next_step(rival, pipeline.name, metadata, is_first=own is None),
        )


def _rival_next_step(rival: Rival, pipeline: str, metadata: TableMetadata, *, is_first: bool) -> str:
    if read_summary(metadata, BATCH_KEY.format(rival.pipeline), rival.table) is None:
        # A claim is committed before its batch. It stays if the batch never lands.
        return (
            f"pipeline {rival.pipeline} has claimed the topic and landed nothing here yet: run it. If it is not to land here, take the"
            f" table out of its file, wait until none of its runs works, and remove the claim: ALTER TABLE {rival.table} UNSET"
            f" TBLPROPERTIES ('{TOPICS_KEY.format(rival.pipeline)}')"
        )
    if is_first:
        return f"was it renamed? Call it {rival.pipeline} again; otherwise give it a table of its own"
    return (
        f"leave {', '.join(rival.topics)} out of the source of pipeline {pipeline}: list its other topics under source.topics, in"
        " place of a pattern that matches it"
    )


@dataclass(frozen=True, slots=True)
class Rival:
    """Another pipeline that landed topics in a table."""

    pipeline: str
    topics: tuple[str, ...]
    table: str

    @property
    def description(self) -> str:
        """The other pipeline's data in this table, for an error."""
        return f"pipeline {self.pipeline} landed topic {', '.join(self.topics)} in table {self.table}"


def find_rival(pipeline: str, topics: frozenset[str], metadata: TableMetadata, table: str) -> Rival | None:
    """The first other pipeline that landed one of these topics in a table."""
    for rival, read in sorted(landed_topics(metadata, table).items()):
        if rival != pipeline and topics & read:
            return Rival(rival, tuple(sorted(topics & read)), table)
    return None


def landed_topics(metadata: TableMetadata, table: str) -> dict[str, frozenset[str]]:
    """Pipeline -> the topics that it lands in a table, as its closing table or as a follower."""
    following = {
        name: frozenset(decode_property(text, TOPICS_KEY.format(name), table, list[str]))
        for name, text in mirrored_values(metadata, TOPICS_KEY, table).items()
    }
    closing = mirrored_values(metadata, POSITION_KEY, table)
    return following | {name: frozenset(Position.from_json(text).topics) for name, text in closing.items()}
