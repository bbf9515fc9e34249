"""The fields that all values of a format have, where that is known before one is read."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import pyarrow as pa

from frazil.records.formats import SCALARS
from frazil.records.formats.catalogue import open_format
from frazil.records.formats.scalar import scalar_type
from frazil.records.model.format import JSON, FormatSpec
from frazil.records.model.frame import BARE


@runtime_checkable
class _SingleSchemaFormat(Protocol):
    """A format whose values are all of one schema, which it knows."""

    fields: pa.StructType


def declared_fields(spec: FormatSpec, fields: pa.Schema | None) -> pa.Schema | None:
    """Return the fields that every value (or key) has; None if they differ by value.

    Args:
        spec: Format of the values.
        fields: Declared fields of JSON values; None if they are not known.

    Raises:
        Terminal: the format can't be made.
    """
    if spec.name == JSON:
        return fields
    if spec.name == "delimited":
        return pa.schema([pa.field(name, pa.string()) for name in spec.fields])
    if spec.name in SCALARS:
        return pa.schema([pa.field(BARE, scalar_type(spec.name))])
    payload_format: object = None if spec.schema is None or spec.source is not None else open_format(spec)
    return pa.schema(list(payload_format.fields)) if isinstance(payload_format, _SingleSchemaFormat) else None
