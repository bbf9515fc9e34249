"""What a failed run is about, told from the words of its error: a job of another process hands over nothing else."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from frazil.alerts.failure import Failure, failure
from frazil.batch.audit import BATCHES_REFUSED, Tolerance, audit
from frazil.batch.facts import Counts, Range, Staged, StagedFile
from frazil.error_codes import INTERNAL
from frazil.errors import Terminal

NOW = datetime(2026, 5, 1, 12, 30, tzinfo=UTC)


def too_many_dead() -> Terminal:
    """The audit's own error."""
    files = {"rows": (StagedFile("a", 4, 10, "{}"),), "letters": (StagedFile("b", 6, 10, "{}"),)}
    staged = Staged({("orders", 0): Counts(10, 4, 6, 0)}, {"INVALID_JSON": 6}, files)
    with pytest.raises(Terminal) as refused:
        audit((Range("orders", 0, 0, 10),), staged, ("rows",), "letters", Tolerance(0, 0, 0))
    return refused.value


def test_too_many_dead_letters_have_a_failure_kind_of_their_own():
    """The words of the audit make a kind of their own, with its remedy."""
    noted = failure("ingest__orders", "r1", NOW, str(too_many_dead()), final=True)

    assert (noted.kind, noted.severity) == ("tolerance", "critical")
    assert noted.cause.startswith("too many dead letters, nothing was published: 6 of 10 records")
    assert noted.next_step is not None
    assert "dead_letters.tolerance" in noted.next_step


def test_remedy_of_a_spark_job_is_separated_from_its_cause():
    """A job reports its error on one line: what to do is told apart all the same; of several lines only one is the mark."""
    folded = failure("ingest__orders", "r1", NOW, " ".join(str(too_many_dead()).split()), final=True)
    whole = failure("ingest__orders", "r1", NOW, str(too_many_dead()), final=True)
    lines = failure("ingest__orders", "r1", NOW, "expected next: 5\nfound next: 4", final=True)

    assert folded.next_step is not None
    assert whole.next_step is not None
    assert (folded.kind, folded.next_step) == ("tolerance", " ".join(whole.next_step.split()))
    assert "next:" not in folded.cause
    assert (lines.cause, lines.next_step) == ("expected next: 5\nfound next: 4", None)


def test_run_kept_from_landing_by_conflicts_has_its_own_failure_kind():
    """A repeated conflict has a kind of its own; another try may help."""
    message = str(INTERNAL.retryable(f"pipeline orders: 4 {BATCHES_REFUSED}: position moved"))

    assert failure("ingest__orders", "r1", NOW, message, final=False).kind == "conflict"


def test_failure_is_read_back_as_written():
    """All of it, its time too; what is none is an error, not an empty failure."""
    noted = failure("ingest__orders", "r1", NOW, "first line\nsecond\n  next: do this", final=True)

    assert Failure.from_json(noted.to_json()) == noted
    for text in ("{}", "[]", "nonsense", '{"at": 5}', "null"):
        with pytest.raises(ValueError, match=r"."):
            Failure.from_json(text)


def test_damaged_failure_is_refused_without_what_it_holds() -> None:
    """A Variable may be anybody's: the log says where it is wrong, and shows nothing of it."""
    with pytest.raises(ValueError, match=r"^run: Field required$"):
        Failure.from_json('{"dag": "hunter2"}')


def test_failure_with_half_a_character_is_read_again() -> None:
    """The name of a file may hold a byte that no UTF-8 has, and an error may quote it."""
    noted = failure("d", "r", datetime(2026, 1, 1, tzinfo=UTC), "no file x\udce9", final=True)

    assert Failure.from_json(noted.to_json()).cause == "no file x?"
