"""Bringing dead letters home: what decodes under the present pipeline file becomes rows, by a batch of its own.

The position stays. The batch appends the rows and marks their letters as landed; letters that are still bad get their
new reason and one more attempt. A rollback of the closing table past the batch opens its letters again: a mark counts
only while its batch does.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

import pyarrow as pa

from frazil import stopping
from frazil.batch.facts import Counts, Range, Staged, TopicPartition, UnknownFields
from frazil.batch.letters import LetterChoice, OpenLetter, Place, first_of, ranges_of, spans
from frazil.batch.position import Position
from frazil.batch.removal import Removal
from frazil.batch.request import RunRequest
from frazil.batch.schema_change import Demands
from frazil.crash_points import CrashPoint, reached
from frazil.errors import FrazilError, Retryable, Terminal
from frazil.iceberg.commit import Refused
from frazil.iceberg.data_files import DataFileWriter
from frazil.iceberg.letters import letters_within
from frazil.iceberg.row_files import TableWriters
from frazil.iceberg.schema import declared_columns
from frazil.iceberg.table import staging_table
from frazil.local.drivers import registered
from frazil.records.cells import in_steps
from frazil.records.fan_out import FanOut
from frazil.records.spec import RecordSpec
from frazil.run.evolution import Look, columns_for, columns_of, evolved_for
from frazil.run.letter_verdicts import Verdicts, asked_of, judged
from frazil.run.made import Refusals, at_first, looked_for, make_tables, room_for
from frazil.run.manifests import LETTER_COLUMNS, Batch
from frazil.run.open_letters import find_open
from frazil.run.record_spec import NONE_NOW, record_specs, route_of, without_fail
from frazil.run.replay import refuse_forgotten_deletes, refuse_without_coordinates
from frazil.run.scope import Scope
from frazil.run.settled import settled
from frazil.run.staging import discard, partition_limit, publish, refuse_if_asked, row_targets
from frazil.run.standing import Standing
from frazil.run.tables import Tables


@dataclass(frozen=True)
class LetterWork:
    """Letters to be tried by one batch, and where the pipeline stands.

    Attributes:
        scope: The pipeline and its doors.
        tables: Its tables.
        now: Where it stands.
        position: Its position.
        letters: Those to be tried.
        before: Tables that were made before the first letter was tried.
        refusals: Why tables that they name are not made.
    """

    scope: Scope
    tables: Tables
    now: Standing
    position: Position
    letters: frozenset[OpenLetter]
    before: tuple[str, ...] = ()
    refusals: Refusals = field(default_factory=lambda: Refusals(rest=NONE_NOW))

    @property
    def removal(self) -> Removal:
        """Letters that are written anew, those between the tried ones included."""
        return Removal(LETTER_COLUMNS, spans([letter.place for letter in self.letters]))

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Those letters, a part at a time."""
        return letters_within(self.tables.dead_letters, self.scope.pipeline.dead_letters_table, self.removal)


def decoder_of(work: LetterWork, columns: Mapping[str, pa.Schema], n: int) -> FanOut:
    """Decodes the letters into rows of these columns."""
    pipeline, schemas, refusals = work.scope.pipeline, work.scope.schemas, work.refusals
    route = route_of(pipeline, columns, schemas, refused=refusals.names, rest=refusals.rest)
    counters = partition_limit(pipeline, work.tables).counters()
    return FanOut(without_fail(record_specs(pipeline, columns, schemas)), route, n, partitions=counters)


def look_at(work: LetterWork) -> Look:
    """Looks at the letters for columns that their tables lack."""

    def look(columns: Mapping[str, pa.Schema]) -> tuple[Demands, Mapping[str, RecordSpec]]:
        specs = record_specs(work.scope.pipeline, columns, work.scope.schemas)
        if not any(spec.evolution for spec in specs.values()):
            return {}, specs
        return _asked(work, columns).demands, specs

    return look


