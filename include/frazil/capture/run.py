"""One run of a capture: its state when the run begins, then the lines of files, or the rows of a database, sent in
transactions.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final, Literal

from frazil import shutdown
from frazil.capture.contents import Batch, FileContents, batches, end_mark, find_files, is_captured
from frazil.capture.files import FileDecisions, decide_files, marks_of, state_of
from frazil.capture.position import (
    CaptureOrder,
    CapturePosition,
    Cuts,
    Reset,
    Row,
    TopicState,
    end_by_time,
    initial_state,
    require_order,
    require_position,
    row_condition,
)
from frazil.error_codes import BAD_CAPTURE_POSITION, BAD_SETTING, RECORD_TOO_LARGE, RUN_OVERTAKEN, TOPIC_MISSING
from frazil.failpoints import Failpoint, hit
from frazil.kafka.admin.observe import observe
from frazil.kafka.admin.topics import ready_topic
from frazil.kafka.client.cluster import Cluster, OutgoingRecord
from frazil.kafka.client.errors import RecordTooLarge
from frazil.kafka.write.captures import CaptureProducer, capture_producer, last_position, ready_positions
from frazil.pipeline.settings.capture import Capture, FileCapture, JdbcCapture, beyond_reach
from frazil.project import Project

Begin = Callable[[Literal["beginning", "end"]], Any]
"""Makes the state from which a source is captured from its beginning, or its end, on."""


@dataclass(frozen=True, slots=True)
class Ground:
    """A capture with its cluster, its topic of positions and its environment.

    The environment has a name if several share the cluster.
    """

    capture: Capture
    cluster: Cluster
    positions: str
    environment: str | None = None

    @property
    def identity(self) -> str:
        """Name of its producer and its position, different for each environment that shares a cluster."""
        return self.capture.name if self.environment is None else f"{self.environment}.{self.capture.name}"

    def position(self) -> CapturePosition | None:
        """Its last position; None if it has none.

        Raises:
            Terminal, Retryable: As `last_position`; or the stored text is no position.
        """
        stored = self.position_and_time()
        return None if stored is None else stored[0]

    def position_and_time(self) -> tuple[CapturePosition, datetime] | None:
        """Its last position, and when that was committed.

        Raises:
            Terminal, Retryable: As `position`.
        """
        stored = last_position(self.cluster, self.positions, self.identity)
        return None if stored is None else (CapturePosition.from_json(stored[0]), stored[1])

    def topic(self) -> TopicState | None:
        """Its topic; None if it does not exist."""
        facts = observe(self.cluster, [self.capture.topic], absent_ok=True).topics.get(self.capture.topic)
        if facts is None:
            return None
        return TopicState(self.capture.topic, facts.id, sum(partition.high_watermark for partition in facts.partitions))

    def ready_topic(self) -> TopicState:
        """The capture's topic, created if it is missing and the capture file says how.

        Raises:
            Terminal: It is missing.
            Retryable: No broker answers.
        """
        if self.capture.partitions is not None:
            ready_topic(self.cluster, self.capture.topic, self.capture.partitions)
        state = self.topic()
        if state is None:
            raise TOPIC_MISSING.terminal(
                f"{self.cluster} has no topic {self.capture.topic!r}",
                next_step=f"create it, or let capture {self.capture.name} do so: partitions: 1",
            )
        return state


@contextmanager
def open_capture(
    ground: Ground, order: CaptureOrder, begin: Begin, now: datetime, seconds: float | None = None
) -> Iterator[tuple[CaptureProducer, CapturePosition]]:
    """Open a capture's producer, which fences earlier ones, and find its position. A first run or a reset commits one first.

    Args:
        ground: Its capture, cluster and positions topic.
        order: What is asked for.
        begin: Makes a state to begin with.
        now: The time, UTC.
        seconds: How long a transaction may be open; None for the usual minute.

    Raises:
        Terminal: The position is lost or does not fit; topics are missing, or refuse.
        Retryable: No broker answers, or another run began at the same moment.
    """
    topic = ground.ready_topic()
    ready_positions(ground.cluster, ground.positions)
    capture = ground.capture
    with capture_producer(ground.cluster, capture.topic, ground.positions, ground.identity, seconds) as producer:
        # Behind the opening: nobody else of this name commits any more.
        last = ground.position()
        if order.restart_at is not None and not _is_done(last, order):
            position = _reset_position(capture, last, topic, order, begin, now)
            producer.send((), position.to_json)
        elif last is None:
            require_position(capture.name, capture.capture, None, replace(topic, used=ground.ready_topic().used))
            position = CapturePosition(capture.capture, topic.name, topic.id, 0, 0, order.run, begin(capture.start))
            producer.send((), position.to_json)
        else:
            require_position(capture.name, capture.capture, last, topic)
            position = last
        yield producer, position


def _is_done(last: CapturePosition | None, order: CaptureOrder) -> bool:
    """Whether an earlier try of this run did the reset."""
    return (
        last is not None and last.run == order.run and last.reset is not None and last.reset.target == order.restart_at
    )


def _reset_position(
    capture: Capture,
    last: CapturePosition | None,
    topic: TopicState,
    order: CaptureOrder,
    begin: Begin,
    now: datetime,
) -> CapturePosition:
    n = None if last is None else last.n
    if order.restart_at is None or order.restart_at == "position":
        if last is None or last.kind != capture.capture:
            raise BAD_CAPTURE_POSITION.terminal(
                f"capture {capture.name} has no position of kind {capture.capture} to continue from",
                next_step="--from beginning, or --from end",
            )
        state = last.state
    else:
        state = begin(order.restart_at)
    reset = Reset(
        order.restart_at or "position", order.reason, order.requested_by, now.isoformat(timespec="seconds"), n
    )
    epoch = 1 if last is None else last.epoch + 1
    number = 0 if n is None else n + 1
    return CapturePosition(capture.capture, topic.name, topic.id, number, epoch, order.run, state, reset)


Report = Callable[[str], None]
Clock = Callable[[], datetime]


def utc_now() -> datetime:
    """The time, UTC."""
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class CaptureResult:
    """The result of a run.

    Transactions with only a position are counted too; `n` is the number of the position after the run.
    """

    capture: str
    run: str
    topic: str
    records: int
    transactions: int
    n: int
    messages: tuple[str, ...] = ()

    def to_json(self) -> str:
        """JSON text of the job's result."""
        body = asdict(self)
        body["said"] = body.pop("messages")
        return json.dumps(body)

    @classmethod
    def from_json(cls, text: str) -> CaptureResult:
        """Read the JSON text of a job's result."""
        body = json.loads(text)
        messages = tuple(body.pop("said"))
        return cls(**body, messages=messages)

    @property
    def summary(self) -> str:
        """One line for people."""
        if not self.transactions:
            return f"{self.capture}: nothing new"
        return f"{self.capture}: {self.records:,} records in {self.topic}, {self.transactions:,} transactions"


