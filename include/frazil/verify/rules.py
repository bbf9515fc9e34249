"""How a pipeline turns records into outcomes, and how much of that can be worked out anew."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any

from confluent_kafka import Message

from frazil.pipeline.models.changes import TOLD
from frazil.pipeline.models.pipeline_file import Pipeline
from frazil.pipeline.models.value import Column
from frazil.pipeline.syntax.types import ColumnType, Primitive
from frazil.pipeline.transforms.transforms import KINDS
from frazil.verify.facts.coverage import Key, is_filled
from frazil.verify.facts.ledger import MENDING, READING, Batch, unrecorded
from frazil.verify.facts.result import Difference
from frazil.verify.former_files import NO_FORMER_FILES, FormerFiles
from frazil.verify.outcomes import Reading
from frazil.verify.values.cdc_expectation import ChangeReader, unread_changes
from frazil.verify.values.column_readers import Bad, Expectation
from frazil.verify.values.evolved_schema import EvolvedExpectation, Since, grows
from frazil.verify.values.routes import WhereTo, where_to
from frazil.verify.values.typed_expectation import LEFT_OUT, SchemasOf, TypedExpectation, is_typed, untyped_because

LOG_TYPES: dict[str, ColumnType] = dict(zip(TOLD, (Primitive("string"), Primitive("int")), strict=True))
"""Columns of a log of changes behind those of its rows."""


@dataclass
class LeftOut:
    """Records without outcome, held against the ledger's count of each batch.

    Attributes:
        allowed: Batch number -> records that it left out.
        found: Batch number -> records without outcome, as far as they were looked at.
        held: Partition -> the first offset from which on Kafka surely holds every record.
    """

    allowed: Mapping[int, int] = field(default_factory=dict)
    found: Counter[int] = field(default_factory=Counter)
    held: dict[Key, int] = field(default_factory=dict)

    @classmethod
    def of(cls, batches: Sequence[Batch]) -> LeftOut:
        """What the ledger says."""
        return cls({batch.n: batch.filtered for batch in batches if batch.kind in READING})

    def takes(self, n: int) -> bool:
        """Whether a record without outcome may be one that batch `n` left out. Counts it if so."""
        if self.found[n] >= self.allowed.get(n, 0):
            return False
        self.found[n] += 1
        return True

    def room(self, n: int) -> int:
        """How many further records without outcome may be ones that batch `n` left out."""
        return self.allowed.get(n, 0) - self.found[n]

    def takes_some(self, n: int, count: int) -> int:
        """Count so many records without outcome as left out by batch `n`, which has room for them."""
        self.found[n] += count
        return count

    def differences(self, whole: Sequence[Batch], of: Collection[int]) -> Iterator[Difference]:
        """Batches that left out fewer records than the ledger says: some of those have an outcome.

        Args:
            whole: Batches whose outcomes are all there, and were all looked at.
            of: Numbers of the batches whose records were counted here.
        """
        for batch in whole:
            seen = all(self.held.get((r.topic, r.partition), r.end) <= r.start for r in batch.ranges)
            if batch.n in of and seen and self.found[batch.n] < batch.filtered:
                expected = f"{batch.filtered} records of batch {batch.n} without outcome, as many as it left out"
                yield Difference("ledger", expected, f"{self.found[batch.n]}", batch=batch.n)


class Unread:
    """Takes the place of an expectation where values can't be worked out anew: nothing is expected of them."""

    def row(self, _raw: bytes) -> tuple[Any, ...] | Bad:
        """No values."""
        return ()

    def cells(self, _raw: bytes) -> tuple[Any, ...] | Bad:
        """No values."""
        return ()


