"""Commits the followers' parts of a decided batch: destinations in parallel, then the dead-letter table. Also sends the dead
letters to their topic, at least once.

Every step first checks whether it is done already, so it is safe to repeat, and to run twice at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from sys import maxsize
from typing import Final

from frazil.batch.manifest import Manifest, TablePart
from frazil.error_codes import RECORD_TOO_LARGE, RUN_OVERTAKEN, TABLE_LOST, TABLE_SHARED
from frazil.errors import FrazilError, OutcomeUnknown, Retryable, Terminal
from frazil.failpoints import Failpoint, hit
from frazil.iceberg.catalog.catalog import Lake
from frazil.iceberg.catalog.table import TableMetadata, branch_name
from frazil.iceberg.commit.commit import Change, Refused, commit
from frazil.iceberg.commit.pipeline_catalog import branch_note
from frazil.iceberg.commit.summary_state import (
    BATCH_KEY,
    DONE_KEY,
    KIND_KEY,
    MANIFEST_KEY,
    TOPICS_KEY,
    SummaryValue,
    landed_snapshot,
    mark_of,
    read_summary,
    summary_value_or_refuse,
)
from frazil.iceberg.ledger.dead_letters import staged_letters
from frazil.iceberg.patches.metadata import FORMAT_VERSION
from frazil.kafka.admin.topics import ready_topic, record_limit
from frazil.kafka.client.cluster import OutgoingRecord
from frazil.kafka.client.errors import RecordTooLarge
from frazil.kafka.write.produce import OMITTED_HEADER, letter_records, origin, produce, without_record
from frazil.pipeline.models.pipeline_file import DeadLetterTopic
from frazil.run.commit.manifests import Batch, ranges_json
from frazil.run.state.context import Apply, EngineNeeded, RunContext, identifier_property
from frazil.run.state.pipeline_state import BYTES_KEY, READ_KEY, REPAIRS_KEY, repair_command
from frazil.run.state.tables import find_rival, in_parallel, landed_topics


def commit_all_followers(context: RunContext, manifest: Manifest, path: str) -> dict[str, int]:
    """Commit the parts of all followers, and return the snapshots in which they became visible.

    A follower that fails does not stop the others: they have their parts when this raises.

    Raises:
        Terminal: A follower can't take its part: it was dropped, rolled back or changed.
        Retryable: One can't be reached now.
        EngineNeeded: One gets its part from an engine, and there is none.
    """
    destinations = [part for part in manifest.followers if part.role == "destination"]
    letters = [part for part in manifest.followers if part.role != "destination"]
    snapshots: dict[str, int] = {}
    failures: list[FrazilError] = []
    for group in (destinations, letters):
        for part, outcome in zip(
            group, in_parallel(lambda part: _commit_or_failure(context, manifest, part, path), group), strict=True
        ):
            if isinstance(outcome, FrazilError):
                failures.append(outcome)
            else:
                snapshots[part.table] = outcome
    if failures:
        raise _combined_failure(failures)
    return snapshots


def _commit_or_failure(context: RunContext, manifest: Manifest, part: TablePart, path: str) -> int | FrazilError:
    try:
        return commit_follower(context, manifest, part, path)
    except FrazilError as failure:
        return failure


def _combined_failure(failures: Sequence[FrazilError]) -> FrazilError:
    """One error with all messages, of the gravest type: `Terminal` before `Retryable`."""
    first, *rest = sorted(
        failures, key=lambda failure: (not isinstance(failure, Terminal), isinstance(failure, EngineNeeded))
    )
    if not rest:
        return first
    steps = dict.fromkeys(failure.next_step for failure in (first, *rest) if failure.next_step)
    combined = type(first)(
        "; and ".join(failure.message for failure in (first, *rest)),
        code=first.code,
        next_step="; and ".join(steps) or None,
    )
    combined.__cause__ = first
    return combined


def commit_follower(context: RunContext, manifest: Manifest, part: TablePart, path: str) -> int:
    """Commit the part of one follower in a decided batch, and return the snapshot in which it became visible.

    Raises:
        Terminal: The follower was dropped, rolled back or changed.
        EngineNeeded: Only an engine can commit the part, and there is none.
    """
    lake, key, topics_key = context.lake, BATCH_KEY.format(manifest.pipeline), TOPICS_KEY.format(manifest.pipeline)
    topics = {topics_key: _part_topics(manifest, part)} if part.role == "destination" else {}
    check_last_batch = last_batch_check(key, part.table, manifest)

    def check(metadata: TableMetadata) -> None:
        check_last_batch(metadata)
        for brought in topics.values():
            _refuse_rival(manifest, part.table, brought, metadata)

    change = Change(
        step="follow",
        table=part.table,
        files=part.files,
        removal=part.removal,
        summary=snapshot_summary(manifest, path) | {key: manifest.mark.to_json()},
        mirrored=(key,),
        topics=topics,
        properties=branch_note(lake, manifest.pipeline, part.table) | identifier_property(manifest.pipeline, part),
        fit=part.fit,
        landed=lambda metadata: landed_snapshot(metadata, key, manifest.mark, part.table),
        check=check,
        retention=context.retention(part.table),
    )
    try:
        return _land_part(lake, change, manifest, part, context.apply)
    except Terminal as refusal:
        _refuse_missing(lake, manifest, part, refusal)
        raise


def _part_topics(manifest: Manifest, part: TablePart) -> frozenset[str]:
    """Topics from which a batch may land rows in a destination: those that it read. For batch 0 and for auto-created tables all
    topics of the pipeline, so that another pipeline knows every topic that may land there.
    """
    if manifest.kind == "start" or part.table in manifest.created:
        return frozenset(manifest.position.topics)
    return frozenset(r.topic for r in (*manifest.ranges, *manifest.table_ranges.get(part.table, ())))


def claim_topics(lake: Lake, manifest: Manifest, part: TablePart, metadata: TableMetadata) -> None:
    """Claim topics that are new in a destination, by a commit without rows, before the batch that brings them is decided.

    Two pipelines may begin to land one topic in a table at the same moment: this commit refuses the second. After two decisions
    it would be too late: rows don't show which pipeline landed them. PyIceberg can't write tables of format version 3, so their
    claim comes with the rows.

    Raises:
        Refused: Another pipeline was first, or the table no longer fits the batch's files.
    """
    key, topics = TOPICS_KEY.format(manifest.pipeline), _part_topics(manifest, part)

    def check(current: TableMetadata) -> None:
        rival = find_rival(manifest.pipeline, topics, current, part.table)
        if rival is not None:
            raise Refused(rival.description)

    def is_claimed(current: TableMetadata) -> bool:
        return topics <= landed_topics(current, part.table).get(manifest.pipeline, frozenset())

    def claimed_in(current: TableMetadata) -> int | None:
        return current.current_snapshot_id if is_claimed(current) else None

    if metadata.format_version < FORMAT_VERSION and not is_claimed(metadata):
        commit(lake, Change(part.table, (), {}, (), part.fit, claimed_in, check, "claim", topics={key: topics}))


def _refuse_rival(manifest: Manifest, table: str, topics: frozenset[str], metadata: TableMetadata) -> None:
    """Refuse batch 0 of the second of two pipelines that begin at the same moment: it has landed nothing yet."""
    rival = find_rival(manifest.pipeline, topics, metadata, table) if manifest.kind == "start" else None
    if rival is not None:
        raise TABLE_SHARED.terminal(
            f"{rival.description} while pipeline {manifest.pipeline} began, which has landed nothing; every record would land twice",
            next_step=f"give pipeline {manifest.pipeline} another name, and a table of its own in place of {table}",
        )


def _refuse_missing(lake: Lake, manifest: Manifest, part: TablePart, refusal: Terminal) -> None:
    """Refuse a missing table, and name its repair. A repair needs a table that the pipeline file names."""
    if lake.find_table(part.table) is not None:
        return
    named = f"name {part.table} under destinations (again, if the file names it no more), then: "
    raise TABLE_LOST.terminal(
        f"batch {manifest.position.n} of pipeline {manifest.pipeline} is decided, but table {part.table} is gone; the pipeline"
        " waits",
        next_step=(named if part.role == "destination" else "") + repair_command(manifest.pipeline, part.table),
    ) from refusal


def _land_part(lake: Lake, change: Change, manifest: Manifest, part: TablePart, apply: Apply | None) -> int:
    if part.operation is None:
        return land_change(lake, change, manifest)
    operation, branch = part.operation, branch_name(manifest.pipeline, manifest.position.n)
    if apply is None:
        snapshot_id = change.landed(lake.load_table(part.table).metadata)
        if snapshot_id is None:
            raise EngineNeeded.for_batch(manifest.pipeline, manifest.position.n, part.table)
        return snapshot_id
    return land_change(
        lake, change, manifest, lambda target_lake, target: apply(target_lake, target, operation, branch)
    )


def last_batch_check(key: str, table: str, manifest: Manifest) -> Callable[[TableMetadata], None]:
    """A check, for a commit, that the last batch of a table is the one that the manifest expects."""

    def check(metadata: TableMetadata) -> None:
        find = read_summary if manifest.accepts_rollback(table) else summary_value_or_refuse
        last = mark_of(find(metadata, key, table))
        if not manifest.follows(table, last):
            raise Refused(f"table {table} ends at {last}, expected {manifest.expected_mark(table)}")

    return check


def land_change(lake: Lake, change: Change, manifest: Manifest, land: Callable[[Lake, Change], int] = commit) -> int:
    """Land a change of a decided batch, and return its snapshot.

    Raises:
        Terminal: The table can't take it.
        Retryable: Another run finished the batch meanwhile.
    """
    try:
        return land(lake, change)
    except Refused as refusal:
        _refuse_overtaken(lake, manifest, refusal)
        raise TABLE_LOST.terminal(
            f"batch {manifest.position.n} of pipeline {manifest.pipeline} is decided, but {refusal.message};"
            " the pipeline waits",
            next_step=f"undo the change of {change.table} and run again, or: "
            + repair_command(manifest.pipeline, change.table),
        ) from refusal


def _refuse_overtaken(lake: Lake, manifest: Manifest, refusal: Refused) -> None:
    """Raise Retryable if the batch was finished or undone while this process slept: nobody has to act then."""
    ledger, closing = (lake.load_table(name).metadata for name in (manifest.ledger, manifest.closing.table))
    last = read_summary(closing, BATCH_KEY.format(manifest.pipeline), manifest.closing.table)
    if is_recorded(ledger, manifest) or not isinstance(last, SummaryValue) or mark_of(last) != manifest.mark:
        raise RUN_OVERTAKEN.retryable(
            f"batch {manifest.position.n} of pipeline {manifest.pipeline} was finished by another run meanwhile, or was undone",
            next_step="run again; it plans from where the pipeline stands now",
        ) from refusal


def is_recorded(ledger: TableMetadata, manifest: Manifest) -> bool:
    """Whether the ledger has this batch, or a later one."""
    done = read_summary(ledger, DONE_KEY.format(manifest.pipeline), manifest.ledger)
    mark = mark_of(done) if isinstance(done, SummaryValue) else None
    return mark is not None and mark.n >= manifest.position.n


def snapshot_summary(manifest: Manifest, path: str) -> dict[str, str]:
    """The summary that every snapshot of a batch carries."""
    counts = manifest.counts
    summary = {
        "frazil.pipeline": manifest.pipeline,
        "frazil.batch": manifest.batch,
        "frazil.run": manifest.run,
        KIND_KEY: manifest.kind,
        "frazil.version": manifest.version,
        "frazil.config": manifest.config,
        READ_KEY: str(counts.read),
        "frazil.rows.written": str(counts.written),
        "frazil.rows.dead": str(counts.dead),
        "frazil.rows.filtered": str(counts.filtered),
        BYTES_KEY: str(manifest.bytes_read),
        MANIFEST_KEY: path,
    }
    optional = {
        "frazil.complete-through": manifest.complete_through,
        "frazil.started-by": manifest.started_by or None,
        "frazil.reason": manifest.reason,
        REPAIRS_KEY: manifest.repairs,
        "frazil.skipped": ranges_json(manifest.skipped) if manifest.skipped else None,
    }
    return summary | {key: value for key, value in optional.items() if value is not None}


# No state records which letters were sent. An unfinished batch sends all its letters again, and consumers recognise a repeat by its
# headers.

_FRAME: Final = 512
"""Most bytes that Kafka adds to the batch of a single record."""

_HEADER: Final = 10
"""Most bytes that Kafka adds to the name and the value of a header."""

_KINDS_WITH_NEW_LETTERS = ("ingest", "replay")
"""Kinds of batches whose letters are new. Letters that a replay of dead letters tried in vain were sent before."""


def ready_letter_topic(context: RunContext, batch: Batch) -> str | None:
    """Create the dead-letter topic if it is missing; return its name, or None if the batch has nothing to send.

    Raises:
        Terminal: The topic can't be created, or may not be written.
    """
    topic = context.pipeline.dead_letters.topic
    if (
        topic is None
        or batch.kind not in _KINDS_WITH_NEW_LETTERS
        or not batch.staged.files.get(context.pipeline.dead_letters_table)
    ):
        return None
    ready_topic(context.cluster, topic.name, topic.partitions)
    return topic.name


def send_letters(context: RunContext, manifest: Manifest) -> None:
    """Send all letters of a decided batch to the topic that the pipeline file names.

    The manifest's topic is not used: everyone who may commit to the closing table can name any manifest there.

    Raises:
        Terminal: The topic can't be created, or refuses the letters.
    """
    part = next((part for part in manifest.followers if part.role == "dead_letters"), None)
    if manifest.letter_topic is None or part is None:
        return
    topic = context.pipeline.dead_letters.topic
    if topic is None:
        context.report(
            f"batch {manifest.position.n}: its {part.rows:,} dead letters are NOT sent to topic {manifest.letter_topic}: the"
            " pipeline file names no dead_letters.topic any more"
        )
        return
    try:
        count = _send(context, manifest, topic, part)
    except FrazilError as failure:
        raise _blocked_error(manifest, topic, failure) from failure
    context.report(f"batch {manifest.position.n}: sent {count:,} dead letters to topic {topic.name}")
    hit(Failpoint.LETTERS_SENT)


def _send(context: RunContext, manifest: Manifest, topic: DeadLetterTopic, part: TablePart) -> int:
    """Send all letters. One that is too large for the topic goes without its record, so that no record stops a pipeline."""
    ready_topic(context.cluster, topic.name, topic.partitions)
    limit = record_limit(context.cluster, topic.name)
    max_bytes = maxsize if limit is None else limit - _FRAME
    while True:
        try:
            return produce(context.cluster, topic.name, _records(context, manifest, part, max_bytes), limit=limit).count
        except RecordTooLarge as refused:
            if refused.record.headers[-1][0] == OMITTED_HEADER:
                raise RECORD_TOO_LARGE.terminal(
                    f"the headers of the dead letter of {origin(refused.record)} have {refused.record.size:,} bytes, more than"
                    f" topic {topic.name} accepts",
                    next_step=f"raise max.message.bytes of topic {topic.name}",
                ) from refused
            max_bytes = refused.record.size // 2  # the topic does not let us read its limit: try half the size


def _records(context: RunContext, manifest: Manifest, part: TablePart, max_bytes: int) -> Iterator[OutgoingRecord]:
    for letters in staged_letters(context.lake.load_table(part.table), part.table, part.files):
        for record in letter_records(letters, manifest.pipeline, manifest.mark):
            framed = record.size + _HEADER * len(record.headers)
            yield record if framed <= max_bytes else without_record(record)
            hit(Failpoint.LETTERS_SENDING)


def _blocked_error(manifest: Manifest, topic: DeadLetterTopic, failure: FrazilError) -> FrazilError:
    kind = Retryable if isinstance(failure, (Retryable, OutcomeUnknown)) else Terminal
    steps = f"{failure.next_step}; or go" if failure.next_step else "go"
    return kind(
        f"batch {manifest.position.n} of pipeline {manifest.pipeline} is decided, but its dead letters can't be sent to topic"
        f" {topic.name}; the pipeline waits: {failure.message}",
        code=failure.code,
        next_step=f"{steps} on without sending them: take dead_letters.topic out of the pipeline file, run it once, put the key"
        " back; the table has the letters all the same",
    )
