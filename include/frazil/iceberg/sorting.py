"""Brings rows into the sort order of their table before they are written, so that readers skip more of each file.

Nothing rests on it: files don't claim the order (their `sort_order_id` stays empty), and a field that can't be computed here
ends it. A table without a sort order costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField
from pyiceberg.transforms import BucketTransform, IdentityTransform, TimeTransform, TruncateTransform
from pyiceberg.types import BinaryType, FixedType, NestedField, TimeType

_COMPUTED = (BucketTransform, TimeTransform, TruncateTransform)


def in_order(rows: pa.Table, metadata: TableMetadata) -> pa.Table:
    """Rows in the table's sort order; equal ones stay as they came."""
    order = metadata.sort_order_by_id(metadata.default_sort_order_id)
    if order is None or order.is_unsorted:
        return rows
    columns: list[pa.ChunkedArray] = []
    keys: list[tuple[str, str, str]] = []
    for column, field in _computed(rows, metadata, order.fields):
        direction = "descending" if field.direction == SortDirection.DESC else "ascending"
        nulls = "at_start" if field.null_order == NullOrder.NULLS_FIRST else "at_end"
        keys.append((str(len(keys)), direction, nulls))
        columns.append(column)
    if not keys:
        return rows
    return rows.take(pc.sort_indices(pa.table(columns, [name for name, *_ in keys]), sort_keys=keys))


def _computed(
    rows: pa.Table, metadata: TableMetadata, fields: list[SortField]
) -> Iterator[tuple[pa.ChunkedArray, SortField]]:
    """The values that rows are sorted by, field by field, up to the first that can't be computed."""
    top = {field.field_id: field for field in metadata.schema().fields}
    for field in fields:
        source = top.get(field.source_id)
        if source is None or source.name not in rows.column_names or not _is_computable(source, field):
            return
        column = rows.column(source.name)
        if not isinstance(field.transform, IdentityTransform):
            column = field.transform.pyarrow_transform(source.field_type)(column)
        if isinstance(column.type, pa.BaseExtensionType):  # Arrow does not compare UUIDs
            return
        yield column, field


def _is_computable(source: NestedField, field: SortField) -> bool:
    if isinstance(field.transform, IdentityTransform):
        return bool(source.field_type.is_primitive)
    return isinstance(field.transform, _COMPUTED) and not isinstance(
        source.field_type, BinaryType | FixedType | TimeType
    )
