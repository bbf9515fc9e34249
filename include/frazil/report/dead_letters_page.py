"""The report on dead letters as Markdown and as an HTML page. Text from records is escaped."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from shlex import quote
from typing import TYPE_CHECKING

from frazil.pipeline.channels.notice import visible
from frazil.records.model.dead_letter import DeadCode
from frazil.report.dead_letters import DeadLetter
from frazil.report.dead_letters_summary import LetterReport

if TYPE_CHECKING:
    from jinja2 import Environment

WHOLE = "whole record"
"""Stands for a table where records could not be decoded or routed, so that they are in none."""

_TICKS = re.compile(r"`+")
_SPAN = re.compile(r"`([^`]+)`")
_UNITS = ((10**9, "G"), (10**6, "M"), (10**3, "k"))
_TWO_DIGITS = 100
_INSTANT = "%Y-%m-%d %H:%M:%S UTC"


def markdown(report: LetterReport) -> str:
    """The report as GitHub-flavored Markdown."""
    return "\n".join(_lines(report)) + "\n"


def html(report: LetterReport) -> str:
    """The report as one page that needs no other file and runs no script."""
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
    """The environment that renders a package's templates, with escaping except in plain text. A missing value is an error."""
    from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

    return Environment(
        loader=PackageLoader(package),
        autoescape=select_autoescape((), ("txt.j2",), default_for_string=True, default=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def summary(report: LetterReport) -> str:
    """The report in a sentence."""
    if report.table_total is None:
        return "The pipeline has no dead-letter table yet: it never ran."
    if report.batches is not None and report.count:
        return (
            f"{_new(report.count)} in {batch_range(report.batches.after, report.batches.through)}, {report.open:,} of them open; {report.before:,} in the period"
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
    """Further events of letters in the report's batches, one sentence each."""
    period = report.batches
    if period is not None and period.came_home:
        yield f"{counted(period.came_home)} became rows meanwhile, of any time."


@dataclass(frozen=True, slots=True)
class Bar:
    """One report among those before it.

    Attributes:
        end: Its end.
        count: New letters.
        height: In percent of the highest; of a few letters at least 2.
    """

    end: datetime
    count: int
    height: int

    @property
    def short(self) -> str:
        """The number in few characters, cut, so that a dozen stand side by side: `999`, `1.2k`, `12M`."""
        size, unit = next(((size, unit) for size, unit in _UNITS if self.count >= size), (1, ""))
        tenths = self.count * 10 // size
        return f"{tenths // 10}{f'.{tenths % 10}' if unit and tenths < _TWO_DIGITS and tenths % 10 else ''}{unit}"


def bars(report: LetterReport) -> tuple[Bar, ...]:
    """Bars for this report and earlier ones, oldest first; none for the first report, or for one of a time period."""
    if report.batches is None or not report.batches.earlier:
        return ()
    numbers = (*report.batches.earlier, (report.until, report.count))
    highest = max(count for _, count in numbers) or 1
    return tuple(Bar(end, count, max(2, count * 100 // highest) if count else 0) for end, count in numbers)


def commands(report: LetterReport) -> tuple[tuple[str, str], ...]:
    """What a reader may do next: the command and what it does."""
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


def _new(count: int) -> str:
    return f"{count:,} new dead letter{'' if count == 1 else 's'}"


def batch_range(after: int, through: int) -> str:
    """`batch 7`, `batches 7 to 9`: the batches after one, through another."""
    return f"batch {through}" if through == after + 1 else f"batches {after + 1} to {through}"


def counted(count: int) -> str:
    """`1 dead letter`, `2,000 dead letters`."""
    return "1 dead letter" if count == 1 else f"{count:,} dead letters"


def meaning(code: str) -> str:
    """The meaning of a code; empty for a code that this version does not know."""
    return next((dead_code.meaning for dead_code in DeadCode if dead_code == code), "")


def remedy(code: str) -> str:
    """What to do about a code; nothing of a code that this Frazil does not know."""
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
    """The groups; with a column for their tables if there are any."""
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
    """Frazil's own text as HTML with its code spans; everything else is escaped."""
    from markupsafe import Markup, escape

    return Markup(_SPAN.sub(r"<code>\1</code>", str(escape(text))))  # noqa: S704 - escaped one call before


def _code(text: str) -> str:
    """A code span: nothing in it is markup. A bar would still end the cell of a table, so it is escaped."""
    shown = visible(text).replace("|", r"\|")
    longest = max((len(ticks) for ticks in _TICKS.findall(shown)), default=0)
    fence = "`" * (longest + 1)
    pad = " " if longest or not shown.strip() else ""
    return f"{fence}{pad}{shown}{pad}{fence}"


def _plain(text: str) -> str:
    return re.sub(r"([\\`*_\[\]<>|#])", r"\\\1", visible(text))
