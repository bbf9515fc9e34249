"""Times that ORC files don't give back as they were: refused while nothing is decided, rather than changed in silence.

Measured with ORC of Iceberg 1.12 (Java) and Arrow's reader: of the second before 1970, Java's writer stores most instants a
second late; and Arrow reads nanoseconds, which end in 1677 and 2262.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from frazil.errors import Terminal

ORC: Final = "orc"

_SECOND: Final = 1_000_000
_FAR: Final = 2**63 // 1000 - 1
"""Microseconds from 1970 that nanoseconds can count."""


def refuse_altered(rows: pa.Table, table: str) -> None:
    """Refuse rows that a table of ORC files would not give back as they are.

    Raises:
        Terminal: A time, also in a list, map or struct, is one of those.
    """
    for name in rows.column_names:
        for chunk in rows.column(name).chunks:
            for times in _times(chunk):
                if pc.any(_altered(times)).as_py():
                    raise Terminal(
                        f"table {table}, column {name}: a time within the second before 1970, or before 1677 or after 2262:"
                        " ORC files would give back another one; nothing was published",
                        next_step="leave such records out by a transform, or land into a table of Parquet files",
                    )


def _times(array: pa.Array) -> Iterator[pa.Array]:
    """All timestamps of an array, at any depth."""
    of = array.type
    if pa.types.is_timestamp(of):
        yield array
    elif pa.types.is_struct(of):
        for inner in array.flatten():
            yield from _times(inner)
    elif pa.types.is_map(of):
        for inner in (array.keys, array.items):
            yield from _times(inner)
    elif pa.types.is_list(of) or pa.types.is_large_list(of):
        yield from _times(array.flatten())


def _altered(times: pa.Array) -> pa.Array:
    at = times.cast(pa.timestamp("us", times.type.tz)).cast(pa.int64())
    before_1970 = pc.and_(pc.greater(at, -_SECOND), pc.less(at, 0))
    return pc.or_(before_1970, pc.or_(pc.greater(at, _FAR), pc.less(at, -_FAR)))
