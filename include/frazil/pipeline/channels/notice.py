"""One message to people, before a channel gives it a form. Text from records and servers is shown as it is, and is never markup."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

Severity = Literal["info", "warning", "critical"]
SEVERITIES: tuple[str, ...] = get_args(Severity)

MAX_TEXT = 2_800
"""Characters of a cause; Slack takes 3,000 of a text, and more is too long for a telephone. Logs have the rest."""

MAX_TITLE = 150
"""Characters of a title: what Slack takes of a header. PagerDuty takes 1,024, mail programs show about 80."""


@dataclass(frozen=True, slots=True)
class Notice:
    """A message to people about one pipeline.

    Attributes:
        kind: The kind of event, such as `failed_run` or `dead_letters`; the deduplication key begins with it.
        severity: How urgent it is.
        title: One line.
        cause: The cause, with coordinates, expected and found.
        next_step: The next command, or None.
        link: Where to look, or None.
        recovered: Whether this notice reports the recovery from an earlier problem.
        html: The whole message as HTML, for mail; None: built from the other attributes.
        report: Name of the report in this notice, or None. Each report is a new notice, no repetition.
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
        """A key that all notices of one problem share, including the notice of its end."""
        subject = f"{self.kind}/{self.pipeline}"
        return subject if self.report is None else f"{subject}/{self.report}"

    @property
    def runbook(self) -> str:
        """Path, within the project, of the documentation that says what to do about this kind of problem."""
        return f"docs/runbooks/{self.kind}.md"

    @property
    def headline(self) -> str:
        """The title on one line, with the severity, or "recovered" if it is over."""
        word = "recovered" if self.recovered else self.severity
        return shortened(f"{word}: {visible(self.title)}", MAX_TITLE)

    @property
    def shown_cause(self) -> str:
        """The cause with its line breaks, without control characters and without characters that change the direction of
        reading.
        """
        return shortened("\n".join(visible(line) for line in self.cause.splitlines()))


def shortened(text: str, length: int = MAX_TEXT) -> str:
    """A text with an ellipsis where it is longer."""
    return text if len(text) <= length else f"{text[: length - 1]}…"


def visible(text: str, spaces: str = "") -> str:
    """A text from a record on one line, without control characters, but for `spaces`, and without characters that change
    the direction of reading.
    """
    return "".join(
        sign if sign.isprintable() or sign in spaces else sign.encode("unicode_escape").decode() for sign in text
    )
