"""Summary of a period's dead letters: counts per code, topic and table, compared with the period before, and samples."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from functools import reduce
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from frazil.batch.dead_letters import LetterChoice
from frazil.iceberg.ledger.dead_letters import count_letters, letter_files
from frazil.pipeline.models.pipeline_file import Pipeline
from frazil.project import Project
from frazil.records.decoder.redaction import Payload
from frazil.records.model.dead_letter import DeadCode
from frazil.records.model.kafka_schema import with_python_times
from frazil.report.dead_letters import LISTED, DeadLetter, letter_of, open_table

SAMPLES = 3
"""Letters shown per code and topic: the first ones often are of one producer, three tell whether they differ."""


class _Key(NamedTuple):
    """The key by which letters are counted."""

    code: str
    topic: str
    destination: str | None


_GROUPED = _Key._fields

InPeriod = Callable[[pa.RecordBatch], pa.BooleanArray]
"""Says of letters which are of the period that is reported."""


@dataclass(frozen=True, slots=True)
class LetterGroup:
    """Letters of one code in one topic, and of one table.

    Attributes:
        count: How many there are in the period.
        open: How many of them no batch landed.
        before: How many there were in the period before, which is as long.
        samples: Some of the period's.
        destination: The table that these records do not fit; None for records as a whole, or an only destination.
    """

    code: str
    topic: str
    count: int
    open: int
    before: int
    samples: tuple[DeadLetter, ...] = ()
    destination: str | None = None

    @property
    def trend(self) -> str:
        """The change of the count: `new`, `gone`, `same`, or whole percent, so that 1 of 900 is not shown as 100 %."""
        if not self.before:
            return "new"
        if not self.count:
            return "gone"
        change = self.count - self.before
        percent = abs(change) * 100 // self.before
        return f"{'+' if change > 0 else '-'}{percent:,}%" if percent else "same"


@dataclass(frozen=True, slots=True)
class BatchPeriod:
    """A period as a range of batches, so that no letter is missed or reported twice if clocks differ.

    Attributes:
        after: Number of the last batch before it.
        through: Number of its last batch.
        batch: Id of that one: numbers begin again with a pipeline whose tables were all dropped.
        came_home: Letters, of any time, that became rows.
        earlier: End and number of letters of the reports before, the oldest first.
    """

    after: int
    through: int
    batch: str
    came_home: int = 0
    earlier: tuple[tuple[datetime, int], ...] = ()


@dataclass(frozen=True, slots=True)
class LetterReport:
    """The dead letters of a period.

    Attributes:
        owner: Owner of the pipeline.
        table: Name of the dead-letter table.
        since, until: The period, UTC: of Kafka's timestamps, where letters without one are taken as recent; of commits, if
            it is told by `batches`.
        groups: By code, topic and table, the most frequent first.
        table_total: Letters of the table, whatever their time; None if there is no table yet.
        batches: The batches that the letters are of; None if the period is given by time.
    """

    pipeline: str
    owner: str
    table: str
    since: datetime
    until: datetime
    groups: tuple[LetterGroup, ...] = ()
    table_total: int | None = None
    batches: BatchPeriod | None = None

    def to_body(self) -> dict[str, Any]:
        """In JSON's terms, under the keys that `frazil dead-letters report --json` has always had."""
        return {"held" if name == "table_total" else name: value for name, value in asdict(self).items()}

    @property
    def count(self) -> int:
        """Letters of the period."""
        return sum(group.count for group in self.groups)

    @property
    def open(self) -> int:
        """Letters of the period that no batch landed."""
        return sum(group.open for group in self.groups)

    @property
    def has_tables(self) -> bool:
        """Whether some of the letters are of one table only: there are several destinations."""
        return any(group.destination is not None for group in self.groups)

    @property
    def before(self) -> int:
        """Letters of the previous period."""
        return sum(group.before for group in self.groups)


