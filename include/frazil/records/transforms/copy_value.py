"""The Iceberg sink's CopyValue: one field again under another name."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from frazil.records.frame import Frame, Lack, Transformed
from frazil.records.transforms.fields import batch_of, columns_of, lacking, no_field, none_survive


@dataclass(frozen=True, slots=True)
class CopyValue:
    """Copies a top-level field of the values, with its type. A field of the target's name is replaced.

    Records of a shape without the source field fail.

    Attributes:
        source_field: The name of the field to copy, exactly.
        target_field: The name of the copy.
    """

    source_field: str
    target_field: str

    def lacks(self, frame: Frame) -> Iterator[Lack]:
        """Say which fields are not there."""
        yield from lacking(frame.value, "source_field", [self.source_field])

    def apply(self, frame: Frame) -> Transformed:
        """Copy the field."""
        columns = columns_of(frame.value)
        names = [column.name for column, _ in columns]
        if self.source_field not in names:
            return none_survive(frame, no_field("CopyValue", self.source_field, frame.value), self.source_field)
        declared, values = columns[names.index(self.source_field)]
        copy: tuple[pa.Field, pa.Array] = (declared.with_name(self.target_field), values)
        if self.target_field in names:
            columns[names.index(self.target_field)] = copy
        else:
            columns.append(copy)
        return Transformed(frame.with_value(batch_of(columns, len(frame), like=frame.value)))
