"""The Iceberg sink's DmsTransform: a change of AWS Database Migration Service becomes the row it tells of."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Final

from frazil.records import pa, pc
from frazil.records.model.frame import Column, Frame, MissingField, Transformed
from frazil.records.transforms.cdc.change import cdc_struct, failures, refuse_field, text_field
from frazil.records.transforms.definition import SINK, ConnectClass, TransformDefinition, option
from frazil.records.transforms.fields import batch_of, find, lacking, select, typed_field
from frazil.records.transforms.kinds.nested import children

_NAME: Final = "DmsTransform"
_NEEDED: Final = ("data", "metadata", "metadata.schema-name", "metadata.table-name")
"""Fields without which no envelope becomes a row."""
_NO_SOURCE: Final = f"{_NAME}: expected metadata.schema-name and metadata.table-name, found null or no such field"


@dataclass(frozen=True, slots=True)
class DmsTransform(TransformDefinition):
    """Takes the row out of the envelope of AWS DMS and adds a struct about the change.

    The row is `data`. The struct has `op` (U for update, D for delete, else I), `ts` (`metadata.timestamp` as it is) and `source`
    (`<schema-name>.<table-name>`). Records without data or metadata, and those of `record-type: control` (a table was
    made, say), are filtered. Data or metadata that is no struct, and a field of the struct's name in the data, end the run.
    """

    connect_class: ClassVar = ConnectClass(
        f"{SINK}DmsTransform",
        note="DmsTransform writes the struct _cdc {op, ts, source}; the sink's early releases wrote _cdc_op and the like.",
    )

    cdc_field: str = option("Name of the struct about the change.", "_cdc", key="cdc.field", min_length=1)

    def lacks(self, frame: Frame) -> Iterator[MissingField]:
        """Yield the missing parts of an envelope."""
        yield from lacking(frame.value, "", _NEEDED, nested=True)

    def apply(self, frame: Frame) -> Transformed:
        """Unwrap the changes."""
        data, metadata = (
            typed_field(_NAME, frame.value, name, ("struct", "struct"), nested=False) for name in ("data", "metadata")
        )
        if data is None or metadata is None:
            return select(frame, pa.repeat(pa.scalar(value=False), len(frame)))
        control = pc.equal(text_field(_NAME, frame.value, "metadata.record-type"), "control")
        keeps_row = pc.and_not(pc.and_(data.is_valid(), metadata.is_valid()), pc.fill_null(control, fill_value=False))
        cdc = _cdc(frame.value)
        failed = failures([(cdc.field("source").is_null(), _NO_SOURCE, "metadata")], keeps_row)
        columns: list[Column] = children(pa.field("data", data.type, nullable=False), data)
        refuse_field(_NAME, self.cdc_field, [declared.name for declared, _ in columns])
        columns.append((pa.field(self.cdc_field, cdc.type, nullable=False), cdc))
        return select(frame.with_value(batch_of(columns, len(frame), like=frame.value)), keeps_row, failed)


def _cdc(fields: pa.RecordBatch) -> pa.StructArray:
    operation = text_field(_NAME, fields, "metadata.operation")
    schema, table = (text_field(_NAME, fields, f"metadata.{name}-name") for name in ("schema", "table"))
    timestamps = find(fields, "metadata.timestamp")
    return cdc_struct(
        {
            "op": pc.coalesce(
                pc.if_else(pc.equal(operation, "update"), "U", None),
                pc.if_else(pc.equal(operation, "delete"), "D", None),
                pa.scalar("I"),
            ),
            "ts": pa.nulls(fields.num_rows, pa.string()) if timestamps is None else timestamps,
            "source": pc.binary_join_element_wise(schema, table, "."),
        }
    )
