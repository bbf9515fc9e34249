"""The dead-letter topic: letters of a decided batch go there, each once, whoever rolls it forward and how often.

Before the decision the topic is made if it is missing, and the note that says what it got last is written anew: groups
forget notes that are old, and from then on a missing one would leave open whether letters were sent. After the decision
the letters of the manifest's files follow, in transactions that move the note.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final

from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_random

from frazil.batch.letter_topic import LetterTopic, SentNote, is_note_of, letters_sent, producer_name
from frazil.batch.manifest import Manifest, TablePart
from frazil.errors import FrazilError, Retryable, Terminal
from frazil.iceberg.commit import fit_of
from frazil.iceberg.holdings import DONE_KEY, Held, lookup, mark_of
from frazil.iceberg.letters import staged_letters
from frazil.kafka.failure import Fenced
from frazil.kafka.letter_record import BATCH_HEADER, letter_records, origin
from frazil.kafka.noted import NotedProducer, noted_producer
from frazil.kafka.record import OutgoingRecord
from frazil.kafka.topics import ready_topic, record_limit
from frazil.kafka.transaction import RecordTooLarge
from frazil.run.manifests import Batch
from frazil.run.scope import Scope
from frazil.run.tables import Tables

LETTERS_PER_TRANSACTION: Final = 20_000
BYTES_PER_TRANSACTION: Final = 32 * 2**20
"""Letters of one transaction: bounds memory, and the time for which a crash could hold readers back."""

_FRAME: Final = 100
"""Bytes around a record in a batch of its own: 61 of the batch's head, and some of lengths and times."""

_HEADER: Final = 10
"""Bytes around a header: two lengths of at most five each."""

_ONE_BY_ONE: Final = 500
"""Letters of a transaction that are sent each by itself: they must be through before the broker ends it."""

_ATTEMPTS: Final = 5
"""How often a producer is opened again because a rival opened one: each does what the other was about to do."""

_SENDING: Final = ("ingest", "replay")
"""Kinds of batches whose letters are new. Those that are tried again and stay dead were sent before."""


def ready_letter_topic(scope: Scope, tables: Tables, batch: Batch) -> LetterTopic | None:
    """See that the letters of a batch can be sent once it is decided; None if it has none to send.

    Raises:
        Terminal: The topic can't be made, refuses a letter for its size, or permissions are lacking.
        Retryable: No broker answers.
    """
    topic = scope.pipeline.dead_letters.topic
    if topic is None or batch.kind not in _SENDING or not batch.staged.files.get(scope.pipeline.dead_letters_table):
        return None
    name = producer_name(scope.pipeline.name, fit_of(tables.closing.metadata).uuid)
    found = LetterTopic(topic.name, ready_topic(scope.cluster, topic.name, topic.partitions, is_noted=True), name)
    limit = record_limit(scope.cluster, topic.name)
    try:
        _while_fenced()(lambda: _renew_note(scope, found, _large(scope, tables, batch, limit)))
    except RecordTooLarge as refused:
        raise _too_large(scope, found, refused.record) from refused
    return found


def _large(scope: Scope, tables: Tables, batch: Batch, limit: int | None) -> Iterator[OutgoingRecord]:
    """Letters that the topic may refuse, unless they become small enough by being compressed."""
    if limit is None:
        return
    name = scope.pipeline.dead_letters_table
    for letters in staged_letters(tables.dead_letters, name, batch.staged.files[name]):
        records = letter_records(letters, scope.pipeline.name, batch.position.n)
        yield from (of for of in records if of.size + _FRAME + _HEADER * len(of.headers) > limit)


def _renew_note(scope: Scope, topic: LetterTopic, large: Iterable[OutgoingRecord]) -> None:
    with noted_producer(scope.cluster, topic.name, topic.producer, alone=True) as producer:
        for records in _transactions(large, _ONE_BY_ONE):
            producer.attempt(records)
        note = _note(producer)
        kept = note if note is not None and is_note_of(note, topic.id) else SentNote(topic.id)
        producer.send((), max(0, kept.n), kept.to_json(), "ready")


def send_letters(scope: Scope, manifest: Manifest) -> None:
    """Send the letters of a decided batch that are not in the topic yet. Safe to repeat, and when two do it at once.

    Raises:
        Terminal: The topic refuses, or nobody can tell whether they are there.
        Retryable: No broker answers, or rivals kept taking over.
    """
    topic, part = manifest.letter_topic, _letters(manifest)
    if topic is None or part is None:
        return
    named = scope.pipeline.dead_letters.topic
    if named is None:
        scope.report(
            f"batch {manifest.position.n}: its dead letters are NOT sent to topic {topic.name}, as far as they are not there"
            " yet: the pipeline file names no dead_letters.topic any more"
        )
        return
    _refuse_foreign_topic(scope, manifest, topic, named.name)
    try:
        count = _while_fenced()(_send_whole, scope, manifest, topic, part)
    except FrazilError as failure:
        raise _blocked(manifest, topic, failure) from failure
    if count:
        scope.report(f"batch {manifest.position.n}: sent {count:,} dead letters to topic {topic.name}")


