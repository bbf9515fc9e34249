"""Keys for the tables of a pipeline: destinations with their columns, history tables of merged tables, and the template of
auto-created tables.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Final, Literal

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
from frazil.pipeline.syntax.strict import BranchName, InvalidKey, Model, Namespace, TableName, readable
from frazil.pipeline.syntax.types import VARIANT, Primitive, holds

Evolve = Literal["none", "add", "widen", "full"]


class TableColumns(Model):
    """The declared columns of a table, and how its columns change with the fields of records."""

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
        """`evolve`, or its default."""
        return self.evolve or ("none" if self.columns else "widen")

    @model_validator(mode="after")
    def _evolution_fits(self) -> TableColumns:
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
    """A table without its name: columns, layout, and how rows are written into it."""

    partition_by: tuple[Annotated[str, readable(parse_partition_field)], ...] = Field(
        (),
        description="Partition fields of a new table in Iceberg's syntax: `document`, `day(created_at)`,"
        " `bucket(16, id) as shard`, `truncate(4, name)`.",
    )
    sort_by: tuple[Annotated[str, readable(parse_sort_field)], ...] = Field(
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

    @field_validator("properties", mode="before", json_schema_input_type=dict[str, str | bool | int])
    @classmethod
    def _property_texts(cls, value: object) -> object:
        """Turn numbers and booleans, as YAML reads unquoted ones, into the texts that properties are."""
        if not isinstance(value, dict):
            return value
        return {name: json.dumps(text) if isinstance(text, bool | int) else text for name, text in value.items()}

    @property
    def title(self) -> str:
        """Name of the table in error messages."""
        return "a new table"

    @property
    def partition_fields(self) -> tuple[PartitionField, ...]:
        """`partition_by`, parsed."""
        return tuple(parse_partition_field(text) for text in self.partition_by)

    @property
    def sort_fields(self) -> tuple[SortField, ...]:
        """`sort_by`, parsed."""
        return tuple(parse_sort_field(text) for text in self.sort_by)

    @property
    def added_columns(self) -> tuple[str, ...]:
        """Names of the Kafka columns, in their order in the table; empty without Kafka columns."""
        k = self.kafka_columns
        return (k.topic, k.partition, k.offset, k.timestamp, k.batch) if k else ()

    @property
    def is_merged(self) -> bool:
        """Whether rows are merged into the table by their key, which only Spark can do."""
        return self.write in ("upsert", "cdc")

    @property
    def is_history(self) -> bool:
        """Whether the table is a history: one row per change."""
        return self.write == "history"

    @property
    def deleted_column(self) -> str | None:
        """Name of the column that marks deleted rows; None if they are removed."""
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
        """Whether only Spark can write the table: rows are merged, its format version is 3, or its files are not Parquet."""
        return self.is_merged or self.format_version == "3" or self.file_format != "parquet"

    @property
    def takes_tombstones(self) -> bool:
        """Whether a record without value can delete a row of the table, because values are rows that a key identifies."""
        return self.write in ("upsert", "history") and self.changes is None

    @property
    def absent_types(self) -> frozenset[str]:
        """Types that the table can't have: Spark has no type time, and PyIceberg 0.12 reads no UUIDs from ORC files."""
        absent = {"time", "uuid"} if self.file_format == "orc" else {"time"}
        return frozenset(absent) if self.by_engine else frozenset()

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
                    raise InvalidKey(
                        f"columns.{name}",
                        f"Spark has no type {kind} for it, and only Spark writes tables of format version 3, or of ORC, and those"
                        " that rows are merged into: declare it as string, which takes its text",
                    )
        return self

    @model_validator(mode="after")
    def _columns_fit(self) -> TableTemplate:
        added = self.added_columns
        if len(set(added)) < len(added):
            raise InvalidKey("kafka_columns", f"expected five names, found one twice: {', '.join(added)}")
        if shadowed := [name for name in self.columns if name in added]:
            raise InvalidKey(f"columns.{shadowed[0]}", "is the name of a Kafka column; rename it under kafka_columns")
        check_layout(self.title, self.columns, added, (self.partition_fields, self.sort_fields))
        return self

    @model_validator(mode="after")
    def _changes_fit(self) -> TableTemplate:
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
        """The destination with the key that its table has. The fingerprint stays, as the file does not name the key."""
        return type(self).model_construct(self.model_fields_set, **{**dict(self), "identifier": identifier})


_SAME: Final = ("catalog", "branch", "columns", "kafka_columns", "identifier", "order_by", "changes")
"""Keys of a merged destination that its history table takes over."""


def with_histories(destinations: object) -> object:
    """The destinations as the file lists them, and after them the history tables that they name and the file does not list."""
    if not isinstance(destinations, list | tuple):
        return destinations
    listed = [destination for destination in destinations if isinstance(destination, Mapping)]
    own = {destination.get("table") for destination in listed if destination.get("write") == "history"}
    histories = (
        {key: destination[key] for key in _SAME if key in destination} | {"table": history, "write": "history"}
        for destination in listed
        if isinstance(history := destination.get("append_history"), str) and history not in own
    )
    return [*destinations, *histories]


def refuse_shared_histories(destinations: Sequence[Destination]) -> None:
    """Refuse a history table of two destinations: it would not show which of them a change is from.

    Raises:
        InvalidKey: There is one.
    """
    owners: dict[str, str] = {}
    for number, destination in enumerate(destinations):
        history, table = destination.append_history, destination.table
        if history is not None and (owner := owners.setdefault(history, table)) != table:
            raise InvalidKey(
                f"destinations.{number}.append_history",
                f"{history} is already the history of {owner}: name another table for {table}",
            )


MAX_NEW_TABLES: Final = 1_000
"""Largest number of tables that one run may create."""


class Create(TableTemplate):
    """The layout of auto-created tables, and how many of them may be created."""

    max_new_tables: int = Field(
        100,
        gt=0,
        le=MAX_NEW_TABLES,
        description="Tables that one run may create. For records that name further tables, `route.otherwise` applies.",
    )
    max_tables: int = Field(
        1_000,
        gt=0,
        le=10_000,
        description="Tables that all runs of the pipeline together may create, dropped ones included. For records that name"
        " further tables, `route.otherwise` applies.",
    )
    existing_tables: Literal["refuse", "write"] = Field(
        "refuse",
        description="What to do with records that name an existing table which this pipeline did not create. `refuse`:"
        " `route.otherwise` applies. `write`: the table gets them if it fits, is a destination from then on, and counts as created.",
    )
    namespace: Namespace | None = Field(
        None,
        description="Namespace of ledger and dead letters. Required if no destination is listed. Default: that of the first"
        " destination.",
    )

    @model_validator(mode="after")
    def _has_a_key(self) -> Create:
        if self.is_merged and not self.identifier:
            raise ValueError(
                f"write: {self.write} needs identifier: a new table has no identifier fields that could be the key"
            )
        return self

    def destination(self, table: str) -> Destination:
        """The destination for a table of that name."""
        options = {name: getattr(self, name) for name in self.model_fields_set if name in TableTemplate.model_fields}
        return Destination(table=table, **options)
