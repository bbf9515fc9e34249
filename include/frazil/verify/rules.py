"""How a pipeline turns records into rows and dead letters, as far as that can be derived here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from confluent_kafka import Message

from frazil.pipeline.models.layout import HISTORY_COLUMNS
from frazil.pipeline.models.pipeline_file import Pipeline
from frazil.pipeline.models.value import Column
from frazil.pipeline.syntax.types import ColumnType, Primitive
from frazil.pipeline.transforms import KINDS
from frazil.verify.facts.coverage import Key, is_read_again
from frazil.verify.facts.ledger import READ_KINDS, REPAIR_KINDS, Batch, unrecorded_batches
from frazil.verify.facts.result import Difference, ledger_difference
from frazil.verify.former_files import NO_FORMER_FILES, FormerFiles
from frazil.verify.outcomes import RowReading
from frazil.verify.values.cdc_expectation import ChangeReader, change_reasons
from frazil.verify.values.column_readers import Bad, ColumnChanges, Expectation, count_unjudged, has_undeclared_columns
from frazil.verify.values.transforms import HeaderCells, RouteToTable, headers_of, route_to_table
from frazil.verify.values.typed_expectation import (
    FILTERED,
    SchemasOf,
    TypedChanges,
    TypedExpectation,
    is_typed,
    reads_changes,
    typed_reasons,
)

LOG_TYPES: dict[str, ColumnType] = dict(zip(HISTORY_COLUMNS, (Primitive("string"), Primitive("int")), strict=True))
"""Additional columns of a history table, after the columns of its rows."""


@dataclass
class FilteredCounts:
    """Counts records without outcome, to compare them with the ledger's count of filtered records per batch.

    Attributes:
        allowed: Batch number -> records that it filtered, according to the ledger.
        counted: Batch number -> records without outcome that were found so far.
        first_held: Partition -> first offset from which on Kafka certainly has every record.
    """

    allowed: Mapping[int, int] = field(default_factory=dict)
    counted: Counter[int] = field(default_factory=Counter)
    first_held: dict[Key, int] = field(default_factory=dict)

    @classmethod
    def from_ledger(cls, batches: Sequence[Batch]) -> FilteredCounts:
        """Take the counts of the ledger."""
        return cls({batch.n: batch.filtered for batch in batches if batch.kind in READ_KINDS})

    def count_if_allowed(self, n: int) -> bool:
        """Count a record without outcome as filtered by batch `n`. Returns whether the ledger's count allows one more."""
        is_allowed = self.remaining(n) > 0
        self.counted[n] += is_allowed
        return is_allowed

    def remaining(self, n: int) -> int:
        """Number of further records that batch `n` may have filtered."""
        return self.allowed.get(n, 0) - self.counted[n]

    def differences(self, whole_batches: Sequence[Batch], counted_batches: Collection[int]) -> Iterator[Difference]:
        """Batches with fewer records without outcome than the ledger counts: some filtered records have an outcome.

        Args:
            whole_batches: Batches whose outcomes all exist and were all compared.
            counted_batches: Numbers of the batches whose filtered records were counted here.
        """
        for batch in whole_batches:
            is_complete = all(self.first_held.get((r.topic, r.partition), r.end) <= r.start for r in batch.ranges)
            if batch.n in counted_batches and is_complete and self.counted[batch.n] < batch.filtered:
                expected = f"{batch.filtered} records of batch {batch.n} without outcome, as many as it filtered"
                yield ledger_difference(batch.n, expected, f"{self.counted[batch.n]}")


class NoExpectation:
    """Stand-in for an expectation where values can't be derived here: no value is compared."""

    def row(self, _raw: bytes) -> tuple[Any, ...] | Bad:
        """No values."""
        return ()

    cells = row


