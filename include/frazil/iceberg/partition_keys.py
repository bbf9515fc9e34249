"""Lets PyIceberg 0.12 write tables with several partition fields of one column, such as `bucket(16, id)` and `truncate(100, id)`.

It looks a value's field up by its column and gives up if there are two, though each value knows its own. Importing this module
mends that for this process; `tests/unit/iceberg/test_layout.py` says when a newer PyIceberg makes it needless.
"""

from __future__ import annotations

from pyiceberg.partitioning import PartitionKey, partition_record_value
from pyiceberg.typedef import Record


def _partition(key: PartitionKey) -> Record:
    return Record(*(partition_record_value(of.field, of.value, key.schema) for of in key.field_values))


PartitionKey.partition = property(_partition)  # type: ignore[assignment]
