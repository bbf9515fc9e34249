"""The stored failure of a run: the cause as the failing task saw it, for the alerts sent later."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from frazil.batch.audit import BATCHES_REFUSED, TOO_MANY_DEAD
from frazil.pipeline.channels import Severity
from frazil.pipeline.syntax.strict import read_json, write_json

ChoreKind = Literal["failed_maintenance", "failed_report", "failed_replay"]
"""What a failed run other than ingestion was for."""

FailureKind = Literal["failed_run", "tolerance", "conflict", ChoreKind]

RUN_KINDS: tuple[FailureKind, ...] = ("failed_run", "tolerance", "conflict")
"""What a failed ingest run may be about."""

MAX_CAUSE = 8_000
"""Characters that are kept of an error: a Variable is no log."""

_NEXT = "\n  next: "
"""How Frazil's errors bring what to do; see `frazil.errors.FrazilError`."""

_FOLDED_NEXT = " next: "

_MARKS: tuple[tuple[str, FailureKind], ...] = (
    (TOO_MANY_DEAD, "tolerance"),
    (BATCHES_REFUSED, "conflict"),
)
"""A job of another process brings its error as text only. So it is known by its words."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A failed run.

    Attributes:
        noted_at: When it was noted, UTC.
        kind: Kind of the failure.
        severity: `critical` if a person must act, else the next run may do.
        next_step: What to do, if the error said it.
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


def failure(dag: str, run: str, instant: datetime, message: str, *, final: bool) -> Failure:
    """The stored failure of an ingest run. `final`: retrying can't help, a person must act."""
    cause, next_step = _split_cause(message)
    kind: FailureKind = next((kind for mark, kind in _MARKS if mark in cause), "failed_run")
    severity: Severity = "critical" if final else "warning"
    return Failure(dag, run, instant, kind, severity, cause.strip()[:MAX_CAUSE], next_step.strip()[:MAX_CAUSE] or None)


def _split_cause(message: str) -> tuple[str, str]:
    """Split an error's text into cause and next step. A Spark job reports both on one line: see `frazil.spark.jobs.driver`."""
    cause, mark, next_step = message.partition(_NEXT)
    if not mark and "\n" not in message:
        cause, mark, next_step = message.rpartition(_FOLDED_NEXT)
    return (cause, next_step) if mark else (message, "")


def of_chore(failure: Failure, kind: ChoreKind) -> Failure:
    """The failure of a DAG other than ingest: nothing is lost by it, so it is less urgent."""
    return replace(failure, kind=kind, severity="warning")
