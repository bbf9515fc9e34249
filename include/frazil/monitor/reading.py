"""Reads the condition of a pipeline from its tables, ledger, dead letters and topics, and of a capture from its position and files.
It only reads.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Final, Literal, TypeVar

from frazil.batch.audit import check_position, check_vanished
from frazil.batch.facts import ClusterFacts, TopicPartition
from frazil.batch.position import Position
from frazil.capture.contents import find_files, has_line
from frazil.capture.files import FileMark, FoundFile, files_state, marks_of
from frazil.capture.position import CapturePosition, require_order, require_position
from frazil.capture.run import capture_context, plan_reads
from frazil.error_codes import CAPTURE_UNREADABLE
from frazil.errors import FrazilError, Terminal
from frazil.iceberg.commit.summary_state import BATCH_KEY, SummaryValue, lookup_position, read_summary, remaining_value
from frazil.iceberg.ledger.dead_letters import count_open_letters
from frazil.iceberg.ledger.ledger import read_rewinds
from frazil.iceberg.schema.comparison import check_destination
from frazil.kafka.admin.observe import first_timestamps, observe
from frazil.kafka.admin.topics import TopicRetention, retention
from frazil.kafka.client.cluster import Cluster
from frazil.kafka.client.errors import unknown_topic
from frazil.maintain.need import Order
from frazil.maintain.run import preview
from frazil.monitor.batches import Ledger, Ledgers
from frazil.monitor.condition import Condition, Retention, Runs, TopicLag
from frazil.pipeline.models.pipeline_file import Pipeline
from frazil.pipeline.settings.capture import Capture, FileCapture, unknown_in_capture
from frazil.project import Project
from frazil.report.lag import Lag, lag_in, topics_of
from frazil.run.repair.dead_letter_decode import letter_history
from frazil.run.state.context import Clock, RunContext, refuse_no_key, refuse_other_key, utc_now, vanished_topics
from frazil.run.state.pipeline_state import PipelineState, pipeline_state
from frazil.run.state.tables import Tables, find_tables, refuse_shared

# Age of the oldest unread record: the first unread record of each partition is read for its timestamp, which depends on the
# clock of its producer or broker (`message.timestamp.type`). No record waits since before the instant through which the
# pipeline is complete, which depends on no producer's clock. So the shorter of both times is the age: neither a topic that is
# written once a day, nor one with timestamps of last year, looks stale.
#
# Retention: Kafka deletes whole segments, the oldest first, by the latest timestamp in each. So a segment with an unread
# record stays at least until that record's own time is up: `seconds_left` is a lower bound. A retention as long as the age of
# the oldest unread record keeps that record and all later ones.


def _with_unread(condition: Condition, cluster: Cluster, lag: Lag) -> Condition:
    """The condition with the age of the oldest unread record, and the time that retention leaves. Reads them from Kafka.

    Raises:
        Retryable: No broker answers.
        Terminal: Credentials or permissions don't fit.
    """
    starts = {
        (partition.topic, partition.partition): max(partition.begin, partition.log.log_start)
        for partition in lag.partitions
        if partition.lag and partition.log and partition.begin is not None
    }
    times = first_timestamps(cluster, starts)
    retentions = retention(cluster, {topic for topic, _ in times})
    return with_ages(condition, lag, times, retentions)


def with_ages(
    condition: Condition,
    lag: Lag,
    times: Mapping[TopicPartition, int | None],
    retentions: Mapping[str, TopicRetention],
) -> Condition:
    """The condition with the age of the oldest unread record, and the time that retention leaves.

    Args:
        condition: The condition without them.
        lag: Lag by partition.
        times: Partition with unread records -> timestamp of the first one, in milliseconds; None if that has none.
        retentions: Topic -> its retention; without topics whose configuration this user may not read.
    """
    seconds = _oldest(condition, lag.total, times)
    through = condition.complete_through
    is_exact = not lag.held_back and all(partition.lag is not None for partition in lag.partitions)
    if is_exact and seconds is not None and condition.n is not None:
        reached = condition.read_at - timedelta(seconds=seconds)
        through = reached if through is None else max(through, reached)
    urgent_first = sorted(
        _retentions(condition.read_at, lag, times, retentions),
        key=lambda entry: (
            math.inf if entry.seconds_left is None else entry.seconds_left,
            entry.topic,
            entry.partition,
        ),
    )
    topics = tuple(
        _topic_lag(condition, lag, topic, times)
        for topic in dict.fromkeys(partition.topic for partition in lag.partitions)
    )
    return replace(
        condition, lag_seconds=seconds, complete_through=through, topics=topics, retention=tuple(urgent_first)
    )


def _topic_lag(condition: Condition, lag: Lag, topic: str, times: Mapping[TopicPartition, int | None]) -> TopicLag:
    lags = [partition.lag for partition in lag.partitions if partition.topic == topic and partition.lag is not None]
    total = sum(lags) if lags else None
    return TopicLag(topic, total, _oldest(condition, total, {key: ms for key, ms in times.items() if key[0] == topic}))


def _oldest(condition: Condition, lag: int | None, times: Mapping[TopicPartition, int | None]) -> float | None:
    """Upper bound, in seconds, of how long unread records have waited; None if unknown."""
    if lag is None:
        return None
    if not times:
        return 0.0
    through = condition.complete_through
    bound = (condition.read_at - through).total_seconds() if through is not None else None
    written = [ms for ms in times.values() if ms is not None]
    age = _age(condition.read_at, min(written)) if len(written) == len(times) else None
    return min((max(0.0, age_bound) for age_bound in (bound, age) if age_bound is not None), default=None)


def _retentions(
    instant: datetime, lag: Lag, times: Mapping[TopicPartition, int | None], retentions: Mapping[str, TopicRetention]
) -> Iterator[Retention]:
    for partition in lag.partitions:
        place = partition.topic, partition.partition
        if place not in times or partition.headroom is None:
            continue
        written_ms, policy = times[place], retentions.get(partition.topic)
        age = None if written_ms is None else max(0.0, _age(instant, written_ms))
        seconds_left = None
        if partition.headroom < 0:
            seconds_left = 0.0
        elif age is not None and policy is not None and policy.ms is not None:
            seconds_left = max(0.0, policy.ms / 1000 - age)
        by_size = policy is not None and policy.by_size
        yield Retention(*place, partition.headroom, seconds_left, age, by_size=by_size)


def _age(instant: datetime, ms: int) -> float:
    return instant.timestamp() - ms / 1000


_TRIES = 3
"""How often tables are read after a loss was seen: they are read one after another, so a run in between looks like a loss."""


@dataclass(frozen=True)
class TableStatus:
    """The part of a condition that comes from the tables.

    Attributes:
        position: The value with the position; None before the first run.
        unfinished: Number of the decided batch that is not finished; None without one.
        unfinished_since: When that batch was decided; None if its snapshot is gone.
        refusal: Why the next run would be refused; None if it would not.
    """

    position: SummaryValue | None = None
    unfinished: int | None = None
    unfinished_since: datetime | None = None
    refusal: Terminal | None = None


def table_status(context: RunContext) -> TableStatus:
    """Read the tables of a pipeline.

    Raises:
        Terminal: They can't be the tables of this pipeline; the next run would be refused, too.
        Retryable: The catalog can't be reached.
    """
    previous: PipelineState | None = None
    status = TableStatus()
    for _ in range(_TRIES):
        tables = find_tables(context.lake, context.pipeline)
        if tables is None:
            return status
        current_context = context.with_ledger_tables(tables.ledger)
        if current_context is not context:  # a batch created tables meanwhile
            context = current_context
            continue
        state = pipeline_state(context.pipeline, tables)
        status = _table_status(context, tables, state, state.loss or _refusal(context, tables, state))
        if state.loss is None or (previous is not None and previous.fingerprint == state.fingerprint):
            return status
        previous = state
    return replace(status, refusal=None)  # the tables differ at each try, so runs move them: no loss


def _table_status(context: RunContext, tables: Tables, state: PipelineState, refusal: Terminal | None) -> TableStatus:
    name, metadata = context.pipeline.name, tables.closing.metadata
    # Without a position in the state, the lookup would raise the same error as the refusal.
    position = (
        None if state.position is None else remaining_value(lookup_position(tables.closing, name, tables.closing_name))
    )
    if not state.unfinished or state.mark is None:
        return TableStatus(position, refusal=refusal)
    last = remaining_value(read_summary(metadata, BATCH_KEY.format(name), tables.closing_name))
    snapshot = metadata.snapshot_by_id(last.snapshot_id) if last is not None else None
    since = datetime.fromtimestamp(snapshot.timestamp_ms / 1000, UTC) if snapshot is not None else None
    return TableStatus(position, state.mark.n, since, refusal)


def _refusal(context: RunContext, tables: Tables, state: PipelineState) -> Terminal | None:
    """Why the next run would be refused though no table lost anything. A run with an unfinished batch first finishes that."""
    pipeline = context.pipeline
    try:
        refuse_shared(pipeline, tables)
        if state.unfinished:
            return None
        for name, table in tables.destinations.items():
            refuse_no_key(pipeline, name, table)
            check_destination(table, pipeline.destination(name), pipeline.name, fold=pipeline.value.folds_names)
            refuse_other_key(pipeline, name, table.metadata)
    except Terminal as refusal:
        return refusal
    return None


def table_health(project: Project, pipeline: Pipeline) -> dict[str, int]:
    """Table -> health score, 0 to 100, for existing tables that have maintenance.

    Raises:
        Retryable: The catalog or the storage is not available now.
        Terminal: The settings have no such catalog, or a table can't be the pipeline's.
    """
    maintenance = preview(RunContext.open(project, pipeline), Order())
    return {table.table: table.before.score for table in maintenance.tables}


def with_batches(condition: Condition, ledger: Ledger) -> Condition:
    """The condition with what batches landed in its window, and when the last one did. Replays don't count.

    Raises:
        Retryable: The storage can't be read now.
    """
    until = condition.read_at + timedelta(seconds=1)  # a commit of this very second counts
    total = ledger.total(condition.read_at - timedelta(seconds=condition.window_seconds), until)
    return replace(
        condition,
        last_commit=ledger.last_commit(),
        rows=total.rows,
        dead=total.dead,
        filtered=total.filtered,
        dead_codes=total.dead_codes,
        freshness=total.freshness,
    )


_LOG: Final = logging.getLogger(__name__)


def with_open_letters(condition: Condition, project: Project, pipeline: Pipeline) -> Condition:
    """The condition with the number of open dead letters; unchanged if the tables can't be read.

    Manifests have the numbers. Only files with letters that a rollback of the closing table opened again are read.
    """
    if condition.n is None:
        return condition
    try:
        return replace(condition, open_letters=_count_open(project, pipeline))
    except FrazilError as problem:  # the next reading may have the number
        _LOG.info("open dead letters of pipeline %s: %s", pipeline.name, problem)
        return condition


def _count_open(project: Project, pipeline: Pipeline) -> int:
    lake, name = project.lake_of(pipeline), pipeline.dead_letters_table
    table = lake.find_table(name)
    if table is None:
        return 0

    def taken_back() -> frozenset[int]:
        return letter_history(read_rewinds(lake, pipeline.ledger_table, pipeline.name)).taken_back

    return count_open_letters(table, name, taken_back)


T = TypeVar("T")

DAY: Final = timedelta(days=1)

_NO_RUNS: Final = Runs()


def read(
    project: Project,
    pipeline: Pipeline,
    *,
    clock: Clock = utc_now,
    runs: Runs = _NO_RUNS,
    window: timedelta = DAY,
    ledgers: Ledgers | None = None,
) -> Condition:
    """Read the condition of a pipeline. Figures that can't be read are left out, and the condition says why. Repeated reads share
    `ledgers`, a cache.
    """
    instant = clock()
    empty = Condition(pipeline.name, pipeline.owner, instant, runs=runs, window_seconds=window.total_seconds())
    problems = _Problems()
    condition = problems.tried(
        lambda: _read(empty, RunContext.open(project, pipeline, clock=clock), problems, ledgers or Ledgers()), empty
    )
    return replace(condition, refusal=problems.refusal, unreadable=problems.unreadable)


def _read(empty: Condition, context: RunContext, problems: _Problems, ledgers: Ledgers) -> Condition:
    empty = replace(empty, auto_created=context.pipeline.auto_created)
    # Tables before topics: offsets only grow, so a batch that lands in between can't look like a position beyond the log.
    tables = problems.tried(lambda: table_status(context), None)
    with_position = empty
    if tables is not None:
        n = None if (position := _position(tables)) is None else position.n
        unfinished, since = tables.unfinished, tables.unfinished_since
        with_position = replace(empty, n=n, unfinished=unfinished, unfinished_since=since)
    counted = problems.tried(
        lambda: with_batches(with_position, ledgers.load(context.project, context.pipeline)), with_position
    )
    if tables is None:  # without the position the lag is unknown
        return counted
    if tables.refusal is not None:
        problems.refusals.append(tables.refusal)
    return problems.tried(lambda: _with_topics(counted, context, problems, tables), counted)


def _with_topics(condition: Condition, context: RunContext, problems: _Problems, tables: TableStatus) -> Condition:
    position = _position(tables)
    facts = observe(context.cluster, topics_of(context.cluster, context.pipeline, position), absent_ok=True)
    problems.tried(lambda: _check(context, position, facts), None)
    lag = lag_in(context.pipeline, tables.position, facts, condition.read_at)
    through = datetime.fromisoformat(lag.complete_through) if lag.complete_through is not None else None
    with_lag = replace(condition, lag=lag.total, held_back=lag.held_back, complete_through=through)
    return problems.tried(lambda: _with_unread(with_lag, context.cluster, lag), with_lag)


@dataclass
class _Problems:
    """Errors of reads: refusals, with which the next run would fail, too, and errors that may pass."""

    refusals: list[FrazilError] = field(default_factory=list)
    passing: list[FrazilError] = field(default_factory=list)

    def tried(self, read: Callable[[], T], otherwise: T) -> T:
        """The result of a read; if it fails, note the error and return `otherwise`."""
        try:
            return read()
        except Terminal as refusal:  # a run would read the same, and be refused
            self.refusals.append(refusal)
        except FrazilError as problem:
            self.passing.append(problem)
        return otherwise

    @property
    def refusal(self) -> str | None:
        """Text of the first refusal; None without one."""
        return str(self.refusals[0]) if self.refusals else None

    @property
    def unreadable(self) -> str | None:
        """Text of the first error that may pass; None without one."""
        return str(self.passing[0]) if self.passing else None


def _position(tables: TableStatus) -> Position | None:
    return Position.from_json(tables.position.value) if tables.position is not None else None


def _check(context: RunContext, position: Position | None, facts: ClusterFacts) -> None:
    """Check position and topics as a plan does.

    Raises:
        Terminal: A plan would refuse them.
    """
    pipeline = context.pipeline
    for topic in pipeline.source.topics:
        if topic not in facts.topics:
            raise unknown_topic(context.cluster, topic)
    if position is not None:
        check_position(position, facts, pipeline.name, pipeline.source.on_data_loss, pipeline.source.topics)
        vanished_partitions = vanished_topics(pipeline, position, facts)
        check_vanished(position, vanished_partitions, pipeline.source.on_data_loss)


_MOST_UNPACKED = 64 * 2**20
"""Bytes that a reading decompresses to see which new compressed files are complete. Beyond this limit an incomplete file counts as
waiting. Readings come every few seconds while the page is open, and a capture that never ran may have terabytes of files."""


def read_capture(project: Project, capture: Capture, *, clock: Clock = utc_now, runs: Runs = _NO_RUNS) -> Condition:
    """Read the condition of a capture. Figures that can't be read are left out, and the condition says why.

    Files wait if a run on this machine would capture lines of them. Rows are not counted, since that would be a Spark job per
    reading.
    """
    unit: Literal["files", "rows"] = "files" if isinstance(capture, FileCapture) else "rows"
    condition = Condition(capture.unique_name, capture.owner, clock(), unit=unit)
    try:
        if (unknown_name := next(unknown_in_capture(capture, project.settings), None)) is not None:
            return replace(condition, refusal=unknown_name, runs=runs)
        ground = capture_context(project, capture)
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
    """The condition of a capture with Airflow's runs.

    The last successful run captured everything before it, so lines or rows may wait since its end, at most. Without a
    successful run, a file waits at least since its last change.
    """
    seconds = condition.lag_seconds
    may_wait = bool(condition.lag) or condition.unit == "rows"
    if runs.last_state == "success" and runs.last_ended_at is not None and may_wait:
        seen_at = max(runs.last_ended_at, condition.last_commit or runs.last_ended_at)
        seconds = max(seconds or 0.0, (condition.read_at - seen_at).total_seconds())
    return replace(condition, runs=runs, lag_seconds=seconds)


def _with_files(
    condition: Condition, capture: FileCapture, position: CapturePosition | None, folders: Iterable[str]
) -> Condition:
    """The condition with the files that wait; unchanged on a machine without the files.

    Raises:
        Terminal: A run would be refused, since bytes may be missing.
    """
    if position is None and capture.start == "end":
        return replace(condition, lag=0, lag_bytes=0, lag_seconds=0.0)
    marks = () if position is None else marks_of(position.state)
    try:
        files = find_files(capture.paths, marks, folders)
        if _is_other_machine(marks, files):
            return condition
        decided, _ = plan_reads(capture, files_state(marks), folders, most_unpacked=_MOST_UNPACKED)
        waiting = [(file, mark) for file, mark in decided.reads if has_line(file, mark)]
    except FrazilError as problem:
        if problem.code is not CAPTURE_UNREADABLE:
            raise
        return condition
    changed = min((file.changed for file, _ in waiting), default=None)
    seconds = (
        0.0 if changed is None else (condition.read_at - datetime.fromtimestamp(changed / 1e9, UTC)).total_seconds()
    )
    size = sum(file.size - (0 if file.is_compressed else mark.offset) for file, mark in waiting)
    return replace(condition, lag=len(waiting), lag_bytes=size, lag_seconds=max(0.0, seconds))


def _is_other_machine(marks: Iterable[FileMark], files: Iterable[FoundFile]) -> bool:
    """Whether none of the captured files is here: another machine may have other files at the same paths."""
    ids = {mark.id for mark in marks if not mark.missing_since}
    return bool(ids) and ids.isdisjoint(file.id for file in files)
