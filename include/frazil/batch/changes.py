"""How staged rows of a merged table tell what they are: two columns beside those of the table.

Rows are staged as plain Parquet in the order they were read. Of two rows of one key the later one counts: by the column that
`order_by` names (never null in a staged row, but for a truncate), then by Kafka partition and offset, then by `PLACE`. Without
`order_by` Kafka's timestamp comes first between two partitions. Of a deleted row all columns may be null but the key, the one
of `order_by`, and those that tell where it came from; of a truncate the key as well.
"""

from __future__ import annotations

from typing import Final, Literal

OP: Final = "_frazil_op"
"""What happens: text, one of `Op`."""

PLACE: Final = "_frazil_place"
"""int32: place of a row among the rows of its record, from 0."""

Op = Literal["upsert", "delete", "truncate"]
UPSERT: Final = "upsert"
DELETE: Final = "delete"
TRUNCATE: Final = "truncate"
