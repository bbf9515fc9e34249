"""A record of nulls: what is known of fields before any record is read can be tried on it."""

from __future__ import annotations

import pyarrow as pa

from frazil.records.frame import Frame
from frazil.records.kafka import KAFKA_SCHEMA
from frazil.records.transforms.fields import batch_of


def sample(shape: pa.Schema, key_shape: pa.Schema | None) -> Frame:
    """Return one row of a shape, all of it null.

    Args:
        shape: The fields of the value.
        key_shape: The fields of the key; None if there is none.
    """
    records = pa.RecordBatch.from_arrays([_sample(field) for field in KAFKA_SCHEMA], schema=KAFKA_SCHEMA)
    key = None if key_shape is None else _nothing(key_shape)
    return Frame.of(records, pa.array([0], pa.int64()), _nothing(shape), key)


def _nothing(shape: pa.Schema) -> pa.RecordBatch:
    """One row of a shape, all of it null."""
    nullable = pa.schema([field.with_nullable(nullable=True) for field in shape])
    # A shape may have no fields at all, and still has one row.
    return batch_of([(field, pa.nulls(1, field.type)) for field in nullable], 1)


def _sample(field: pa.Field) -> pa.Array:
    """One value of a column of a consumed record: of a text or number some, else null."""
    if field.nullable and field.name != "value":
        return pa.nulls(1, field.type)
    return pa.array([b"" if field.name == "value" else "topic" if field.name == "topic" else 0], field.type)
