"""What every batch must hold, whatever is in it: one outcome per record, raw bytes kept, neighbours left alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from frazil.records.evolution.schema_requests import apply_changes, merge_changes
from frazil.records.model.rows import DEAD_SCHEMA
from tests.fuzz.mutations import mutated
from tests.fuzz.subjects import Subject
from tests.unit.records.kafka_batches import BATCH_NUMBER, OneTable, OneTableOutcomes, kafka_batch

GOOD_EVERY = 8
"""One value in so many is a good one."""

ROUNDS = 4
"""How often a table is changed for one batch."""

KEYS = (None, b"", b"key", b"\xff\xfe", b'{"id": 1}', b'{"id": "${env:HOME}"}', b"[" * 300, b"k" * 5000, b"\0\0\0\0\1x")
HEADERS = (
    None,
    [],
    [{"key": "trace", "value": b"\xff"}],
    [{"key": "", "value": None}] * 50,
    [{"key": "${env:HOME}", "value": b"x" * 5000}, {"key": "__value_schema_id", "value": b"\1\0"}],
)


_COUNTED = {pa.timestamp("us", "UTC"): pa.int64(), pa.date32(): pa.int32()}
"""Times as numbers, since Python has none beyond the year 9999."""


class BrokenPromiseError(AssertionError):
    """A decoder did what it must never do."""


class Decodes(Protocol):
    """A decoder, or a table that follows what it lands."""

    def decode(self, batch: pa.RecordBatch) -> OneTableOutcomes:
        """Return the outcomes of records."""


class Landing:
    """Decodes for a table, which is changed as often as records need what it does not have.

    Args:
        subject: What is decoded.
        blocks: Whether JSON values may be parsed as blocks.
    """

    def __init__(self, subject: Subject, *, blocks: bool = True) -> None:
        self._subject = subject
        self._blocks = blocks
        self.spec = subject.spec
        self._decoder = OneTable(self.spec, BATCH_NUMBER, blocks=blocks)

    def decode(self, batch: pa.RecordBatch) -> OneTableOutcomes:
        """Return the outcomes of records in a table that has what they need."""
        for _ in range(ROUNDS):
            outcomes = self._decoder.decode(batch)
            if not outcomes.demands:
                return outcomes
            self._to(apply_changes(self.spec.columns, merge_changes(outcomes.demands, self.spec)))
        raise BrokenPromiseError(f"a table that never has enough: {outcomes.demands!s:.400}")

    def _to(self, columns: pa.Schema) -> None:
        self.spec = self._subject.spec_of(columns)
        self._decoder = OneTable(self.spec, BATCH_NUMBER, blocks=self._blocks)

    def without_blocks(self) -> Landing:
        """Return what decodes the same, one by one."""
        second_landing = Landing(self._subject, blocks=False)
        second_landing._to(self.spec.columns)  # its own kind
        return second_landing


@dataclass(frozen=True, slots=True)
class Batch:
    """Inputs between good neighbours.

    Attributes:
        records: What is decoded.
        good: Which of them have good values, as positions.
        lands: Whether good values are rows whatever else there is.
    """

    records: pa.RecordBatch
    good: pa.Int64Array
    lands: bool = True

    def decoded(self, decoder: Decodes) -> OneTableOutcomes:
        """Decode the batch and hold every promise.

        Raises:
            BrokenPromiseError: one was broken.
        """
        outcomes = _decoded(decoder, self.records)
        _check_form(outcomes)
        _check_outcomes(self.records, outcomes)
        if len(self.good):
            _check_neighbours(self, outcomes, _decoded(decoder, self.records.take(self.good)))
        return outcomes


def _decoded(decoder: Decodes, records: pa.RecordBatch) -> OneTableOutcomes:
    try:
        return decoder.decode(records)
    except BrokenPromiseError:
        raise
    except Exception as e:
        raise BrokenPromiseError(f"an exception left the decoder: {type(e).__name__}: {str(e)[:400]}") from e


def random_batch(rng: Random, subject: Subject, size: int) -> Batch:
    """Return `size` mutated inputs with good values between them."""
    values: list[bytes | None] = []
    good: list[int] = []
    while len(values) - len(good) < size:
        if rng.randrange(GOOD_EVERY) == 0:
            good.append(len(values))
            values.append(subject.good(rng.randrange(1 << 20)))
        else:
            values.append(mutated(rng, subject))
    records = kafka_batch(values)
    columns = dict(zip(records.schema.names, records.columns, strict=True))
    columns["key"] = pa.array([rng.choice(KEYS) for _ in values], pa.binary())
    # A header may name another schema: then no value is good.
    headers = [HEADERS[0] if index in good else rng.choice(HEADERS) for index in range(len(values))]
    columns["headers"] = pa.array(headers, records.schema.field("headers").type)
    hostile = pa.RecordBatch.from_arrays(list(columns.values()), schema=records.schema)
    # DuckDB has no decimals of more than 38 digits, which JSON Schema knows.
    lands = subject.specs is None and not subject.spec.transforms
    return Batch(hostile, pa.array(good, pa.int64()), lands)


def batch(values: Sequence[bytes | None], good: Sequence[int]) -> Batch:
    """Return a batch, of which some values are good."""
    return Batch(kafka_batch(values), pa.array(good, pa.int64()))


def same(first: OneTableOutcomes, right: OneTableOutcomes) -> bool:
    """Whether two decodings of the same records say the same."""
    pairs = ((first.rows, right.rows), (first.dead, right.dead))
    return first.counts == right.counts and all(shown(one) == shown(second) for one, second in pairs)


def shown(rows: pa.RecordBatch) -> list[str]:
    """Return the rows in a form that can be compared: NaN equals itself, and years go beyond 9999."""
    columns = [column.cast(_COUNTED.get(column.type, column.type)).to_pylist() for column in rows.columns]
    return [repr(row) for row in zip(*columns, strict=True)]


def _check_form(outcomes: OneTableOutcomes) -> None:
    try:
        outcomes.rows.validate(full=True)
        outcomes.dead.validate(full=True)
    except pa.ArrowInvalid as e:
        raise BrokenPromiseError(f"rows or dead letters are no valid Arrow: {e}") from e


def _check_outcomes(records: pa.RecordBatch, outcomes: OneTableOutcomes) -> None:
    """Each record is rows, or one dead letter with its bytes, or left out on purpose; and the counts say so."""
    rows, letters = pc.unique(outcomes.rows["_kafka_offset"]), outcomes.dead["offset"]
    counts = list(outcomes.counts.values())
    filtered = sum(sum(one.filtered.values()) for one in counts)
    all_rows = [*rows.to_pylist(), *letters.to_pylist()]
    if len(set(all_rows)) < len(all_rows) or not set(all_rows) <= set(records["offset"].to_pylist()):
        raise BrokenPromiseError("a record has two outcomes")
    if len(all_rows) + filtered != len(records):
        raise BrokenPromiseError("a record has no outcome, or two")
    of_letters = records.take(pc.index_in(letters, records["offset"]))
    for name in ("key", "value", "headers", "topic", "partition", "offset", "timestamp"):
        if not outcomes.dead[name].equals(of_letters[name]):
            raise BrokenPromiseError(f"a dead letter has another {name} than its record")
    if outcomes.dead.schema != DEAD_SCHEMA:
        raise BrokenPromiseError("dead letters have other columns")
    written = sum(one.written for one in counts)
    if not all(one.is_complete for one in counts) or written != len(rows):
        raise BrokenPromiseError("the counts are not those of rows and dead letters")


def _check_neighbours(batch: Batch, outcomes: OneTableOutcomes, alone: OneTableOutcomes) -> None:
    """Good values become among themselves what they become beside others."""
    offsets = batch.records["offset"].take(batch.good)
    if batch.lands and len(alone.rows) < len(batch.good):
        raise BrokenPromiseError("a good value became no row")
    rows = outcomes.rows.filter(pc.is_in(outcomes.rows["_kafka_offset"], value_set=offsets))
    dead = outcomes.dead.filter(pc.is_in(outcomes.dead["offset"], value_set=offsets))
    if len(rows) != len(alone.rows) or dead["offset"] != alone.dead["offset"]:
        raise BrokenPromiseError("a good neighbour died")
    if shown(rows) != shown(alone.rows):
        raise BrokenPromiseError("a good neighbour changed")
