"""The fields that all values of a format have, where that is known before one is read."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import pyarrow as pa

from frazil.records.formats.catalogue import JSON, SCALARS, FormatSpec, open_format
from frazil.records.formats.port import BARE
from frazil.records.formats.scalar import scalar_type


@runtime_checkable
class _OneShape(Protocol):
    """A format whose values are all of one schema, which it knows."""

    fields: pa.StructType


def shape(of: FormatSpec, fields: pa.Schema | None) -> pa.Schema | None:
    """Return the fields of every value, or key; None if each says its own.

    Args:
        of: The format.
        fields: What JSON values hold; None if that is not known.

    Raises:
        Terminal: the format can't be made.
    """
    if of.name == JSON:
        return fields
    if of.name == "delimited":
        return pa.schema([pa.field(name, pa.string()) for name in of.fields])
    if of.name in SCALARS:
        return pa.schema([pa.field(BARE, scalar_type(of.name))])
    opened: object = None if of.schema is None or of.source is not None else open_format(of)
    return pa.schema(list(opened.fields)) if isinstance(opened, _OneShape) else None
