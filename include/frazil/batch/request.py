"""What a run is asked to do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from frazil.batch.target import Target

Mode = Literal["ingest", "replay", "dry_run"]
"""`ingest` lands what is new, `replay` lands a range again in place of what it landed before, `dry_run` only looks."""


@dataclass(frozen=True, slots=True)
class RunRequest:
    """What a run is asked to do; the default is what a schedule asks: land everything new.

    Attributes:
        run: Id of the run.
        started_by: Who or what started it, such as `cli:ann@host` or `airflow:scheduled`.
        mode: What to do.
        start: Where a replay or a dry run begins; a dry run without it begins at the position.
        end: Where it ends at the latest. An ingest run never leaves a gap: it begins at the position, and has nothing
            to do where the end lies below.
        reason: Why, in the words of whoever asks.
    """

    run: str
    started_by: str = ""
    mode: Mode = "ingest"
    start: Target | None = None
    end: Target | None = None
    reason: str | None = None
