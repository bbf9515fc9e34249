"""How a pipeline decodes its records, and the schema changes that records may cause: plain data, since it travels to
executors.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Literal, TypeVar

import pyarrow as pa

from frazil.batch.changes import OP
from frazil.error_codes import FIELDS_UNFIT
from frazil.records.model.changes import OP_FIELD, MergeSpec
from frazil.records.model.column import WHOLE_VALUE, ColumnSpec, Reading, TimeUnit
from frazil.records.model.format import JSON, FormatSpec, Transform
from frazil.records.model.rows import TIMESTAMP

Level = Literal["add", "widen", "full"]
OnIncompatible = Literal["rescue", "dead_letter", "variant_column", "fail"]

_LEVELS: Final[tuple[Level, ...]] = ("add", "widen", "full")


@dataclass(frozen=True, slots=True)
class Evolution:
    """How a table follows its records.

    Attributes:
        level: `add`: columns and fields of structs; `widen`: also wider types; `full`: also null in required columns.
        on_incompatible: What becomes of a value of a type that its column can't be widened to. `rescue` is for undeclared
        columns: they have the types of the first records, so a later value of another type may be just as right.
        max_columns: Columns that records may bring the table to; those in structs count one by one.
        max_depth: Levels that columns made for records may have.
        max_name_length: Characters that their names may have.
        reserved: Names at the top that are columns of something else: of Kafka, of the key, of merging.
        never_null: Names at the top of columns that identify rows, or have a field that does, or order their changes.
        as_text: Kinds of values that become texts in new columns, `time` or `uuid`: the table's engine has no such type.
    """

    level: Level = "widen"
    on_incompatible: OnIncompatible = "rescue"
    max_columns: int = 1_000
    max_depth: int = 24
    max_name_length: int = 255
    reserved: frozenset[str] = frozenset()
    never_null: frozenset[str] = frozenset()
    as_text: frozenset[str] = frozenset()

    @property
    def widens(self) -> bool:
        """Whether columns may get wider types."""
        return _LEVELS.index(self.level) >= _LEVELS.index("widen")

    def relaxes(self, *path: str) -> bool:
        """Whether a required column or field may become optional."""
        return self.level == "full" and path[0] not in self.never_null


T = TypeVar("T")


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
class RecordSpec:
    """How values become rows.

    Attributes:
        columns: The declared columns with the Arrow types of the table; `nullable=False` means
            required.
        format: How values are encoded.
        fields: What a JSON value contains, where transforms come before the columns; None means what the columns say.
        infers: Whether a JSON value contains what it says itself; of `fields` decimals are read as such then.
        key: How keys are encoded; None means that they are not decoded.
        key_fields: What a JSON key holds.
        of_key: Names of the columns that take fields of the key.
        of_header: Names of the columns that take a header.
        known_names: Of a part of the columns: names of those that are filled from elsewhere. A field by such a name is not unknown.
        transforms: What happens between decoding and the columns, in this order.
        defaults: Column name -> JSON value for a missing field.
        variants: Columns whose JSON texts become variants.
        sources: Column name -> field path in the value, for columns that are not named as their
            field; `WHOLE_VALUE` for a text column that takes the whole value.
        units: Column name -> what numbers count that are sent for its times.
        local_times: Column name -> whether a text with an offset may become a timestamp without zone; `keep` if not
            named.
        unknown_fields: What happens to fields at the top level of a value that no column takes: left out, kept as JSON
            text in `rescued_column`, or a dead letter. A whole-value column takes all.
        rescued_column: The optional text column for them; no field fills it then.
        duplicate_keys: What an object means that names a field twice: the last one, or a dead letter.
        field_names: Whether `Id` is the field of a column `id`. Of fields that differ in case only `duplicate_keys`
            decides. Names inside maps and JSON texts stay as they are.
        casts: Whether numbers and booleans become texts in text columns, as they were sent.
        tombstone: What a null value becomes: a counted filter, a dead letter, or the deletion of the row of its key.
        empty_value: What a value of 0 bytes becomes.
        kafka_columns: Names of the added columns, or None to add none.
        merge: How rows are merged into the table; None: they are added to it.
        file_format: Format of the table's data files; not every one keeps every time.
        evolution: Which changes of the table records may ask for; None: none.
        declared: Names of the columns that the pipeline file declares; None: all. Where others are texts, they take any value as
            its JSON text: so no record is dead because another one, of another kind, came before it.

    Raises:
        Terminal: no columns that will never be, names that repeat, options for a column that isn't declared or of another type, or no column
        for rescued fields.
    """

    columns: pa.Schema
    format: FormatSpec = field(default_factory=FormatSpec)
    fields: pa.Schema | None = None
    infers: bool = False
    key: FormatSpec | None = None
    key_fields: pa.Schema | None = None
    of_key: frozenset[str] = frozenset()
    of_header: frozenset[str] = frozenset()
    known_names: frozenset[str] = frozenset()
    transforms: tuple[Transform, ...] = ()
    defaults: Mapping[str, object] = field(default_factory=dict)
    sources: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    variants: frozenset[str] = frozenset()
    units: Mapping[str, TimeUnit] = field(default_factory=dict)
    local_times: Mapping[str, Literal["keep", "dead_letter"]] = field(default_factory=dict)
    unknown_fields: Literal["ignore", "rescue", "fail"] = "ignore"
    rescued_column: str = "_rescued"
    duplicate_keys: Literal["last", "dead_letter"] = "last"
    field_names: Literal["exact", "case_insensitive"] = "exact"
    casts: Literal["none", "text"] = "none"
    tombstone: Literal["filter", "dead_letter", "delete"] = "filter"
    empty_value: Literal["dead_letter", "filter"] = "dead_letter"
    kafka_columns: KafkaColumns | None = field(default_factory=KafkaColumns)
    merge: MergeSpec | None = None
    file_format: str = "parquet"
    evolution: Evolution | None = None
    declared: frozenset[str] | None = None

    def __post_init__(self) -> None:
        if not self.columns.names and self.evolution is None:
            _refuse("no columns are declared for", ["the value"])
        names = self.row_schema.names
        _refuse(
            "columns are declared twice",
            [name for name, times in Counter(names).items() if times > 1],
        )
        options = {
            "defaults": self.defaults,
            "sources": self.sources,
            "variants": self.variants,
            "units": self.units,
            "local times": self.local_times,
            "columns of the key": self.of_key,
            "columns of headers": self.of_header,
        }
        for what, named in options.items():
            _refuse(f"{what} name unknown columns", sorted(set(named) - set(self.columns.names)))
        _refuse("only texts take the whole value, not", [n for n in self.whole_columns if not self._is_text(n)])
        _refuse("columns take fields that differ in case only", self._ambiguous())
        if self.unknown_fields == "rescue" or (
            self.evolution is not None and self.rescued_column in self.columns.names
        ):
            self._check_rescued()

    def _check_rescued(self) -> None:
        name = self.rescued_column
        absent = name not in self.columns.names
        fits = self.evolution is not None if absent else self._is_text(name) and self.columns.field(name).nullable
        _refuse(
            "unknown fields are rescued into an optional string column, which is not declared",
            () if fits else [name],
        )
        _refuse(
            "rescued fields leave no room for the options of",
            {name} & {*self.defaults, *self.sources, *self.of_key, *self.of_header},
        )

    def _is_text(self, name: str) -> bool:
        data_type = self.columns.field(name).type
        return bool(pa.types.is_string(data_type) or pa.types.is_large_string(data_type))

    def _ambiguous(self) -> list[str]:
        if self.field_names == "exact":
            return []
        written: dict[tuple[bool, str], set[str]] = {}
        for column in self.column_specs:
            for step in () if column.name in self.of_header else column.steps[:1]:
                written.setdefault((column.name in self.of_key, step.casefold()), set()).add(step)
        return [name for names in written.values() if len(names) > 1 for name in sorted(names)]

    @property
    def of_value(self) -> RecordSpec:
        """The spec of the values alone, without the columns that come from keys or headers."""
        if self.key is None and not self.of_key and not self.of_header:
            return self
        return replace(self._without(self.of_key | self.of_header), key=None, key_fields=None, merge=None)

    @property
    def without_headers(self) -> RecordSpec:
        """The spec without the columns that come from headers: those of values and keys."""
        if not self.of_header:
            return self
        merge = self.merge
        if merge is not None and merge.order_by in self.of_header:
            merge = replace(merge, order_by=None)
        return replace(self._without(self.of_header), merge=merge)

    def _without(self, names: frozenset[str]) -> RecordSpec:
        """The spec without some columns, which are filled from elsewhere."""
        remaining = frozenset(self.columns.names) - names
        return replace(
            self,
            columns=pa.schema([column for column in self.columns if column.name in remaining]),
            of_key=self.of_key & remaining,
            of_header=self.of_header & remaining,
            known_names=self.known_names | names,
            defaults=_select(self.defaults, remaining),
            sources=_select(self.sources, remaining),
            units=_select(self.units, remaining),
            local_times=_select(self.local_times, remaining),
        )

    @property
    def is_shaped(self) -> bool:
        """Whether values are first decoded to columns of their own shape, which then become the declared columns."""
        return bool(self.transforms) or self.format.name != JSON or self.tells_changes

    @property
    def tells_changes(self) -> bool:
        """Whether values are change events rather than rows."""
        return self.merge is not None and self.merge.changes is not None

    @property
    def fold(self) -> Literal["last", "dead_letter"] | None:
        """How to treat fields whose names differ only in case; None: as different fields."""
        return self.duplicate_keys if self.field_names == "case_insensitive" else None

    @property
    def whole_columns(self) -> list[str]:
        """Names of the columns that take the whole value."""
        return [name for name, steps in self.sources.items() if steps == WHOLE_VALUE]

    @property
    def rescues(self) -> str | None:
        """Name of the column that takes rescued fields, if there is one."""
        return self.rescued_column if self.unknown_fields == "rescue" else None

    def without_evolution(self, rest_name: str) -> RecordSpec:
        """The spec of a table that does not evolve; the column for rescued fields, if there is one, takes the field `rest_name`."""
        has_rescued = self.rescued_column in self.columns.names
        sources = {**self.sources, self.rescued_column: (rest_name,)} if has_rescued else self.sources
        return replace(self, evolution=None, unknown_fields="ignore", sources=sources)

    def only(self, names: Collection[str]) -> RecordSpec:
        """The spec of some columns alone, also those that come from keys. All other fields are ignored."""
        return replace(
            self,
            columns=pa.schema([column for column in self.columns if column.name in names]),
            transforms=(),
            merge=None,
            evolution=None,
            unknown_fields="ignore",
            of_key=self.of_key & set(names),
            of_header=self.of_header & set(names),
            variants=self.variants & set(names),
            defaults=_select(self.defaults, names),
            sources=_select(self.sources, names),
            units=_select(self.units, names),
            local_times=_select(self.local_times, names),
        )

    @property
    def change_schema(self) -> pa.Schema:
        """The declared columns, all optional because a deleted row has its key alone, and the operation on the row."""
        return pa.schema([*(column.with_nullable(nullable=True) for column in self.columns), OP_FIELD])

    @property
    def block_schema(self) -> pa.Schema:
        """The schema of decoded rows: the declared columns, and the operation on the row if values are change events."""
        # A deleted row has its key alone. Required columns of other rows are checked earlier.
        return self.change_schema if self.tells_changes else self.columns

    @property
    def row_schema(self) -> pa.Schema:
        """The schema of the rows: declared columns, then the added ones, then what merging needs."""
        added = self.kafka_columns.fields if self.kafka_columns else []
        block = self.change_schema if self.tombstone == "delete" else self.block_schema
        declared = [column for column in block if column.name != OP]
        return pa.schema([*declared, *added, *(self.merge.fields if self.merge else ())])

    @property
    def column_specs(self) -> tuple[ColumnSpec, ...]:
        """The declared columns that take fields, one by one, in order: without the one for rescued fields."""
        return tuple(
            ColumnSpec(
                column.name,
                column.type,
                required=not column.nullable,
                source=self.sources.get(column.name),
                has_default=column.name in self.defaults,
                default=self.defaults.get(column.name),
                reading=self._reading(column.name),
                variant=column.name in self.variants,
            )
            for column in self.columns
            if column.name != self.rescues
        )

    def _reading(self, name: str) -> Reading:
        inferred = not self.declares(name)
        return Reading(
            unit=self.units.get(name),
            local_time=self.local_times.get(name, "keep"),
            cast_text=self.casts == "text" or inferred,
            inferred=inferred,
            truncates=self.format.truncates,
            fold=self.fold,
        )

    def declares(self, name: str) -> bool:
        """Whether the pipeline file declares a column."""
        return self.declared is None or name in self.declared


def _select(options: Mapping[str, T], names: Collection[str]) -> dict[str, T]:
    return {name: option for name, option in options.items() if name in names}


def _refuse(what: str, names: Iterable[str]) -> None:
    if listed := ", ".join(names):
        raise FIELDS_UNFIT.terminal(
            f"record shape: {what}: {listed}", next_step="correct the columns of the pipeline file"
        )
