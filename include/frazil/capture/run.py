"""One run of a file capture: it captures the lines present at its start, in transactions."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any, Literal

from frazil import shutdown
from frazil.capture.contents import FileContents, end_mark, find_files, is_captured
from frazil.capture.files import FileDecisions, decide_files, marks_of, state_of
from frazil.capture.lines import Batch, batches
from frazil.capture.position import CaptureOrder, CapturePosition, require_position
from frazil.capture.standing import Ground, open_capture
from frazil.error_codes import BAD_CAPTURE_POSITION, BAD_SETTING, RECORD_TOO_LARGE
from frazil.failpoints import Failpoint, hit
from frazil.kafka.client.errors import RecordTooLarge
from frazil.kafka.write.captures import CaptureProducer
from frazil.pipeline.settings.capture import Capture, FileCapture, beyond_reach
from frazil.project import Project

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
            next_step="if the files were rotated, let paths name what rotation made of them. Else say what is to happen:"
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
            f" {capture.topic!r} takes; it and all behind it wait",
            next_step=f"raise max.message.bytes of topic {capture.topic}; nothing was dropped, the next run goes on with it",
        ) from refused