def ground_of(project: Project, capture: Capture) -> Ground:
    """The fixed inputs of a capture run.

    Raises:
        Terminal: The settings have no such cluster, or don't let captures read what it reads.
    """
    if (beyond := next(beyond_reach(capture, project.settings), None)) is not None:
        raise BAD_SETTING.terminal(f"capture {capture.name}: {beyond}", next_step="change the capture, or the settings")
    settings = project.settings
    return Ground(capture, project.cluster(capture.cluster), settings.captures.positions, settings.environment)


def capture_files(
    project: Project, capture: FileCapture, order: CaptureOrder, report: Report, clock: Clock = utc_now
) -> CaptureResult:
    """Capture the present lines of a capture's files, from its position on.

    Raises:
        Terminal: The position is lost or does not fit, bytes of a file may be missing, a line is too large for the topic, or
            a person must act otherwise.
        Retryable: No broker answers, another run began, or files changed while they were read.
        Stopped: A signal asked it to stop. Transactions that were committed stay.
    """
    ground = ground_of(project, capture)
    folders = project.settings.captures.folders
    begin = partial(_begin, capture, folders)
    with shutdown.handled(report), open_capture(ground, order, begin, clock()) as (producer, start):
        decided, remarks = plan_reads(capture, start.state, folders)
        for line in remarks:
            report(f"{capture.name}: {line}")
        hit(Failpoint.PLANNED)
        position, records = start, 0
        for batch in batches(capture, decided):
            if shutdown.requester():
                raise shutdown.stopped(f"capture {capture.name} has committed position {position.n}")
            state = state_of(batch.marks)
            if batch.records or state != position.state:
                position = position.following(order.run, state)
                _send(capture, producer, batch, position)
                records += len(batch.records)
                report(f"{capture.name}: transaction {position.n}, {len(batch.records):,} records")
    return CaptureResult(
        capture.name, order.run, capture.topic, records, position.n - start.n, position.n, tuple(remarks)
    )


