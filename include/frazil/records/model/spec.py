"""How a pipeline decodes its records, and which schema changes records may request: plain data, because executors get it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, TypeVar

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

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Evolution:
    """How the schema of a table follows its records.

    Attributes:
        level: `add`: new columns and fields of structs; `widen`: also wider types; `full`: also null in required columns.
        on_incompatible: What happens to a value whose type its column can't be widened to. `rescue` is for undeclared columns: they
            have the types of the first records, and a later value of another type may be just as right.
        max_columns: Most columns that the table gets from records; fields of structs count one by one.
        max_depth: Most levels of such a column.
        max_name_length: Most characters of its name.
        reserved: Top-level names of other columns: Kafka's, those of the key, and those for merging.
        never_null: Top-level names of columns that identify rows, have a field that does, or order changes.
        as_text: Types that become texts in new columns, `time` or `uuid`: the table's engine does not have them.
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


@dataclass(frozen=True, slots=True)
class KafkaColumns:
    """Names of the added columns: from which record a row comes, and which batch landed it."""

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
        columns: The declared columns with the Arrow types of the table; `nullable=False` means required.
        format: How values are encoded.
        fields: The fields of a JSON value before transforms; None: those that the columns take.
        infers: Whether each JSON value has its own fields. Then `fields` only says which numbers are decimals.
        key: How keys are encoded; None: keys are not decoded.
        key_fields: The fields of a JSON key.
        of_key: Names of the columns that take fields of the key.
        of_header: Names of the columns that take a header.
        known_names: Names of columns that are not in this spec, because keys or headers fill them. Such a field is not unknown.
        transforms: The transforms between decoding and the columns, in this order.
        defaults: Column name -> JSON value for a missing field.
        variants: Columns whose JSON texts become variants.
        sources: Column name -> field path in the value, if the column does not have its field's name; `WHOLE_VALUE` for a text column
            that takes the whole value.
        units: Column name -> unit of numbers that stand for its times.
        local_times: Column name -> whether a text with an offset may become a timestamp without zone; by default `keep`.
        unknown_fields: What happens to top-level fields of a value that no column takes: left out, kept as JSON text in
            `rescued_column`, or a dead letter. A column with the whole value takes all fields.
        rescued_column: The optional text column for them; then no field fills it.
        duplicate_keys: What happens if an object has a field twice: the last one counts, or the record is a dead letter.
        field_names: Whether `Id` is the field of a column `id`. If fields differ in case only, `duplicate_keys` decides. Names inside
            maps and JSON texts stay unchanged.
        casts: Whether numbers and booleans become texts in text columns, as they were sent.
        tombstone: What a null value becomes: filtered, a dead letter, or the deletion of the row of its key.
        empty_value: What a value of 0 bytes becomes.
        kafka_columns: Names of the added columns; None: none are added.
        merge: How rows are merged into the table; None: they are appended.
        file_format: Format of the table's data files; some formats don't keep all times.
        evolution: Which schema changes records may request; None: none.
        declared: Names of the columns that the pipeline file declares; None: all. Undeclared text columns take any value as its JSON
            text: so no record is dead because one with another type came before it.

    Raises:
        Terminal: There are no columns and will be none, names repeat, options name a column that is not declared or has another type,
            or the column for rescued fields is missing.
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
        """The spec without some columns, which keys or headers fill."""
        return self._select(frozenset(self.columns.names) - names, known_names=self.known_names | names)

    def _select(self, names: Collection[str], **changes: Any) -> RecordSpec:
        """The spec of some columns, with other changes."""

        def options(by_name: Mapping[str, T]) -> dict[str, T]:
            return {name: option for name, option in by_name.items() if name in names}

        return replace(
            self,
            columns=pa.schema([column for column in self.columns if column.name in names]),
            of_key=self.of_key.intersection(names),
            of_header=self.of_header.intersection(names),
            variants=self.variants.intersection(names),
            defaults=options(self.defaults),
            sources=options(self.sources),
            units=options(self.units),
            local_times=options(self.local_times),
            **changes,
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
        """The spec without evolution. The column for rescued fields, if there is one, takes the field `rest_name`."""
        has_rescued = self.rescued_column in self.columns.names
        sources = {**self.sources, self.rescued_column: (rest_name,)} if has_rescued else self.sources
        return replace(self, evolution=None, unknown_fields="ignore", sources=sources)

    def only(self, names: Collection[str]) -> RecordSpec:
        """The spec of some columns, to decode them alone: without transforms, and ignoring all other fields."""
        return self._select(names, transforms=(), merge=None, evolution=None, unknown_fields="ignore")

    @property
    def change_schema(self) -> pa.Schema:
        """The declared columns, all optional because a deleted row has only its key, and the operation on the row."""
        return pa.schema([*(column.with_nullable(nullable=True) for column in self.columns), OP_FIELD])

    @property
    def block_schema(self) -> pa.Schema:
        """The schema of decoded rows: the declared columns, and the operation on the row if values are change events."""
        # Required columns of rows that are not deleted are checked earlier.
        return self.change_schema if self.tells_changes else self.columns

    @property
    def row_schema(self) -> pa.Schema:
        """The schema of the rows: declared columns, then the added ones, then those for the merge."""
        added = self.kafka_columns.fields if self.kafka_columns else []
        block = self.change_schema if self.tombstone == "delete" else self.block_schema
        declared = [column for column in block if column.name != OP]
        return pa.schema([*declared, *added, *(self.merge.fields if self.merge else ())])

    @property
    def column_specs(self) -> tuple[ColumnSpec, ...]:
        """The declared columns that take fields, in order: without the column for rescued fields."""
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


def _refuse(what: str, names: Iterable[str]) -> None:
    if listed := ", ".join(names):
        raise FIELDS_UNFIT.terminal(
            f"record shape: {what}: {listed}", next_step="correct the columns of the pipeline file"
        )
