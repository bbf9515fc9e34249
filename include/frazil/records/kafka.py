"""The Arrow shape in which consumed Kafka records enter this room."""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from frazil.errors import Terminal

TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
HEADERS: Final = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))

KAFKA_SCHEMA: Final = pa.schema(
    [
        pa.field("topic", pa.string(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp", TIMESTAMP),
        pa.field("timestamp_type", pa.int32()),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", HEADERS),
    ]
)
"""One row per consumed record. `timestamp` is in microseconds UTC, `timestamp_type` as in Kafka's
protocol (0 = create time, 1 = log append time); key, value and headers are null where Kafka has
none."""


def conform(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return `batch` as `KAFKA_SCHEMA`: columns by name, cast where an engine's types differ.

    Raises:
        Terminal: a column is missing or can't be cast without loss.
    """
    if batch.schema.equals(KAFKA_SCHEMA):
        return batch
    try:
        return batch.select(KAFKA_SCHEMA.names).cast(KAFKA_SCHEMA)
    except (KeyError, pa.ArrowException) as e:
        raise Terminal(
            f"consumed records don't have the expected columns: expected {_shape(KAFKA_SCHEMA)}, "
            f"found {_shape(batch.schema)}: {e}",
            next_step="have the reader name and type its columns as in KAFKA_SCHEMA",
        ) from e


def header_entries(headers: pa.ListArray) -> tuple[pa.Int64Array, pa.StructArray]:
    """Return the entries of header lists, and beside each the row that it is of, ascending.

    A null list may stand over entries: of a slice, or of rows that were masked. They are nobody's.
    """
    rows = pc.list_parent_indices(headers).cast(pa.int64())
    if headers.null_count:
        rows = rows.filter(headers.is_valid().take(rows))
    return rows, headers.flatten()


def _shape(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)
