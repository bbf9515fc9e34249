"""The report on dead letters as Markdown and as a page of HTML. Whatever comes from records is shown, never obeyed."""

from __future__ import annotations

import re
from collections.abc import Iterator

from frazil.records.dead import DeadCode
from frazil.report.dead_letters import DeadLetter
from frazil.report.dead_letters_summary import LetterReport

WHOLE = "whole record"
"""Stands for a table where records could not be decoded or routed, so that they are in none."""

_TICKS = re.compile(r"`+")
_SPAN = re.compile(r"`([^`]+)`")
_INSTANT = "%Y-%m-%d %H:%M:%S UTC"


def markdown(report: LetterReport) -> str:
    """The report as GitHub's Markdown, to be read as it is or rendered."""
    return "\n".join(_lines(report)) + "\n"


def html(report: LetterReport) -> str:
    """The report as one page that needs no other file and runs no script."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("frazil.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "visible": visible,
        "instant": _instant,
        "remedy": remedy,
        "meaning": meaning,
        "spans": _spans,
    }
    return environment.get_template("dead_letters.html.j2").render(report=report, summary=summary(report), whole=WHOLE)


def summary(report: LetterReport) -> str:
    """The report in a sentence."""
    if report.held is None:
        return "The pipeline has no dead-letter table yet: it never ran."
    if not report.count:
        held = f"; the table holds {counted(report.held)} of any time" if report.held else ", and the table holds none"
        return f"No dead letters in this period ({counted(report.before)} in the period before){held}."
    return (
        f"{counted(report.count)}, {report.open:,} of them open; {report.before:,} in the period before"
        f" ({report.held:,} in the table)."
    )


def counted(count: int) -> str:
    """`1 dead letter`, `2,000 dead letters`."""
    return "1 dead letter" if count == 1 else f"{count:,} dead letters"


def meaning(code: str) -> str:
    """What a code says; nothing of a code that this Frazil does not know."""
    return next((of.meaning for of in DeadCode if of == code), "")


def remedy(code: str) -> str:
    """What to do about a code; nothing of a code that this Frazil does not know."""
    return next((of.remedy for of in DeadCode if of == code), "")


def visible(text: str) -> str:
    """A text of a record on one line, without characters that steer a terminal or turn the direction of reading."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _lines(report: LetterReport) -> Iterator[str]:
    yield f"# Dead letters of {report.pipeline}"
    yield ""
    yield f"{_instant(report.since)} to {_instant(report.until)}, table `{report.table}`, owner: {_plain(report.owner)}"
    yield ""
    yield summary(report)
    if not report.groups:
        return
    yield ""
    yield from _table(report)
    for group in report.groups:
        if group.samples:
            of = f" of table {_code(group.destination)}" if group.destination else ""
            yield from ("", f"## {_code(group.code)} in {_code(group.topic)}{of}", "")
            if said := meaning(group.code):
                yield from (said, "", f"What to do: {remedy(group.code)}", "")
            yield from map(_sample, group.samples)


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
    return f"- {place}{path} {_code(letter.found)}"


def _instant(at: object) -> str:
    return format(at, _INSTANT)


def _spans(text: str) -> str:
    """A text of this project, with its code spans as HTML has them; everything else in it is escaped."""
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
