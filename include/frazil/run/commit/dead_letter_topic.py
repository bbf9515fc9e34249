"""The dead-letter topic: it gets the letters of a decided batch at least once.

Nothing is kept of what was sent. A batch that is not finished sends all its letters again, and consumers know a repeat by
its headers.
"""

from __future__ import annotations

from collections.abc import Iterator
from sys import maxsize
from typing import Final

from frazil.batch.manifest import Manifest, TablePart
from frazil.error_codes import RECORD_TOO_LARGE
from frazil.errors import FrazilError, OutcomeUnknown, Retryable, Terminal
from frazil.failpoints import Failpoint, hit
from frazil.iceberg.ledger.dead_letters import staged_letters
from frazil.kafka.admin.topics import ready_topic, record_limit
from frazil.kafka.client.errors import RecordTooLarge
from frazil.kafka.client.record import OutgoingRecord
from frazil.kafka.write.dead_letter_record import OMITTED_HEADER, letter_records, origin, without_record
from frazil.kafka.write.produce import produce
from frazil.pipeline.models.pipeline_file import DeadLetterTopic
from frazil.run.commit.manifests import Batch
from frazil.run.state.context import RunContext

_FRAME: Final = 512
"""Bytes that a batch of one record has beside it, at most."""

_HEADER: Final = 10
"""Bytes that a header has beside its name and its value, at most."""

_KINDS_WITH_NEW_LETTERS = ("ingest", "replay")
"""Kinds of batches whose letters are new. Those that are tried again and stay dead were sent before."""


def ready_letter_topic(context: RunContext, batch: Batch) -> str | None:
    """Create the dead-letter topic if it is missing; return its name, or None if the batch has nothing to send.

    Raises:
        Terminal: The topic can't be made, or must not be written.
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

    Not to the one of the manifest: whoever may commit to the closing table may name any manifest there.

    Raises:
        Terminal: The topic can't be made, or refuses.
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
    """Send all letters. One that is too large for the topic is sent without its record, so that no record stops a pipeline."""
    ready_topic(context.cluster, topic.name, topic.partitions)
    limit = record_limit(context.cluster, topic.name)
    max_bytes = maxsize if limit is None else limit - _FRAME
    while True:
        try:
            return produce(context.cluster, topic.name, _records(context, manifest, part, max_bytes), limit=limit).count
        except RecordTooLarge as refused:
            if refused.record.headers[-1][0] == OMITTED_HEADER:
                raise RECORD_TOO_LARGE.terminal(
                    f"the dead letter of {origin(refused.record)} has {refused.record.size:,} bytes of headers alone, and topic"
                    f" {topic.name} takes less",
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
