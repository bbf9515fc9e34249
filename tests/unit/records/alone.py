"""What becomes of records together and one by one, in a form that can be compared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from frazil.batch.facts import UnknownFields
from frazil.errors import Terminal
from frazil.records.decoder.decode import Decoder
from frazil.records.decoder.route import Route
from frazil.records.model.rows import KAFKA_SCHEMA, Counts, Outcomes, PartitionCounts, TopicPartition
from frazil.records.model.spec import RecordSpec

_COUNTED = {pa.timestamp("us", "UTC"): pa.int64(), pa.timestamp("us"): pa.int64(), pa.date32(): pa.int32()}
"""Times as numbers, since Python has none beyond the year 9999."""


@dataclass(frozen=True)
class Became:
    """What records became.

    Attributes:
        rows: Table -> rows, in their order; NaN equals itself.
        dead: Dead letters, in their order.
        counts: Per topic partition.
        unknown: Fields in no row.
        refused: What ended the run, if anything did.
    """

    rows: Mapping[str, list[str]] = field(default_factory=dict)
    dead: list[str] = field(default_factory=list)
    counts: Counts = field(default_factory=dict)
    unknown: UnknownFields = field(default_factory=UnknownFields)
    refused: bool = False


def became(fan_out: Decoder, records: pa.RecordBatch) -> Became:
    """Decode a batch."""
    try:
        done = fan_out.decode(records)
    except Terminal:
        return Became(refused=True)
    _check(done)
    rows = {table: shown(rows) for table, rows in done.rows.items()}
    return Became(rows, shown(done.dead), done.counts, done.unknown_fields)


def _added(first: Counts, second: Counts) -> dict[TopicPartition, PartitionCounts]:
    none = PartitionCounts()
    pairs = {key: (first.get(key, none), second.get(key, none)) for key in {*first, *second}}
    return {
        key: PartitionCounts(
            a.read + b.read,
            a.written + b.written,
            dict(Counter(a.dead) + Counter(b.dead)),
            dict(Counter(a.filtered) + Counter(b.filtered)),
        )
        for key, (a, b) in pairs.items()
    }


def joined(parts: Iterable[Became]) -> Became:
    """What several batches became, one behind the other."""
    whole = Became()
    for part in parts:
        rows = {table: [*whole.rows.get(table, []), *rows_of_part] for table, rows_of_part in part.rows.items()}
        whole = Became(
            rows or whole.rows,
            [*whole.dead, *part.dead],
            _added(whole.counts, part.counts),
            whole.unknown + part.unknown,
            whole.refused or part.refused,
        )
    return Became(refused=True) if whole.refused else whole


def cut_up(records: pa.RecordBatch, sizes: Iterable[int]) -> list[pa.RecordBatch]:
    """The records in batches of these sizes, the rest in a last one."""
    batches, start = [], 0
    for size in sizes:
        batches.append(records.slice(start, size))
        start += size
    return [batch for batch in [*batches, records.slice(start)] if len(batch)]


def one_by_one(records: pa.RecordBatch) -> list[pa.RecordBatch]:
    """Each record in a batch of its own."""
    return cut_up(records, [1] * len(records))


def both_ways(spec: RecordSpec | Mapping[str, RecordSpec], records: pa.RecordBatch, route: Route | None = None) -> Any:
    """Return what the records became together, and one by one."""
    specs = spec if isinstance(spec, Mapping) else {"t": spec}
    fan_out = Decoder(specs, route, 7)
    return became(fan_out, records), joined(became(fan_out, batch) for batch in one_by_one(records))


def records_of(*messages: tuple[str, bytes | None, bytes | None], headers: Iterable[list[str]] = ()) -> pa.RecordBatch:
    """Consumed records of topic, key and value, each with headers of these names."""
    named = [*headers, *([[]] * len(messages))]
    rows = [
        {
            "topic": topic,
            "partition": 0,
            "offset": 100 + index,
            "timestamp": index,
            "key": key,
            "value": value,
            "headers": [{"key": name, "value": b"v"} for name in named[index]],
        }
        for index, (topic, key, value) in enumerate(messages)
    ]
    return pa.RecordBatch.from_pylist(rows, KAFKA_SCHEMA)


def shown(rows: pa.RecordBatch) -> list[str]:
    """Return the rows in a form that can be compared."""
    columns = [column.cast(_COUNTED.get(column.type, column.type)).to_pylist() for column in rows.columns]
    return [repr(row) for row in zip(*columns, strict=True)]


def _check(done: Outcomes) -> None:
    for rows in (*done.rows.values(), done.dead):
        rows.validate(full=True)
    assert all(counts.is_complete for counts in done.counts.values())