@dataclass(frozen=True, slots=True)
class FileLook:
    """The part of a file that a run would read."""

    path: str
    offset: int
    size: int


def preview_files(project: Project, capture: FileCapture) -> tuple[tuple[FileLook, ...], list[str]]:
    """Preview what a run would read and report, without creating, writing or changing anything.

    Raises:
        Terminal: A run would be refused.
        Retryable: No broker answers.
    """
    folders = project.settings.captures.folders
    ground = ground_of(project, capture)
    position, topic = ground.position(), ground.topic()
    if topic is not None:
        require_position(capture.name, capture.capture, position, topic)
    decided, remarks = plan_reads(
        capture, _begin(capture, folders, capture.start) if position is None else position.state, folders
    )
    reads = [(file, mark) for file, mark in decided.reads if not is_captured(file, mark)]
    return tuple(FileLook(file.path, mark.offset, file.size) for file, mark in reads), remarks


def _begin(capture: FileCapture, folders: Sequence[str], where: Literal["beginning", "end"]) -> Any:
    if where == "beginning":
        return state_of(())
    return state_of(mark for file in find_files(capture.paths, (), folders) if (mark := end_mark(file)) is not None)


def plan_reads(
    capture: FileCapture, state: Any, folders: Iterable[str], *, most_unpacked: int | None = None
) -> tuple[FileDecisions, list[str]]:
    """Plan the reads of the files, and report what people should know. `most_unpacked`: bytes, of new packed files.

    Raises:
        Terminal: Bytes may be missing, and the capture does not skip that.
    """
    marks = marks_of(state)
    decided = decide_files(
        marks, find_files(capture.paths, marks, folders), FileContents(most_unpacked), time.time_ns()
    )
    if decided.losses and capture.on_data_loss == "fail":
        lost = "\n  ".join(f"{loss.mark.path} {loss.why}" for loss in decided.losses)
        raise BAD_CAPTURE_POSITION.terminal(
            f"capture {capture.name}: lines may be missing, so nothing is captured:\n  {lost}",
            next_step="if the files were rotated, add the names of rotated files to paths. Otherwise choose:"
            f" on_data_loss: skip, or frazil capture {capture.name} --from beginning|end --reason TEXT",
        )
    remarks = [f"{loss.mark.path} {loss.why}; what is missing is skipped" for loss in decided.losses]
    remarks += [
        f"{mark.path} is gone; all {mark.offset:,} bytes that were seen are captured" for mark in decided.captured_marks
    ]
    remarks += [f"{file.path} is left alone: it {why}" for file, why in decided.waiting]
    if not (decided.reads or decided.waiting):
        remarks.append(f"no file is named by {', '.join(capture.paths)}")
    return decided, remarks


def _send(capture: FileCapture, producer: CaptureProducer, batch: Batch, position: CapturePosition) -> None:
    try:
        producer.send(batch.records, position.to_json)
    except RecordTooLarge as refused:
        number = next((n for n, record in enumerate(batch.records) if record is refused.record), None)
        if number is None:
            raise
        path, offset = batch.places[number]
        raise RECORD_TOO_LARGE.terminal(
            f"{path}: the line at byte {offset:,} has {refused.record.size:,} bytes with its key and headers, more than topic"
            f" {capture.topic!r} takes; this line and all after it wait",
            next_step=f"raise max.message.bytes of topic {capture.topic}; nothing was dropped, the next run goes on with it",
        ) from refused


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
    """Which rows come next, see `frazil.capture.position.row_condition`.

    Raises:
        Terminal: The position is of other columns.
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
                    f" {None if start is None else start.n} now: another run or attempt committed meanwhile",
                    next_step="run again: it continues after that",
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
