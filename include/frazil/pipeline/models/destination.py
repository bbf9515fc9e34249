"""The tables of a pipeline: destinations and their columns, the log of changes beside a merged table, and the template
of tables that records name.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

from pydantic import Field, field_validator, model_validator

from frazil.pipeline.models.layout import (
    DELETED,
    Changes,
    PartitionField,
    SortField,
    Write,
    check_layout,
    merge_problems,
    parse_partition_field,
    parse_sort_field,
)
from frazil.pipeline.models.value import Column
from frazil.pipeline.syntax.strict import AtKey, BranchName, Model, Namespace, TableName
from frazil.pipeline.syntax.types import VARIANT, Primitive, holds

Evolve = Literal["none", "add", "widen", "full"]


class TableColumns(Model):
    """The columns of a table that are declared, and what becomes of fields that do not fit the ones it has."""

    columns: dict[str, Column] = Field(
        default_factory=dict,
        description="Column name -> type, or a mapping with type, required, doc and more. Without: the columns of the"
        " existing table, and columns for the fields of records.",
    )
    evolve: Evolve | None = Field(
        None,
        description="Which changes records may make to the table. Each change is made before its data lands. `none`: no"
        " change. `add`: new columns for new fields, also in structs. `widen`: also wider types (int to long,"
        " float to double, a decimal with more digits before the point). `full`: also null in required columns. The"
        " default is `none` with declared columns, else `widen`.",
    )
    undeclared_columns: Literal["keep", "refuse"] = Field(
        "keep",
        description="What to do with columns of the table that the file does not declare. `keep`: they stay; new"
        " rows, also those of a replay, have null in them unless records fill them. `refuse`: runs and `frazil"
        " apply` refuse the table. Frazil never drops a column.",
    )
    on_incompatible: Literal["rescue", "dead_letter", "variant_column", "fail"] = Field(
        "rescue",
        description="What to do with a value whose type the column can't be widened to. `rescue`: if the file does not"
        " declare the column, the record lands without the value, which is kept as JSON in"
        " `value.rescued_column`; otherwise the record is a dead letter. `dead_letter`: the record is a dead"
        " letter. `variant_column`: the value gets a column of its own, such as `price__string` next to"
        " `price`. `fail`: the run fails and publishes nothing.",
    )
    max_columns: int = Field(
        1_000,
        gt=0,
        le=10_000,
        description="Largest number of columns that records may add up to; columns in structs count one by one. Further"
        " fields are kept as one JSON object in `value.rescued_column`, and counted. Fields of upper levels"
        " get columns first.",
    )
    max_depth: int = Field(
        24,
        gt=0,
        le=50,
        description="Deepest level of columns that records may add. Deeper fields are kept in `value.rescued_column`.",
    )

    @field_validator("columns", mode="before", json_schema_input_type=dict[str, Column | str])
    @classmethod
    def _short_form(cls, columns: object) -> object:
        if not isinstance(columns, dict):
            return columns
        if not columns:
            raise ValueError("columns is empty: remove the key to use the columns of the table and of its records")
        return {name: {"type": column} if isinstance(column, str) else column for name, column in columns.items()}

    @property
    def evolves(self) -> Evolve:
        """`evolve`, or what it is if it is left out."""
        return self.evolve or ("none" if self.columns else "widen")

    @model_validator(mode="after")
    def _evolves_if_it_says_how(self) -> TableColumns:
        options = [name for name in ("on_incompatible", "max_columns", "max_depth") if name in self.model_fields_set]
        if options and self.evolves == "none":
            raise ValueError(f"{options[0]} is for a table that records may change: write evolve: add, widen or full")
        if self.undeclared_columns == "refuse" and (self.evolves != "none" or not self.columns):
            raise ValueError(
                "undeclared_columns: refuse needs declared columns with evolve: none, since records may add others"
            )
        return self


class KafkaColumns(Model):
    """Names of the columns with the Kafka coordinates of a row. Replays and `frazil verify` need them."""

    topic: str = Field("_kafka_topic", description="Topic of the record.")
    partition: str = Field("_kafka_partition", description="Partition of the record.")
    offset: str = Field("_kafka_offset", description="Offset of the record.")
    timestamp: str = Field("_kafka_timestamp", description="Kafka timestamp of the record.")
    batch: str = Field("_frazil_batch", description="Number of the batch that landed the record.")


class TableTemplate(TableColumns):
    """What a table is like, whatever its name: columns, layout, and how rows become part of it."""

    partition_by: tuple[str, ...] = Field(
        (),
        description="Partition fields of a new table in Iceberg's syntax: `document`, `day(created_at)`,"
        " `bucket(16, id) as shard`, `truncate(4, name)`.",
    )
    sort_by: tuple[str, ...] = Field(
        (),
        description="Sort order of a new table in Iceberg's syntax: `id`, `day(created_at) desc nulls last`. Each data"
        " file is written in this order.",
    )
    catalog: str | None = Field(
        None, description="Name of a catalog in the settings file, if the table is not in the pipeline's catalog."
    )
    branch: BranchName | None = Field(
        None,
        description="Branch of the table on which rows land, for example to check them before you publish them. The first"
        " run creates it from main. Without: main.",
    )
    kafka_columns: KafkaColumns | Literal[False] = Field(
        default_factory=KafkaColumns,
        description="Names of the columns for topic, partition, offset, timestamp and batch. `false`: the table has no"
        " such columns.",
    )
    properties: dict[str, str] = Field(
        default_factory=dict,
        description="Properties of a new table, such as `write.parquet.compression-codec`, or `format-version`: 2 (the"
        " default) or 3.",
    )
    write: Write = Field(
        "append",
        description="`append` adds a row per record. `upsert` keeps one row per key, from the key's last record. `cdc`"
        " applies the inserts, updates and deletes that records describe (`changes`). `history` adds a row per"
        " change, with the kind of change in `_frazil_op` and its number within the record in `_frazil_place`.",
    )
    identifier: tuple[str, ...] = Field(
        (),
        description="Columns that identify a row, all required: the key of `upsert` and `cdc`. Without: the identifier"
        " fields of the existing table.",
    )
    order_by: str | None = Field(
        None,
        description="Column that decides which of two changes of a key is later. A record without a value in it is a dead"
        " letter. Without: the offset decides, and between partitions Kafka's timestamp.",
    )
    deletes: Literal["hard", "soft"] = Field(
        "hard",
        description=f"For `write: upsert` and `cdc`. `hard`: a deleted row is removed. `soft`: it stays, with `{DELETED}`"
        " true; so an older change can't bring it back.",
    )
    merge: Literal["merge-on-read", "copy-on-write"] = Field(
        "merge-on-read",
        description="How Spark writes changed rows. `merge-on-read`: as new files and delete files, which readers merge."
        " `copy-on-write`: by rewriting the files of the old rows.",
    )
    changes: Changes | None = Field(None, description="For `write: cdc` and `history`: how records describe changes.")

    @field_validator("branch")
    @classmethod
    def _main_is_none(cls, value: str | None) -> str | None:
        return None if value == "main" else value

    @field_validator("partition_by")
    @classmethod
    def _partition_syntax(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        [parse_partition_field(text) for text in value]
        return value

    @field_validator("sort_by")
    @classmethod
    def _sort_syntax(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        [parse_sort_field(text) for text in value]
        return value

    @field_validator("properties", mode="before", json_schema_input_type=dict[str, str | bool | int])
    @classmethod
    def _texts(cls, value: object) -> object:
        """Properties are texts, which YAML reads as numbers and truth values where they look like some."""
        if not isinstance(value, dict):
            return value
        return {
            name: json.dumps(setting) if isinstance(setting, bool | int) else setting for name, setting in value.items()
        }

    @property
    def title(self) -> str:
        """Name of the table in error messages."""
        return "a new table"

    @property
    def partition_fields(self) -> tuple[PartitionField, ...]:
        """`partition_by` as plain data."""
        return tuple(parse_partition_field(text) for text in self.partition_by)

    @property
    def sort_fields(self) -> tuple[SortField, ...]:
        """`sort_by` as plain data."""
        return tuple(parse_sort_field(text) for text in self.sort_by)

    @property
    def added_columns(self) -> tuple[str, ...]:
        """Names of the Kafka columns in their order in the table, or none."""
        k = self.kafka_columns
        return (k.topic, k.partition, k.offset, k.timestamp, k.batch) if k else ()

    @property
    def is_merged(self) -> bool:
        """Whether rows are merged into the table by their key, which only an engine can do."""
        return self.write in ("upsert", "cdc")

    @property
    def is_history(self) -> bool:
        """Whether rows are changes, one after the other, of which nothing is undone."""
        return self.write == "history"

    @property
    def deleted_column(self) -> str | None:
        """Name of the column that marks deleted rows, or None if they go."""
        return DELETED if self.is_merged and self.deletes == "soft" else None

    @property
    def variants(self) -> tuple[str, ...]:
        """Names of the columns of type variant."""
        return tuple(name for name, column in self.columns.items() if column.parsed == VARIANT)

    @property
    def format_version(self) -> str:
        """Version of the table format that a new table has."""
        return self.properties.get("format-version", "3" if self.variants else "2")

    @property
    def file_format(self) -> str:
        """Format of the table's data files."""
        return self.properties.get("write.format.default", "parquet").lower()

    @property
    def by_engine(self) -> bool:
        """Whether only an engine can write the table: rows are merged into it, its format version is 3, or it is no Parquet."""
        return self.is_merged or self.format_version == "3" or self.file_format != "parquet"

    @property
    def takes_tombstones(self) -> bool:
        """Whether a record without value can delete a row of the table: values are rows, and a key identifies them."""
        return self.write in ("upsert", "history") and self.changes is None

    @property
    def absent_types(self) -> frozenset[str]:
        """Types that the table can't have: Spark has no times, and PyIceberg 0.12 reads no UUIDs from ORC files."""
        of_orc = {"uuid"} if self.file_format == "orc" else set()
        return frozenset({"time", *of_orc}) if self.by_engine else frozenset()

    @model_validator(mode="after")
    def _version_fits(self) -> TableTemplate:
        if self.variants and self.format_version != "3":
            raise ValueError(
                f"properties.format-version is {self.format_version}; columns of type variant"
                f" ({', '.join(self.variants)}) need 3, which is the default then"
            )
        if self.file_format not in ("parquet", "orc"):
            raise ValueError(
                f"properties.write.format.default is {self.file_format}: reset, repair and verify read rows without an engine,"
                " and can do so in parquet and orc only"
            )
        if self.file_format == "orc" and self.format_version == "3":
            raise ValueError(
                "properties.format-version is 3 and write.format.default is orc: reset, repair and verify read rows without an"
                " engine, and can read times of ORC files in version 2 only"
            )
        for kind in sorted(self.absent_types):
            for name, column in self.columns.items():
                if holds(column.parsed, Primitive(kind)):
                    raise AtKey(
                        f"columns.{name}",
                        f"Spark has no type {kind} for it, and only Spark writes tables of format version 3, or of ORC, and those"
                        " that rows are merged into: declare it as string, which takes its text",
                    )
        return self

    @model_validator(mode="after")
    def _fits(self) -> TableTemplate:
        added = self.added_columns
        if len(set(added)) < len(added):
            raise AtKey("kafka_columns", f"expected five names, found one twice: {', '.join(added)}")
        if shadowed := [name for name in self.columns if name in added]:
            raise AtKey(f"columns.{shadowed[0]}", "is the name of a Kafka column; rename it under kafka_columns")
        check_layout(self.title, self.columns, added, (self.partition_fields, self.sort_fields))
        return self

    @model_validator(mode="after")
    def _merges(self) -> TableTemplate:
        for problem in merge_problems(self):
            raise ValueError(problem)
        return self


