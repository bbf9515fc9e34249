"""The audit between staging and deciding: does every record that was read have an outcome?"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from frazil.batch.facts import ClusterFacts, Counts, Range, Staged, TableCounts, TopicPartition
from frazil.batch.plan import RunPlan
from frazil.error_codes import AUDIT_FAILED, CLUSTER_CHANGED, TOO_MANY_DEAD_LETTERS, TOPIC_RECREATED
from frazil.errors import Terminal

TOO_MANY_DEAD = "too many dead letters, nothing was published"
"""Begins the error of a batch with more dead letters than tolerated; alerts know it by these words."""


TABLE_NOT_MADE = "TABLE_NOT_MADE"
"""Code of dead letters whose table is not there, and was not made."""

_WAITING = "; records of tables that were not made wait for: frazil dead-letters replay"


@dataclass(frozen=True, slots=True)
class Tolerance:
    """How many dead letters a batch may have; see the pipeline file.

    Attributes:
        max_rate: Largest share of a batch's records.
        min_records: Smaller batches are not judged by their rate.
        max_count: Largest number, whatever the size of the batch; None for any.
        fails: Whether a batch with more is refused; otherwise it is published, and people are notified.
    """

    max_rate: float
    min_records: int
    max_count: int | None
    fails: bool = True

    def is_lost(self, dead: int) -> bool:
        """Whether this many dead letters cause the batch's refusal, even if the rest of its records are good."""
        return self.fails and self.max_count is not None and dead > self.max_count


def audit(
    ranges: tuple[Range, ...], staged: Staged, destinations: Sequence[str], dead_letters: str, tolerance: Tolerance
) -> str | None:
    """Check a batch before it is decided.

    Returns a warning to report although the batch is published, or None.

    Raises:
        Terminal: The numbers don't add up, or there are more dead letters than the pipeline tolerates.
    """
    if staged.stopped:
        raise _stopped(staged, tolerance)
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
    too_many = exceeded(staged.total, staged.dead_codes, tolerance)
    if too_many and tolerance.fails and not _is_due_to_table_limit(staged, tolerance):
        # Nothing is published: no letter waits.
        raise _too_many(f"{too_many.removesuffix(_WAITING)}{_first_of(staged)}")
    return too_many


def _is_due_to_table_limit(staged: Staged, tolerance: Tolerance) -> bool:
    """Whether there are too many dead letters only because a run creates a limited number of tables: letters of the remaining
    tables can be replayed.
    """
    unmade, total = staged.dead_codes.get(TABLE_NOT_MADE, 0), staged.total
    is_within_count = tolerance.max_count is None or total.dead <= tolerance.max_count
    rate_excess = exceeded(replace(total, dead=total.dead - unmade), staged.dead_codes, tolerance)
    return bool(unmade) and is_within_count and rate_excess is None


def _too_many(figures: str) -> Terminal:
    return TOO_MANY_DEAD_LETTERS.terminal(
        f"{TOO_MANY_DEAD}: {figures}",
        next_step="mend the producer or the pipeline's columns, or raise dead_letters.tolerance in the pipeline file",
    )


def _stopped(staged: Staged, tolerance: Tolerance) -> Terminal:
    """Why a batch that was not read to its end is refused. It gives no total, since that is not known."""
    allowed = f"at most {tolerance.max_count} are" if tolerance.max_count else "none is"
    return _too_many(f"{allowed} tolerated, so reading stopped{_first_of(staged)}")


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
    """Records that were routed to a table and have no outcome there, or two."""
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


def exceeded(total: Counts, dead_codes: Mapping[str, int], tolerance: Tolerance) -> str | None:
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


def _first_of(staged: Staged) -> str:
    """Coordinates of the first dead letter, as a starting point for a search."""
    samples = [
        (sample.topic, sample.partition, sample.offset, code, sample.message) for code, sample in staged.samples.items()
    ]
    if not samples:
        return ""
    topic, partition, offset, code, message = min(samples)
    return f"; the first is topic {topic}, partition {partition}, offset {offset}: {code}: {message}"


def check_identity(plan: RunPlan, facts: ClusterFacts, read: Collection[str], pipeline: str) -> None:
    """Check that the staged records came from the planned cluster and topics.

    Raises:
        Terminal: The cluster is another one, or a topic was recreated between plan and stage.
    """
    if facts.cluster_id != plan.cluster:
        raise CLUSTER_CHANGED.terminal(
            f"the Kafka cluster changed from {plan.cluster} to {facts.cluster_id} since the plan; nothing was published"
        )
    for name in sorted(read):
        planned, topic = plan.topics[name], facts.topics.get(name)
        if topic is None:
            raise TOPIC_RECREATED.retryable(
                f"topic {name} vanished while it was read; nothing was published",
                next_step="run again: the next plan looks at what is left of it",
            )
        if topic.id != planned.id:
            raise TOPIC_RECREATED.terminal(
                f"topic {name} was recreated since the plan (topic id {planned.id}, found {topic.id});"
                " nothing was published",
                next_step="its offsets start anew; to read it from its beginning, beside the rows of the old one:"
                f' frazil reset {pipeline} --to earliest --topic {name} --reason "topic was recreated"',
            )
