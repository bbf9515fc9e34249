"""Compares a merged table whose values can't be derived here: checks only the record that each row names.

Every row names the record of its last change. That record must exist, have a value and the row's timestamp, and be no dead
letter. If the record's key is the key of the table, no later record may have the same key (the same bytes, if the key's format
is not read here). If keys are read, each key whose last record has a value must have a row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final, NamedTuple

from confluent_kafka import Message

from frazil.pipeline.models.pipeline_file import Destination, Pipeline
from frazil.verify.compare import Comparison, micros
from frazil.verify.facts.coverage import Passes
from frazil.verify.facts.result import Kind, PartitionResult, shorten
from frazil.verify.merged import MergedTableCheck
from frazil.verify.model import RecordPlace, SpilledRows, key_hash
from frazil.verify.outcomes import Outcome
from frazil.verify.values.column_readers import ColumnReaders
from frazil.verify.values.json_document import Unfit, decoder_of, object_of

_NUMBER_SIZES: Final = {"short": 2, "int": 4, "long": 8}
"""Format of a key that is one number -> its size in bytes."""

_CREATE_TABLES = """
CREATE TABLE record (
    topic TEXT, part INT, off INT, batch INT, stamp INT, kind TEXT, key BLOB, changes INT, PRIMARY KEY (topic, part, off)
) WITHOUT ROWID;
CREATE TABLE found (shown TEXT, key BLOB, topic TEXT, part INT, off INT, batch INT, stamp INT, deleted INT, raw BLOB);
"""

_CREATE_INDEXES = """
CREATE INDEX record_key ON record (key, topic, part, off);
CREATE INDEX found_raw ON found (raw);
CREATE INDEX found_key ON found (key);
"""

_COPY_RECORD_KEYS = """
UPDATE found SET raw = (SELECT r.key FROM record r WHERE (r.topic, r.part, r.off) = (found.topic, found.part, found.off))
"""

_SELECT_ROWS_WITH_RECORDS = """
SELECT f.shown, f.topic, f.part, f.off, f.batch, f.stamp, f.deleted, r.stamp, r.kind, (
        SELECT max(l.off) FROM record l
        WHERE l.key = f.raw AND l.topic = f.topic AND l.part = f.part AND l.off > f.off AND l.changes
        GROUP BY l.key HAVING min(ifnull(l.stamp, -1e19)) >= ifnull(f.stamp, -1e19)
            OR NOT EXISTS (SELECT 1 FROM record o WHERE o.key = f.raw AND (o.topic, o.part) <> (f.topic, f.part))
    )