@dataclass(frozen=True)
class Rules:
    """How a pipeline turns records into outcomes of one table.

    Attributes:
        expectation: Derives the row, or the changes of rows, that a record must become.
        columns: Names of the columns that are compared.
        filters: Whether a record without value is filtered. If it could delete a row of the table, earlier batches may have
            filtered it, as the ledger counts.
        filters_empty: Whether a record with a value of 0 bytes is filtered.
        unknown_file_batches: Numbers of batches that ran under a pipeline file that is no longer known, which may have
            filtered, refused or routed records in another way, and had other columns.
        unrecorded: Numbers of batches whose ledger rows were given up.
        not_compared_because: Why values are not compared; None if they are.
        exploded: Numbers of batches that made several rows of a record.
        route_target: How records are routed; None: all go to the table.
        filters_unrouted: Whether a record that is routed to no table is filtered; otherwise it is a dead letter.
        abandoned: Numbers of repairs that gave up rows of the table, and whose offsets no later batch read.
        filtered_counts: Counts the records without outcome of batches that may have filtered more than this file says.
        earlier: Number of a batch that may have landed while the table had other columns -> how they changed since.
        always_present: Indexes of the columns that the table always had.
        max_record_bytes: Largest size of a record that is not a dead letter `RECORD_TOO_LARGE`.
        in_orc: Whether the table has ORC files, which don't keep every timestamp of Kafka either.
        former: Number of a batch that ran under another pipeline file -> the rules of that file.
        types: Types of the columns that are compared.
        headers: Reads the columns that take headers; None if there are none.
        unjudged: Column -> cells that were not compared because the column had another name, and this reason.
    """

    expectation: Expectation | ChangeReader | TypedExpectation | NoExpectation
    columns: tuple[str, ...]
    filters: bool
    unknown_file_batches: frozenset[int] = frozenset()
    unrecorded: frozenset[int] = frozenset()
    filters_empty: bool = False
    not_compared_because: str | None = None
    exploded: frozenset[int] = frozenset()
    route_target: RouteToTable | None = None
    filters_unrouted: bool = False
    abandoned: frozenset[int] = frozenset()
    filtered_counts: FilteredCounts = field(default_factory=FilteredCounts)
    earlier: Mapping[int, ColumnChanges] = field(default_factory=dict)
    always_present: tuple[int, ...] = ()
    max_record_bytes: int = 16 * 2**20
    in_orc: bool = False
    former: Mapping[int, Rules] = field(default_factory=dict)
    types: Mapping[str, ColumnType] = field(default_factory=dict)
    headers: HeaderCells | None = None
    unjudged: dict[str, tuple[int, str]] = field(default_factory=dict)

    def for_batch(self, n: int | None) -> Rules:
        """The rules that batch `n` ran under."""
        return self if n is None else self.former.get(n, self)

    @property
    def per_file(self) -> tuple[Rules, ...]:
        """These rules, and those of each former pipeline file."""
        return self, *{id(rules): rules for rules in self.former.values()}.values()

    @cached_property
    def lenient(self) -> frozenset[int]:
        """Numbers of batches under an unknown pipeline file or other columns: their rows are compared leniently."""
        return self.unknown_file_batches | self.earlier.keys()

    def is_lenient(self, n: int | None) -> bool:
        """Whether a row with a hash per cell is compared leniently. Typed rows always have one, so only changed columns count."""
        return n in self.earlier or not self.reading.is_by_cell

    @cached_property
    def reading(self) -> RowReading:
        """How rows of its batches are read."""
        is_evolving = isinstance(self.expectation, Expectation | TypedExpectation) and self.expectation.is_evolving
        return RowReading(self.types, self.lenient, is_evolving, isinstance(self.expectation, TypedExpectation))

    @property
    def is_unsure(self) -> bool:
        """Whether the changes in some record could not be read, so that no row is known for sure."""
        return any(
            isinstance(rules.expectation, TypedChanges) and rules.expectation.is_unsure for rules in self.per_file
        )

    @cached_property
    def lowest_record_limit(self) -> int:
        """Smallest `max_record_bytes` of all pipeline files: a record up to this size is never too large."""
        return min(rules.max_record_bytes for rules in self.per_file)

    def filters_absent(self, value: bytes | None) -> bool:
        """Whether a record without value, or with an empty one, is filtered."""
        return self.filters if value is None else self.filters_empty and not value

    def filters_record(self, value: bytes | None, topic: str, message: Message) -> bool:
        """Whether a record is filtered: it has no outcome in this table by design."""
        if self.not_compared_because is not None or not value:
            return self.filters_absent(value)
        route = "here" if self.route_target is None else self.route_target(topic, value, message)
        if route == "elsewhere" or (route == "nowhere" and self.filters_unrouted):
            # A value that can't be decoded is a dead letter for all tables, whatever the route.
            return self.is_broken(message) is not True
        return isinstance(self.expectation, TypedExpectation) and self.row(value, topic, message) is FILTERED

    def is_broken(self, message: Message) -> bool | None:
        """Whether no table can decode a record that has a value; None if that can't be derived."""
        return isinstance(self.expectation, TypedExpectation) and self.expectation.is_broken(message)

    def may_filter(self, message: Message) -> bool:
        """Whether it can't be derived here if a transform filters the record: then the ledger's count decides."""
        return isinstance(self.expectation, TypedExpectation) and self.expectation.may_filter(message)

    def row(self, value: bytes, topic: str, message: Message) -> tuple[Any, ...] | Bad:
        """The row that a record must become, or why it must be a dead letter."""
        is_compared = self.not_compared_because is None
        if self.route_target is not None and is_compared and self.route_target(topic, value, message) != "here":
            return Bad("it is routed to no table, or to others")
        if isinstance(self.expectation, TypedExpectation | TypedChanges):
            return self.expectation.record(message)
        row = self.expectation.row(value)
        return row if self.headers is None else self.headers.join(row, headers_of(message))

    def cells(
        self, value: bytes, topic: str, message: Message, n: int | None
    ) -> tuple[tuple[Any, ...] | Bad, tuple[bool, ...]]:
        """The values of a record for a batch under another file or other columns, and which of them may be null."""
        if n is not None and n in self.earlier and n not in self.unknown_file_batches:
            row, changes = self.row(value, topic, message), self.earlier[n]
            if not isinstance(row, Bad):
                why = "the column, or a field of it, had another name"  # so its source field is not known
                cells = tuple(
                    count_unjudged(self.unjudged, name, why) if name in changes.renamed else cell
                    for name, cell in zip(self.columns, row, strict=True)
                )
                return cells, tuple(name in changes.added for name in self.columns)
        row = self.expectation.cells(value)
        row = row if self.headers is None else self.headers.join_known(row, headers_of(message))
        return row, (True,) * len(self.columns)

    def is_counted(self, n: int) -> bool:
        """Whether the filtered records of a batch can only be counted, and compared with the ledger's count."""
        return self.for_batch(n).not_compared_because is not None or n in self.unknown_file_batches


