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

Definitions of transforms and formats are read wherever a DAG is parsed, and no record is there. So they, and what they import, take
Arrow from here: `from frazil.records import pa, pc` loads it when it is first used. No constant of such a module may hold a type or an
array; `tests/unit/pipeline/test_transforms.py` finds one that does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

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

__all__ = ["np", "option", "options_of", "pa", "pc"]

Form = Literal["names", "pairs", "expression", "struct"]
"""How files write an option that is more than a plain value: different names, names with others, a regular expression, a type."""


def option(
    meaning: str,
    default: Any = MISSING,
    *,
    key: str | None = None,
    form: Form | tuple[Callable[[Any], Any], Any] | None = None,
    check: Callable[[Any], Any] | None = None,
    by_name: bool = False,
    **bounds: Any,
) -> Any:
    """Declare an option: a field of the dataclass, and a key of pipeline files.

    Args:
        meaning: Its sentence in the docs and in the JSON Schema.
        default: What it is if a file leaves it out; without, it is required. A class is called to make it.
        key: Its key, where that has dots.
        form: How files write it: a form that several options have, or what makes the value of it, and the type that files may have.
        check: Takes the value and returns it, or raises ValueError.
        by_name: Code can't give it by position: it is required, and stands behind one that is not.
        bounds: As pydantic's `Field` has them: min_length, ge.
    """
    is_made = isinstance(default, type)
    return field(
        default=MISSING if is_made else default,
        default_factory=default if is_made else MISSING,
        kw_only=by_name,
        metadata={"meaning": meaning, "key": key, "form": form, "check": check, "bounds": bounds},
    )


def options_of(definition: type) -> dict[str, Mapping[str, Any]]:
    """Return what `option` took, by the names of the attributes."""
    declared: Mapping[str, Field[Any]] = getattr(definition, "__dataclass_fields__", {})
    return {name: option.metadata for name, option in declared.items() if option.metadata}
