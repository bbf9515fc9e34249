"""The report on a period's dead letters: counts by code, topic and table, compared with the period before, and samples.
Written as Markdown or as an HTML page, with text from records escaped.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from functools import reduce
from shlex import quote
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from frazil.batch.changes import LetterChoice
from frazil.iceberg.ledger.dead_letters import count_letters, letter_files
from frazil.pipeline.channels import visible
from frazil.pipeline.models.pipeline_file import Pipeline
from frazil.project import Project
from frazil.records.decoder.redaction import Payload
from frazil.records.model.dead_letter import DeadCode
from frazil.records.model.rows import with_python_times
from frazil.report.dead_letters import LISTED, DeadLetter, letter_of, open_table

if TYPE_CHECKING:
    from jinja2 import Environment


SAMPLES = 3
"""Samples per code and topic: three show whether letters differ."""


class _Key(NamedTuple):
    """The key by which letters are counted."""

    code: str
    topic: str
    destination: str | None


_GROUPED = _Key._fields

InPeriod = Callable[[pa.RecordBatch], pa.BooleanArray]
"""Returns a mask of the letters that are of the reported period."""


@dataclass(frozen=True, slots=True)
class LetterGroup:
    """Letters of one code in one topic, and of one table.

    Attributes:
        count: Number in the period.
        open: Number of them that no batch landed.
        before: Number in the period before, which is as long.
        samples: Some letters of the period.
        destination: The table that these records do not fit; None if they fit none, or the pipeline has only one.
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
        """Change of the count: `new`, `gone`, `same`, or a percentage, rounded down."""
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
        after: Number of the last batch before the period.
        through: Number of its last batch.
        batch: Id of its last batch. The number alone is not unique: it begins again after all tables were dropped.
        came_home: Letters of any time that became rows in the period.
        earlier: End and number of letters of earlier reports, the oldest first.
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
        since, until: The period, UTC: by Kafka's timestamps (letters without one count as recent), or by commits if there are
            `batches`.
        groups: Groups by code, topic and table, the most frequent first.
        table_total: Letters of any time in the table; None if there is no table yet.
        batches: The batches of the period; None if the period is given by time.
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
        """The values under the keys of `frazil dead-letters report --json`."""
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
        """Whether some groups name a table, as with several destinations."""
        return any(group.destination is not None for group in self.groups)

    @property
    def before(self) -> int:
        """Letters of the previous period."""
        return sum(group.before for group in self.groups)


