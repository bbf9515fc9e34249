"""Some columns of a table, filled from values and keys: a deleted row has no more than its key, say."""

from __future__ import annotations

from collections.abc import Collection
from typing import Self

import pyarrow as pa

from frazil.records.casting.fitter import Fitted, Fitter
from frazil.records.evolution.fitter import EvolvingFitter
from frazil.records.evolution.schema_requests import Asked
from frazil.records.formats.keys import KeyColumns
from frazil.records.model.spec import RecordSpec
from frazil.records.model.unknown_fields import NOTHING_UNKNOWN
from frazil.records.transforms.fields import batch_of


class Part:
    """Fits values and keys to some columns.

    Args:
        of_value: Fits values; None if no column takes anything of them.
        of_key: Fits keys; None likewise.
    """

    def __init__(self, of_value: Fitter | EvolvingFitter | None, of_key: KeyColumns | None) -> None:
        self._of_value = of_value
        self._of_key = of_key

    @classmethod
    def whole(cls, spec: RecordSpec, asked: Asked, *, text_casts: bool) -> Self:
        """All columns, with what the file says of fields that none takes; what a table lacks that follows them is asked for.

        Raises:
            Terminal: A default does not fit its column.
        """
        of_value = spec.of_value
        keys = KeyColumns(spec) if spec.of_key else None
        if spec.evolution is not None:
            return cls(EvolvingFitter(of_value, asked, text_casts=text_casts), keys)
        fitter = Fitter(
            of_value.column_specs,
            of_value.columns,
            unknown_fields=spec.unknown_fields,
            rescued_column=spec.rescued_column,
            others=spec.of_key,
            case_insensitive=spec.field_names == "case_insensitive",
            text_casts=text_casts,
        )
        return cls(fitter, keys)

    @classmethod
    def some(cls, spec: RecordSpec, names: Collection[str], *, text_casts: bool) -> Self:
        """Some columns; other fields don't matter.

        Raises:
            Terminal: A default does not fit its column.
        """
        specs = tuple(of for of in spec.column_specs if of.name in names and of.name not in spec.of_key)
        schema = pa.schema([spec.columns.field(of.name) for of in specs])
        any_case = spec.field_names == "case_insensitive"
        fitter = Fitter(specs, schema, case_insensitive=any_case, text_casts=text_casts) if specs else None
        is_keyed = any(name in spec.of_key for name in names)
        return cls(fitter, KeyColumns(spec.only(names)) if is_keyed else None)

    def check(self, shape: pa.Schema) -> list[str]:
        """Return, for values of one shape, each column that none of them could ever fill, and why."""
        return [] if self._of_value is None else self._of_value.check(shape)

    def fit(self, value: pa.RecordBatch, key: pa.RecordBatch | None) -> Fitted:
        """Fit values, each with its key."""
        size = value.num_rows
        if self._of_value is not None:
            fitted = self._of_value.fit(value)
        else:
            fitted = Fitted(batch_of([], size), pa.arange(0, size), {}, NOTHING_UNKNOWN)
        return fitted if self._of_key is None else self._of_key.join_keys(fitted, key, size)
