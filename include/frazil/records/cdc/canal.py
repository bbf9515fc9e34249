"""Change events of Canal's flat messages: the rows of one statement each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from frazil.batch.changes import DELETE, TRUNCATE, UPSERT
from frazil.errors import Terminal
from frazil.records.cdc.images import columns_of_image, mapped
from frazil.records.cdc.order import instants
from frazil.records.cdc.parsed_value import sent_images
from frazil.records.model.changes import Images, ParsedImages, ParsedValue
from frazil.records.model.positions import mask_without
from frazil.records.transforms.cdc.change import Verdict, failures, text_field
from frazil.records.transforms.fields import find

_NAME: Final = "canal"
_OPS: Final = {"INSERT": UPSERT, "UPDATE": UPSERT, "DELETE": DELETE, "TRUNCATE": TRUNCATE}


@dataclass(frozen=True, slots=True)
class Canal:
    """Records with type, a list of rows in data and, for updates, those fields in old that changed, row by row.

    All values come as text. DDL tells of no row, but for TRUNCATE.
    """

    @property
    def text_casts(self) -> bool:
        """All values are texts."""
        return True

    def sent(self, value: ParsedValue) -> ParsedImages:
        """Find the rows of a message."""
        return sent_images(_OPS.get(str(value.at("type"))), value.at("data"), value.at("old"))

    def images(self, value: pa.RecordBatch) -> Images:
        """Take messages apart."""
        sent = text_field(_NAME, value, "type")
        op, known = mapped(sent, _OPS)
        ddl = find(value, "isDdl", nested=False)
        is_ddl = pc.fill_null(_flag(ddl, value.num_rows), fill_value=False)
        data, old = _rows(value, "data"), _rows(value, "old")
        tells_rows = pc.fill_null(pc.is_in(op, value_set=pa.array([UPSERT, DELETE])), fill_value=False)
        lengths = pc.fill_null(pc.list_value_length(data), 0)
        uneven = pc.fill_null(pc.not_equal(pc.list_value_length(old), lengths), fill_value=False)
        verdicts: list[Verdict] = [
            (
                pc.and_not(pc.invert(known), is_ddl),
                f"{_NAME}: expected type INSERT, UPDATE or DELETE, found {{}}",
                "type",
            ),
            (pc.and_(tells_rows, pc.equal(lengths, 0)), f"{_NAME}: expected the rows of {{}}, found none", "data"),
            (pc.and_(tells_rows, uneven), f"{_NAME}: expected as many rows in old as in data", "old"),
        ]
        failed = failures(verdicts, pa.repeat(pa.scalar(value=True), len(op)), sent)
        good = pc.and_(tells_rows, mask_without(len(op), failed))
        statements = pc.indices_nonzero(good).cast(pa.int64())
        of, now, was = _apart(statements, data.take(statements), old.take(statements))
        truncates = pc.indices_nonzero(pc.fill_null(pc.equal(op, TRUNCATE), fill_value=False)).cast(pa.int64())
        if len(truncates):
            of, now, was = _with_nothing(of, now, was, truncates)
        ops = op.take(of)
        had = pc.and_(was.is_valid(), pc.equal(ops, UPSERT))
        nothing = pa.nulls(len(of), pa.string())
        at = instants(_NAME, value, "es", "ms")
        facts = {"op": sent.take(of), "ts": at.take(of), "order": nothing}
        return Images(of, ops, columns_of_image(now), columns_of_image(was), had, facts, failed)


def _flag(values: pa.Array | None, size: int) -> pa.BooleanArray:
    if values is None or pa.types.is_null(values.type):
        return pa.nulls(size, pa.bool_())
    if not pa.types.is_boolean(values.type):
        raise Terminal(
            f"changes.format {_NAME}: expected isDdl as boolean, found {values.type}", next_step="declare it as boolean"
        )
    return values


def _rows(value: pa.RecordBatch, name: str) -> pa.ListArray:
    """The rows of each message, null where it has none."""
    values = find(value, name, nested=False)
    if values is None or pa.types.is_null(values.type):
        return pa.nulls(value.num_rows, pa.list_(pa.struct([])))
    if not (pa.types.is_list(values.type) and pa.types.is_struct(values.type.value_type)):
        raise Terminal(
            f"changes.format {_NAME}: expected {name} as a list of structs, found {values.type}",
            next_step=f"declare {name} as list<struct<…>> under value.fields",
        )
    return values


def _apart(
    statements: pa.Int64Array, data: pa.ListArray, old: pa.ListArray
) -> tuple[pa.Int64Array, pa.StructArray, pa.StructArray]:
    """The rows of statements one by one: the message of each, the row as it is, and as it was."""
    parents = pc.list_parent_indices(data)
    has_old = old.is_valid().take(parents)
    at = pc.subtract(pc.cumulative_sum(has_old.cast(pa.int64())), pa.scalar(1, pa.int64()))
    aligned = pc.if_else(has_old, at, pa.scalar(None, pa.int64()))
    return statements.take(parents), pc.list_flatten(data), pc.list_flatten(old).take(aligned)


def _with_nothing(
    of: pa.Int64Array, now: pa.StructArray, was: pa.StructArray, more: pa.Int64Array
) -> tuple[pa.Int64Array, pa.StructArray, pa.StructArray]:
    """The same, and messages that tell of no row in their places."""
    every = pa.concat_arrays([of, more])
    order = pc.array_sort_indices(every)
    both = (pa.concat_arrays([values, pa.nulls(len(more), values.type)]).take(order) for values in (now, was))
    return every.take(order), *both
