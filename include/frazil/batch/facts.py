"""Facts as plain data: the offsets that a broker reported, and the results of staging."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from json.encoder import encode_basestring_ascii
from typing import Any, Final, NamedTuple

import msgspec

from frazil.batch.schema_change import Demands, UntypedPaths, bound_demands, bound_paths, first_names

NAMES_SHOWN: Final = 20
"""Most names of unknown fields that are stored for a batch: a reader needs examples, not all of them."""

_NAMES_KEPT: Final = 500
"""Most names that are kept while fields are counted: a producer that uses values as names has new ones in every record."""

_NAME_CHARACTERS: Final = 80

_LISTED_CHARACTERS: Final = 400
"""Most characters of the names in one line: the note of a run in Airflow takes 1,000 characters in all."""


@dataclass(frozen=True, slots=True)
class UnknownFields:
    """Fields that no column takes, so that their records landed without them.

    Attributes:
        records: How many records had such a field.
        names: Field -> records that had it. If there are very many, only the most frequent ones, and the counts are minimums.
    """

    records: int = 0
    names: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def counted(cls, records: int, names: Mapping[str, int]) -> UnknownFields:
        """Return the counts of a limited number of names, shortened, and with control characters escaped."""
        cut: Counter[str] = Counter()
        for raw, count in names.items():
            name = raw if raw.isprintable() else encode_basestring_ascii(raw)[1:-1]
            cut[name if len(name) <= _NAME_CHARACTERS else f"{name[:_NAME_CHARACTERS]}…"] += count
        return cls(records, _most_frequent(cut, _NAMES_KEPT))

    def __add__(self, addend: UnknownFields) -> UnknownFields:
        if not addend.records or not self.records:
            return self if self.records else addend
        names = Counter(self.names)
        names.update(addend.names)
        return UnknownFields(self.records + addend.records, _most_frequent(names, _NAMES_KEPT))

    @property
    def shown(self) -> UnknownFields:
        """The counts with only the most frequent names, as they are stored for a batch."""
        return UnknownFields(self.records, _most_frequent(self.names, NAMES_SHOWN))

    @property
    def summary(self) -> str | None:
        """One line for people; None without unknown fields.

        Producers choose the names, so each stands in backticks: in Markdown nothing between them is markup.
        """
        if not self.records:
            return None
        listed = self._list_names()
        count = "1 record" if self.records == 1 else f"{self.records:,} records"
        return f"{count} with fields that no column takes{f' ({listed})' if listed else ''}"

    def _list_names(self) -> str:
        parts: list[str] = []
        for name, count in self.shown.names.items():
            quoted = name.replace("`", "'") or '""'
            parts.append(f"`{quoted}` {count:,}")
            if sum(map(len, parts)) > _LISTED_CHARACTERS:
                return ", ".join([*parts[:-1], f"and {len(self.names) - len(parts) + 1:,} more"])
        return ", ".join(parts)

    def without_names(self) -> UnknownFields:
        """Return the number of records alone, for readers who may not see the names."""
        return UnknownFields(self.records)


def _most_frequent(names: Mapping[str, int], most: int) -> dict[str, int]:
    return dict(sorted(names.items(), key=lambda item: (-item[1], item[0]))[:most])


@dataclass(frozen=True, slots=True)
class TableCounts:
    """Outcomes of the records that were routed to one of several destinations: routed = written + dead.

    `dead` counts records that don't fit this table; `rows` exceeds `written` where lists were exploded.
    """

    routed: int = 0
    written: int = 0
    dead: int = 0
    rows: int = 0
    unknown_fields: UnknownFields = field(default_factory=UnknownFields)

    def __add__(self, addend: TableCounts) -> TableCounts:
        return TableCounts(
            self.routed + addend.routed,
            self.written + addend.written,
            self.dead + addend.dead,
            self.rows + addend.rows,
            self.unknown_fields + addend.unknown_fields,
        )

    def to_body(self) -> dict[str, Any]:
        """The form in a manifest."""
        body = asdict(self)
        return body | {"unknown": body.pop("unknown_fields")}

    @classmethod
    def from_body(cls, body: Mapping[str, Any]) -> TableCounts:
        """Read `to_body`; older manifests have no unknown fields."""
        counts = {name: count for name, count in body.items() if name != "unknown"}
        return cls(**counts, unknown_fields=UnknownFields(**body.get("unknown", {})))


# Ages are counted in classes whose bounds grow by a tenth, as in DDSketch (https://www.vldb.org/pvldb/vol12/p2195-masson.pdf):
# counts of parts add up to those of the whole in any order, and a quantile is exact to 5 % of the age, or to 50 ms below 100 ms.
FLOOR_SECONDS: Final = 0.1
"""End of class 0, which also holds records that a producer's clock dates into the future."""

