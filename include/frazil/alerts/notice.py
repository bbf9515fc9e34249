"""One message to people, before it takes the shape of a mail, a chat message or a page."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from frazil.pipeline.alerts import Severity
from frazil.pipeline.model import Pipeline
from frazil.report.dead_letters_page import counted
from frazil.report.letter_reports import KeptGroup, KeptReport


@dataclass(frozen=True, slots=True)
class Notice:
    """What a person is told.

    Attributes:
        pipeline: Name of the pipeline.
        owner: Its owner.
        kind: What it is about: a name of the field's, as `failed_run` or `dead_letters`; begins the deduplication key.
        severity: How urgent it is.
        title: One line.
        cause: What was seen, with coordinates, expected and found.
        next_step: The next command, or None.
        link: Where to look, or None.
        recovered: Whether this says that what was told before is over.
        html: The whole message as a page of its own, for mail; None: made from the rest.
        report: Name of the report that it brings; None: it brings none. Each is news, not the same trouble again.
    """

    pipeline: str
    owner: str
    kind: str
    severity: Severity
    title: str
    cause: str
    next_step: str | None = None
    link: str | None = None
    recovered: bool = False
    html: str | None = None
    report: str | None = None

    @property
    def key(self) -> str:
        """The same for all notices of one trouble, its end included."""
        which = f"{self.kind}/{self.pipeline}"
        return which if self.report is None else f"{which}/{self.report}"

    @property
    def runbook(self) -> str:
        """Where it stands what to do about such a trouble, in the project."""
        return f"docs/operations.md#{self.kind}"


_LINES = 10
"""Groups that a notice names; the page has all."""


def letters_notice(pipeline: Pipeline, kept: KeptReport, page: str, link: str | None) -> Notice:
    """The notice of a report.

    Args:
        pipeline: The pipeline.
        kept: The report.
        page: Its page.
        link: Where the page is, if it can be said.
    """
    which = f"batch {kept.through}" if kept.through == kept.after + 1 else f"batches {kept.after + 1} to {kept.through}"
    return Notice(
        pipeline=pipeline.name,
        owner=pipeline.owner,
        kind="dead_letters",
        severity="warning",
        title=f"{pipeline.name}: {counted(kept.count)} new in {which}",
        cause="\n".join(_lines(kept)),
        next_step=f"frazil dead-letters list {pipeline.name}",
        link=link,
        html=page,
        report=kept.name,
    )


def _lines(kept: KeptReport) -> Iterator[str]:
    yield f"{kept.open:,} of {kept.count:,} are open; {kept.before:,} in the period before"
    yield from map(_line, kept.groups[:_LINES])
    if more := kept.groups[_LINES:]:
        yield f"and {sum(of.count for of in more):,} of {len(more)} other kinds"


def _line(of: KeptGroup) -> str:
    table = f" of table {of.destination}" if of.destination else ""
    return f"{of.count:,} {of.code} in {of.topic}{table} ({of.before:,} before)"