def _asked(work: LetterWork, columns: Mapping[str, pa.Schema]) -> Staged:
    decoder = decoder_of(work, columns, 0)
    ask = partial(asked_of, tried=work.letters, decoder=decoder)
    return Staged.merged(staged for _, staged in in_steps(ask, work.batches()))


def _named(work: LetterWork, room: int) -> tuple[str, ...]:
    """Tables that letters name and that are not there."""
    if not room:
        return ()
    asking = replace(work, refusals=Refusals())
    return _asked(asking, columns_of(work.scope.pipeline, work.tables)).new_tables


def with_new_tables(work: LetterWork, n: int) -> LetterWork:
    """The same, with the tables made that letters of records as a whole name.

    Raises:
        Terminal, Retryable: As `make_tables`.
    """
    if work.scope.pipeline.create is None:
        return work
    room = room_for(work.scope, work.before)
    names = _named(work, room)
    if not names:
        return replace(work, refusals=at_first(work.scope, 0)) if not room else work
    grown = make_tables(work.scope, work.tables, names, room, n)
    return replace(work, scope=grown.scope, tables=grown.tables, refusals=grown.refusals)


def supposed(work: LetterWork) -> tuple[LetterWork, Mapping[str, pa.Schema]]:
    """The same as if those tables were made, and the columns of all tables."""
    columns, room = columns_of(work.scope.pipeline, work.tables), room_for(work.scope, work.before)
    found = looked_for(work.scope, work.tables, _named(work, room), room)
    scope = work.scope.grown((*work.scope.pipeline.auto_created, *found.names))
    columns |= {name: declared_columns(scope.pipeline.destination(name)) for name in found.names}
    return replace(work, scope=scope, refusals=found.refusals), columns


LETTERS_PER_BATCH = 100_000
RANGES_PER_BATCH = 1_000
"""Letters that one batch tries, and ranges of neighbours they may lie in: bounds what the ledger says of it."""

ATTEMPTS = 3
"""How often letters are staged because other batches were decided meanwhile: their rows carry their batch's number."""


@dataclass(frozen=True, slots=True)
class BroughtHome:
    """What became of the letters that were tried.

    Attributes:
        tried: How many there were.
        landed: How many are rows now.
        filtered: How many the present pipeline file leaves out on purpose.
        dead_codes: How many are still dead, by reason code.
        bare: How many keep nothing of their records (`dead_letters.payload`), and were left as they are.
        batches: Numbers of the batches.
    """

    tried: int = 0
    landed: int = 0
    filtered: int = 0
    dead_codes: Mapping[str, int] | None = None
    bare: int = 0
    batches: tuple[int, ...] = ()

    def __add__(self, other: BroughtHome) -> BroughtHome:
        return BroughtHome(
            self.tried + other.tried,
            self.landed + other.landed,
            self.filtered + other.filtered,
            dict(Counter(self.dead_codes or {}) + Counter(other.dead_codes or {})),
            self.bare + other.bare,
            self.batches + other.batches,
        )


_SoFar = tuple[frozenset[OpenLetter], tuple[str, ...]]
"""Letters that were tried, and tables that were made before the first of them was."""


def bring_home(scope: Scope, choice: LetterChoice, request: RunRequest, *, dry_run: bool = False) -> BroughtHome:
    """Decode letters again and land what is good now, exactly once.

    Args:
        scope: The pipeline and its doors.
        choice: Which letters.
        request: Who asks, and why.
        dry_run: Only look what would become of them.

    Raises:
        Terminal: The pipeline never ran, or its rows don't say which record they are.
        Retryable: Other batches were decided each time, or a part is not available now.
        Stopped: A signal asked it to stop. Batches that were decided are finished.
    """
    refuse_without_coordinates(scope)
    refuse_forgotten_deletes(scope, "the dead letters of pipeline {} can't come home")
    if dry_run:
        return _all(scope, choice, request, dry_run=True)
    with stopping.heeded(scope.report), registered(scope.project.home, scope.pipeline.name, request.run, scope.report):
        return _all(scope, choice, request, dry_run=False)