class NamedTable(Model):
    """A table by its name."""

    table: TableName = Field(description="Namespace and name, such as `rpc.pizzas`. Created if it is missing.")


class Destination(TableTemplate, NamedTable):
    """A table and the columns that records are written into."""

    append_history: TableName | None = Field(
        None,
        description="For `write: upsert` and `cdc`: name of a second table that gets a row per change, in the same"
        " batches. It has `write: history` and the columns of this destination. For another layout, list it as"
        " a destination of its own.",
    )

    @property
    def title(self) -> str:
        """Name of the table in error messages."""
        return self.table

    def keyed(self, identifier: tuple[str, ...]) -> Destination:
        """The same with the key that its table says; what the file names stays what it was, and so does its hash."""
        return type(self).model_construct(self.model_fields_set, **{**dict(self), "identifier": identifier})


_SAME: Final = ("catalog", "branch", "columns", "kafka_columns", "identifier", "order_by", "changes")
"""Keys of a merged destination that its log has, too: what a change is, and where it is kept."""


def with_histories(destinations: object) -> object:
    """Destinations as the file lists them, and behind them the logs that they name and that it does not list itself."""
    if not isinstance(destinations, list | tuple):
        return destinations
    listed = [destination for destination in destinations if isinstance(destination, Mapping)]
    own_logs = {destination.get("table") for destination in listed if destination.get("write") == "history"}
    with_log = [
        destination
        for destination in listed
        if isinstance(destination.get("append_history"), str) and destination["append_history"] not in own_logs
    ]
    return [*destinations, *map(_history, with_log)]