GROWTH: Final = 1.1
LAST: Final = 255

RecordAges = Mapping[int, int]
"""Class -> records. Class 0 ends at `FLOOR_SECONDS`, each further class at `GROWTH` times the end before."""


def ages_json(ages: RecordAges) -> str | None:
    """The ledger's text: [[class, records], ...] by class; None if nothing was counted."""
    return json.dumps(sorted(ages.items()), separators=(",", ":")) if ages else None


def ages_from(text: str | None) -> dict[int, int]:
    """Read `ages_json`."""
    return dict(json.loads(text)) if text else {}


def age_seconds(age: int) -> float:
    """The age in seconds that stands for a class of `RecordAges`: all ages of the class are within 5 % of it."""
    return FLOOR_SECONDS / 2 if age == 0 else 2 * FLOOR_SECONDS * GROWTH**age / (GROWTH + 1)


TopicPartition = tuple[str, int]


UNKNOWN_EPOCH = -1
"""Stands for an unknown leader epoch."""


def known_epochs(epochs: Iterable[int]) -> tuple[int, ...]:
    """The leader epochs of a topic's partitions; empty if none is known."""
    listed = tuple(epochs)
    return listed if any(epoch != UNKNOWN_EPOCH for epoch in listed) else ()


@dataclass(frozen=True, slots=True)
class PartitionFacts:
    """Offsets of one partition: the first readable one, the last stable offset (exclusive) and the high watermark.

    `leader_epoch` is that of the leader that reported `stable_end`: no record before it has a later epoch.
    """

    log_start: int
    stable_end: int
    high_watermark: int
    leader_epoch: int = UNKNOWN_EPOCH


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """One topic: its Kafka topic id (None where the broker gives none) and its partitions, in order."""

    id: str | None
    partitions: tuple[PartitionFacts, ...]

    @property
    def leader_epochs(self) -> tuple[int, ...]:
        """Leader epoch of each partition; empty if none is known."""
        return known_epochs(p.leader_epoch for p in self.partitions)


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """Facts of a cluster: its id, and the requested topics."""

    cluster_id: str
    topics: Mapping[str, TopicFacts]


@dataclass(frozen=True, slots=True)
class Range:
    """Offsets `start` <= o < `end` of one partition."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def span(self) -> int:
        """Number of offsets, gaps included."""
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class Counts:
    """Outcomes of the records of one or more ranges: read = written + dead + filtered."""

    read: int = 0
    written: int = 0
    dead: int = 0
    filtered: int = 0

    def __add__(self, addend: Counts) -> Counts:
        return Counts(
            self.read + addend.read,
            self.written + addend.written,
            self.dead + addend.dead,
            self.filtered + addend.filtered,
        )


@dataclass(frozen=True, slots=True)
class StagedFile:
    """One data file that no snapshot names yet.

    Attributes:
        size: Bytes.
        facts: The Iceberg data-file entry, as JSON text written and read by `frazil.iceberg.files.data_files` only.
        ops: `frazil.batch.changes.Op` -> rows, for changes that an engine merges.
    """

    path: str
    rows: int
    size: int
    facts: str
    ops: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DeadSample:
    """A sample dead letter: its record's coordinates and the reason."""

    topic: str
    partition: int
    offset: int
    message: str


class NamedLetter(NamedTuple):
    """One dead letter without its record's content; `destination` is the one table that the record does not fit, or None."""

    code: str
    topic: str
    partition: int
    offset: int
    destination: str | None = None


LETTERS_NAMED = 100
"""Most dead letters of a batch that a run lists one by one, so that bad data can't flood a log."""