def _refuse_foreign_topic(scope: Scope, manifest: Manifest, topic: LetterTopic, named: str) -> None:
    """Whoever may commit to the closing table may name any manifest there, and in it any topic or producer."""
    own = producer_name(scope.pipeline.name, "")  # another producer's name would stop the letters of its pipeline
    if topic.name == named and topic.producer.startswith(own):
        return
    raise Terminal(
        f"pipeline {scope.pipeline.name}: the manifest of batch {manifest.position.n} has its dead letters sent to topic"
        f" {topic.name} by {topic.producer}: the pipeline file names topic {named}, and its producers are called {own}…",
        next_step=f"was dead_letters.topic another one when the batch was decided, name that one until it is finished; if not,"
        f" somebody else committed to {manifest.closing.table}: roll that commit back, and look who may write there",
    )


def _letters(manifest: Manifest) -> TablePart | None:
    return next((part for part in manifest.followers if part.role == "dead_letters"), None)


def _send_whole(scope: Scope, manifest: Manifest, topic: LetterTopic, part: TablePart) -> int:
    try:
        return _send(scope, manifest, topic, part)
    except RecordTooLarge:
        scope.report(
            f"batch {manifest.position.n}: topic {topic.name} takes no such batches; sending letters one by one"
        )
    try:
        return _send(scope, manifest, topic, part, alone=True)
    except RecordTooLarge as refused:
        raise _too_large(scope, topic, refused.record) from refused


def _send(scope: Scope, manifest: Manifest, topic: LetterTopic, part: TablePart, *, alone: bool = False) -> int:
    settings = scope.pipeline.dead_letters.topic
    found = ready_topic(scope.cluster, topic.name, settings.partitions if settings else 1, is_noted=True)
    with noted_producer(scope.cluster, topic.name, topic.producer, alone=alone) as producer:
        before = letters_sent(_note(producer), manifest.mark, part.rows, topic.id, found)
        if before == part.rows or _is_finished(scope, manifest):
            return 0
        if before is None:
            raise _untold(manifest, topic)
        sent = before
        letters = _records(scope, manifest, part, before)
        for records in _transactions(letters, _ONE_BY_ONE if alone else LETTERS_PER_TRANSACTION):
            sent += len(records)
            note = SentNote(found, manifest.position.n, manifest.batch, sent)
            producer.send(records, manifest.position.n, note.to_json())
    if sent != part.rows:
        raise Terminal(f"the files of the batch hold {sent:,} dead letters, its manifest says {part.rows:,}")
    return sent - before


def _note(producer: NotedProducer) -> SentNote | None:
    text = producer.note()
    return SentNote.from_json(text) if text else None


def _records(scope: Scope, manifest: Manifest, part: TablePart, skipped: int) -> Iterator[OutgoingRecord]:
    table = scope.lake.load_table(part.table)
    batches = staged_letters(table, part.table, part.files)
    records = (of for batch in batches for of in letter_records(batch, manifest.pipeline, manifest.position.n))
    return islice(records, skipped, None)


def _transactions(records: Iterable[OutgoingRecord], most: int) -> Iterator[list[OutgoingRecord]]:
    held, size = list[OutgoingRecord](), 0
    for record in records:
        held.append(record)
        size += record.size
        if len(held) >= most or size >= BYTES_PER_TRANSACTION:
            yield held
            held, size = [], 0
    if held:
        yield held


def _is_finished(scope: Scope, manifest: Manifest) -> bool:
    """Whether somebody finished the batch: a run that slept may find the note gone, or the topic made anew."""
    metadata = scope.lake.load_table(manifest.ledger).metadata
    found = lookup(metadata, DONE_KEY.format(manifest.pipeline), manifest.ledger)
    done = mark_of(found) if isinstance(found, Held) else None
    return done is not None and done.n >= manifest.position.n


def _while_fenced() -> Retrying:
    return Retrying(
        retry=retry_if_exception_type(Fenced),
        stop=stop_after_attempt(_ATTEMPTS),
        wait=wait_random(0, 1),
        reraise=True,
    )


def _untold(manifest: Manifest, topic: LetterTopic) -> Terminal:
    return Terminal(
        f"consumer group {topic.producer}, whose note says what was sent, has none any more: it was deleted, or the batch"
        " waited longer than the brokers keep offsets (offsets.retention.minutes); nobody can tell whether the letters are"
        " there",
        next_step=f"look for records with header {BATCH_HEADER} = {manifest.position.n} in the topic",
    )


def _too_large(scope: Scope, topic: LetterTopic, record: OutgoingRecord) -> Terminal:
    limit = record_limit(scope.cluster, topic.name)
    takes = "less" if limit is None else f"{limit:,} at most, compressed"
    return Terminal(
        f"the dead letter of {origin(record)} has {record.size:,} bytes with its headers, and topic {topic.name} takes {takes}",
        next_step=f"raise max.message.bytes of topic {topic.name}",
    )


def _blocked(manifest: Manifest, topic: LetterTopic, failure: FrazilError) -> FrazilError:
    kind = Retryable if isinstance(failure, Retryable) else Terminal
    steps = f"{failure.next_step}; or go" if failure.next_step else "go"
    return kind(
        f"batch {manifest.position.n} of pipeline {manifest.pipeline} is decided, but its dead letters can't be sent to topic"
        f" {topic.name}; the pipeline waits: {failure.message}",
        next_step=f"{steps} on without sending them: take dead_letters.topic out of the pipeline file, run it once, put the key"
        " back; the table has the letters all the same",
    )