def summarize(project: Project, pipeline: Pipeline, since: datetime, until: datetime) -> LetterReport:
    """Report the letters of a period, compared with the period of the same length before it.

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
    """Begin of the period before; `since` if it would be before the first year of the calendar."""
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
    """Counts letters and collects samples, one part of the table after another.

    Attributes:
        is_now: Returns a mask of the letters in the period; the others are in the period before.
        taken_back: Numbers of rolled-back batches.
        payload: How much of their record samples may show, by the present pipeline file.
        most_samples: Samples per group, at most.
        counts: Group -> letters of the period, open ones among them, and letters of the period before.
        samples: Group -> samples from the period.
    """

    is_now: InPeriod
    taken_back: frozenset[int]
    payload: Payload = "full"
    most_samples: int = SAMPLES
    counts: dict[_Key, list[int]] = field(default_factory=dict)
    samples: dict[_Key, list[DeadLetter]] = field(default_factory=dict)

    def add(self, letters: pa.RecordBatch) -> None:
        """Count letters, which have the columns `LISTED`."""
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
    """A letter without what the present pipeline file hides: an older letter may still quote its record."""
    if payload == "full":
        return letter
    message = meaning(letter.code)
    was_redacted = letter.message == message
    return replace(letter, message=message, path=letter.path if was_redacted and payload == "redacted" else None)


def _equals(column: pa.Array, value: str | None) -> pa.BooleanArray:
    return column.is_null() if value is None else pc.fill_null(pc.equal(column, value), fill_value=False)


def _most_first(item: tuple[_Key, list[int]]) -> tuple[int, int, tuple[str, str, str]]:
    key, (count, _, before) = item
    return -count, -before, (key.code, key.topic, key.destination or "")


WHOLE = "whole record"
"""Stands in place of a table for records that could not be decoded or routed, so that no table is theirs."""

_TICKS = re.compile(r"`+")
_SPAN = re.compile(r"`([^`]+)`")
_UNITS = ((10**9, "G"), (10**6, "M"), (10**3, "k"))
_TWO_DIGITS = 100
_INSTANT = "%Y-%m-%d %H:%M:%S UTC"


def markdown(report: LetterReport) -> str:
    """The report as GitHub-flavored Markdown."""
    return "\n".join(_lines(report)) + "\n"


def html(report: LetterReport) -> str:
    """The report as one HTML page, which needs no other file and runs no script."""
    environment = template_environment("frazil.report")
    environment.filters |= {
        "visible": visible,
        "instant": _instant,
        "remedy": remedy,
        "meaning": meaning,
        "spans": _spans,
    }
    return environment.get_template("dead_letters.html.j2").render(
        report=report,
        summary=summary(report),
        remarks=list(remarks(report)),
        bars=bars(report),
        commands=commands(report),
        whole=WHOLE,
    )


def template_environment(package: str) -> Environment:
    """Jinja's environment for a package's templates. It escapes values, except in `.txt.j2`; a missing value is an error."""
    from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

    return Environment(
        loader=PackageLoader(package),
        autoescape=select_autoescape((), ("txt.j2",), default_for_string=True, default=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def summary(report: LetterReport) -> str:
    """The report in one sentence."""
    if report.table_total is None:
        return "The pipeline has no dead-letter table yet: it never ran."
    if report.batches is not None and report.count:
        return (
            f"{counted(report.count, 'new ')} in {batch_range(report.batches.after, report.batches.through)}, {report.open:,} of them open; {report.before:,} in the period"
            f" before ({report.table_total:,} in the table)."
        )
    if not report.count:
        in_table = (
            f"; the table holds {counted(report.table_total)} of any time"
            if report.table_total
            else ", and the table holds none"
        )
        return f"No dead letters in this period ({counted(report.before)} in the period before){in_table}."
    return (
        f"{counted(report.count)}, {report.open:,} of them open; {report.before:,} in the period before"
        f" ({report.table_total:,} in the table)."
    )


def remarks(report: LetterReport) -> Iterator[str]:
    """Further facts about letters in the report's batches, one sentence each."""
    period = report.batches
    if period is not None and period.came_home:
        yield f"{counted(period.came_home)} of any time became rows meanwhile."


@dataclass(frozen=True, slots=True)
class Bar:
    """A report as a bar of a chart.

    Attributes:
        end: End of the report's period.
        count: Its number of letters.
        height: Percent of the highest bar; at least 2 if there are letters.
    """

    end: datetime
    count: int
    height: int

    @property
    def short(self) -> str:
        """The number in few characters, rounded down: `999`, `1.2k`, `12M`."""
        size, unit = next(((size, unit) for size, unit in _UNITS if self.count >= size), (1, ""))
        tenths = self.count * 10 // size
        return f"{tenths // 10}{f'.{tenths % 10}' if unit and tenths < _TWO_DIGITS and tenths % 10 else ''}{unit}"


