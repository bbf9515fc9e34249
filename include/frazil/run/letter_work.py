"""Letters that one batch tries again, and the tables that they need for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

import pyarrow as pa

from frazil.batch.facts import Staged
from frazil.batch.letters import OpenLetter, spans
from frazil.batch.position import Position
from frazil.batch.removal import Removal
from frazil.batch.schema_change import Demands
from frazil.iceberg.letters import letters_within
from frazil.iceberg.schema import declared_columns
from frazil.records.cells import in_steps
from frazil.records.fan_out import FanOut
from frazil.records.spec import RecordSpec
from frazil.run.evolution import Look, columns_of
from frazil.run.letter_verdicts import asked_of
from frazil.run.made import Refusals, at_first, looked_for, make_tables, room_for
from frazil.run.manifests import LETTER_COLUMNS
from frazil.run.record_evolution import without_fail
from frazil.run.record_route import NONE_NOW, route_of
from frazil.run.record_spec import record_specs
from frazil.run.scope import Scope
from frazil.run.staging import partition_limit
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
    scope = work.scope.grown((*work.scope.pipeline.made, *found.names))
    columns |= {name: declared_columns(scope.pipeline.destination(name)) for name in found.names}
    return replace(work, scope=scope, refusals=found.refusals), columns
