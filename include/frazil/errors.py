"""What can go wrong, grouped by what the caller may do about it.

::

    FrazilError
    ├── Retryable        try again later: nothing was decided, nothing is lost
    │   └── Unavailable  the server of a job opened no session: no work was sent to it
    ├── Terminal         a person must act: the message says what to do
    ├── OutcomeUnknown   read the table again, then decide: the commit may or may not have landed
    └── Stopped          somebody asked for it: what was decided is finished, nothing else was published

Foreign exceptions (Kafka, PyIceberg, Spark, sqlite …) are mapped to one of these once, at the edge where they
appear. The exit code tells the caller of the process, usually Airflow, which class it was: a task that ended with
`Terminal` is not retried.

Each error also has a code: the kind of problem, which docs/messages.md explains. `frazil.error_codes` has all codes, and a code
makes its errors: `raise TOPIC_MISSING.terminal("…", next_step="…")`.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import ClassVar, Final

EXIT_FAILED = 1
"""The command worked, and what it checked does not hold: a mismatch, an invalid file."""

EXIT_PARENT_LOST = 70
"""The process that started a job is gone, so the job ended itself."""


_CODES: Final[dict[int, ErrorCode]] = {}


@dataclass(frozen=True, slots=True)
class ErrorCode:
    """One kind of problem: its number, and what docs/messages.md says of it."""

    number: int
    title: str
    meaning: str
    reason: str
    action: str

    def __post_init__(self) -> None:
        _CODES[self.number] = self

    def __str__(self) -> str:
        return f"FRZ-{self.number}"

    def terminal(self, message: str, *, next_step: str | None = None) -> Terminal:
        """An error of this kind that needs a person."""
        return Terminal(message, code=self, next_step=next_step)

    def retryable(self, message: str, *, next_step: str | None = None) -> Retryable:
        """An error of this kind that may pass by itself."""
        return Retryable(message, code=self, next_step=next_step)


class FrazilError(Exception):
    """Root of every error that Frazil raises on purpose.

    Args:
        message: What happened, with its coordinates: topic, partition, offsets, batch, expected, found.
        code: The kind of problem; it ends the first line of the text.
        next_step: What the reader can do now, ideally a command. Shown on a line of its own.
    """

    exit_code: ClassVar[int] = EXIT_FAILED
    label: ClassVar[str] = "error"

    def __init__(self, message: str, *, code: ErrorCode, next_step: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.next_step = next_step

    def __str__(self) -> str:
        text = self.message_with_code
        return text if self.next_step is None else f"{text}\n  next: {self.next_step}"

    @property
    def message_with_code(self) -> str:
        """The message with its code, without the next step."""
        return add_code(self.message, self.code)


class Retryable(FrazilError):
    """Something outside is not available now: broker, catalog, registry. Nothing was decided."""

    exit_code = 75  # EX_TEMPFAIL of sysexits.h
    label = "try again later"


class Unavailable(Retryable):
    """The server that a job was to use opened no session: no work was sent there, another engine may do it."""

    exit_code = 69  # EX_UNAVAILABLE of sysexits.h


class Terminal(FrazilError):
    """Trying again can't help: a configuration, a permission, a refused position. A person must act."""

    exit_code = 78  # EX_CONFIG of sysexits.h
    label = "needs a person"


class OutcomeUnknown(FrazilError):
    """A commit was sent and no answer says whether it landed. The next plan reads the table and knows."""

    exit_code = 76  # EX_PROTOCOL of sysexits.h
    label = "outcome unknown"


class Stopped(FrazilError):
    """The run was asked to stop, and did so in order. The next run continues from there."""

    exit_code = 79  # the first one behind those of sysexits.h
    label = "stopped"


def add_code(message: str, code: ErrorCode) -> str:
    """Return a message with the code at the end of its first line, unless it has the code already."""
    first, newline, rest = message.partition("\n")
    return message if f"[{code}]" in first else f"{first} [{code}]{newline}{rest}"


_RUN_FAILED: Final = 504
"""Number of the code that stands in for a code of another version."""

_KINDS: Final = {kind.exit_code: kind for kind in (Retryable, Unavailable, Terminal, OutcomeUnknown, Stopped)}


def kind_of(exit_code: int) -> type[FrazilError]:
    """The error class of a job's exit code; Retryable if no class has that code, as after a signal."""
    return _KINDS.get(exit_code, Retryable)


def error_to_json(error: FrazilError) -> str:
    """The JSON form of an error: a task sends it to its driver, and a job leaves it for the process that started it."""
    body = {"exit_code": error.exit_code, "message": error.message, "code": error.code.number}
    return json.dumps(body | {"next_step": error.next_step})


def error_from_json(text: str) -> FrazilError:
    """The error that a task or a job reported. One of another version may report a code or an exit code that is unknown here."""
    body = json.loads(text)
    message, number = body["message"], body["code"]
    if number not in _CODES:
        message, number = f"{message} [FRZ-{number}]", _RUN_FAILED
    return kind_of(body["exit_code"])(message, code=_CODES[number], next_step=body["next_step"])


_PARTITION_FOLDER: Final = re.compile(
    r"""
    (?<=/)(?P<below>[^/=\s'"?&;]+)=[^/\s'"]+
    | (?<![^\s'"(\[])(?P<first>[^/=\s'"?&;(\[]+)=[^/\s'"(\[]++(?=/)  # a key of an object store has no slash before it
    """,
    re.VERBOSE,
)


def without_values(text: str) -> str:
    """Hide record values in paths of data files: a partition's folder, `name=value`, is shown as `name=…`."""
    return (
        _PARTITION_FOLDER.sub(lambda folder: f"{folder['below'] or folder['first']}=…", text) if "=" in text else text
    )


def safe_cause(error: BaseException) -> BaseException | None:
    """Return the error, to be the cause of another; None if its traceback, with all its causes, would show a record's value."""
    cause: BaseException | None = error
    visited = set[int]()
    while cause is not None and id(cause) not in visited:  # causes may form a circle
        visited.add(id(cause))
        if without_values(str(cause)) != str(cause):
            return None
        cause = cause.__cause__ or cause.__context__
    return error
