"""Fits values and keys to some columns of a table: a deleted row fills no more than its key columns, say."""

from __future__ import annotations

from collections.abc import Collection
from typing import Self

import pyarrow as pa

from frazil.records.casting.fitter import Fitted, Fitter
from frazil.records.evolution.fitter import EvolvingFitter
from frazil.records.evolution.schema_requests import SchemaRequests
from frazil.records.formats.keys import KeyColumns
from frazil.records.model.spec import RecordSpec
from frazil.records.model.unknown_fields import NOTHING_UNKNOWN
from frazil.records.transforms.fields import batch_of


class PartialFitter:
    """Fits values and keys to some columns.

    Either half is None if no column takes anything of it.
    """

    def __init__(self, value_fitter: Fitter | EvolvingFitter | None, key_columns: KeyColumns | None) -> None:
        self._value_fitter = value_fitter
        self._key_columns = key_columns

    @classmethod
    def for_all_columns(cls, spec: RecordSpec, requests: SchemaRequests, *, text_casts: bool) -> Self:
        """Return a fitter for all columns, which handles unknown fields and, if the schema evolves, requests changes."""
        keys = KeyColumns(spec) if spec.of_key else None
        if spec.evolution is not None:
            return cls(EvolvingFitter(spec.of_value, requests, text_casts=text_casts), keys)
        return cls(Fitter.for_spec(spec.of_value, text_casts=text_casts), keys)

    @classmethod
    def for_columns(cls, spec: RecordSpec, names: Collection[str], *, text_casts: bool) -> Self:
        """Return a fitter for some columns, which ignores all other fields."""
        specs = tuple(column for column in spec.column_specs if column.name in names and column.name not in spec.of_key)
        schema = pa.schema([spec.columns.field(column.name) for column in specs])
        any_case = spec.field_names == "case_insensitive"
        fitter = Fitter(specs, schema, case_insensitive=any_case, text_casts=text_casts) if specs else None
        is_keyed = any(name in spec.of_key for name in names)
        return cls(fitter, KeyColumns(spec.only(names)) if is_keyed else None)

    def check(self, shape: pa.Schema) -> list[str]:
        """Return, for values of one shape, each column that none of them could ever fill, and why."""
        return [] if self._value_fitter is None else self._value_fitter.check(shape)

    def fit(self, value: pa.RecordBatch, key: pa.RecordBatch | None) -> Fitted:
        """Fit values, each with its key."""
        size = value.num_rows
        if self._value_fitter is not None:
            fitted = self._value_fitter.fit(value)
        else:
            fitted = Fitted(batch_of([], size), pa.arange(0, size), {}, NOTHING_UNKNOWN)
        return fitted if self._key_columns is None else self._key_columns.join_keys(fitted, key, size)
