"""Reads the condition of a capture from its position, its files and its runs. Sends nothing, and asks no database."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Literal

from frazil.capture.contents import find_files
from frazil.capture.files import FileMark, FoundFile, marks_of, state_of
from frazil.capture.lines import has_line
from frazil.capture.position import CapturePosition, require_order, require_position
from frazil.capture.run import ground_of, plan_reads
from frazil.error_codes import CAPTURE_UNREADABLE
from frazil.errors import FrazilError, Terminal
from frazil.monitor.condition import Condition, Runs
from frazil.pipeline.settings.capture import Capture, FileCapture, unknown_in_capture
from frazil.project import Project
from frazil.run.state.context import Clock, utc_now

_NO_RUNS = Runs()

_MOST_UNPACKED = 64 * 2**20
"""Bytes that a look decompresses to see which new packed files are whole: one that is not looks as if it waited, beyond that.
A page that is open looks every few seconds, and a capture that never ran may have terabytes before it."""


def read_capture(project: Project, capture: Capture, *, clock: Clock = utc_now, runs: Runs = _NO_RUNS) -> Condition:
    """Read the condition of a capture. What can't be read is reported and left out.

    Files wait if a run on this machine would capture lines of them. Rows are not counted: that would be a Spark job at each look.
    """
    unit: Literal["files", "rows"] = "files" if isinstance(capture, FileCapture) else "rows"
    condition = Condition(capture.unique_name, capture.owner, clock(), unit=unit)
    try:
        if (unknown_name := next(unknown_in_capture(capture, project.settings), None)) is not None:
            return replace(condition, refusal=unknown_name, runs=runs)
        ground = ground_of(project, capture)
        stored, topic = ground.position_and_time(), ground.topic()
        position = None
        if stored is not None:
            position = stored[0]
            condition = replace(condition, n=position.n, last_commit=stored[1])
        if topic is not None:
            require_position(capture.name, capture.capture, position, topic)
        if isinstance(capture, FileCapture):
            condition = _with_files(condition, capture, position, project.settings.captures.folders)
        elif position is not None:
            require_order(capture, position.state)
    except Terminal as refusal:
        condition = replace(condition, refusal=str(refusal))
    except FrazilError as problem:
        condition = replace(condition, unreadable=str(problem))
    return with_runs(condition, runs)


def with_runs(condition: Condition, runs: Runs) -> Condition:
    """The condition of a capture with Airflow's runs, the last of which saw all that was there before it.

    So nothing has waited for longer, and that is how long it may have. Without a successful run, files tell: one waits since it
    was written last, at least.
    """
    seconds = condition.lag_seconds
    if runs.last_state == "success" and runs.last_ended_at is not None and _may_wait(condition):
        seen_at = max(runs.last_ended_at, condition.last_commit or runs.last_ended_at)
        seconds = max(seconds or 0.0, (condition.read_at - seen_at).total_seconds())
    return replace(condition, runs=runs, lag_seconds=seconds)


def _may_wait(condition: Condition) -> bool:
    return bool(condition.lag) or condition.unit == "rows"


def _with_files(
    condition: Condition, capture: FileCapture, position: CapturePosition | None, folders: Iterable[str]
) -> Condition:
    """The condition with the files that wait; unchanged where the files can't be seen, as on another machine than the workers'.

    Raises:
        Terminal: A run would be refused: bytes may be missing.
    """
    if position is None and capture.start == "end":
        return replace(condition, lag=0, lag_bytes=0, lag_seconds=0.0)
    marks = () if position is None else marks_of(position.state)
    try:
        files = find_files(capture.paths, marks, folders)
        if _are_others(marks, files):
            return condition
        decided, _ = plan_reads(capture, state_of(marks), folders, most_unpacked=_MOST_UNPACKED)
        waiting = [(file, mark) for file, mark in decided.reads if has_line(file, mark)]
    except FrazilError as problem:
        if problem.code is not CAPTURE_UNREADABLE:
            raise
        return condition
    changed = min((file.changed for file, _ in waiting), default=None)
    seconds = (
        0.0 if changed is None else (condition.read_at - datetime.fromtimestamp(changed / 1e9, UTC)).total_seconds()
    )
    size = sum(file.size - (0 if file.is_packed else mark.offset) for file, mark in waiting)
    return replace(condition, lag=len(waiting), lag_bytes=size, lag_seconds=max(0.0, seconds))


def _are_others(marks: Iterable[FileMark], files: Iterable[FoundFile]) -> bool:
    """Whether not one of the known files is here: paths may be the same on a machine with other files."""
    ids = {mark.id for mark in marks if not mark.missing_since}
    return bool(ids) and ids.isdisjoint(file.id for file in files)