def rules_of(
    pipeline: Pipeline,
    batches: Sequence[Batch],
    table: str,
    columns: Mapping[str, Column],
    earlier: Mapping[int, ColumnChanges] | None = None,
    former: FormerFiles = NO_FORMER_FILES,
) -> Rules:
    """The rules for the outcomes of these batches in one destination."""
    older = frozenset(batch.n for batch in batches if batch.config != pipeline.outcome_fingerprint)
    may_explode = exploding_batches(pipeline, batches, former.files)
    exploded = frozenset(batch.n for batch in batches if batch.has_more_rows and batch.n in may_explode)
    rules = replace(
        _rules(pipeline, batches, table, columns, earlier or {}, former.schemas),
        unknown_file_batches=older,
        exploded=exploded,
    )
    former_rules: dict[int, Rules] = {}
    for fingerprint, (file, file_columns) in former.of_table(pipeline, table).items():
        numbers = frozenset(batch.n for batch in batches if batch.config == fingerprint)
        file_rules = _rules(file, batches, table, file_columns, earlier or {}, former.schemas)
        are_compared = file_rules.not_compared_because is rules.not_compared_because is None
        # Batches under several files contribute to one row, if rows are made of changes: then all files must be compared.
        if pipeline.destination(table).write == "append" or (are_compared and file_rules.columns == rules.columns):
            former_rules |= dict.fromkeys(numbers, replace(file_rules, filtered_counts=rules.filtered_counts))
    return replace(rules, former=former_rules, unknown_file_batches=older - former_rules.keys())