def bars(report: LetterReport) -> tuple[Bar, ...]:
    """Bars for earlier reports and this one, the oldest first; none for the first report, or if the period is given by time."""
    if report.batches is None or not report.batches.earlier:
        return ()
    numbers = (*report.batches.earlier, (report.until, report.count))
    highest = max(count for _, count in numbers) or 1
    return tuple(Bar(end, count, max(2, count * 100 // highest) if count else 0) for end, count in numbers)


def commands(report: LetterReport) -> tuple[tuple[str, str], ...]:
    """Commands that a reader may run next, each with what it does."""
    if not report.open:
        return ()
    name, first = report.pipeline, next(group for group in report.groups if group.open)
    of_code = f" --code {quote(first.code)}" if len({group.code for group in report.groups if group.count}) > 1 else ""
    places = (quote(f"{sample.topic}/{sample.partition}/{sample.offset}") for sample in first.samples[:1])
    lines = (
        (f"list {name}{of_code}", "lists those that are open"),
        *((f"show {name} {place}", "shows one with its record") for place in places),
        (f'replay {name}{of_code} --reason "…" --dry-run', "tells what the present pipeline file makes of them"),
    )
    return tuple((f"frazil dead-letters {command}", what) for command, what in lines)


def batch_range(after: int, through: int) -> str:
    """`batch 7`, `batches 7 to 9`: the batches after `after` up to `through`."""
    return f"batch {through}" if through == after + 1 else f"batches {after + 1} to {through}"


def counted(count: int, kind: str = "") -> str:
    """`1 dead letter`, `2,000 new dead letters`."""
    return f"{count:,} {kind}dead letter{'' if count == 1 else 's'}"


def meaning(code: str) -> str:
    """The meaning of a code; empty if this version does not know the code."""
    return next((dead_code.meaning for dead_code in DeadCode if dead_code == code), "")


def remedy(code: str) -> str:
    """What to do about a code; empty if this version does not know the code."""
    return next((dead_code.remedy for dead_code in DeadCode if dead_code == code), "")


def _lines(report: LetterReport) -> Iterator[str]:
    yield f"# Dead letters of {report.pipeline}"
    yield ""
    yield f"{_instant(report.since)} to {_instant(report.until)}, table `{report.table}`, owner: {_plain(report.owner)}"
    yield ""
    yield summary(report)
    for remark in remarks(report):
        yield from ("", remark)
    if numbers := [f"{bar.count:,}" for bar in bars(report)]:
        yield from ("", f"New letters, report by report, this one last: {'; '.join(numbers)}")
    if not report.groups:
        return
    yield ""
    yield from _table(report)
    for group in report.groups:
        if group.samples:
            of_table = f" of table {_code(group.destination)}" if group.destination else ""
            yield from ("", f"## {_code(group.code)} in {_code(group.topic)}{of_table}", "")
            if explanation := meaning(group.code):
                yield from (explanation, "", f"What to do: {remedy(group.code)}", "")
            yield from map(_sample, group.samples)
    if next_steps := commands(report):
        yield from ("", "## What to do next", "", *(f"- {_code(command)} {what}" for command, what in next_steps))


def _table(report: LetterReport) -> Iterator[str]:
    """The groups as a Markdown table, with a column for their tables if there are several destinations."""
    has_tables = report.has_tables
    yield f"| code | topic |{' table |' if has_tables else ''} letters | open | before | trend |"
    yield f"| --- | --- |{' --- |' if has_tables else ''} ---: | ---: | ---: | ---: |"
    for group in report.groups:
        table = f" {_code(group.destination) if group.destination else WHOLE} |" if has_tables else ""
        numbers = f"{group.count:,} | {group.open:,} | {group.before:,} | {group.trend}"
        yield f"| {_code(group.code)} | {_code(group.topic)} |{table} {numbers} |"


def _sample(letter: DeadLetter) -> str:
    place = _code(f"{letter.topic}/{letter.partition}/{letter.offset}")
    path = f" field {_code(letter.path)}:" if letter.path else ""
    return f"- {place}{path} {_code(letter.plain_message)}"


def _instant(instant: object) -> str:
    return format(instant, _INSTANT)


def _spans(text: str) -> str:
    """Frazil's own text as HTML. Text between backticks becomes code, everything is escaped."""
    from markupsafe import Markup, escape

    return Markup(_SPAN.sub(r"<code>\1</code>", str(escape(text))))  # noqa: S704 - escaped one call before


def _code(text: str) -> str:
    """A Markdown code span with this text. A bar is escaped, since it would end a table's cell even inside a code span."""
    shown = visible(text).replace("|", r"\|")
    longest = max((len(ticks) for ticks in _TICKS.findall(shown)), default=0)
    fence = "`" * (longest + 1)
    pad = " " if longest or not shown.strip() else ""
    return f"{fence}{pad}{shown}{pad}{fence}"


def _plain(text: str) -> str:
    return re.sub(r"([\\`*_\[\]<>|#])", r"\\\1", visible(text))
