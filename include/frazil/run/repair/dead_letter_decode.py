"""Decodes dead letters again: selects open letters, makes rows of those that fit now, and updates the others' reason and attempts."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from frazil.batch.changes import LetterChoice, OpenLetter, Place, RemovedRange, moved_back_ranges, undone_batches
from frazil.batch.facts import Counts, Staged, TopicPartition, UnknownFields
from frazil.batch.position import Position
from frazil.iceberg.catalog.table import Table
from frazil.iceberg.commit.removal import rows_of_batches
from frazil.iceberg.ledger.dead_letters import Letter, open_letters
from frazil.iceberg.ledger.ledger import read_ledger
from frazil.pipeline.models.pipeline_file import Pipeline
from frazil.records.decoder.decode import Decoder
from frazil.records.decoder.redaction import Payload, has_record, redacted
from frazil.records.model.dead_letter import DeadCode
from frazil.records.model.rows import KAFKA_SCHEMA, FilterReason, Outcomes
from frazil.run.commit.manifests import REPAIR_KINDS, coordinate_columns
from frazil.run.state.context import RunContext
from frazil.run.state.tables import Tables

_REASON = ("code", "stage", "message", "path")


@dataclass(frozen=True, slots=True)
class LetterOutcomes:
    """The result of decoding some letters again.

    Attributes:
        rows: Table -> the rows that letters became.
        letters: All given letters, as the dead-letter table has them from now on.
        landed: Records whose tried letters are closed: they landed, or are left out on purpose.
        landed_in: Table -> records whose letters for this table are closed; None: letters of the record as a whole.
        counts: Counts of these records per partition: read, written and filtered.
        dead_codes: How many are still dead, by reason code.
        bare: How many tried letters hold nothing of their records, so that they can't be decoded.
        bytes: Bytes of the keys and values of landed records.
        unknown_fields: Fields of landed records that no column takes.
    """

    rows: Mapping[str, pa.RecordBatch]
    letters: pa.RecordBatch
    landed: frozenset[Place]
    landed_in: Mapping[str | None, frozenset[Place]]
    counts: Mapping[TopicPartition, Counts]
    dead_codes: Mapping[str, int]
    bare: int = 0
    bytes: int = 0
    unknown_fields: UnknownFields = field(default_factory=UnknownFields)


def decode_letters(
    letters: pa.RecordBatch, tried: Collection[OpenLetter], decoder: Decoder, n: int, payload: Payload = "full"
) -> LetterOutcomes:
    """Decode the selected letters again; the others stay unchanged.

    A letter of one table is tried for that table alone. A letter of a record as a whole lands in all tables that the record
    is routed to, or in none.

    `tried` has each pair of record and table only once. New reasons quote at most as much of a record as `payload` allows.
    """
    tried_mask = _tried_mask(letters, tried)
    decodable = pc.and_(tried_mask, has_record(letters))
    chosen = letters.filter(decodable)
    decoded = {
        table: _decode_destination(table_letters, table, decoder, n, payload)
        for table, table_letters in _by_destination(chosen)
    }
    parts = [outcomes for outcomes, _ in decoded.values()]
    still_dead = frozenset[Place]().union(*(places for _, places in decoded.values()))
    counts: dict[TopicPartition, Counts] = {}
    for part in parts:
        for key, part_counts in part.counts.items():
            counts[key] = counts.get(key, Counts()) + part_counts
    return LetterOutcomes(
        _rows_by_table([(table, table_rows) for part in parts for table, table_rows in part.rows.items()]),
        pa.concat_batches([letters.filter(pc.invert(decodable)), *(part.letters for part in parts)]),
        frozenset[Place]().union(*(part.landed for part in parts)) - still_dead,
        {table: part.landed for table, (part, _) in decoded.items()},
        counts,
        dict(sum((Counter(part.dead_codes) for part in parts), Counter[str]())),
        tried_mask.true_count - decodable.true_count,
        sum(part.bytes for part in parts),
        sum((part.unknown_fields for part in parts), UnknownFields()),
    )


def find_letter_demands(letters: pa.RecordBatch, tried: Collection[OpenLetter], decoder: Decoder) -> Staged:
    """The missing columns and tables that the tried letters need."""
    chosen = letters.filter(pc.and_(_tried_mask(letters, tried), has_record(letters)))
    parts = (decoder.decode(_records(table_letters), only=table) for table, table_letters in _by_destination(chosen))
    return Staged.merged(Staged(demands=part.demands, new_tables=part.new_tables) for part in parts)


def _tried_mask(letters: pa.RecordBatch, tried: Collection[OpenLetter]) -> pa.BooleanArray:
    batches, destinations = (letters.column(name).to_pylist() for name in ("_frazil_batch", "destination"))
    keys = zip(_places(letters), batches, destinations, strict=True)
    return pa.array([OpenLetter(*key) in tried for key in keys], pa.bool_())


def _decode_destination(
    letters: pa.RecordBatch, table: str | None, decoder: Decoder, n: int, payload: Payload
) -> tuple[LetterOutcomes, frozenset[Place]]:
    """The outcomes of the letters of one table, or of records as a whole; and the records that are still dead."""
    outcomes = decoder.decode(_records(letters), only=table)
    dead = redacted(outcomes.dead, payload, decoder.declared)
    reasons: dict[Place, dict[str, Any]] = {}
    for place, reason in zip(_places(dead), dead.select(_REASON).to_pylist(), strict=True):
        reasons.setdefault(place, reason)
    if table is not None:
        reasons |= dict.fromkeys(_rerouted(_without_reason(letters, reasons), table, decoder), _unrouted_reason(table))
    good_letters = _without_reason(letters, reasons)
    # A letter of a record as a whole that fails for one table lands in none: decoded again without such records.
    good = decoder.decode(_records(good_letters), only=table) if reasons and outcomes.tables else outcomes
    size = sum(pc.sum(pc.binary_length(good_letters.column(name))).as_py() or 0 for name in ("key", "value"))
    landed = frozenset(_places(good_letters))
    codes = Counter(str(reason["code"]) for reason in reasons.values())
    unknown_fields = outcomes.unknown_fields if payload == "full" else outcomes.unknown_fields.without_names()
    updated = _updated_letters(letters, reasons, n)
    part = LetterOutcomes(
        good.rows, updated, landed, {}, _landed_counts(good), codes, bytes=size, unknown_fields=unknown_fields
    )
    return part, frozenset(reasons)


def _without_reason(letters: pa.RecordBatch, reasons: Mapping[Place, Mapping[str, Any]]) -> pa.RecordBatch:
    return letters.filter(pa.array([place not in reasons for place in _places(letters)], pa.bool_()))


def _rerouted(letters: pa.RecordBatch, table: str, decoder: Decoder) -> list[Place]:
    """Records of a table's letters that are now routed to another table.

    Outcomes count such records and don't name them, so the letters are halved until a part has only them, or none.
    """
    records = _records(letters)
    routed_away = _routed_away(decoder.decode(records, only=table))
    # Records that are routed to no table at all are left out on purpose.
    count = routed_away - (_routed_away(decoder.decode(records)) if routed_away else 0)
    if count in (0, letters.num_rows):
        return _places(letters) if count else []
    half = letters.num_rows // 2
    parts = (letters.slice(0, half), letters.slice(half))
    return [place for part in parts for place in _rerouted(part, table, decoder)]


def _routed_away(outcomes: Outcomes) -> int:
    return sum(counts.filtered.get(FilterReason.ROUTE, 0) for counts in outcomes.counts.values())


def _unrouted_reason(table: str) -> dict[str, Any]:
    code = DeadCode.UNROUTED
    message = (
        f"the letter is of table {table}, and the record is meant for another one now: it would have a row in neither"
    )
    return {"code": str(code), "stage": str(code.stage), "message": message, "path": None}


def _landed_counts(outcomes: Outcomes) -> dict[TopicPartition, Counts]:
    return {
        (key.topic, key.partition): Counts(
            counts.written + sum(counts.filtered.values()), counts.written, 0, sum(counts.filtered.values())
        )
        for key, counts in outcomes.counts.items()
    }


def _by_destination(letters: pa.RecordBatch) -> list[tuple[str | None, pa.RecordBatch]]:
    destinations = letters.column("destination").to_pylist()
    names = dict.fromkeys(destinations) or {None: None}
    return [
        (name, letters.filter(pa.array([destination == name for destination in destinations], pa.bool_())))
        for name in names
    ]


def _rows_by_table(rows: list[tuple[str, pa.RecordBatch]]) -> dict[str, pa.RecordBatch]:
    tables = dict.fromkeys(table for table, _ in rows)
    return {name: pa.concat_batches([table_rows for table, table_rows in rows if table == name]) for name in tables}


def _places(letters: pa.RecordBatch) -> list[Place]:
    columns = (letters.column(name).to_pylist() for name in ("topic", "partition", "offset"))
    return [Place(*coordinates) for coordinates in zip(*columns, strict=True)]


def _records(letters: pa.RecordBatch) -> pa.RecordBatch:
    """The original records of letters. Letters lack the timestamp type; no outcome depends on it."""
    size = letters.num_rows
    columns = [
        pa.nulls(size, field.type) if field.name == "timestamp_type" else letters.column(field.name).cast(field.type)
        for field in KAFKA_SCHEMA
    ]
    return pa.RecordBatch.from_arrays(columns, schema=KAFKA_SCHEMA)


def _updated_letters(letters: pa.RecordBatch, reasons: Mapping[Place, Mapping[str, Any]], n: int) -> pa.RecordBatch:
    """The tried letters with one more attempt, and with their new reason or the batch that landed them."""
    places, rows = _places(letters), letters.select([*_REASON, "attempts"]).to_pylist()
    reason_rows = [
        row if (reason := reasons.get(place)) is None else reason for place, row in zip(places, rows, strict=True)
    ]
    changed: dict[str, list[Any]] = {name: [reason_row[name] for reason_row in reason_rows] for name in _REASON}
    changed["attempts"] = [(row["attempts"] or 1) + 1 for row in rows]
    changed["landed_batch"] = [None if place in reasons else n for place in places]
    columns = [
        pa.array(changed[field.name], field.type) if field.name in changed else letters.column(field.name)
        for field in letters.schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=letters.schema)


Row = Mapping[str, Any]
"""One row of the ledger."""


@dataclass(frozen=True, slots=True)
class LetterHistory:
    """The ledger's facts that decide which letters are open.

    Attributes:
        taken_back: Numbers of batches that a rollback of the closing table undid.
        doubled: Offsets that landed twice, since a reset did not remove their first rows; `since` is the reset's batch.
        landing_batches: Numbers of the batches that landed letters and were not undone.
        may_lack_marks: Whether marks of landed letters may be lost: a table was repaired, or batches were undone.
    """

    taken_back: frozenset[int]
    doubled: tuple[RemovedRange, ...]
    landing_batches: tuple[int, ...]
    may_lack_marks: bool = False


def letter_history(rows: Sequence[Row]) -> LetterHistory:
    """Read the ledger of a pipeline, whose rows are sorted by batch number: all, or those of `read_letter_rows`."""
    by_batch = [list(batch_rows) for _, batch_rows in groupby(rows, key=lambda row: row["n"])]
    rewinds = [
        (batch_rows[0]["n"], _removed_ranges(batch_rows))
        for batch_rows in by_batch
        if batch_rows[0]["kind"] == "rewind"
    ]
    taken_back = undone_batches(rewinds)
    landing_rows = (
        batch_rows[0]
        for batch_rows in by_batch
        if batch_rows[0]["kind"] == "dead_letters" and batch_rows[0]["records_written"]
    )
    return LetterHistory(
        taken_back,
        tuple(_doubled_ranges(by_batch)),
        tuple(row["n"] for row in landing_rows if row["n"] not in taken_back),
        any(batch_rows[0]["kind"] in (*REPAIR_KINDS, "rewind") for batch_rows in by_batch),
    )


@dataclass(frozen=True, slots=True)
class LandedRows:
    """Table -> records whose rows come from their letters -> the newest batch that landed them.

    The letters' own marks may be lost: with a lost or abandoned table, and with the next batch that tries the letter.
    """

    of_tables: Mapping[str, Mapping[Place, int]] = field(default_factory=dict)

    def batch_of(self, place: Place, destination: str | None, since: int) -> int | None:
        """The batch that landed a letter; None if none did. A letter of a record as a whole may have landed in any table.

        `since` is the first batch number of the topic's present incarnation.
        """
        tables = self.of_tables.values() if destination is None else [self.of_tables.get(destination, {})]
        return max((n for batches_by_place in tables if (n := batches_by_place.get(place, -1)) >= since), default=None)


def landed_rows(pipeline: Pipeline, destinations: Mapping[str, Table], past: LetterHistory) -> LandedRows:
    """Find the rows that letters became, in the destinations themselves."""
    by_table: dict[str, dict[Place, int]] = {name: {} for name in destinations}
    for name, table in destinations.items():
        columns = coordinate_columns(pipeline.destination(name))
        if columns is None:
            continue
        batches = by_table[name]
        for topic, partition, offset, n in rows_of_batches(table, name, columns, past.landing_batches):
            place = Place(topic, partition, offset)
            batches[place] = max(n, batches.get(place, n))
    return LandedRows(by_table)


def _removed_ranges(rows: Sequence[Row]) -> list[RemovedRange]:
    return [RemovedRange(*r) for row in rows for r in json.loads(row.get("removed") or "[]")]


def _doubled_ranges(by_batch: Sequence[Sequence[Row]]) -> Iterator[RemovedRange]:
    """Offsets that resets moved back over without removing rows, so that their records landed twice."""
    for last, rows in pairwise(by_batch):
        if rows[0]["kind"] == "reset" and not _removed_ranges(rows):
            before, after = (Position.from_json(batch_rows[0]["position"]) for batch_rows in (last, rows))
            for r in moved_back_ranges(before, after):
                end = None if r.partition is None else before.next_offset(r.topic, r.partition)
                yield RemovedRange(r.topic, r.partition, r.start, end, after.n)


def find_open_letters(
    context: RunContext, tables: Tables, position: Position, choice: LetterChoice, tried: frozenset[OpenLetter]
) -> list[OpenLetter]:
    """The chosen open letters that were not tried yet, in order. Reports the letters that it leaves out.

    Letters of a topic that was recreated since are left out: their rows would look like rows of the new topic. So are letters
    of offsets that landed twice: their rows could not be told apart.
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
            why = "of records that have another one"
        if why is None and letter.destination not in (None, *tables.destinations):
            why = "of tables that are no destination any more"
        if why is not None:
            skipped[why] += 1
        elif letter.batch is not None:
            open_by_place[letter.place, letter.destination] = OpenLetter(letter.place, letter.batch, letter.destination)
    if not tried:
        for why, count in sorted(skipped.items()):
            context.report(f"{count:,} dead letters {why} stay as they are")
    return sorted((letter for letter in open_by_place.values() if letter not in tried), key=lambda letter: letter.order)


def _skip_reason(letter: Letter, position: Position, past: LetterHistory, landed: LandedRows) -> str | None:
    place = letter.place
    topic = position.topics.get(place.topic)
    if topic is None or letter.batch is None or letter.batch < topic.since:
        return "of topics that were recreated since"
    if landed.batch_of(place, letter.destination, topic.since) is not None:
        return "whose row is there, though they are not marked as landed,"
    if any(_contains(doubled_range, place) and doubled_range.since > topic.since for doubled_range in past.doubled):
        return "of records that a reset let land twice"
    return None


def _contains(offset_range: RemovedRange, place: Place) -> bool:
    is_here = (offset_range.topic, offset_range.partition) == (place.topic, place.partition)
    return (
        is_here and offset_range.start <= place.offset and (offset_range.end is None or place.offset < offset_range.end)
    )
