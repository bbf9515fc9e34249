"""The checks of a batch. Before it is read: does the position match the broker's topics and offsets? Between staging and
deciding: has every record an outcome?
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from frazil.batch.facts import (
    UNKNOWN_EPOCH,
    ClusterFacts,
    Counts,
    Range,
    Staged,
    TableCounts,
    TopicFacts,
    TopicPartition,
)
from frazil.batch.plan import RunPlan
from frazil.batch.position import Position, TopicPosition
from frazil.error_codes import (
    AUDIT_FAILED,
    CLUSTER_CHANGED,
    LOG_TRUNCATED,
    RECORDS_EXPIRED,
    TOO_MANY_DEAD_LETTERS,
    TOPIC_RECREATED,
)
from frazil.errors import Terminal

TOO_MANY_DEAD = "too many dead letters, nothing was published"
"""First words of the error of a batch with too many dead letters; alerts recognise it by them."""

TABLE_NOT_MADE = "TABLE_NOT_MADE"
"""Reason code of dead letters whose table does not exist and was not created."""

_WAITING = "; records of tables that were not made wait for: frazil dead-letters replay"


@dataclass(frozen=True, slots=True)
class Tolerance:
    """How many dead letters a batch may have; see the pipeline file.

    Attributes:
        max_rate: Largest share of a batch's records that may be dead.
        min_records: Least records of a batch to which `max_rate` applies.
        max_count: Largest number of dead letters, whatever the size of the batch; None for any.
        fails: Whether a batch with more is refused; otherwise it is published, and people are notified.
    """

    max_rate: float
    min_records: int
    max_count: int | None
    fails: bool = True

    def is_lost(self, dead: int) -> bool:
        """Whether so many dead letters refuse the batch, whatever its other records are."""
        return self.fails and self.max_count is not None and dead > self.max_count


def audit(
    ranges: tuple[Range, ...], staged: Staged, destinations: Sequence[str], dead_letters: str, tolerance: Tolerance
) -> str | None:
    """Check a batch before it is decided, and return a warning about its dead letters; None if there are few.

    Raises:
        Terminal: The counts don't add up, or there are more dead letters than the pipeline tolerates.
    """
    if staged.stopped:  # the total of dead letters is unknown
        allowed = f"at most {tolerance.max_count} are" if tolerance.max_count else "none is"
        raise _too_many(f"{allowed} tolerated, so reading stopped{_first_dead_letter(staged)}")
    problems = [
        *_partition_problems(ranges, staged),
        *_row_problems(staged, destinations, dead_letters),
        *_routing_problems(staged),
    ]
    if problems:
        raise AUDIT_FAILED.terminal(
            "the audit failed, nothing was published:\n" + "\n".join(f"  {problem}" for problem in problems),
            next_step="this is a fault of Frazil or of its reader, not of the data: please report these numbers",
        )
    too_many = tolerance_excess(staged.total, staged.dead_codes, tolerance)
    if too_many and tolerance.fails and not _is_due_to_table_limit(staged, tolerance):
        # The batch is not published, so no letters wait for a replay.
        raise _too_many(f"{too_many.removesuffix(_WAITING)}{_first_dead_letter(staged)}")
    return too_many


def _is_due_to_table_limit(staged: Staged, tolerance: Tolerance) -> bool:
    """Whether the rate is only exceeded because a run creates a limited number of tables. Letters for the others can be
    replayed.
    """
    without_table, total = staged.dead_codes.get(TABLE_NOT_MADE, 0), staged.total
    is_within_count = tolerance.max_count is None or total.dead <= tolerance.max_count
    rate_excess = tolerance_excess(replace(total, dead=total.dead - without_table), staged.dead_codes, tolerance)
    return bool(without_table) and is_within_count and rate_excess is None


def _too_many(figures: str) -> Terminal:
    return TOO_MANY_DEAD_LETTERS.terminal(
        f"{TOO_MANY_DEAD}: {figures}",
        next_step="fix the producer or the pipeline's columns, or raise dead_letters.tolerance in the pipeline file;"
        " docs/runbooks/tolerance.md has the steps",
    )


def _partition_problems(ranges: tuple[Range, ...], staged: Staged) -> list[str]:
    spans: dict[TopicPartition, int] = {}
    for r in ranges:
        spans[r.topic, r.partition] = spans.get((r.topic, r.partition), 0) + r.span
    problems = []
    for key, counts in staged.counts.items():
        where = f"topic {key[0]}, partition {key[1]}"
        outcomes = counts.written + counts.dead + counts.filtered
        if counts.read != outcomes:
            problems.append(f"{where}: {counts.read} records read, {outcomes} outcomes")
        if counts.read > spans.get(key, 0):
            problems.append(f"{where}: {counts.read} records read from {spans.get(key, 0)} offsets")
    return problems


def _routing_problems(staged: Staged) -> list[str]:
    """Tables whose outcomes are more or fewer than the records that were routed to them."""
    return [
        f"table {table}: {counts.routed} records routed to it, {counts.written} have rows and {counts.dead} are dead letters"
        for table, counts in sorted(staged.tables.items())
        if counts.routed != counts.written + counts.dead
    ]


def _row_problems(staged: Staged, destinations: Sequence[str], dead_letters: str) -> list[str]:
    total = staged.total
    if staged.tables:
        expected = {table: staged.tables.get(table, TableCounts()).rows for table in destinations}
    else:
        expected = dict.fromkeys(destinations, total.written + staged.extra_rows)
    expected[dead_letters] = staged.letters
    return [
        f"table {table}: {rows} records, {staged.rows(table)} rows in its files"
        for table, rows in expected.items()
        if staged.rows(table) != rows
    ] + [f"table {table} was not asked for and has files" for table in staged.files.keys() - expected.keys()]


def tolerance_excess(total: Counts, dead_codes: Mapping[str, int], tolerance: Tolerance) -> str | None:
    """How the number of dead letters exceeds the tolerance, in words; None if it does not."""
    rate = total.dead / total.read if total.read else 0.0
    by_rate = total.read >= tolerance.min_records and rate > tolerance.max_rate
    by_count = tolerance.max_count is not None and total.dead > tolerance.max_count
    if not by_rate and not by_count:
        return None
    allowed = f"at most {tolerance.max_rate:.1%}" if by_rate else f"at most {tolerance.max_count}"
    codes = ", ".join(f"{code} {count}" for code, count in sorted(dead_codes.items(), key=lambda item: -item[1]))
    waiting = _WAITING if TABLE_NOT_MADE in dead_codes else ""
    return f"{total.dead} of {total.read} records ({rate:.1%}), {allowed} are tolerated ({codes}){waiting}"


def _first_dead_letter(staged: Staged) -> str:
    """Coordinates of the first dead letter, as a starting point for a search."""
    if not staged.samples:
        return ""
    code, first = min(
        staged.samples.items(), key=lambda item: (item[1].topic, item[1].partition, item[1].offset, item[0])
    )
    return f"; the first is topic {first.topic}, partition {first.partition}, offset {first.offset}: {code}: {first.message}"


def check_identity(plan: RunPlan, facts: ClusterFacts, read: Collection[str], pipeline: str) -> None:
    """Check that the staged records came from the planned cluster and topics.

    Raises:
        Terminal: The cluster is another one, or a topic was recreated since the plan.
        Retryable: A topic was deleted since the plan.
    """
    if facts.cluster_id != plan.cluster:
        raise CLUSTER_CHANGED.terminal(
            f"the Kafka cluster changed from {plan.cluster} to {facts.cluster_id} since the plan; nothing was published",
            next_step="check bootstrap_servers of the cluster in the settings, then run again",
        )
    for name in sorted(read):
        planned, topic = plan.topics[name], facts.topics.get(name)
        if topic is None:
            raise TOPIC_RECREATED.retryable(
                f"topic {name} was deleted while it was read; nothing was published",
                next_step="run again: the next plan checks whether the topic still exists",
            )
        if topic.id != planned.id:
            raise TOPIC_RECREATED.terminal(
                f"topic {name} was recreated since the plan (topic id {planned.id}, found {topic.id});"
                " nothing was published",
                next_step="to read the new topic from offset 0 and keep the rows of the old one:"
                f' frazil reset {pipeline} --to earliest --topic {name} --reason "topic was recreated"',
            )


DataLoss = Literal["fail", "skip_recorded"]
"""What to do about records that were deleted before they were read: refuse the run, or go on and record the loss."""

_LISTED = 10
"""Truncated partitions that a message describes; its command has all."""

BATCHES_REFUSED = "batches were refused"
"""Words in the error of a run that was overtaken by other commits again and again; alerts recognise it by them."""


def check_position(
    position: Position, facts: ClusterFacts, pipeline: str, on_data_loss: DataLoss, listed: Collection[str] = ()
) -> None:
    """Refuse a position that does not match the broker's topics and offsets.

    A partition that the position does not know is younger than the pipeline, so all of its records must land, from offset 0 on.
    But a topic of `listed`, which the pipeline file names, may have lost records before it was added: these are skipped, on record.

    Raises:
        Terminal: Another cluster, a recreated topic, records lost to retention (unless they may be skipped), or
            offsets beyond the log's end.
    """
    if position.cluster != facts.cluster_id:
        raise CLUSTER_CHANGED.terminal(
            f"the position belongs to Kafka cluster {position.cluster}, the settings name cluster {facts.cluster_id}",
            next_step="point the pipeline back to its cluster, or continue with the new one: "
            + _reset_command(pipeline, "FILE.json", "moved to another cluster"),
        )
    for name, topic in facts.topics.items():
        if name in position.topics or name not in listed:
            topic_position = position.topics.get(name, TopicPosition(topic.id, (), ()))
            _check_topic(name, topic_position, topic, pipeline, on_data_loss)


def changed_leaders(
    position: Position, facts: ClusterFacts, *, with_idle: bool = False
) -> dict[TopicPartition, tuple[int, int]]:
    """Partitions with unread records that got another leader since they were last read: their next offset and leader epoch.

    Only the log of a new leader may lack records that were read from the old one. Idle partitions are included `with_idle`,
    before their records are read again; otherwise they are checked once they have new records.
    """
    changed = {}
    for name, topic in facts.topics.items():
        topic_position = position.topics.get(name)
        if topic_position is None or not _is_same_topic(position, topic_position, facts, topic):
            continue
        for number, (offset, partition) in enumerate(zip(topic_position.next, topic.partitions, strict=False)):
            epochs = topic_position.leader_epoch(number), partition.leader_epoch
            is_new = UNKNOWN_EPOCH not in epochs and len({*epochs}) > 1
            if is_new and offset > partition.log_start and (with_idle or offset != partition.stable_end):
                changed[name, number] = (offset, epochs[0])
    return changed


def partitions_beyond_log(position: Position, facts: ClusterFacts) -> list[TopicPartition]:
    """Partitions whose position is beyond the end of the log, of topics that were not recreated."""
    beyond = []
    for name, topic in facts.topics.items():
        topic_position = position.topics.get(name)
        if (
            topic_position is not None
            and topic.id is not None
            and _is_same_topic(position, topic_position, facts, topic)
        ):
            pairs = zip(topic_position.next, topic.partitions, strict=False)
            beyond += [(name, number) for number, (offset, log) in enumerate(pairs) if offset > log.high_watermark]
    return beyond


def _is_same_topic(position: Position, topic_position: TopicPosition, facts: ClusterFacts, topic: TopicFacts) -> bool:
    return (position.cluster, topic_position.id) == (facts.cluster_id, topic.id)


def check_truncations(
    position: Position, facts: ClusterFacts, ends: Mapping[TopicPartition, int | None], pipeline: str
) -> None:
    """Refuse logs that were truncated below the position, also if they have grown past it again: the new records were never
    read.

    `ends` has each truncated partition, and where the log of the leader epoch that was read ends; None if that is not known.

    Raises:
        Terminal: A log was truncated.
    """
    lines, offsets = [], dict[str, dict[str, int]]()
    for (name, number), end in sorted(ends.items()):
        topic_position, log = position.topics[name], facts.topics[name].partitions[number]
        offsets.setdefault(name, {})[str(number)] = max(end or 0, log.log_start)
        lines.append(
            f"topic {name}, partition {number}: the position is {topic_position.next[number]} in leader epoch"
            f" {topic_position.leader_epoch(number)}, which {f'ends at {end}' if end is not None else 'the log does not know'}"
            f" (the log has {log.log_start} to {log.high_watermark}, leader epoch {log.leader_epoch})"
        )
    if lines:
        more = [f"and {len(lines) - _LISTED} more partitions"] if lines[_LISTED:] else []
        listed = "\n".join(f"  {line}" for line in [*lines[:_LISTED], *more])
        raise LOG_TRUNCATED.terminal(
            f"the log lost records that were already read, and may hold other records at their offsets:\n{listed}",
            next_step="find out what happened to the brokers (an unclean leader election, a disk restored from a copy). Then read on"
            " from where the log ended; this removes the rows of lost records (--allow-duplicates keeps them): "
            + _reset_command(pipeline, "FILE.json", "topic lost records")
            + f" with {json.dumps(offsets)} in FILE.json",
        )


def check_vanished(position: Position, vanished: Iterable[str], on_data_loss: DataLoss) -> None:
    """Refuse topics that were deleted before they were read to their last known end.

    Raises:
        Terminal: Records are lost, and the pipeline does not allow to skip them.
    """
    for name in vanished:
        topic = position.topics[name]
        if topic.unread and on_data_loss == "fail":
            lost = ", ".join(f"{n}: {topic.next[n]} to {topic.end[n] - 1}" for n in topic.unread)
            raise TOPIC_RECREATED.terminal(
                f"topic {name} was deleted before it was read to its end; lost per partition: {lost}",
                next_step="to continue without these records, set source.on_data_loss: skip_recorded for one run; the ledger records"
                " the loss",
            )


def _check_topic(
    name: str, topic_position: TopicPosition, topic: TopicFacts, pipeline: str, on_data_loss: DataLoss
) -> None:
    restart = _reset_command(pipeline, "earliest", "topic was recreated", name)
    has_ids = topic_position.id is not None and topic.id is not None
    problem = None
    if has_ids and topic_position.id != topic.id:
        problem = f"was recreated: the position belongs to topic id {topic_position.id}, the broker shows {topic.id}"
    elif len(topic.partitions) < (count := len(topic_position.next)):
        problem = f"has {len(topic.partitions)} partitions, the position has {count}: it was recreated"
    if problem is not None:
        raise TOPIC_RECREATED.terminal(
            f"topic {name} {problem}",
            next_step=f"to read the new topic from offset 0 and keep the rows of the old one: {restart}",
        )
    for number, partition in enumerate(topic.partitions):
        offset = topic_position.next[number] if number < len(topic_position.next) else 0
        where = f"topic {name}, partition {number}"
        if offset < partition.log_start and on_data_loss == "fail":
            raise RECORDS_EXPIRED.terminal(
                f"{where}: records {offset} to {partition.log_start - 1} were deleted by retention before they were read"
                f" (position {offset}, log start {partition.log_start})",
                next_step="lengthen the topic's retention. To continue without these records, which the ledger then records as skipped, set"
                " source.on_data_loss: skip_recorded; or only this once: "
                + _move_command(pipeline, (name, number), partition.log_start, "records lost to retention"),
            )
        if offset > partition.high_watermark:
            move = _move_command(pipeline, (name, number), partition.stable_end, "topic lost records")
            raise LOG_TRUNCATED.terminal(
                f"{where}: the position is {offset}, the log ends at {partition.high_watermark}; the topic lost records or was recreated",
                next_step=f"find out what happened to the topic; then, to continue at its end: {move}"
                if has_ids
                else f"find out what happened to the topic; if it was recreated, to read it from its beginning: {restart}",
            )


def _move_command(pipeline: str, key: TopicPartition, offset: int, reason: str) -> str:
    """The command that moves only this partition, since the others lost nothing."""
    body = json.dumps({key[0]: {str(key[1]): offset}})
    return f"{_reset_command(pipeline, 'FILE.json', reason)} with {body} in FILE.json"


def _reset_command(pipeline: str, target: str, reason: str, topic: str | None = None) -> str:
    only = f" --topic {topic}" if topic else ""
    return f'frazil reset {pipeline} --to {target}{only} --reason "{reason}"'