@dataclass(frozen=True)
class Rules:
    """How a pipeline turns records into outcomes.

    Attributes:
        expectation: The row a value must be.
        columns: Names of the columns that are compared.
        filters: Whether a record without value is left out. In a table that it could delete a row of, earlier batches may have
            left it out, as the ledger counts.
        filters_empty: Whether one with a value of 0 bytes is.
        older: Numbers of batches that ran under a pipeline file that is not known any more: a record may have been bad or left
            out then, and not every column was there.
        unrecorded: Numbers of batches whose ledger rows were given up.
        unread: Why values are not compared; None if they are.
        exploded: Numbers of batches that made several rows of a record.
        where: How records are routed; None: all are meant for the table.
        filters_unrouted: Whether a record that no table is for is left out; else it is a dead letter.
        abandoned: Numbers of repairs that gave up rows of the table, which no later batch brought.
        left_out: Records without outcome of batches that may have left out more than this file says.
        earlier: Number of a batch that may have landed while the table had other columns -> what they have become since.
        steady: Places of the columns that were always there.
        max_record_bytes: Most bytes of a record that is not too large.
        in_orc: Whether the table has ORC files, which don't keep every timestamp of Kafka either.
        former: Number of a batch that ran under another pipeline file -> the rules of that file.
        types: Types of the columns that are compared.
    """

    expectation: Expectation | EvolvedExpectation | ChangeReader | TypedExpectation | Unread
    columns: tuple[str, ...]
    filters: bool
    older: frozenset[int]
    unrecorded: frozenset[int] = frozenset()
    filters_empty: bool = False
    unread: str | None = None
    exploded: frozenset[int] = frozenset()
    where: WhereTo | None = None
    filters_unrouted: bool = False
    abandoned: frozenset[int] = frozenset()
    left_out: LeftOut = field(default_factory=LeftOut)
    earlier: Mapping[int, Since] = field(default_factory=dict)
    steady: tuple[int, ...] = ()
    max_record_bytes: int = 16 * 2**20
    in_orc: bool = False
    former: Mapping[int, Rules] = field(default_factory=dict)
    types: Mapping[str, ColumnType] = field(default_factory=dict)

    def at(self, n: int | None) -> Rules:
        """The rules that batch `n` ran under."""
        return self if n is None else self.former.get(n, self)

    @property
    def all(self) -> tuple[Rules, ...]:
        """These, and those of former pipeline files."""
        return self, *{id(of): of for of in self.former.values()}.values()

    @cached_property
    def lenient(self) -> frozenset[int]:
        """Numbers of batches of which not all is known."""
        return self.older | self.earlier.keys()

    @cached_property
    def reading(self) -> Reading:
        """How rows of its batches are read."""
        is_grown = isinstance(self.expectation, EvolvedExpectation)
        return Reading(self.types, self.lenient, is_grown, isinstance(self.expectation, TypedExpectation))

    @cached_property
    def least_record_bytes(self) -> int:
        """Most bytes of a record that no batch found too large."""
        return min(of.max_record_bytes for of in self.all)

    def leaves_out(self, value: bytes | None, topic: str, message: Message | None = None) -> bool:
        """Whether a record is left out, as far as the table goes. Without the message, by value and topic alone."""
        if value is None:
            return self.filters
        if self.unread is not None or not value:
            return self.filters_empty and not value
        meant = "here" if self.where is None else self.where(topic, value)
        if meant == "elsewhere" or (meant == "nowhere" and self.filters_unrouted):
            return True
        is_typed = isinstance(self.expectation, TypedExpectation) and message is not None
        return is_typed and self.row(value, topic, message) is LEFT_OUT

    def may_leave_out(self, message: Message) -> bool:
        """Whether it can't be told if a record is left out: then the ledger's count of them counts."""
        return isinstance(self.expectation, TypedExpectation) and self.expectation.may_leave_out(message)

    def row(self, value: bytes, topic: str, message: Message | None = None) -> tuple[Any, ...] | Bad:
        """The row that a record must be, or why it must be a dead letter."""
        if self.where is not None and self.unread is None and self.where(topic, value) != "here":
            return Bad("it is not meant for this table")
        if isinstance(self.expectation, TypedExpectation) and message is not None:
            return self.expectation.record(message)
        return self.expectation.row(value)

    def cells(self, value: bytes, topic: str, n: int | None) -> tuple[tuple[Any, ...] | Bad, tuple[bool, ...]]:
        """The values that a record must have been for a batch that is not known in all, and which of them may be null."""
        if n is not None and n in self.earlier and n not in self.older:
            row, added = self.row(value, topic), self.earlier[n].added
            if not isinstance(row, Bad):
                return row, tuple(name in added for name in self.columns)
        return self.expectation.cells(value), (True,) * len(self.columns)

    def is_counted(self, n: int) -> bool:
        """Whether only the ledger knows how many records a batch left out."""
        return self.at(n).unread is not None or n in self.older


def rules_of(
    pipeline: Pipeline,
    batches: Sequence[Batch],
    table: str,
    columns: Mapping[str, Column],
    earlier: Mapping[int, Since] | None = None,
    former: FormerFiles = NO_FORMER_FILES,
) -> Rules:
    """The rules of a pipeline file for what these batches landed in one destination.

    Args:
        pipeline: The pipeline.
        batches: The ledger.
        table: Name of the destination.
        columns: Those of it that are compared.
        earlier: Number of a batch that may have landed while it had other ones -> what they have become since.
        former: Other files that batches ran under.
    """
    older = frozenset(batch.n for batch in batches if batch.config != pipeline.outcome_fingerprint)
    may_explode = exploding(pipeline, batches, former.files)
    exploded = frozenset(batch.n for batch in batches if batch.has_more_rows and batch.n in may_explode)
    rules = replace(
        _rules(pipeline, batches, table, columns, earlier or {}, former.schemas), older=older, exploded=exploded
    )
    known: dict[int, Rules] = {}
    for fingerprint, (of, then) in former.of_table(pipeline, table).items():
        numbers = frozenset(batch.n for batch in batches if batch.config == fingerprint)
        others = _rules(of, batches, table, then, earlier or {}, former.schemas)
        if not _is_model(pipeline, table) or (
            others.columns == rules.columns and others.unread is rules.unread is None
        ):
            known |= dict.fromkeys(numbers, replace(others, left_out=rules.left_out))
    return replace(rules, former=known, older=older - known.keys())


