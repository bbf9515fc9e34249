"""Decoded records before they become rows: the input and output of transforms."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol, runtime_checkable

from frazil.records import pa, pc
from frazil.records.model.dead_letter import Reason

BARE = "value"
"""Name of the one column of a value that has no fields: a text, a number, a list."""

Column = tuple["pa.Field", "pa.Array"]
Columns = Mapping[str, Column]
"""Fields of rows by name, with their values."""


@dataclass(frozen=True, slots=True)
class Frame:
    """Decoded records of one shape, row by row.

    Attributes:
        records: The records as they were consumed, of `KAFKA_SCHEMA`: original topic, offset, bytes. No transform changes
            them.
        positions: int64, per row the position of its record in the consumed batch, ascending; rows that came from one
            record (exploded lists) share it.
        topic: string, the topic as routing shall see it.
        value: The fields of the values.
        key: The fields of the keys; None if keys are not decoded, or none of these records has one.
        headers: list<struct<key: string, value: binary>>, null where a record has none.
    """

    records: pa.RecordBatch
    positions: pa.Int64Array
    topic: pa.StringArray
    value: pa.RecordBatch
    key: pa.RecordBatch | None
    headers: pa.ListArray

    @classmethod
    def from_records(
        cls, records: pa.RecordBatch, positions: pa.Int64Array, value: pa.RecordBatch, key: pa.RecordBatch | None = None
    ) -> Frame:
        """Make the frame of decoded records: each row is one record."""
        return cls(records, positions, records.column("topic"), value, key, records.column("headers"))

    def __len__(self) -> int:
        return len(self.positions)

    def take(self, rows: pa.Int64Array) -> Frame:
        """Return the frame of some rows, also repeated ones."""
        return Frame(
            take_repeated_rows(self.records, rows),
            self.positions.take(rows),
            self.topic.take(rows),
            take_repeated_rows(self.value, rows),
            None if self.key is None else take_repeated_rows(self.key, rows),
            take_repeated(self.headers, rows),
        )

    def with_value(self, value: pa.RecordBatch) -> Frame:
        """Return the frame with other fields."""
        return replace(self, value=value)


@dataclass(frozen=True, slots=True)
class Transformed:
    """The result of a transform.

    Rows with different fields are in different frames, so that no record gets a field because its neighbour has one.

    Attributes:
        frame: The rows that continue.
        dead: Reasons by the position of the record in the consumed batch.
        filtered: Positions of the records that were left out on purpose, as `Frame.positions` has them.
        other_frames: Rows that continue with other fields than `frame` has.
    """

    frame: Frame
    dead: Mapping[int, Reason] = field(default_factory=dict)
    filtered: frozenset[int] = frozenset()
    other_frames: tuple[Frame, ...] = ()

    @property
    def frames(self) -> tuple[Frame, ...]:
        """All frames that continue; the rows of a record are in the order of the frames."""
        return (self.frame, *self.other_frames)


class Transform(Protocol):
    """One step between decoding and rows: a pure function on Arrow columns."""

    def apply(self, frame: Frame) -> Transformed:
        """Transform a frame; never of no rows.

        A row that fails becomes a reason (`DeadCode.TRANSFORM_FAILED`); its neighbours continue.

        Raises:
            Terminal: The fields of the frame don't have what the transform is declared on (a wrong type, say): a fault of
                the pipeline file, not of a record.
        """


@dataclass(frozen=True, slots=True)
class MissingField:
    """A field that a transform needs and that no record has.

    Attributes:
        option: Attribute name of the option that names the field; empty if the transform itself needs it.
        message: Which field was expected, and which fields there are.
        name: Name of the field. Where records have several shapes, it tells whether all of them lack the field.
    """

    option: str
    message: str
    name: str = ""


@runtime_checkable
class Checked(Protocol):
    """A transform that can find missing fields before any record is read. Its output fields depend on fields, not values."""

    def lacks(self, frame: Frame) -> Iterable[MissingField]:
        """Return the fields that the transform needs and the frame does not have.

        Args:
            frame: One row of nulls, which has the fields that all records have here; only they count.
        """


_TAKEN_BYTES = 128 * 2**20


def take_repeated(values: pa.Array, indices: pa.Int64Array) -> pa.Array:
    """Return the values at indices, which may repeat and may be null.

    Arrow makes room for a value of mean length at each index, nulls too: one large value among few would ask for more memory
    than there is. So of large values few are taken at a time.
    """
    step = max(1, _TAKEN_BYTES * max(len(values), 1) // max(values.nbytes, 1))
    if len(indices) <= max(step, len(values)):
        return values.take(indices)
    return pa.concat_arrays([values.take(indices.slice(start, step)) for start in range(0, len(indices), step)])


def take_repeated_rows(batch: pa.RecordBatch, indices: pa.Int64Array) -> pa.RecordBatch:
    """Return the rows at indices, which may repeat; see `take_repeated`."""
    if not batch.num_columns:
        return batch.take(indices)
    columns = [take_repeated(column, indices) for column in batch.columns]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def values_by_row(values: pa.Array, rows: pa.Int64Array, size: int) -> pa.Array:
    """Return the values of some rows as an array of all rows, null where a row has none."""
    return take_repeated(values, pc.index_in(pa.arange(0, size), value_set=rows))
