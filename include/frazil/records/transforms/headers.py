"""Transforms of headers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

import pyarrow as pa

from frazil.error_codes import BAD_TRANSFORM
from frazil.records.model.frame import Frame, MissingField, Transformed
from frazil.records.transforms.fields import (
    Target,
    batch_of,
    columns_of,
    fields_of,
    first_duplicate,
    lacking,
    no_field_message,
    reject_all,
    with_fields,
)
from frazil.records.transforms.header_lists import append_header, drop_headers
from frazil.records.transforms.values.texts import header_bytes


@dataclass(frozen=True, slots=True)
class HeaderFrom:
    """Copies or moves fields into headers, behind those that are there.

    A text becomes its bytes in UTF-8, binary stays as it is, numbers and times become text, structs and lists JSON; null
    becomes a header without value. Records of a shape without one of the fields fail.

    Attributes:
        fields: Names of the fields.
        headers: Names of their headers, as many and in the same order.
        operation: Whether the fields stay (`copy`) or go (`move`).
        target: Values or keys.

    Raises:
        Terminal: no fields, one twice, or another number of headers.
    """

    fields: tuple[str, ...]
    headers: tuple[str, ...]
    operation: Literal["move", "copy"]
    target: Target = "value"

    def __post_init__(self) -> None:
        if not self.fields or len(self.fields) != len(self.headers) or first_duplicate(self.fields):
            raise BAD_TRANSFORM.terminal(
                f"HeaderFrom: {len(self.fields)} fields can't become {len(self.headers)} headers",
                next_step="name each field once, and one header for each",
            )
        if self.operation not in ("move", "copy"):
            raise BAD_TRANSFORM.terminal(
                f"HeaderFrom: {self.operation!r} is not known", next_step="write operation: move, or copy"
            )

    def lacks(self, frame: Frame) -> Iterator[MissingField]:
        """Yield the configured fields that do not exist."""
        yield from lacking(fields_of(frame, self.target), "fields", self.fields)

    def apply(self, frame: Frame) -> Transformed:
        """Add the headers."""
        fields = fields_of(frame, self.target)
        names = fields.schema.names
        headers = frame.headers
        for name, header in zip(self.fields, self.headers, strict=True):
            if name not in names:
                return reject_all(frame, no_field_message("HeaderFrom", name, fields), name)
            headers = append_header(headers, header, header_bytes(fields.column(name)))
        done = replace(frame, headers=headers)
        if self.operation == "copy":
            return Transformed(done)
        remaining_columns = [
            (column, values) for column, values in columns_of(fields) if column.name not in self.fields
        ]
        return Transformed(with_fields(done, self.target, batch_of(remaining_columns, len(frame), like=fields)))


@dataclass(frozen=True, slots=True)
class InsertHeader:
    """Adds a header with a fixed text, behind those that are there.

    Attributes:
        header: Its name.
        value_literal: Its text.
    """

    header: str
    value_literal: str

    def apply(self, frame: Frame) -> Transformed:
        """Add the header."""
        values = pa.repeat(pa.scalar(self.value_literal.encode(), pa.binary()), len(frame))
        return Transformed(replace(frame, headers=append_header(frame.headers, self.header, values)))


@dataclass(frozen=True, slots=True)
class DropHeaders:
    """Leaves out all headers of some names; a record that has none of them stays as it is.

    Attributes:
        headers: The names.

    Raises:
        Terminal: no name.
    """

    headers: tuple[str, ...]

    def __post_init__(self) -> None:
        if not self.headers:
            raise BAD_TRANSFORM.terminal("DropHeaders: no header is named", next_step="name them under headers")

    def apply(self, frame: Frame) -> Transformed:
        """Leave the headers out."""
        return Transformed(replace(frame, headers=drop_headers(frame.headers, self.headers)))
