"""What a pipeline wants of its records: plain data, since it travels to executors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

import pyarrow as pa

from frazil.errors import Terminal
from frazil.records.kafka import TIMESTAMP


@dataclass(frozen=True, slots=True)
class KafkaColumns:
    """Names of the added columns: where a row came from and which batch landed it."""

    topic: str = "_kafka_topic"
    partition: str = "_kafka_partition"
    offset: str = "_kafka_offset"
    timestamp: str = "_kafka_timestamp"
    batch: str = "_frazil_batch"

    @property
    def fields(self) -> list[pa.Field]:
        """The added fields, in the order of the columns."""
        return [
            pa.field(self.topic, pa.string()),
            pa.field(self.partition, pa.int32()),
            pa.field(self.offset, pa.int64()),
            pa.field(self.timestamp, TIMESTAMP),
            pa.field(self.batch, pa.int64()),
        ]


@dataclass(frozen=True, slots=True)
class ColumnSpec:
    """One declared column.

    Attributes:
        name: Its name in the table.
        type: Its Arrow type.
        required: Whether null is refused.
        source: Field names from the value's root to the field it is taken from; None means the
            field of its name.
        has_default: Whether `default` is used where the field is missing (and where a required one
            is null).
        default: A JSON value: text, number, bool, list, dict or None.
    """

    name: str
    type: pa.DataType
    required: bool
    source: tuple[str, ...] | None = None
    has_default: bool = False
    default: object = None

    @property
    def steps(self) -> tuple[str, ...]:
        """Field names from the root of the value to the field."""
        return self.source or (self.name,)


@dataclass(frozen=True, slots=True)
class RecordSpec:
    """How values become rows.

    Attributes:
        columns: The declared columns with the Arrow types of the table; `nullable=False` means
            required.
        value_format: How values are encoded.
        defaults: Column name -> JSON value for a missing field.
        sources: Column name -> field path in the value, for columns that are not named as their
            field.
        unknown_fields: What happens to fields without a column.
        tombstone: What a null value becomes: a counted filter or a dead letter.
        kafka_columns: Names of the added columns, or None to add none.

    Raises:
        Terminal: no columns, names that repeat, or a default or source for a column that isn't
        declared.
    """

    columns: pa.Schema
    value_format: Literal["json"] = "json"
    defaults: Mapping[str, object] = field(default_factory=dict)
    sources: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    unknown_fields: Literal["ignore"] = "ignore"
    tombstone: Literal["filter", "dead_letter"] = "filter"
    kafka_columns: KafkaColumns | None = field(default_factory=KafkaColumns)

    def __post_init__(self) -> None:
        if not self.columns.names:
            _refuse("no columns are declared for", ["the value"])
        names = self.row_schema.names
        _refuse(
            "columns are declared twice",
            [name for name, times in Counter(names).items() if times > 1],
        )
        _refuse("defaults name unknown columns", sorted(set(self.defaults) - set(self.columns.names)))
        _refuse("sources name unknown columns", sorted(set(self.sources) - set(self.columns.names)))
        _refuse(
            "sources have no field for columns",
            [name for name, steps in self.sources.items() if not steps],
        )

    @property
    def row_schema(self) -> pa.Schema:
        """The schema of the rows: declared columns, then the added ones."""
        added = self.kafka_columns.fields if self.kafka_columns else []
        return pa.schema([*self.columns, *added])

    @property
    def column_specs(self) -> tuple[ColumnSpec, ...]:
        """The declared columns, one by one, in order."""
        return tuple(
            ColumnSpec(
                column.name,
                column.type,
                required=not column.nullable,
                source=self.sources.get(column.name),
                has_default=column.name in self.defaults,
                default=self.defaults.get(column.name),
            )
            for column in self.columns
        )


def _refuse(what: str, names: Iterable[str]) -> None:
    if listed := ", ".join(names):
        raise Terminal(f"record shape: {what}: {listed}", next_step="correct the columns of the pipeline file")
