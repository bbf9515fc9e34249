"""What every batch must hold, whatever is in it: one outcome per record, raw bytes kept, neighbours left alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

import pyarrow as pa
import pyarrow.compute as pc

from frazil.records.dead import DEAD_SCHEMA
from frazil.records.decode import Decoder
from frazil.records.outcome import FilterReason, Outcomes
from tests.fuzz.mutations import mutated
from tests.fuzz.subjects import Subject
from tests.unit.records.kafka_batches import kafka_batch

GOOD_EVERY = 8
"""One value in so many is a good one."""


_COUNTED = {pa.timestamp("us", "UTC"): pa.int64(), pa.date32(): pa.int32()}
"""Times as numbers, since Python has none beyond the year 9999."""


class BrokenPromiseError(AssertionError):
    """A decoder did what it must never do."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Inputs between good neighbours.

    Attributes:
        values: What is decoded.
        good: Which of them are good values, as positions.
        rows: The rows that these have when nothing else is around.
    """

    values: Sequence[bytes | None]
    good: pa.Int64Array
    rows: pa.RecordBatch

    def decoded(self, decoder: Decoder) -> Outcomes:
        """Decode the batch and hold every promise.

        Raises:
            BrokenPromiseError: one was broken.
        """
        records = kafka_batch(self.values)
        try:
            outcomes = decoder.decode(records)
        except Exception as e:
            raise BrokenPromiseError(f"an exception left the decoder: {type(e).__name__}: {str(e)[:400]}") from e
        _check_form(outcomes)
        _check_outcomes(records, outcomes)
        _check_neighbours(self, records, outcomes)
        return outcomes


def random_batch(rng: Random, subject: Subject, decoder: Decoder, size: int) -> Batch:
    """Return `size` mutated inputs with good values between them."""
    values: list[bytes | None] = []
    good: list[int] = []
    while len(values) - len(good) < size:
        if rng.randrange(GOOD_EVERY) == 0:
            good.append(len(values))
            values.append(subject.good(rng.randrange(1 << 20)))
        else:
            values.append(mutated(rng, subject))
    return batch(values, good, decoder)


def batch(values: Sequence[bytes | None], good: Sequence[int], decoder: Decoder) -> Batch:
    """Return a batch, with the rows that its good values have among themselves."""
    alone = decoder.decode(kafka_batch([values[at] for at in good])).rows
    if len(alone) < len(good):
        raise BrokenPromiseError("a good value became no row")
    return Batch(values, pa.array(good, pa.int64()), alone)


def same(left: Outcomes, right: Outcomes) -> bool:
    """Whether two decodings of the same records say the same."""
    pairs = ((left.rows, right.rows), (left.dead, right.dead))
    return left.counts == right.counts and all(shown(one) == shown(other) for one, other in pairs)


def shown(rows: pa.RecordBatch) -> list[str]:
    """Return the rows in a form that can be compared: NaN equals itself, and years go beyond 9999."""
    columns = [column.cast(_COUNTED.get(column.type, column.type)).to_pylist() for column in rows.columns]
    return [repr(row) for row in zip(*columns, strict=True)]


def _check_form(outcomes: Outcomes) -> None:
    try:
        outcomes.rows.validate(full=True)
        outcomes.dead.validate(full=True)
    except pa.ArrowInvalid as e:
        raise BrokenPromiseError(f"rows or dead letters are no valid Arrow: {e}") from e


def _check_outcomes(records: pa.RecordBatch, outcomes: Outcomes) -> None:
    """Each record is one row, or one dead letter with its bytes, or has no value; and the counts say so."""
    absent = pc.filter(records["offset"], records["value"].is_null())
    rows, letters = outcomes.rows["_kafka_offset"], outcomes.dead["offset"]
    found = sorted([*rows.to_pylist(), *letters.to_pylist(), *absent.to_pylist()])
    if found != records["offset"].to_pylist():
        raise BrokenPromiseError("a record has no outcome, or two")
    of_letters = records.take(pc.index_in(letters, records["offset"]))
    for name in ("key", "value", "headers", "topic", "partition", "offset", "timestamp"):
        if not outcomes.dead[name].equals(of_letters[name]):
            raise BrokenPromiseError(f"a dead letter has another {name} than its record")
    if outcomes.dead.schema != DEAD_SCHEMA:
        raise BrokenPromiseError("dead letters have other columns")
    counts = list(outcomes.counts.values())
    filtered = sum(one.filtered.get(FilterReason.TOMBSTONE, 0) for one in counts)
    written = sum(one.written for one in counts)
    if not all(one.is_complete for one in counts) or (written, filtered) != (len(rows), len(absent)):
        raise BrokenPromiseError("the counts are not those of rows and dead letters")


def _check_neighbours(of: Batch, records: pa.RecordBatch, outcomes: Outcomes) -> None:
    places = pc.index_in(records["offset"].take(of.good), outcomes.rows["_kafka_offset"])
    if places.null_count:
        raise BrokenPromiseError("a good neighbour died")
    names = [name for name in of.rows.schema.names if name not in {"_kafka_offset", "_kafka_timestamp"}]
    rows = outcomes.rows.take(places)
    if not rows.select(names).equals(of.rows.select(names)):
        raise BrokenPromiseError("a good neighbour changed")