def _is_model(pipeline: Pipeline, table: str) -> bool:
    """Whether what a table holds is a model of all changes, in which rows of several files meet."""
    to = pipeline.destination(table)
    return to.is_merged or to.is_history


def _rules(
    pipeline: Pipeline,
    batches: Sequence[Batch],
    table: str,
    columns: Mapping[str, Column],
    others: Mapping[int, Since],
    schemas: SchemasOf,
) -> Rules:
    unread, destination = unread_because(pipeline), pipeline.destination(table)
    takes = pipeline.value.null_value == "delete" and destination.takes_tombstones
    types = {name: of.parsed for name, of in columns.items()} if unread is None else {}
    return Rules(
        _expectation(pipeline, table, columns, schemas) if unread is None else Unread(),
        tuple(types),
        pipeline.value.null_value != "dead_letter" and not takes,
        frozenset(),
        unrecorded(batches),
        pipeline.value.empty_value == "filter",
        unread,
        frozenset(),
        where_to(pipeline, table),
        pipeline.route is not None and pipeline.route.otherwise == "filter",
        frozenset(
            of.n
            for of in batches
            if of.kind in MENDING and of.rows.keys() == {"destination"} and not is_filled(of, batches)
        ),
        LeftOut.of(batches),
        {n: since for n, of in others.items() if (since := of.among(columns)).changed},
        tuple(at for at, name in enumerate(columns) if not any(name in of.added for of in others.values())),
        pipeline.limits.max_record_bytes,
        in_orc=destination.file_format == "orc",
        types=types | (LOG_TYPES if destination.is_history and types else {}),
    )


def _expectation(
    pipeline: Pipeline, table: str, columns: Mapping[str, Column], schemas: SchemasOf
) -> Expectation | EvolvedExpectation | ChangeReader | TypedExpectation:
    destination = pipeline.destination(table)
    if is_typed(pipeline):
        return TypedExpectation(pipeline, columns, schemas, in_orc=destination.file_format == "orc")
    if destination.is_merged or destination.is_history:
        return ChangeReader(destination, columns, pipeline.value)
    expected = Expectation(columns, pipeline.value, in_orc=destination.file_format == "orc")
    return EvolvedExpectation(expected) if grows(destination) else expected


def unread_because(pipeline: Pipeline) -> str | None:
    """Why values can't be worked out anew without the code that writes; None if they can."""
    reasons = list(untyped_because(pipeline)) if is_typed(pipeline) else []
    for of in pipeline.destinations:
        reasons += [f"{of.table}: {reason}" for reason in unread_changes(pipeline, of)]
    moved = [
        of.table for of in pipeline.destinations if of.evolves != "none" and of.on_incompatible == "variant_column"
    ]
    if moved:
        reasons.append(f"{', '.join(moved)}: values go into other columns (on_incompatible: variant_column)")
    variants = [f"{of.table}.{name}" for of in pipeline.destinations for name in of.variants]
    if variants:
        are = "are variants" if variants[1:] else "is a variant"
        reasons.append(f"{', '.join(variants)} {are}, which only an engine can read")
    return " and ".join(reasons) or None


def exploding(
    pipeline: Pipeline, batches: Sequence[Batch], former: Mapping[str, Pipeline | str] = MappingProxyType({})
) -> frozenset[int]:
    """Numbers of batches that may have made several rows of a record: by Explode, changes or an own transform."""
    files: dict[str, Pipeline | str] = {**former, pipeline.outcome_fingerprint: pipeline}
    explodes = {of for of, file in files.items() if isinstance(file, str) or _explodes(file)}
    return frozenset(batch.n for batch in batches if batch.config in explodes or batch.config not in files)


def _explodes(pipeline: Pipeline) -> bool:
    makes_several = any(of.is_merged or of.is_history for of in pipeline.destinations)
    return makes_several or any(step.name == "Explode" or step.name not in KINDS for step in pipeline.transforms)
