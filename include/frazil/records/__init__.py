"""Decode, convert and account for Kafka records: Arrow in, Arrow out, nothing else touched.

Sub-rooms, each of which knows those below it::

    decoder/     a batch of records becomes rows, dead letters and counts. Begin with `decode.py`
    cdc/         change events become rows to merge
    formats/     bytes become typed columns, or reasons; a folder per format
    evolution/   what records need that their tables do not have
    transforms/  decoded records in, decoded records out
    casting/     typed columns become the declared columns of a table, or reasons
    json/        JSON values become declared columns: many at once where that is exact, one by one elsewhere
    model/       the words: records as Arrow, columns, formats, changes, dead letters, what a pipeline asks for

The room knows pyarrow, msgspec, the libraries of the formats (fastavro, protobuf, jsonschema_rs, referencing), DuckDB for `Sql`, and
`frazil.errors`. It must not know about Spark, sockets, Iceberg or configuration files.

Definitions of transforms are read wherever a DAG is parsed, and no record is there. So they, and what they import, take Arrow
from here: `from frazil.records import pa, pc` loads it when it is first used. No constant of such a module may hold a type or an
array; `tests/unit/pipeline/transforms/test_transforms.py` finds one that does.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc
else:

    class _Late:
        """A lazily imported module that caches its attributes."""

        def __init__(self, name: str) -> None:
            self._name = name

        def __getattr__(self, attribute: str) -> Any:
            value = getattr(import_module(self._name), attribute)
            setattr(self, attribute, value)
            return value

    np, pa, pc = _Late("numpy"), _Late("pyarrow"), _Late("pyarrow.compute")

__all__ = ["np", "pa", "pc"]
