"""The result of a verification as plain data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

Kind = Literal["missing", "duplicate", "unexpected", "changed", "ledger"]

DESCRIBED_DIFFERENCES = 100
"""Differences described with their coordinates; the others are only counted."""

SHOWN_CHARACTERS = 120
"""A difference shows this much of a value: enough to know it again, too little to copy a payload into a log."""


def shorten(value: object) -> str:
    """A value as text of bounded length."""
    text = value if isinstance(value, str) else "null" if value is None else repr(value)
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}…"


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that is not as it must be.

    Attributes:
        kind: `missing`: a record without outcome. `duplicate`: more than one. `unexpected`: an outcome without its
            record. `changed`: values that are not the record's. `ledger`: the books contradict each other.
        topic: Topic of the record, None for the books.
        batch: Number of the batch it is about.
        table: Of several destinations, the one it is about.
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
        """The difference as `frazil verify --json` writes it: the key of `actual` is `found`."""
        return {"found" if name == "actual" else name: value for name, value in asdict(self).items()}


def ledger_difference(n: int, expected: str, actual: str) -> Difference:
    """A difference between the ledger and a batch's data."""
    return Difference("ledger", expected, actual, batch=n)


@dataclass(frozen=True, slots=True)
class PartitionResult:
    """The result of comparing one partition: counts of compared records and of differences.

    Attributes:
        covered: Offsets that batches read, gaps of Kafka included.
        records: Committed records that Kafka has of them.
        rows: Rows of the destination.
        filtered: Records without outcome on purpose.
        missing: Records without outcome.
        duplicate: Outcomes beyond the first.
        unexpected: Outcomes without their record.
        changed: Outcomes that are not what the record says.
        unchecked: Outcomes whose record Kafka no longer has, where only doubles can be found, and those of
            batches whose ledger rows were given up.
        given_up: Records whose lost row or dead letter a repair gave up, on record.
        lenient: Rows of batches whose pipeline file is no longer known, or from before a column of their table changed: a null
            was accepted, because the column may be younger.
        expired: Offsets that batches read and Kafka's log no longer reach back to.
        table: Of several destinations, the one it is about.
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
        older_incarnation: Rows and dead letters of topics as they were before they were recreated, or that are gone.
        foreign: Rows of the destination that carry no Kafka columns, or are of topics of another pipeline: written by
            somebody else.
        records: Records compared, each once, however many tables it is meant for.
        values_compared: Whether rows were compared with the values of their records. If not, only places were: that each
            record has its one outcome, a dead letter its bytes, and each batch as many of each as the ledger says.
        values_not_compared_because: Why not.
        columns_not_compared: Table -> its columns whose values were not compared, for that reason.
        cells_not_compared: Table -> column -> how many of its values could not be worked out, and why the first one could not.
        batches_not_judged: Why the pipeline file that batches ran under is not known -> their numbers: their rows were held
            against the present file, where null may stand for any value, and what they left out is the ledger's word.
        notes: Missing manifests and the like of finished batches, so that some facts were compared once instead of twice;
            columns for which null was accepted in earlier rows.
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
        """Whether everything is as it must be, and something could be compared, or there was nothing to compare."""
        return self.count == 0 and not self.is_baseless

    @property
    def is_baseless(self) -> bool:
        """Whether there are outcomes, or offsets that were read, and no record in Kafka to compare any of them with."""
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
        self.described += (
            [replace(difference, table=self.table) for difference in first] if self.table is not None else first
        )

    def merge(self, findings: Findings) -> None:
        """Add the differences of another comparison."""
        self.count += findings.count
        self.batches |= findings.batches
        self.described += findings.described[: max(0, DESCRIBED_DIFFERENCES - len(self.described))]

    def extend(self, differences: Iterable[Difference]) -> None:
        """Add the differences of an iterable."""
        self.add(*differences)
