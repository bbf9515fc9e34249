"""Change events of Canal's flat messages: the rows of one statement each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc

from frazil.batch.changes import DELETE, TRUNCATE, UPSERT
from frazil.error_codes import FIELDS_UNFIT
from frazil.records.cdc.images import has_op, image_columns, images_for_op, map_ops, read_instants
from frazil.records.model.changes import Images, ParsedImages, ParsedValue
from frazil.records.model.column import type_name
from frazil.records.model.positions import mask_without
from frazil.records.transforms.cdc.change import Verdict, failures, text_field
from frazil.records.transforms.fields import find, typed_field

_NAME: Final = "canal"
_OPS: Final = {"INSERT": UPSERT, "UPDATE": UPSERT, "DELETE": DELETE, "TRUNCATE": TRUNCATE}


@dataclass(frozen=True, slots=True)
class Canal:
    """Records with type, a list of rows in data and, for updates, those fields in old that changed, row by row.

    All values come as text. DDL changes no row, except TRUNCATE.
    """

    text_casts: ClassVar = True

    def find_images(self, value: ParsedValue) -> ParsedImages:
        """Find the rows of a message."""
        return images_for_op(_OPS.get(str(value.get("type"))), value.get("data"), value.get("old"))

    def images(self, value: pa.RecordBatch) -> Images:
        """Take messages apart."""
        source_ops = text_field(_NAME, value, "type")
        op, is_known = map_ops(source_ops, _OPS)
        kind, step = ("boolean", "boolean"), "declare it as boolean"
        ddl = typed_field(f"changes.format {_NAME}", value, "isDdl", kind, step, nested=False)
        is_ddl = pc.fill_null(pa.nulls(len(op), pa.bool_()) if ddl is None else ddl, fill_value=False)
        data, old = _row_lists(value, "data"), _row_lists(value, "old")
        tells_rows = has_op(op, UPSERT, DELETE)
        lengths = pc.fill_null(pc.list_value_length(data), 0)
        has_other_length = pc.fill_null(pc.not_equal(pc.list_value_length(old), lengths), fill_value=False)
        verdicts: list[Verdict] = [
            (
                pc.and_not(pc.invert(is_known), is_ddl),
                f"{_NAME}: expected type INSERT, UPDATE or DELETE, found {{}}",
                "type",
            ),
            (pc.and_(tells_rows, pc.equal(lengths, 0)), f"{_NAME}: expected the rows of {{}}, found none", "data"),
            (pc.and_(tells_rows, has_other_length), f"{_NAME}: expected as many rows in old as in data", "old"),
        ]
        failed = failures(verdicts, pa.repeat(pa.scalar(value=True), len(op)), source_ops)
        has_rows = pc.and_(tells_rows, mask_without(len(op), failed))
        statements = pc.indices_nonzero(has_rows).cast(pa.int64())
        messages, rows, old_rows = _split_statements(statements, data.take(statements), old.take(statements))
        truncates = pc.indices_nonzero(has_op(op, TRUNCATE)).cast(pa.int64())
        if len(truncates):
            messages, rows, old_rows = _with_truncates(messages, rows, old_rows, truncates)
        ops = op.take(messages)
        had = pc.and_(old_rows.is_valid(), pc.equal(ops, UPSERT))
        no_order = pa.nulls(len(messages), pa.string())
        timestamps = read_instants(_NAME, value, "es", "ms")
        facts = {"op": source_ops.take(messages), "ts": timestamps.take(messages), "order": no_order}
        return Images(messages, ops, image_columns(rows), image_columns(old_rows), had, facts, failed)


def _row_lists(value: pa.RecordBatch, name: str) -> pa.ListArray:
    """The rows of each message, null where it has none."""
    values = find(value, name, nested=False)
    if values is None or pa.types.is_null(values.type):
        return pa.nulls(value.num_rows, pa.list_(pa.struct([])))
    if not (pa.types.is_list(values.type) and pa.types.is_struct(values.type.value_type)):
        raise FIELDS_UNFIT.terminal(
            f"changes.format {_NAME}: expected {name} as a list of structs, found {type_name(values.type)}",
            next_step=f"declare {name} as list<struct<…>> under value.fields",
        )
    return values


def _split_statements(
    statements: pa.Int64Array, data: pa.ListArray, old: pa.ListArray
) -> tuple[pa.Int64Array, pa.StructArray, pa.StructArray]:
    """Split statements into rows: per row its message, the row after the change, and the row before."""
    parent_indices = pc.list_parent_indices(data)
    has_old = old.is_valid().take(parent_indices)
    old_indices = pc.subtract(pc.cumulative_sum(has_old.cast(pa.int64())), pa.scalar(1, pa.int64()))
    aligned_indices = pc.if_else(has_old, old_indices, pa.scalar(None, pa.int64()))
    return statements.take(parent_indices), pc.list_flatten(data), pc.list_flatten(old).take(aligned_indices)


def _with_truncates(
    messages: pa.Int64Array, rows: pa.StructArray, old_rows: pa.StructArray, truncates: pa.Int64Array
) -> tuple[pa.Int64Array, pa.StructArray, pa.StructArray]:
    """Add truncate messages, which have no row, at their places in the order of the messages."""
    all_messages = pa.concat_arrays([messages, truncates])
    order = pc.array_sort_indices(all_messages)
    images = (
        pa.concat_arrays([values, pa.nulls(len(truncates), values.type)]).take(order) for values in (rows, old_rows)
    )
    return all_messages.take(order), *images
