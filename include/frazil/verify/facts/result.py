"""The result of a verification as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

Kind = Literal["missing", "duplicate", "unexpected", "changed", "ledger"]

DESCRIBED_DIFFERENCES = 100
"""Most differences that a result describes with their coordinates; further ones are only counted."""

SHOWN_CHARACTERS = 120
"""Most characters of a value in a difference: enough to recognise it, too few to copy a payload into a log."""


def shorten(value: object) -> str:
    """A value as text of bounded length."""
    text = value if isinstance(value, str) else "null" if value is None else repr(value)
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}…"


@dataclass(frozen=True, slots=True)
class Difference:
    """One difference between the expected and the actual state.

    Attributes:
        kind: `missing`: a record without outcome. `duplicate`: a record with several. `unexpected`: an outcome without its
            record. `changed`: values that are not the record's. `ledger`: the ledger contradicts itself or the tables.
        topic: Topic of the record; None where the difference is about no single record.
        batch: Number of the batch that the difference is about.
        table: The destination that the difference is about, if the pipeline has several.
    """

    kind: Kind
    expected: str
    actual: str
    topic: str | None = None
    partition: int | None = None
    offset: int | None = None
    batch: int | None = None
    table: str | None = None

    def __str__(self) -> str:
        places = (
            ("table", self.table),
            ("topic", self.topic),
            ("partition", self.partition),
            ("offset", self.offset),
            ("batch", self.batch),
        )
        where = ", ".join(f"{name} {value}" for name, value in places if value is not None)
        return f"{self.kind}: {where + ': ' if where else ''}expected {self.expected}, found {self.actual}"

    def document(self) -> dict[str, Any]:
        """The difference as `frazil verify --json` writes it, with `actual` under the key `found`."""
        return {"found" if name == "actual" else name: value for name, value in asdict(self).items()}


def ledger_difference(n: int, expected: str, actual: str) -> Difference:
    """A contradiction within the ledger, or between the ledger and a table, about one batch."""
    return Difference("ledger", expected, actual, batch=n)


@dataclass(frozen=True, slots=True)
class PartitionResult:
    """The result of comparing one partition: counts of compared records and of differences.

    Attributes:
        covered: Offsets that batches read, including offsets without a record.
        records: Committed records that Kafka has at these offsets.
        rows: Rows of the destination.
        filtered: Records that the pipeline filtered out.
        missing: Records without outcome.
        duplicate: Further outcomes of records that have one already.
        unexpected: Outcomes without their record.
        changed: Outcomes whose values are not the record's.
        unchecked: Outcomes whose record Kafka no longer has, so that only duplicates can be found, and outcomes of
            batches whose ledger rows were given up.
        given_up: Records whose lost row or dead letter was given up by a repair.
        lenient: Rows of batches whose pipeline file is no longer known, or from before a column of their table changed: null
            was accepted, because the column may be younger.
        expired: Offsets that batches read, and that retention has deleted from Kafka.
        table: The destination, if the pipeline has several.
    """

    topic: str
    partition: int
    covered: int = 0
    records: int = 0
    rows: int = 0
    letters: int = 0
    filtered: int = 0
    missing: int = 0
    duplicate: int = 0
    unexpected: int = 0
    changed: int = 0
    unchecked: int = 0
    given_up: int = 0
    lenient: int = 0
    expired: int = 0
    table: str | None = None


def add_counts(partition: PartitionResult, counts: Mapping[str, int]) -> PartitionResult:
    """The result of a partition with further counts added."""
    return replace(partition, **{name: getattr(partition, name) + count for name, count in counts.items()})


@dataclass(frozen=True, slots=True)
class Verification:
    """The result of a verification.

    Attributes:
        n: Last finished batch; None if the ledger has none.
        partitions: Per topic partition, in order.
        differences: The first differences, ledger first.
        count: How many differences there are.
        older_incarnation: Rows and dead letters of topics that were deleted, or recreated, since they were read.
        foreign: Rows of the destination that somebody else wrote: without Kafka columns, or from topics of another pipeline.
        records: Records compared, each counted once, however many tables it goes to.
        values_compared: Whether rows were compared with the values of their records. If not, the check only covers that each
            record has its one outcome, a dead letter its bytes, and each batch as many outcomes as the ledger counts.
        values_not_compared_because: The reason why values were not compared; None if they were.
        columns_not_compared: Table -> its columns whose values were not compared, for that reason.
        cells_not_compared: Table -> column -> number of values that could not be derived, and the first reason.
        batches_not_judged: Reason why batches can't be judged by their own pipeline file -> their numbers. Their rows were
            compared with the present file, with null accepted for any value; their filtered records only with the ledger.
        notes: Remarks on facts that were compared only once, such as where a manifest is gone, and on columns for which null
            was accepted in earlier rows.
    """

    pipeline: str
    n: int | None
    partitions: tuple[PartitionResult, ...]
    differences: tuple[Difference, ...]
    count: int
    older_incarnation: int
    foreign: int
    seconds: float
    records: int
    values_compared: bool = True
    values_not_compared_because: str | None = None
    columns_not_compared: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    batches_not_judged: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    cells_not_compared: Mapping[str, Mapping[str, tuple[int, str]]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def is_clean(self) -> bool:
        """Whether there is no difference, and the comparison had records if there was anything to compare."""
        return self.count == 0 and not self.is_baseless

    @property
    def is_baseless(self) -> bool:
        """Whether there are outcomes, or offsets that were read, but no record in Kafka to compare them with."""
        incomparable = sum(partition.unchecked + partition.expired for partition in self.partitions)
        return self.records == 0 and incomparable + self.older_incarnation > 0


@dataclass(slots=True)
class Findings:
    """Differences of a verification: all are counted, only the first are described."""

    described: list[Difference] = field(default_factory=list)
    count: int = 0
    batches: set[int] = field(default_factory=set)
    """Numbers of the batches that differences are about."""
    table: str | None = None
    """The destination being compared, where the pipeline has several."""

    @property
    def has_room(self) -> bool:
        """Whether the next difference will be described rather than only counted."""
        return len(self.described) < DESCRIBED_DIFFERENCES

    def add(self, *differences: Difference) -> None:
        """Count differences, and describe them while there is room."""
        self.count += len(differences)
        self.batches.update(difference.batch for difference in differences if difference.batch is not None)
        first = differences[: max(0, DESCRIBED_DIFFERENCES - len(self.described))]
        self.described += [replace(difference, table=self.table or difference.table) for difference in first]

    def merge(self, findings: Findings) -> None:
        """Add the differences of another comparison."""
        self.count += findings.count
        self.batches |= findings.batches
        self.described += findings.described[: max(0, DESCRIBED_DIFFERENCES - len(self.described))]