def refuse_shared_logs(destinations: Sequence[Destination]) -> None:
    """Refuse a log beside two tables: nothing in it would say of which one a change is.

    Raises:
        AtKey: There is one.
    """
    owners: dict[str, str] = {}
    for number, destination in enumerate(destinations):
        if (
            destination.append_history is not None
            and (owner := owners.setdefault(destination.append_history, destination.table)) != destination.table
        ):
            raise AtKey(
                f"destinations.{number}.append_history",
                f"{destination.append_history} is already the history of {owner}: name another table for {destination.table}",
            )


def _history(destination: Mapping[str, Any]) -> dict[str, Any]:
    return {key: destination[key] for key in _SAME if key in destination} | {
        "table": destination["append_history"],
        "write": "history",
    }


MOST_AT_ONCE: Final = 1_000
"""Tables that one run may make at most."""


class Create(TableTemplate):
    """The layout of auto-created tables, and how many of them may be made."""

    max_new_tables: int = Field(
        100,
        gt=0,
        le=MOST_AT_ONCE,
        description="Tables that one run may make. Records that name further ones become what `route.otherwise` says.",
    )
    max_tables: int = Field(
        1_000,
        gt=0,
        le=10_000,
        description="Tables that the pipeline may make in all its runs together, dropped ones included. Records that name further"
        " ones become what `route.otherwise` says.",
    )
    existing_tables: Literal["refuse", "write"] = Field(
        "refuse",
        description="What becomes of records that name a table which is there and which this pipeline did not make. `refuse`: what"
        " `route.otherwise` says. `write`: the table gets them if it fits, and is a destination from then on; it counts as made.",
    )
    namespace: Namespace | None = Field(
        None,
        description="Namespace of ledger and dead letters. Without, they live beside the first destination; needed if none"
        " is listed.",
    )

    @model_validator(mode="after")
    def _has_a_key(self) -> Create:
        if self.is_merged and not self.identifier:
            raise ValueError(
                f"write: {self.write} needs identifier: a new table has no identifier fields that could be the key"
            )
        return self

    def destination(self, table: str) -> Destination:
        """The table of that name as a destination."""
        options = {name: getattr(self, name) for name in self.model_fields_set if name in TableTemplate.model_fields}
        return Destination(table=table, **options)