def _all(scope: Scope, choice: LetterChoice, request: RunRequest, *, dry_run: bool) -> BroughtHome:
    """Batch after batch, until no letter is left that was not tried."""
    whole, tried = BroughtHome(dead_codes={}), frozenset[OpenLetter]()
    while True:
        letters, found = _once(scope, choice, request, (tried, scope.pipeline.auto_created), dry_run=dry_run)
        if not letters:
            return whole
        whole, tried = whole + found, tried | letters


def _once(
    scope: Scope, choice: LetterChoice, request: RunRequest, so_far: _SoFar, *, dry_run: bool
) -> tuple[frozenset[OpenLetter], BroughtHome]:
    """One batch, staged again while others are decided in between."""
    tried, before = so_far
    refusal: Refused | None = None
    for _ in range(ATTEMPTS):
        scope, tables, now = settled(scope)
        if now.position is None:
            raise Terminal(f"pipeline {scope.pipeline.name} never ran: it has no dead letters")
        found = find_open(scope, tables, now.position, choice, tried)
        letters = frozenset(first_of(found, LETTERS_PER_BATCH, RANGES_PER_BATCH))
        if not letters:
            return letters, BroughtHome()
        if stopping.requester():
            raise stopping.stopped(
                f"pipeline {scope.pipeline.name}: {len(tried):,} dead letters were tried, others wait"
            )
        work = LetterWork(scope, tables, now, now.position, letters, before)
        try:
            return letters, _looked_at(work) if dry_run else _landed(work, request)
        except Refused as refused:
            refusal = refused
            scope.report(f"refused, staging the letters again: {refused.message}")
    raise Retryable(
        f"pipeline {scope.pipeline.name}: landing dead letters was refused {ATTEMPTS} times: {refusal}",
        next_step=f"pause the DAG ingest__{scope.pipeline.name} meanwhile, or do it at a quiet time",
    ) from refusal


def _looked_at(work: LetterWork) -> BroughtHome:
    work, columns = supposed(work)
    decoder, whole = decoder_of(work, columns_for(columns, look_at(work)), 0), BroughtHome(dead_codes={})
    judge = partial(judged, tried=work.letters, decoder=decoder, n=0)
    for _, verdicts in in_steps(judge, work.batches()):
        whole += _told(verdicts, ())
    return whole


def _landed(work: LetterWork, request: RunRequest) -> BroughtHome:
    n = work.position.n + 1
    started_at, began = work.scope.stamp(), time.monotonic()
    work.scope.report(f"batch {n}: trying {len(work.letters):,} dead letters again")
    work = with_new_tables(work, n)
    scope = work.scope
    tables, changes = evolved_for(scope, work.tables, n, look_at(work))
    work = replace(work, tables=tables)
    staged, landed, told, seen = _staged(work, n)
    reached(CrashPoint.STAGED)
    if not told.tried:
        discard(scope, work.tables, staged)
        return replace(told, batches=())
    refuse_if_asked(scope, work.tables, n, staged)
    try:
        _check(scope, work, staged, told, seen)
        batch = Batch(
            kind="dead_letters",
            run=request.run,
            position=replace(
                work.position,
                n=n,
                topics={name: replace(at, start=at.next) for name, at in work.position.topics.items()},
            ),
            planned_at=started_at,
            staged=staged,
            ranges=ranges_of(landed.places),
            table_ranges=landed.by_table(scope.pipeline.tables),
            removed_letters=work.removal.ranges,
            started_at=started_at,
            phases={"stage": round(time.monotonic() - began, 3)},
            started_by=request.started_by,
            reason=request.reason,
            schema_changes=changes,
        )
    except FrazilError as failure:
        discard(scope, work.tables, staged, failure)
        raise
    publish(scope, work.tables, work.now, batch)
    return told