def _rules(
    pipeline: Pipeline,
    batches: Sequence[Batch],
    table: str,
    columns: Mapping[str, Column],
    earlier: Mapping[int, ColumnChanges],
    schemas: SchemasOf,
) -> Rules:
    reason, destination = not_compared_because(pipeline), pipeline.destination(table)
    takes = pipeline.value.null_value == "delete" and destination.takes_tombstones
    types = {name: column.parsed for name, column in columns.items()} if reason is None else {}
    return Rules(
        expectation=_expectation(pipeline, table, columns, schemas) if reason is None else NoExpectation(),
        columns=tuple(types),
        filters=pipeline.value.null_value != "dead_letter" and not takes,
        unrecorded=unrecorded_batches(batches),
        filters_empty=pipeline.value.empty_value == "filter",
        not_compared_because=reason,
        route_target=route_to_table(pipeline, table),
        filters_unrouted=pipeline.route is not None and pipeline.route.otherwise == "filter",
        abandoned=frozenset(
            batch.n
            for batch in batches
            if batch.kind in REPAIR_KINDS and batch.rows.keys() == {"destination"} and not is_read_again(batch, batches)
        ),
        filtered_counts=FilteredCounts.from_ledger(batches),
        earlier={
            n: since for n, all_columns in earlier.items() if (since := all_columns.restricted_to(columns)).changed
        },
        always_present=tuple(
            index for index, name in enumerate(columns) if not any(name in since.added for since in earlier.values())
        ),
        max_record_bytes=pipeline.limits.max_record_bytes,
        in_orc=destination.file_format == "orc",
        headers=_header_cells(pipeline, table, columns) if reason is None else None,
        types=types | (LOG_TYPES if destination.is_history and types else {}),
    )


def _header_cells(pipeline: Pipeline, table: str, columns: Mapping[str, Column]) -> HeaderCells | None:
    if not any(column.part == "header" for column in columns.values()):
        return None
    destination = pipeline.destination(table)
    return HeaderCells(columns, pipeline.value, destination.order_by, in_orc=destination.file_format == "orc")


def _expectation(
    pipeline: Pipeline, table: str, columns: Mapping[str, Column], schemas: SchemasOf
) -> Expectation | ChangeReader | TypedExpectation:
    destination = pipeline.destination(table)
    in_orc = destination.file_format == "orc"
    if is_typed(pipeline) and reads_changes(pipeline, destination):
        return TypedChanges(pipeline, destination, columns, schemas)
    if is_typed(pipeline):
        return TypedExpectation(
            pipeline, columns, schemas, in_orc=in_orc, is_evolving=has_undeclared_columns(destination)
        )
    if destination.write != "append":
        return ChangeReader(destination, columns, pipeline.value)
    return Expectation(columns, pipeline.value, in_orc=in_orc, is_evolving=has_undeclared_columns(destination))


def not_compared_because(pipeline: Pipeline) -> str | None:
    """Why expected values can't be derived here; None if they can."""
    reasons = list(typed_reasons(pipeline)) if is_typed(pipeline) else []
    for destination in pipeline.destinations:
        reasons += [f"{destination.table}: {reason}" for reason in change_reasons(pipeline, destination)]
    moved = [
        destination.table
        for destination in pipeline.destinations
        if destination.evolves != "none" and destination.on_incompatible == "variant_column"
    ]
    if moved:
        reasons.append(f"{', '.join(moved)}: values go into other columns (on_incompatible: variant_column)")
    variants = [f"{destination.table}.{name}" for destination in pipeline.destinations for name in destination.variants]
    if variants:
        are = "are variants" if variants[1:] else "is a variant"
        reasons.append(f"{', '.join(variants)} {are}, which only an engine can read")
    return " and ".join(reasons) or None


def exploding_batches(
    pipeline: Pipeline, batches: Sequence[Batch], former: Mapping[str, Pipeline | str]
) -> frozenset[int]:
    """Numbers of batches that may have written several rows per record: by Explode, changes or a custom transform."""
    files: dict[str, Pipeline | str] = {**former, pipeline.outcome_fingerprint: pipeline}
    explodes = {fingerprint for fingerprint, file in files.items() if isinstance(file, str) or _explodes(file)}
    return frozenset(batch.n for batch in batches if batch.config in explodes or batch.config not in files)


def _explodes(pipeline: Pipeline) -> bool:
    has_changes = any(destination.write != "append" for destination in pipeline.destinations)
    return has_changes or any(step.name == "Explode" or step.name not in KINDS for step in pipeline.transforms)
