"""A builder of frames."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa
import pytest

from frazil.records.model.format import Frame
from frazil.records.model.rows import KAFKA_SCHEMA
from frazil.records.transforms.fields import batch_of

Columns = Mapping[str, pa.Array | Sequence[object]]


def _batch(columns: Columns, size: int) -> pa.RecordBatch:
    arrays = {name: v if isinstance(v, pa.Array) else pa.array(v) for name, v in columns.items()}
    return _sliced(batch_of([(pa.field(name, array.type), array) for name, array in arrays.items()], size))


def _sliced(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the same rows as a slice out of more of them, as Arrow hands batches on."""
    longer = [pa.concat_arrays([column.slice(0, 1), column, column.slice(0, 1)]) for column in batch.columns]
    return pa.RecordBatch.from_arrays(longer, schema=batch.schema).slice(1, batch.num_rows) if longer else batch


def build(
    value: Columns,
    key: Columns | None = None,
    headers: Sequence[list[tuple[str, bytes | None]] | None] | None = None,
    topics: Sequence[str] | None = None,
    values: Sequence[bytes | None] | None = None,
    timestamps: Sequence[int | None] | None = None,
) -> Frame:
    """Return the frame of some columns. All of them are slices out of longer ones.

    Args:
        value: Fields of the values.
        key: Fields of the keys; None if they are not decoded.
        headers: Per record pairs of name and bytes, or None.
        topics: Per record its topic; `orders` by default.
        values: Per record the bytes of its value.
        timestamps: Per record microseconds since 1970.
    """
    size = max((len(v) for v in [*value.values(), *(x for x in (headers, topics, values) if x)]), default=0)
    columns = {
        "topic": topics or ["orders"] * size,
        "partition": [3] * size,
        "offset": list(range(100, 100 + size)),
        "timestamp": timestamps or list(range(size)),
        "timestamp_type": [0] * size,
        "key": [b"k"] * size,
        "value": values or [b"v"] * size,
        "headers": [
            None if pairs is None else [{"key": name, "value": raw} for name, raw in pairs]
            for pairs in headers or [None] * size
        ],
    }
    arrays = [pa.array(columns[field.name], field.type) for field in KAFKA_SCHEMA]
    records = _sliced(pa.RecordBatch.from_arrays(arrays, schema=KAFKA_SCHEMA))
    made_key = None if key is None else _batch(key, size)
    return Frame.from_records(records, pa.array(range(size), pa.int64()), _batch(value, size), made_key)


@pytest.fixture(scope="session")
def frame() -> Callable[..., Frame]:
    """`frame(value={...}, key=..., headers=..., topics=..., values=...)` makes a frame; see `build`."""
    return build