@dataclass(frozen=True)
class _Landed:
    """Records that are no dead letters any more: of all letters that were tried, and of each table; None: as a whole."""

    places: set[Place] = field(default_factory=set)
    of_tables: dict[str | None, set[Place]] = field(default_factory=dict)

    def add(self, verdicts: Verdicts) -> None:
        self.places.update(verdicts.landed)
        for table, places in verdicts.landed_in.items():
            self.of_tables.setdefault(table, set()).update(places)

    def by_table(self, tables: tuple[str, ...]) -> dict[str, tuple[Range, ...]]:
        """Of each of several destinations, what landed there, or was meant to as far as it goes."""
        whole = self.of_tables.get(None, set())
        return {of: ranges_of(whole | self.of_tables.get(of, set())) for of in tables} if tables[1:] else {}


def _staged(work: LetterWork, n: int) -> tuple[Staged, _Landed, BroughtHome, int]:
    pipeline, tables = work.scope.pipeline, work.tables
    rows = TableWriters(row_targets(pipeline, tables))
    letters = DataFileWriter(staging_table(pipeline.dead_letters_table, tables.dead_letters))
    decoder, landed, told = decoder_of(work, columns_of(pipeline, tables), n), _Landed(), BroughtHome(dead_codes={})
    counts: dict[TopicPartition, Counts] = {}
    extra_rows = size = seen = 0
    unknown = UnknownFields()
    judge = partial(judged, tried=work.letters, decoder=decoder, n=n, payload=pipeline.dead_letters.payload)
    for batch, verdicts in in_steps(judge, work.batches()):
        for table, of_table in verdicts.rows.items():
            rows.write(table, of_table)
        letters.write(verdicts.letters)
        landed.add(verdicts)
        told += _told(verdicts, (n,) if not told.batches else ())
        for key, of in verdicts.counts.items():
            counts[key] = counts.get(key, Counts()) + of
            extra_rows -= of.written
        extra_rows += sum(of_table.num_rows for of_table in verdicts.rows.values())
        size += verdicts.bytes
        unknown += verdicts.unknown_fields
        seen += batch.num_rows
        reached(CrashPoint.STAGING)
    files = rows.close() | {letters.name: letters.close()}
    staged = Staged(counts, files=files, bytes=size, extra_rows=extra_rows, unknown_fields=unknown)
    return staged, landed, told, seen


def _told(verdicts: Verdicts, batches: tuple[int, ...]) -> BroughtHome:
    total = sum(verdicts.counts.values(), Counts())
    tried = total.read + sum(verdicts.dead_codes.values())
    return BroughtHome(tried, total.written, total.filtered, verdicts.dead_codes, verdicts.bare, batches)


def _check(scope: Scope, work: LetterWork, staged: Staged, told: BroughtHome, seen: int) -> None:
    """Refuse what does not add up, counted on either side of decoding.

    Args:
        scope: The pipeline and its doors.
        work: What was to be tried.
        staged: What was written.
        told: What became of the letters.
        seen: Letters that were read, the untried ones between them included.
    """
    pipeline = scope.pipeline
    expected = {
        "letters tried": (len(work.letters), told.tried + told.bare),
        "their outcomes": (told.tried, told.landed + told.filtered + sum((told.dead_codes or {}).values())),
        "rows": (told.landed + staged.extra_rows, sum(staged.rows(table) for table in pipeline.tables)),
        "letters written anew": (seen, staged.rows(pipeline.dead_letters_table)),
    }
    wrong = [
        f"{what}: {wanted} expected, {found} found" for what, (wanted, found) in expected.items() if wanted != found
    ]
    if wrong:
        raise Terminal(
            f"the audit failed, nothing was published: {'; '.join(wrong)}",
            next_step="this is a fault of Frazil, not of the data: please report these numbers",
        )
