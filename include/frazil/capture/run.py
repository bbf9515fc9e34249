"""One run of a capture: it finds the position, then sends the lines of files or the rows of a database in transactions."""

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
from frazil.capture.files import FileDecisions, decide_files, files_state, marks_of
from frazil.capture.position import (
    CaptureOrder,
    CapturePosition,
    Reset,
    Row,
    TopicState,
    Transactions,
    end_by_time,
    require_order,
    require_position,
    row_condition,
    row_state,
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

InitialState = Callable[[Literal["beginning", "end"]], Any]
"""Returns the state of a position before everything in the source, or after all that it has now."""


@dataclass(frozen=True, slots=True)
class CaptureContext:
    """A capture with what its runs need.

    Attributes:
        capture: The capture.
        cluster: The cluster of its topic.
        positions: The topic of positions.
        environment: Name of the environment, if several share the cluster.
    """

    capture: Capture
    cluster: Cluster
    positions: str
    environment: str | None = None

    @property
    def identity(self) -> str:
        """The name of the capture's producer and position, which differs between environments that share a cluster."""
        return self.capture.name if self.environment is None else f"{self.environment}.{self.capture.name}"

    def position(self) -> CapturePosition | None:
        """The last position; None if there is none.

        Raises:
            Terminal, Retryable: As `last_position`; or the stored text is no position.
        """
        stored = self.position_and_time()
        return None if stored is None else stored[0]

    def position_and_time(self) -> tuple[CapturePosition, datetime] | None:
        """The last position, and when it was committed.

        Raises:
            Terminal, Retryable: As `position`.
        """
        stored = last_position(self.cluster, self.positions, self.identity)
        return None if stored is None else (CapturePosition.from_json(stored[0]), stored[1])

    def topic(self) -> TopicState | None:
        """The state of the capture's topic; None if the topic does not exist."""
        facts = observe(self.cluster, [self.capture.topic], absent_ok=True).topics.get(self.capture.topic)
        if facts is None:
            return None
        return TopicState(self.capture.topic, facts.id, sum(partition.high_watermark for partition in facts.partitions))

    def ready_topic(self) -> TopicState:
        """The state of the capture's topic. A missing topic is created if the capture file has `partitions`.

        Raises:
            Terminal: The topic is missing.
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
    context: CaptureContext,
    order: CaptureOrder,
    initial_state: InitialState,
    now: datetime,
    seconds: float | None = None,
) -> Iterator[tuple[CaptureProducer, CapturePosition]]:
    """Open a capture's producer, which fences earlier ones, and find the position. A first run or a restart commits one first.

    Args:
        context: The capture with its cluster and topic of positions.
        order: The request.
        initial_state: Returns the state for a first run or a restart.
        now: The time, UTC.
        seconds: How long a transaction may be open; None for the usual minute.

    Raises:
        Terminal: The position is lost or does not fit; a topic is missing, or access to it is refused.
        Retryable: No broker answers, or another run began at the same moment.
    """
    topic = context.ready_topic()
    ready_positions(context.cluster, context.positions)
    capture = context.capture
    with capture_producer(context.cluster, capture.topic, context.positions, context.identity, seconds) as producer:
        # The position is read only now: the new producer has fenced all others, so it can't change any more.
        last = context.position()
        if (target := order.restart_at) is not None and not _has_reset(last, order):
            if target != "position":
                state = initial_state(target)
            elif last is not None and last.kind == capture.capture:
                state = last.state
            else:
                raise BAD_CAPTURE_POSITION.terminal(
                    f"capture {capture.name} has no position of kind {capture.capture} to continue from",
                    next_step="--from beginning, or --from end",
                )
            n, epoch = (None, 0) if last is None else (last.n, last.epoch)
            reset = Reset(target, order.reason, order.requested_by, now.isoformat(timespec="seconds"), n)
            number = 0 if n is None else n + 1
            position = CapturePosition(
                capture.capture, topic.name, topic.id, number, epoch + 1, order.run, state, reset
            )
            producer.send((), position.to_json)
        elif last is None:
            require_position(capture.name, capture.capture, None, replace(topic, used=context.ready_topic().used))
            state = initial_state(capture.start)
            position = CapturePosition(capture.capture, topic.name, topic.id, 0, 0, order.run, state)
            producer.send((), position.to_json)
        else:
            require_position(capture.name, capture.capture, last, topic)
            position = last
        yield producer, position


def _has_reset(last: CapturePosition | None, order: CaptureOrder) -> bool:
    """Whether an earlier attempt of this run committed the reset."""
    return (
        last is not None and last.run == order.run and last.reset is not None and last.reset.target == order.restart_at
    )


Report = Callable[[str], None]
Clock = Callable[[], datetime]


def utc_now() -> datetime:
    """The time, UTC."""
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class CaptureResult:
    """The result of a run.

    `transactions` counts those without records too. `n` is the number of the position after the run.
    """

    capture: str
    run: str
    topic: str
    records: int
    transactions: int
    n: int
    messages: tuple[str, ...] = ()

    def to_json(self) -> str:
        """The result of a job, and of `frazil capture --json`, which has the messages under `said`."""
        body = asdict(self)
        body["said"] = body.pop("messages")
        return json.dumps(body)

    @classmethod
    def from_json(cls, text: str) -> CaptureResult:
        """Read the result of a job."""
        body = json.loads(text)
        messages = tuple(body.pop("said"))
        return cls(**body, messages=messages)

    @property
    def summary(self) -> str:
        """One line for people."""
        if not self.transactions:
            return f"{self.capture}: nothing new"
        return f"{self.capture}: {self.records:,} records in {self.topic}, {self.transactions:,} transactions"


def capture_context(project: Project, capture: Capture) -> CaptureContext:
    """The context of a capture's runs.

    Raises:
        Terminal: The settings have no such cluster, or don't let captures read its source.
    """
    if (problem := next(beyond_reach(capture, project.settings), None)) is not None:
        raise BAD_SETTING.terminal(
            f"capture {capture.name}: {problem}", next_step="change the capture, or the settings"
        )
    settings = project.settings
    return CaptureContext(capture, project.cluster(capture.cluster), settings.captures.positions, settings.environment)


def capture_files(
    project: Project, capture: FileCapture, order: CaptureOrder, report: Report, clock: Clock = utc_now
) -> CaptureResult:
    """Send the lines of a capture's files that come after its position.

    Raises:
        Terminal: The position is lost or does not fit, bytes of a file may be missing, or a line is too large for the topic.
        Retryable: No broker answers, another run began, or files changed while they were read.
        Stopped: A signal asked it to stop. Transactions that were committed stay.
    """
    context = capture_context(project, capture)
    folders = project.settings.captures.folders
    initial_state = partial(_initial_state, capture, folders)
    with shutdown.handled(report), open_capture(context, order, initial_state, clock()) as (producer, start):
        decisions, remarks = plan_reads(capture, start.state, folders)
        for line in remarks:
            report(f"{capture.name}: {line}")
        hit(Failpoint.PLANNED)
        position, records = start, 0
        for batch in batches(capture, decisions):
            if shutdown.requester():
                raise shutdown.stopped(f"capture {capture.name} has committed position {position.n}")
            state = files_state(batch.marks)
            if batch.records or state != position.state:
                position = position.following(order.run, state)
                _send(capture, producer, batch, position)
                records += len(batch.records)
                report(f"{capture.name}: transaction {position.n}, {len(batch.records):,} records")
    return CaptureResult(
        capture.name, order.run, capture.topic, records, position.n - start.n, position.n, tuple(remarks)
    )


@dataclass(frozen=True, slots=True)
class FilePreview:
    """A file that a run would read, from an offset on. Its size is that of the compressed file if it is one."""

    path: str
    offset: int
    size: int


def preview_files(project: Project, capture: FileCapture) -> tuple[tuple[FilePreview, ...], list[str]]:
    """The files that a run would read, and what it would report. Nothing is created or changed.

    Raises:
        Terminal: A run would be refused.
        Retryable: No broker answers.
    """
    folders = project.settings.captures.folders
    context = capture_context(project, capture)
    position, topic = context.position(), context.topic()
    if topic is not None:
        require_position(capture.name, capture.capture, position, topic)
    state = _initial_state(capture, folders, capture.start) if position is None else position.state
    decisions, remarks = plan_reads(capture, state, folders)
    reads = [(file, mark) for file, mark in decisions.reads if not is_captured(file, mark)]
    return tuple(FilePreview(file.path, mark.offset, file.size) for file, mark in reads), remarks


def _initial_state(capture: FileCapture, folders: Sequence[str], start: Literal["beginning", "end"]) -> Any:
    if start == "beginning":
        return files_state(())
    return files_state(mark for file in find_files(capture.paths, (), folders) if (mark := end_mark(file)) is not None)


def plan_reads(
    capture: FileCapture, state: Any, folders: Iterable[str], *, most_unpacked: int | None = None
) -> tuple[FileDecisions, list[str]]:
    """Decide which files to read; returns also remarks for people. `most_unpacked`: see `FileContents`.

    Raises:
        Terminal: Lines may be lost, and the capture's `on_data_loss` is `fail`.
    """
    marks = marks_of(state)
    files = find_files(capture.paths, marks, folders)
    decisions = decide_files(marks, files, FileContents(most_unpacked), time.time_ns())
    if decisions.losses and capture.on_data_loss == "fail":
        lost = "\n  ".join(f"{loss.mark.path} {loss.why}" for loss in decisions.losses)
        raise BAD_CAPTURE_POSITION.terminal(
            f"capture {capture.name}: lines may be missing, so nothing is captured:\n  {lost}",
            next_step="if the files were rotated, add the names of rotated files to paths. Otherwise choose:"
            f" on_data_loss: skip, or frazil capture {capture.name} --from beginning|end --reason TEXT",
        )
    remarks = [f"{loss.mark.path} {loss.why}; missing lines are skipped" for loss in decisions.losses]
    remarks += [
        f"{mark.path} is gone; all {mark.offset:,} bytes that were seen are captured"
        for mark in decisions.captured_marks
    ]
    remarks += [f"{file.path} is left alone: it {why}" for file, why in decisions.waiting]
    if not (decisions.reads or decisions.waiting):
        remarks.append(f"no file matches {', '.join(capture.paths)}")
    return decisions, remarks


def _send(capture: FileCapture, producer: CaptureProducer, batch: Batch, position: CapturePosition) -> None:
    try:
        producer.send(batch.records, position.to_json)
    except RecordTooLarge as error:
        starts = (start for record, start in zip(batch.records, batch.starts, strict=True) if record is error.record)
        if (start := next(starts, None)) is None:
            raise
        path, offset = start
        raise RECORD_TOO_LARGE.terminal(
            f"{path}: the line at byte {offset:,} has {error.record.size:,} bytes with its key and headers, more than topic"
            f" {capture.topic!r} takes; this line and all after it wait",
            next_step=f"raise max.message.bytes of topic {capture.topic}; nothing was dropped, the next run goes on with it",
        ) from error


TRANSACTION_SECONDS: Final = 600.0
"""How long a transaction of rows may take: all rows of a bulk share one. Brokers allow 15 minutes by default."""


def initial_state_maker(capture: JdbcCapture, now: datetime, largest_number: Callable[[], int | None]) -> InitialState:
    """A function that returns the first state of a capture of a database."""

    def initial_state(start: Literal["beginning", "end"]) -> dict[str, Any]:
        if start == "beginning" or capture.mode == "bulk":
            return row_state(capture, None)
        if capture.timestamp_column is not None:
            return row_state(capture, end_by_time(capture, now))
        number = largest_number()
        return row_state(capture, None if number is None else (number,))

    return initial_state


def is_done(capture: JdbcCapture, position: CapturePosition, run: str) -> bool:
    """Whether an earlier attempt of the run captured the bulk: this attempt would send it again."""
    return capture.mode == "bulk" and position.state.get("done") == run


def next_rows(capture: JdbcCapture, position: CapturePosition, now: datetime) -> str | None:
    """The condition for the rows after a position; None for all rows.

    Raises:
        Terminal: The position has other ordering columns.
    """
    require_order(capture, position.state)
    return row_condition(capture, position.state, now)


def preview_rows(project: Project, capture: JdbcCapture) -> str | None:
    """The condition for the rows that a run would capture; None for all rows. The database is not queried.

    Raises:
        Terminal: A run would be refused.
        Retryable: No broker answers.
    """
    context = capture_context(project, capture)
    position, topic = context.position(), context.topic()
    if topic is not None:
        require_position(capture.name, capture.capture, position, topic)
    if position is not None:
        return next_rows(capture, position, utc_now())
    if capture.start == "end" and capture.mode != "bulk":
        return "they come from now on: the first run only stores the position of the end"
    return row_condition(capture, row_state(capture, None), utc_now())


@dataclass(frozen=True, slots=True)
class RowsTask:
    """Sends the rows of a run, in the driver or in an executor.

    `planned` is the position after which the rows were read.
    """

    context: CaptureContext
    capture: JdbcCapture
    run: str
    planned: CapturePosition

    def send(self, rows: Iterator[Row]) -> tuple[int, CapturePosition]:
        """Send rows in transactions, each with the position after it.

        Returns:
            The number of rows that were sent, and the last position.

        Raises:
            Retryable: Another run or attempt committed after `planned`, another run began, or no broker answers.
            Terminal: The topic refuses a row, or credentials or permissions don't fit.
        """
        capture, context = self.capture, self.context
        opened = capture_producer(
            context.cluster, capture.topic, context.positions, context.identity, TRANSACTION_SECONDS
        )
        with opened as producer:
            start = context.position()
            if start != self.planned:
                raise RUN_OVERTAKEN.retryable(
                    f"capture {capture.name}: rows were read after position {self.planned.n}, but the position is"
                    f" {None if start is None else start.n} now: another run or attempt committed meanwhile",
                    next_step="run again: it continues after that",
                )
            position, transactions = start, Transactions(rows, capture.max_records)
            while transactions.has_more:
                records = (OutgoingRecord(row.key, row.value) for row in transactions.take())
                producer.send(records, lambda: self._next_position(position, transactions).to_json())  # noqa: B023 - called at once
                position = self._next_position(position, transactions)
        return transactions.taken, position

    def _next_position(self, position: CapturePosition, transactions: Transactions) -> CapturePosition:
        """The position after the rows that were taken."""
        if self.capture.mode == "bulk":
            return position.following(self.run, {**row_state(self.capture, None), "done": self.run})
        return position.following(self.run, row_state(self.capture, transactions.last))
