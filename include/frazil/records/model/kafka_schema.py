"""The Arrow shape in which consumed Kafka records enter this room."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from frazil.error_codes import INTERNAL

_FIRST_MICROS: Final = -62_135_596_800_000_000
_LAST_MICROS: Final = 253_402_300_799_999_999
"""The instants that Python's `datetime` can hold, in microseconds since 1970."""

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

UNREAD_BYTES: Final = "unread_bytes"
"""Name of a further column of batches with records that were not taken over whole, and null for all others: how many bytes
key, value and headers have of one that is too large, `NOT_UNPACKED` or `BAD_HEADERS`. The headers of the first two are the
letter's, and they have neither key nor value here."""

NOT_UNPACKED: Final = -1
"""Of a record whose batch the client can't unpack."""

BAD_HEADERS: Final = -2
"""Of a record with a header whose name is not UTF-8; it has no headers here."""

PAYLOAD_HEADER: Final = "frazil.payload"
"""Header of a letter without its record: a null value could as well be a tombstone. Its value is the kind."""

BYTES_HEADER: Final = "frazil.bytes"
"""Header of a letter whose record was too large to be taken over: how many bytes its key, value and headers have."""


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
        raise INTERNAL.terminal(
            f"consumed records don't have the expected columns: expected {_shape(KAFKA_SCHEMA)}, "
            f"found {_shape(batch.schema)}: {e}",
            next_step="have the reader name and type its columns as in KAFKA_SCHEMA",
        ) from e


def unread_headers(size: int) -> list[dict[str, Any]]:
    """Return the headers for a record whose payload was not read, with its size if that is known."""
    sizes = [] if size == NOT_UNPACKED else [{"key": BYTES_HEADER, "value": b"%d" % size}]
    return [{"key": PAYLOAD_HEADER, "value": b"none"}, *sizes]


def with_python_times(batch: pa.RecordBatch | pa.Table) -> pa.RecordBatch | pa.Table:
    """Return records or letters with null for each `timestamp` beyond the years 1 to 9999, which Python can't hold."""
    index = batch.schema.get_field_index("timestamp")
    if index < 0:
        return batch
    times = batch.column(index)
    micros = times.cast(pa.int64())
    fits = pc.and_(pc.greater_equal(micros, _FIRST_MICROS), pc.less_equal(micros, _LAST_MICROS))
    return batch.set_column(index, batch.schema.field(index), pc.if_else(fits, times, None))


def header_entries(headers: pa.ListArray) -> tuple[pa.Int64Array, pa.StructArray]:
    """Return the entries of header lists, and beside each the row that it is of, ascending.

    A null list may have entries below it, after a slice or a mask. They belong to no row.
    """
    rows = pc.list_parent_indices(headers).cast(pa.int64())
    if headers.null_count:
        rows = rows.filter(headers.is_valid().take(rows))
    return rows, headers.flatten()


def last_header(headers: pa.ListArray, name: str) -> tuple[pa.Int64Array, pa.BinaryArray]:
    """Return the rows that have a header of that name, ascending, and its value, perhaps null. Of several the last one counts."""
    parents, entries = header_entries(headers)
    has_name = pc.fill_null(pc.equal(pc.struct_field(entries, 0), name), False)  # noqa: FBT003 - a value
    if not has_name.true_count:
        return pa.array([], pa.int64()), pa.array([], pa.binary())
    rows = parents.filter(has_name)
    header_values = pc.struct_field(entries, 1).filter(has_name)
    changes = pc.not_equal(rows.slice(0, len(rows) - 1), rows.slice(1))
    is_last = pa.concat_arrays([changes, pa.array([True])])
    return rows.filter(is_last), header_values.filter(is_last)


def _shape(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)