def summarize(project: Project, pipeline: Pipeline, since: datetime, until: datetime) -> LetterReport:
    """Sum up the letters since an instant, and those of a period of the same length before it.

    Raises:
        Retryable: The catalog or the storage can't be read now.
    """
    name = pipeline.dead_letters_table
    empty = LetterReport(pipeline.name, pipeline.owner, name, since, until)
    opened = open_table(project, pipeline, LetterChoice(since=_previous_begin(since, until)), "all", untimed=True)
    if opened is None:
        return empty
    tally = Tally(_recent(since), opened.question.undone, pipeline.dead_letters.payload)
    for file in letter_files(opened.table, name, opened.question, LISTED):
        for batch in file.batches:
            tally.add(batch)
    return LetterReport(
        pipeline.name, pipeline.owner, name, since, until, tuple(tally.groups()), count_letters(opened.table, name)
    )


def _previous_begin(since: datetime, until: datetime) -> datetime:
    """Begin of the period before; periods that would begin before the calendar does have none."""
    try:
        return since - (until - since)
    except OverflowError:
        return since


def _recent(since: datetime) -> InPeriod:
    return lambda letters: pc.fill_null(
        pc.greater_equal(letters.column("timestamp"), pa.scalar(since)), fill_value=True
    )


@dataclass
class Tally:
    """Counts and samples, a part of the table at a time.

    Attributes:
        is_now: Mask of the letters in the period; the others are in the period before.
        taken_back: Numbers of rolled-back batches.
        payload: How much of their record letters may show, by the present pipeline file.
        most_samples: Samples of each group, at most.
        counts: What was counted: of the period, how many of them are open, of the one before.
        samples: Letters of the period.
    """

    is_now: InPeriod
    taken_back: frozenset[int]
    payload: Payload = "full"
    most_samples: int = SAMPLES
    counts: dict[_Key, list[int]] = field(default_factory=dict)
    samples: dict[_Key, list[DeadLetter]] = field(default_factory=dict)

    def add(self, letters: pa.RecordBatch) -> None:
        """Count letters, whose columns are `LISTED`."""
        in_period = self.is_now(letters)
        landed = letters.column("landed_batch")
        taken_back = pc.is_in(landed, pa.array(sorted(self.taken_back), pa.int64()))
        marks = {"now": in_period, "open": pc.or_(landed.is_null(), taken_back)}
        table = pa.table({column: letters.column(column) for column in _GROUPED} | marks)
        for row in table.group_by(table.column_names).aggregate([([], "count_all")]).to_pylist():
            key, number = _Key(*(row[column] for column in _GROUPED)), row["count_all"]
            counts = self.counts.setdefault(key, [0, 0, 0])
            counts[0] += number if row["now"] else 0
            counts[1] += number if row["now"] and row["open"] else 0
            counts[2] += 0 if row["now"] else number
            if row["now"] and len(self.samples.get(key, ())) < self.most_samples:
                self._sample(letters.filter(in_period), key)

    def _sample(self, letters: pa.RecordBatch, key: _Key) -> None:
        mask = reduce(
            pc.and_, (_equals(letters.column(column), value) for column, value in zip(_GROUPED, key, strict=True))
        )
        samples = self.samples.setdefault(key, [])
        few = letters.filter(mask).slice(0, self.most_samples - len(samples))
        samples += [
            _redacted(letter_of(row, self.taken_back), self.payload) for row in with_python_times(few).to_pylist()
        ]

    def groups(self) -> Iterable[LetterGroup]:
        """The counts as groups, the most frequent first."""
        for key, (count, still_open, before) in sorted(self.counts.items(), key=_most_first):
            samples = tuple(self.samples.get(key, ()))
            yield LetterGroup(key.code, key.topic, count, still_open, before, samples, key.destination)


def _redacted(letter: DeadLetter, payload: Payload) -> DeadLetter:
    """A letter reduced to what the present pipeline file allows: older ones may quote their record."""
    if payload == "full":
        return letter
    meaning = next((dead_code.meaning for dead_code in DeadCode if dead_code == letter.code), "")
    was_redacted = letter.message == meaning
    return replace(letter, message=meaning, path=letter.path if was_redacted and payload == "redacted" else None)


def _equals(column: pa.Array, value: str | None) -> pa.BooleanArray:
    return column.is_null() if value is None else pc.fill_null(pc.equal(column, value), fill_value=False)


def _most_first(item: tuple[_Key, list[int]]) -> tuple[int, int, tuple[str, str, str]]:
    key, (count, _, before) = item
    return -count, -before, (key.code, key.topic, key.destination or "")
