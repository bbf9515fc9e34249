"""One run of a database capture, except reading rows: the position at its start, and how rows are sent."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal

from frazil.capture.position import CapturePosition, require_position
from frazil.capture.rows import Cuts, Row, end_by_time, initial_state, require_order, row_condition
from frazil.capture.run import Clock, ground_of, utc_now
from frazil.capture.standing import Begin, Ground
from frazil.error_codes import RUN_OVERTAKEN
from frazil.kafka.client.record import OutgoingRecord
from frazil.kafka.write.captures import capture_producer
from frazil.pipeline.settings.capture import JdbcCapture
from frazil.project import Project

TRANSACTION_SECONDS: Final = 600.0
"""How long a transaction of rows may take: a bulk is one. Brokers allow 15 minutes unless they say otherwise."""


def initial_state_maker(capture: JdbcCapture, now: datetime, largest_number: Callable[[], int | None]) -> Begin:
    """Return the function that makes a capture's first state."""

    def begin(where: Literal["beginning", "end"]) -> dict[str, Any]:
        if where == "beginning" or capture.mode == "bulk":
            return initial_state(capture, None)
        if capture.timestamp_column is not None:
            return initial_state(capture, end_by_time(capture, now))
        number = largest_number()
        return initial_state(capture, None if number is None else (number,))

    return begin


def is_done(capture: JdbcCapture, position: CapturePosition, run: str) -> bool:
    """Whether an earlier attempt of the run captured its rows: a further one would send them again."""
    return capture.mode == "bulk" and position.state.get("done") == run


def next_rows(capture: JdbcCapture, position: CapturePosition, now: datetime) -> str | None:
    """Which rows come next, see `frazil.capture.rows.row_condition`.

    Raises:
        Terminal: The position is told by other columns.
    """
    require_order(capture, position.state)
    return row_condition(capture, position.state, now)


def look_at_rows(project: Project, capture: JdbcCapture, clock: Clock = utc_now) -> str | None:
    """Describe the rows that a run would capture, without a query to the database; None for all.

    Raises:
        Terminal: A run would be refused.
        Retryable: No broker answers.
    """
    ground = ground_of(project, capture)
    position, topic = ground.position(), ground.topic()
    if topic is not None:
        require_position(capture.name, capture.capture, position, topic)
    if position is not None:
        return next_rows(capture, position, clock())
    if capture.start == "end" and capture.mode != "bulk":
        return "they come from now on: the first run only notes where the end is"
    return row_condition(capture, initial_state(capture, None), clock())


@dataclass(frozen=True, slots=True)
class RowsTask:
    """Sends the rows of a run, in the driver or in an executor.

    `planned` is the position for which the rows were asked.
    """

    ground: Ground
    capture: JdbcCapture
    run: str
    planned: CapturePosition

    def send(self, rows: Iterator[Row]) -> tuple[int, CapturePosition]:
        """Send rows in transactions, each with the position after it.

        Returns:
            How many rows were sent, and the last position.

        Raises:
            Retryable: Somebody committed since the rows were asked for, another run began, or no broker answers.
            Terminal: The topic refuses a row, or credentials or permissions don't fit.
        """
        capture, ground = self.capture, self.ground
        opened = capture_producer(ground.cluster, capture.topic, ground.positions, ground.identity, TRANSACTION_SECONDS)
        with opened as producer:
            start = ground.position()
            if start != self.planned:
                raise RUN_OVERTAKEN.retryable(
                    f"capture {capture.name}: rows were requested after position {self.planned.n}, and it is"
                    f" {None if start is None else start.n} now: another run, or try, committed meanwhile",
                    next_step="run again: it goes on behind that",
                )
            position, cuts = start, Cuts(rows, capture.max_records)
            while cuts.has_more:
                records = (OutgoingRecord(row.key, row.value) for row in cuts.transaction())
                producer.send(records, lambda: self._behind(position, cuts).to_json())  # noqa: B023 - called at once
                position = self._behind(position, cuts)
        return cuts.taken, position

    def _behind(self, position: CapturePosition, cuts: Cuts) -> CapturePosition:
        """The position after the captured rows."""
        if self.capture.mode == "bulk":
            return position.following(self.run, {**initial_state(self.capture, None), "done": self.run})
        return position.following(self.run, initial_state(self.capture, cuts.last))