@dataclass(frozen=True, slots=True)
class Staged:
    """The result of staging a batch.

    Attributes:
        counts: Outcomes per partition.
        dead_codes: Dead records per reason code; a record that is dead for several tables counts under the first code.
        files: Table -> its staged files.
        bytes: Bytes of the keys and values that were read.
        samples: The first dead letter of each code, by its coordinates.
        named: The first dead letters, if the order asks for them.
        extra_rows: Rows of the destination beyond one per written record, from exploded lists.
        unknown_fields: Fields of written records that no column takes.
        stopped: Whether staging stopped before all records were read: dead letters exceed the tolerance, or the run was
            asked to stop, which takes precedence.
        tables: With several destinations, the outcomes of the records that were routed to each.
        whole_dead: With several destinations, records that are dead for all of them.
        demands: Schema changes that records need, by table; one path may have several. A task with demands lands nothing.
        new_tables: The first names, in sorted order, of missing tables that records are routed to. A task with such records
            lands nothing.
        again: Ranges of tasks that landed nothing; they are staged again after the schema changes.
        void: Files of those tasks, to be deleted.
        untyped: Fields that landed without a column because their values show no type. If another task brings the type, they
            are staged again.
        ages: Records by age when the ends of the run were fixed, if the order asks for them.
    """

    counts: Mapping[TopicPartition, Counts] = field(default_factory=dict)
    dead_codes: Mapping[str, int] = field(default_factory=dict)
    files: Mapping[str, tuple[StagedFile, ...]] = field(default_factory=dict)
    bytes: int = 0
    samples: Mapping[str, DeadSample] = field(default_factory=dict)
    named: tuple[NamedLetter, ...] = ()
    extra_rows: int = 0
    stopped: bool = False
    unknown_fields: UnknownFields = field(default_factory=UnknownFields)
    tables: Mapping[str, TableCounts] = field(default_factory=dict)
    whole_dead: int = 0
    demands: Demands = field(default_factory=dict)
    again: tuple[Range, ...] = ()
    void: tuple[str, ...] = ()
    new_tables: tuple[str, ...] = ()
    untyped: UntypedPaths = field(default_factory=dict)
    ages: RecordAges = field(default_factory=dict)

    @property
    def asks(self) -> bool:
        """Whether records need tables or columns that do not exist yet."""
        return bool(self.demands or self.new_tables)

    @property
    def total(self) -> Counts:
        """Counts over all partitions."""
        return sum(self.counts.values(), Counts())

    @property
    def letters(self) -> int:
        """Number of dead letters: one per dead record, or, with several destinations, one per table that it does not fit."""
        alone = sum(counts.dead for counts in self.tables.values())
        return self.whole_dead + alone if self.tables else self.total.dead

    def rows(self, table: str) -> int:
        """Rows staged for a table."""
        return sum(file.rows for file in self.files.get(table, ()))

    def to_json(self) -> str:
        """JSON text, to send from an executor to the driver."""
        # Counts as a list: JSON has no pairs as keys. By Python's writer: field names may hold lone surrogates, which msgspec refuses.
        return json.dumps(msgspec.to_builtins((list(self.counts.items()), replace(self, counts={})), str_keys=True))

    @classmethod
    def from_json(cls, text: str) -> Staged:
        """Read `to_json`."""
        form: Any = tuple[list[tuple[TopicPartition, Counts]], Staged]
        counts: Any
        staged: Staged
        counts, staged = msgspec.convert(json.loads(text), form, str_keys=True)
        return replace(staged, counts=dict(counts))

    @classmethod
    def merged(cls, parts: Iterable[Staged]) -> Staged:
        """The sum of all parts."""
        staged = list(parts) or [cls()]
        while len(staged) > 1:  # in pairs, so that the first parts are not copied for every other one
            staged = [first.merge(second) for first, second in zip(staged[::2], [*staged[1::2], cls()], strict=False)]
        return staged[0]

    def merge(self, staged: Staged) -> Staged:
        """The sum of two parts."""
        return Staged(
            _sum(self.counts, staged.counts),
            _sum(self.dead_codes, staged.dead_codes),
            _sum(self.files, staged.files),
            self.bytes + staged.bytes,
            _first_samples(self.samples, staged.samples),
            (*self.named, *staged.named)[:LETTERS_NAMED],
            self.extra_rows + staged.extra_rows,
            self.stopped or staged.stopped,
            self.unknown_fields + staged.unknown_fields,
            _sum(self.tables, staged.tables),
            self.whole_dead + staged.whole_dead,
            {
                k: bound_demands({*self.demands.get(k, ()), *staged.demands.get(k, ())})
                for k in {*self.demands, *staged.demands}
            },
            (*self.again, *staged.again),
            (*self.void, *staged.void),
            first_names(self.new_tables, staged.new_tables),
            {
                k: bound_paths(self.untyped.get(k, frozenset()) | staged.untyped.get(k, frozenset()))
                for k in {*self.untyped, *staged.untyped}
            },
            _sum(self.ages, staged.ages),
        )


def _sum(first: Mapping[Any, Any], second: Mapping[Any, Any]) -> dict[Any, Any]:
    """The sum of two mappings, key by key."""
    return {**first, **{key: first[key] + count if key in first else count for key, count in second.items()}}


def _first_samples(first: Mapping[str, DeadSample], second: Mapping[str, DeadSample]) -> dict[str, DeadSample]:
    """The first sample of each code by its coordinates, because tasks finish in any order."""
    samples = dict(first)
    for code, sample in second.items():
        earlier = samples.get(code, sample)
        samples[code] = min(
            earlier, sample, key=lambda candidate: (candidate.topic, candidate.partition, candidate.offset)
        )
    return samples
