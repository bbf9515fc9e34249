"""One message to people, before it takes the shape of a mail, a chat message or a page."""

from __future__ import annotations

from dataclasses import dataclass

from frazil.pipeline.alerts import Severity


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
