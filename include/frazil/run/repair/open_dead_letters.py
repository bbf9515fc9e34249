"""Finds dead letters that may be decoded again: open ones whose record surely has no other outcome."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from typing import Any

from frazil.batch.dead_letters import LetterChoice, OpenLetter, Place, undone
from frazil.batch.position import Position
from frazil.batch.removal import RemovedRange, moved_back
from frazil.iceberg.catalog.table import Table
from frazil.iceberg.commit.removal import rows_of_batches
from frazil.iceberg.ledger.dead_letters import Letter, open_letters
from frazil.iceberg.ledger.ledger import read_ledger
from frazil.pipeline.models.pipeline_file import Pipeline
from frazil.run.commit.manifests import coordinate_columns
from frazil.run.state.context import RunContext
from frazil.run.state.tables import Tables

Row = Mapping[str, Any]
"""One row of the ledger."""


@dataclass(frozen=True, slots=True)
class LetterHistory:
    """The ledger's facts that decide which letters are open.

    Attributes:
        taken_back: Numbers of batches that a rollback of the closing table took back.
        doubled: Offsets that a reset let land again without removing their first rows: `since` is the reset.
        brought_home: Numbers of the batches that landed letters, and were not undone.
        may_lack_marks: Whether marks of landed letters may be lost: a table was repaired, or batches were undone.
    """

    taken_back: frozenset[int]
    doubled: tuple[RemovedRange, ...]
    brought_home: tuple[int, ...]
    may_lack_marks: bool = False


def letter_history(rows: Sequence[Row]) -> LetterHistory:
    """Read the ledger of a pipeline, whose rows are sorted by batch number: all, or those of `read_letter_rows`."""
    by_batch = [list(batch_rows) for _, batch_rows in groupby(rows, key=lambda row: row["n"])]
    rewinds = [
        (batch_rows[0]["n"], _removed_ranges(batch_rows))
        for batch_rows in by_batch
        if batch_rows[0]["kind"] == "rewind"
    ]
    taken_back = undone(rewinds)
    landing_rows = (
        batch_rows[0]
        for batch_rows in by_batch
        if batch_rows[0]["kind"] == "dead_letters" and batch_rows[0]["records_written"]
    )
    return LetterHistory(
        taken_back,
        tuple(_doubled_ranges(by_batch)),
        tuple(row["n"] for row in landing_rows if row["n"] not in taken_back),
        any(batch_rows[0]["kind"] in ("repair", "settle", "rewind") for batch_rows in by_batch),
    )


@dataclass(frozen=True, slots=True)
class LandedRows:
    """By table: records whose rows are there because their letters were landed, by the newest batch that did.

    Marks alone don't tell: they go with a lost or abandoned table, and with the next batch that tries the letter.
    """

    of_tables: Mapping[str, Mapping[Place, int]] = field(default_factory=dict)

    def batch_of(self, place: Place, destination: str | None, since: int) -> int | None:
        """The batch that landed a letter, whatever its mark says: of a record as a whole in any table; None if none did.

        `since` is the first batch number of the topic's present incarnation.
        """
        tables = self.of_tables.values() if destination is None else [self.of_tables.get(destination, {})]
        return max((n for batches_by_place in tables if (n := batches_by_place.get(place, -1)) >= since), default=None)


def landed_rows(pipeline: Pipeline, destinations: Mapping[str, Table], past: LetterHistory) -> LandedRows:
    """Look up which letters have their rows, in the destinations themselves."""
    by_table: dict[str, dict[Place, int]] = {name: {} for name in destinations}
    for name, table in destinations.items():
        columns = coordinate_columns(pipeline.destination(name))
        if columns is None:
            continue
        of_table = by_table[name]
        for topic, partition, offset, n in rows_of_batches(table, name, columns, past.brought_home):
            place = Place(topic, partition, offset)
            of_table[place] = max(n, of_table.get(place, n))
    return LandedRows(by_table)


def _removed_ranges(rows: Sequence[Row]) -> list[RemovedRange]:
    return [RemovedRange(*r) for row in rows for r in json.loads(row.get("removed") or "[]")]


def _doubled_ranges(by_batch: Sequence[Sequence[Row]]) -> Iterator[RemovedRange]:
    """Offsets that resets moved back over without taking rows out: their records landed twice."""
    for last, rows in pairwise(by_batch):
        if rows[0]["kind"] == "reset" and not _removed_ranges(rows):
            before, after = (Position.from_json(batch_rows[0]["position"]) for batch_rows in (last, rows))
            for r in moved_back(before, after):
                end = None if r.partition is None else before.next_offset(r.topic, r.partition)
                yield RemovedRange(r.topic, r.partition, r.start, end, after.n)


def find_open_letters(
    context: RunContext, tables: Tables, position: Position, choice: LetterChoice, tried: frozenset[OpenLetter]
) -> list[OpenLetter]:
    """The chosen open letters that were not tried yet, in order. Reports the letters that it leaves out.

    Letters of a topic that was recreated since stay as they are: their rows would look like rows of the new topic. So do
    those of offsets that a reset let land twice: nobody could tell their rows from the others'.
    """
    past = letter_history(read_ledger(context.lake, context.pipeline.ledger_table, context.pipeline.name))
    landed = landed_rows(context.pipeline, tables.destinations, past)
    open_by_place: dict[tuple[Place, str | None], OpenLetter] = {}
    skipped = Counter[str]()
    for letter in open_letters(tables.dead_letters, context.pipeline.dead_letters_table, past.taken_back):
        if not choice.fits(letter.place, letter.code, letter.timestamp, letter.destination):
            continue
        why = _skip_reason(letter, position, past, landed)
        if why is None and (letter.place, letter.destination) in open_by_place:
            why = "of a record that has another one"
        if why is None and letter.destination not in (None, *tables.destinations):
            why = "of a table that is no destination any more"
        if why is not None:
            skipped[why] += 1
        elif letter.batch is not None:
            open_by_place[letter.place, letter.destination] = OpenLetter(letter.place, letter.batch, letter.destination)
    if not tried:
        for why, count in sorted(skipped.items()):
            context.report(f"{count:,} letters {why} are left as they are")
    return sorted((letter for letter in open_by_place.values() if letter not in tried), key=lambda letter: letter.order)


def _skip_reason(letter: Letter, position: Position, past: LetterHistory, landed: LandedRows) -> str | None:
    place = letter.place
    topic = position.topics.get(place.topic)
    if topic is None or letter.batch is None or letter.batch < topic.since:
        return "of a topic as it was before it was recreated"
    if landed.batch_of(place, letter.destination, topic.since) is not None:
        return "that have their row, though they don't say so,"
    if any(_contains(doubled_range, place) and doubled_range.since > topic.since for doubled_range in past.doubled):
        return "of records that a reset let come twice"
    return None


def _contains(offset_range: RemovedRange, place: Place) -> bool:
    is_here = (offset_range.topic, offset_range.partition) == (place.topic, place.partition)
    return (
        is_here and offset_range.start <= place.offset and (offset_range.end is None or place.offset < offset_range.end)
    )