FROM found f LEFT JOIN record r ON (r.topic, r.part, r.off) = (f.topic, f.part, f.off)
"""

_SELECT_RECORDS_WITHOUT_ROW = """
SELECT topic, part, off, batch FROM (
    SELECT key, topic, part, max(off) AS off, batch, kind, count(*) OVER (PARTITION BY key) AS places
    FROM record WHERE key IS NOT NULL AND changes GROUP BY key, topic, part
) AS last
WHERE places = 1 AND kind = 'value' AND NOT EXISTS (SELECT 1 FROM found WHERE raw = last.key)
"""


class PlacedRow(NamedTuple):
    """A row of the table, joined with the record that it names.

    Attributes:
        shown: Its key, as text.
        place: The record of its last change.
        stamp: The timestamp in the row.
        is_deleted: Whether it is marked as deleted.
        record_stamp: The timestamp of the record.
        kind: `value`, `tombstone` or `letter`, for what the record is; None if it does not exist.
        later: Offset of the last later record of the same key in the same partition, if there is one. None as well if the
            key is in several partitions and timestamps decrease in this one: then the split into batches decided.
    """

    shown: str
    place: RecordPlace
    stamp: int | None
    is_deleted: bool
    record_stamp: int | None
    kind: str | None
    later: int | None


class PlaceStore(SpilledRows):
    """Collects records and rows, in any order, and joins them."""

    def __init__(self) -> None:
        super().__init__(_CREATE_TABLES)

    def add_record(
        self, place: RecordPlace, stamp: int | None, kind: str, key: tuple[Any, ...] | None, *, changes_row: bool
    ) -> None:
        """Add a record. `changes_row`: whether it surely changed the row of its key."""
        record = (*place, stamp, kind, None if key is None else key_hash(key), changes_row)
        self._add("INSERT OR REPLACE INTO record VALUES (?, ?, ?, ?, ?, ?, ?, ?)", record)

    def add_row(self, key: tuple[Any, ...], place: RecordPlace, stamp: int | None, *, is_deleted: bool) -> None:
        """Add a row of the table."""
        row = (shorten(repr(key)), key_hash(key), *place, stamp, is_deleted)
        self._add("INSERT INTO found VALUES (?, ?, ?, ?, ?, ?, ?, ?, NULL)", row)

    def rows(self, *, are_keys_read: bool) -> Iterator[PlacedRow]:
        """All rows with their records. Call it once, after all additions. `are_keys_read`: whether records were added with keys
        as rows have them; otherwise with the raw bytes of their keys.
        """
        self._flush()
        self._database.execute("UPDATE found SET raw = key" if are_keys_read else _COPY_RECORD_KEYS)
        self._database.executescript(_CREATE_INDEXES)
        for shown, *place, stamp, deleted, record_stamp, kind, later in self._database.execute(
            _SELECT_ROWS_WITH_RECORDS
        ):
            yield PlacedRow(shown, RecordPlace(*place), stamp, bool(deleted), record_stamp, kind, later)

    def records_without_row(self) -> Iterator[RecordPlace]:
        """The last record of each key without row, if that record has a value. Call it after `rows`."""
        return (RecordPlace(*place) for place in self._database.execute(_SELECT_RECORDS_WITHOUT_ROW))


@dataclass(frozen=True, slots=True)
class Certainty:
    """The facts about a merged table that hold although its values are not compared.

    Attributes:
        by_key: Whether all records with one key change one row, and the last record decides.
        read_key: Reads the bytes of a key as the key of a row; None if only equal bytes are known to be one key.
        value_has_row: Whether the last record of a key has a row if it has a value.
        only_tombstones_delete: Whether a row that is marked as deleted must be from a record without value.
    """

    by_key: bool
    read_key: Callable[[bytes], tuple[Any, ...] | None] | None
    value_has_row: bool
    only_tombstones_delete: bool

    @classmethod
    def from_pipeline(cls, pipeline: Pipeline, destination: Destination) -> Certainty:
        """Derive the facts from the pipeline file."""
        is_upsert, is_plain = destination.write == "upsert", not pipeline.transforms and pipeline.route is None
        # A value of format json-envelope without payload counts as a tombstone.
        has_tombstones_only = pipeline.value.format != "json-envelope"
        is_key = bool(destination.identifier) and all(
            destination.columns[name].part == "key" for name in destination.identifier
        )
        by_key = is_upsert and is_key and is_plain and destination.order_by is None
        read_key = _key_reader(pipeline, destination) if by_key else None
        return cls(by_key, read_key, has_tombstones_only and read_key is not None, is_upsert and has_tombstones_only)

    def key(self, raw: bytes | str | None) -> tuple[Any, ...] | None:
        """The key of a record, as its row has it or as raw bytes; None if the key does not decide the row."""
        if not self.by_key or not isinstance(raw, bytes):
            return None
        return (raw,) if self.read_key is None else self.read_key(raw)


def _key_reader(pipeline: Pipeline, destination: Destination) -> Callable[[bytes], tuple[Any, ...] | None] | None:
    """The function that reads keys into identifier columns: of JSON, one number or one text. None for other formats."""
    key_format = None if pipeline.key is None else pipeline.key.format
    columns = {name: destination.columns[name] for name in destination.identifier}
    types = [column.type for column in columns.values()]
    if key_format in _NUMBER_SIZES and types in (["int"], ["long"]):
        size = _NUMBER_SIZES[key_format]
        return lambda raw: (int.from_bytes(raw, "big", signed=True),) if len(raw) == size else None
    if (key_format, types) == ("string", ["string"]):
        return _text
    if key_format != "json" or any(column.source == () for column in columns.values()):
        return None
    value = pipeline.value.model_copy(update={"unknown_fields": "ignore"})
    column_readers = ColumnReaders(columns, value)
    once, any_case = value.duplicate_keys == "dead_letter", value.field_names == "case_insensitive"
    decoder = decoder_of(once=once, any_case=any_case)

    def read(raw: bytes) -> tuple[Any, ...] | None:
        try:
            document = column_readers.document(object_of(raw, decoder))
            return tuple([read_cell(document) for read_cell in column_readers.cell_readers])
        except Unfit:
            return None

    return read


def _text(raw: bytes) -> tuple[Any, ...] | None:
    try:
        return (raw.decode(),)
    except UnicodeDecodeError:
        return None


@dataclass
class PlacedComparison(Comparison):
    """The comparison of one partition of such a table: compares dead letters, and stores where the other records are."""

    places: PlaceStore = field(kw_only=True)
    certainty: Certainty = field(kw_only=True)

    def _compare_record(self, message: Message, offset: int, outcomes: Sequence[Outcome], passes: Passes) -> None:
        if outcomes:
            super()._compare_record(message, offset, outcomes, passes)
        if not passes:
            return
        value, n = message.value(), passes[-1]
        is_dead = {outcome.batch for outcome in outcomes}.issuperset(passes)
        kind = "letter" if is_dead else "tombstone" if value is None else "value"
        is_filtered = self.rules.for_batch(n).filters_record(value, self.subject.topic, message)
        self.counts["filtered"] += is_filtered and not outcomes
        changes_row = not outcomes and not is_filtered and n not in self.rules.unknown_file_batches
        key = self.certainty.key(message.key())
        place = RecordPlace(self.subject.topic, self.subject.partition, offset, n)
        self.places.add_record(place, micros(message), kind, key, changes_row=changes_row)


@dataclass(frozen=True)
class PlacedCheck(MergedTableCheck):
    """Compares the rows of such a table with the records that they name."""

    certainty: Certainty = field(kw_only=True)

    def results(self, places: PlaceStore, results: Sequence[PartitionResult]) -> list[PartitionResult]:
        """Compare, and return the results of partitions with the counts added."""
        return self._with_counts(results, chain(self._add_rows(places), self._compare_rows(places)))

    def _add_rows(self, places: PlaceStore) -> Iterator[tuple[str, RecordPlace]]:
        """Add the rows of the live topics to the store."""
        keys = [name for name in self.destination.identifier if name in self.columns]
        for place, stamp, is_deleted, key in self._rows(keys):
            places.add_row(key, place, stamp, is_deleted=is_deleted)
            yield "rows", place

    def _compare_rows(self, places: PlaceStore) -> Iterator[tuple[str, RecordPlace]]:
        for row in places.rows(are_keys_read=self.certainty.read_key is not None):
            if (kind := self._judge_row(row)) is not None:
                yield kind, row.place
        for shown, place, count in places.duplicate_keys():
            yield self._report("duplicate", place, f"one row of key {shown}", f"{count}"), place
        expected = "a row of this record's key: it is the last one, and has a value"
        for place in places.records_without_row() if self.certainty.value_has_row and not self.rules.abandoned else ():
            yield self._report("missing", place, expected, "none"), place

    def _judge_row(self, row: PlacedRow) -> str | None:
        place = row.place
        is_old = row.kind is None and row.later is None and self._is_old(place)
        if self.rules.abandoned or place.batch in self.rules.unrecorded or is_old:
            return "unchecked"
        problem = next(self._problems(row), None)
        return None if problem is None else self._report(problem[0], place, *problem[1:])

    def _problems(self, row: PlacedRow) -> Iterator[tuple[Kind, str, str]]:
        """Kind, expected and actual state of each difference between a row and its record; the first one is reported."""
        key = f"the row of key {row.shown}"
        if row.later is not None:
            yield "changed", f"{key} as offset {row.later} left it, or none if that has no value", "one of this record"
        if row.kind is None:
            yield "unexpected", "a record that was read, and has this row", f"a row of key {row.shown}"
        if row.kind == "letter":
            yield "unexpected", "no row: the record is a dead letter", f"one of key {row.shown}"
        if row.kind == "tombstone" and not row.is_deleted:
            yield "unexpected", "no row: the record has no value", f"one of key {row.shown}"
        if row.kind == "value" and row.is_deleted and self.certainty.only_tombstones_delete:
            yield "changed", f"{key}: the record has a value", "one marked as deleted"
        if row.kind is not None and row.stamp != row.record_stamp:
            yield "changed", f"the timestamp of the record in {key}", "another"
