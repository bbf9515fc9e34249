"""The names of the fields of many JSON objects at once: only for blocks that have fields no column takes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from frazil.records.json.exact import parse_object
from frazil.records.unknown import UnknownAt

_QUESTION: Final = "SELECT json_keys(value) AS keys FROM records"


class OtherKeys:
    """Finds the fields at the top of values that are not among the ones taken.

    DuckDB lists the names of a value in a quarter of the time that decoding it takes. It refuses halves of surrogate pairs:
    then the exact parser lists the names of the whole block.

    Args:
        taken: Names of the others.
    """

    def __init__(self, taken: Iterable[str]) -> None:
        self._taken: Final = frozenset(taken)
        self._set: Final = pa.array(sorted(self._taken), pa.string())

    def of(self, texts: pa.StringArray) -> UnknownAt:
        """Return the other names and the places of their values in `texts`, each of which is one JSON object."""
        import duckdb

        from frazil.records.transforms.sql_engine import run

        try:
            listed = run(_QUESTION, pa.table({"value": texts}))
        except duckdb.Error:
            return self._one_by_one(texts)
        keys = listed.column("keys").combine_chunks()
        names = keys.flatten()
        others = pc.invert(pc.is_in(names, value_set=self._set))
        return UnknownAt(keys.value_parent_indices().cast(pa.int64()).filter(others), names.filter(others))

    def _one_by_one(self, texts: pa.StringArray) -> UnknownAt:
        found = {at: parse_object(text.encode()).keys() - self._taken for at, text in enumerate(texts.to_pylist())}
        return UnknownAt.of(found)
