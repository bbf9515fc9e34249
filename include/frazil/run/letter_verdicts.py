"""Judging dead letters anew: the rows of those that are good now, and the letters as they read from then on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from frazil.batch.facts import Counts, TopicPartition
from frazil.batch.letters import OpenLetter, Place
from frazil.batch.unknown import UnknownFields
from frazil.records.decode import Decoder
from frazil.records.kafka import KAFKA_SCHEMA
from frazil.records.redaction import Payload, has_record, redacted

_REASON = ("code", "stage", "message", "path")


@dataclass(frozen=True, slots=True)
class Verdicts:
    """What became of some letters.

    Attributes:
        rows: Rows of those that are good.
        letters: All letters that came in, as they read from now on.
        landed: Records that are no dead letters any more: landed, or left out on purpose.
        counts: Of those, per partition: read, written and filtered.
        dead_codes: How many are still dead, by reason code.
        bare: How many were to be tried and keep nothing of their records.
        bytes: Bytes of the keys and values of the landed ones.
        unknown_fields: Fields of the landed ones that no column takes.
    """

    rows: pa.RecordBatch
    letters: pa.RecordBatch
    landed: frozenset[Place]
    counts: Mapping[TopicPartition, Counts]
    dead_codes: Mapping[str, int]
    bare: int = 0
    bytes: int = 0
    unknown_fields: UnknownFields = field(default_factory=UnknownFields)


def judged(
    letters: pa.RecordBatch, tried: Collection[OpenLetter], decoder: Decoder, n: int, payload: Payload = "full"
) -> Verdicts:
    """Decode the tried ones among letters; the others stay as they are.

    Args:
        letters: Rows of the dead-letter table.
        tried: Which letters are decoded again; no two of one record.
        decoder: The present pipeline's.
        n: Number of the batch that lands them.
        payload: What letters may tell of their records; new reasons quote no more than that.
    """
    keys = zip(_places(letters), letters.column("_frazil_batch").to_pylist(), strict=True)
    asked = pa.array([key in tried for key in keys], pa.bool_())
    mask = pc.and_(asked, has_record(letters))
    chosen = letters.filter(mask)
    outcomes = decoder.decode(_records(chosen))
    dead = redacted(outcomes.dead, payload)
    reasons = dict(zip(_places(dead), _reasons(dead), strict=True))
    landed = frozenset(place for place in _places(chosen) if place not in reasons)
    counts = {
        (key.topic, key.partition): Counts(
            of.written + sum(of.filtered.values()), of.written, 0, sum(of.filtered.values())
        )
        for key, of in outcomes.counts.items()
    }
    home = chosen.filter(pa.array([place in landed for place in _places(chosen)], pa.bool_()))
    size = sum(pc.sum(pc.binary_length(home.column(name))).as_py() or 0 for name in ("key", "value"))
    anew = pa.concat_batches([letters.filter(pc.invert(mask)), _marked(chosen, reasons, n)])
    codes = Counter(str(reason["code"]) for reason in reasons.values())
    unknown = outcomes.unknown if payload == "full" else outcomes.unknown.without_names()
    bare = asked.true_count - mask.true_count
    return Verdicts(outcomes.rows, anew, landed, counts, dict(codes), bare, size, unknown)


def _places(letters: pa.RecordBatch) -> list[Place]:
    columns = (letters.column(name).to_pylist() for name in ("topic", "partition", "offset"))
    return [Place(*of) for of in zip(*columns, strict=True)]


def _reasons(dead: pa.RecordBatch) -> list[dict[str, Any]]:
    reasons: list[dict[str, Any]] = dead.select(_REASON).to_pylist()
    return reasons


def _records(letters: pa.RecordBatch) -> pa.RecordBatch:
    """Letters as the records that they were. The type of their timestamp was not kept; no outcome depends on it."""
    size = letters.num_rows
    columns = [
        pa.nulls(size, field.type) if field.name == "timestamp_type" else letters.column(field.name).cast(field.type)
        for field in KAFKA_SCHEMA
    ]
    return pa.RecordBatch.from_arrays(columns, schema=KAFKA_SCHEMA)


def _marked(letters: pa.RecordBatch, reasons: Mapping[Place, Mapping[str, Any]], n: int) -> pa.RecordBatch:
    """The tried letters: with one more attempt, and their new reason or the batch that landed them."""
    places, rows = _places(letters), letters.select([*_REASON, "attempts"]).to_pylist()
    told = [row if (reason := reasons.get(place)) is None else reason for place, row in zip(places, rows, strict=True)]
    changed: dict[str, list[Any]] = {name: [of[name] for of in told] for name in _REASON}
    changed["attempts"] = [(row["attempts"] or 1) + 1 for row in rows]
    changed["landed_batch"] = [None if place in reasons else n for place in places]
    columns = [
        pa.array(changed[field.name], field.type) if field.name in changed else letters.column(field.name)
        for field in letters.schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=letters.schema)
