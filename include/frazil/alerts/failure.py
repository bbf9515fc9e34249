"""The stored failure of a run: its cause, as the failed task saw it, for the alert that the monitor sends later."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from frazil.batch.audit import BATCHES_REFUSED, TOO_MANY_DEAD
from frazil.pipeline.channels import Severity
from frazil.pipeline.syntax.strict import read_json, write_json

ChoreKind = Literal["failed_maintenance", "failed_report", "failed_replay"]
"""Kind of a failed run of maintenance, of a report on dead letters, or of a replay of dead letters."""

FailureKind = Literal["failed_run", "tolerance", "conflict", ChoreKind]

RUN_KINDS: tuple[FailureKind, ...] = ("failed_run", "tolerance", "conflict")
"""Kinds of a failed run of ingestion or capture."""

MAX_CAUSE = 8_000
"""Characters of a cause, and of a next step, that are stored: a Variable is no log."""

_NEXT = "\n  next: "
"""Text before the next step in errors of Frazil; see `frazil.errors.FrazilError`."""

_FOLDED_NEXT = " next: "
"""The same in an error that a Spark job reports in one line; see `frazil.spark.jobs.driver`."""

_KIND_BY_TEXT: tuple[tuple[str, FailureKind], ...] = (
    (TOO_MANY_DEAD, "tolerance"),
    (BATCHES_REFUSED, "conflict"),
)
"""Text in an error -> kind of the failure: an error of another process, such as a Spark job, arrives as text only."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A failed run.

    Attributes:
        dag: Id of the DAG.
        run: Id of the run.
        noted_at: When the failure was stored, UTC.
        severity: `critical` if a person must act; `warning` if the next run may succeed.
        cause: Text of the error, without the next step.
        next_step: What to do, if the error names it.
    """

    dag: str
    run: str
    noted_at: Annotated[datetime, Field(alias="at")]
    kind: FailureKind
    severity: Severity
    cause: str
    next_step: str | None = None

    def to_json(self) -> str:
        """As JSON."""
        return write_json(TypeAdapter(Failure), self)

    @classmethod
    def from_json(cls, text: str) -> Failure:
        """From JSON.

        Raises:
            ValueError: The text is no stored failure.
        """
        return read_json(TypeAdapter(cls), text)


def failure(
    dag: str, run: str, instant: datetime, message: str, *, final: bool, chore: ChoreKind | None = None
) -> Failure:
    """The failure of a run, to be stored. `final`: retrying can't help, a person must act. `chore`: the kind, if the run was
    not for ingestion; no record waits for such a run, so it is never critical.
    """
    cause, next_step = _split_cause(message)
    kind_by_text: FailureKind = next((kind for text, kind in _KIND_BY_TEXT if text in cause), "failed_run")
    kind = kind_by_text if chore is None else chore
    severity: Severity = "critical" if final and chore is None else "warning"
    return Failure(dag, run, instant, kind, severity, cause.strip()[:MAX_CAUSE], next_step.strip()[:MAX_CAUSE] or None)


def _split_cause(message: str) -> tuple[str, str]:
    """Split an error's text into cause and next step."""
    cause, mark, next_step = message.partition(_NEXT)
    if not mark and "\n" not in message:
        cause, mark, next_step = message.rpartition(_FOLDED_NEXT)
    return (cause, next_step) if mark else (message, "")
