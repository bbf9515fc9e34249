"""Fits decoded columns to those of a table whose schema follows its records."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Final, Literal

import pyarrow as pa
import pyarrow.compute as pc

from frazil.records.casting.fitter import Fitted, Fitter, refuse_unknown_fields, rescue_unknown_fields
from frazil.records.casting.nested import index_of_name
from frazil.records.casting.renames import rename_struct_fields, renamed_values
from frazil.records.casting.scalar import FitRules
from frazil.records.casting.source import Kind, as_lists, kind_of, plain, present_mask
from frazil.records.evolution.schema_requests import Path, SchemaRequests, rescued_labels, rescuing_columns
from frazil.records.evolution.shapes import SchemaInspection, SchemaInspector
from frazil.records.model.column import ColumnSpec
from frazil.records.model.dead_letter import DeadCode, Reason
from frazil.records.model.rows import NOTHING_UNKNOWN, UnknownFieldPairs
from frazil.records.model.spec import RecordSpec

_MAX_INSPECTIONS: Final = 64
"""The most schemas whose inspections are cached."""

_INCOMPATIBLE: Final = frozenset({DeadCode.WRONG_TYPE, DeadCode.OUT_OF_RANGE, DeadCode.LOSSY_CAST})

_MAX_COUNTED: Final = 100
"""The most rescued paths in one top-level field that are counted."""


class EvolvingFitter:
    """Fits decoded columns to those of a table, and collects the schema changes that they need."""

    def __init__(self, spec: RecordSpec, requests: SchemaRequests, *, text_casts: bool | None = None) -> None:
        self._spec: Final = spec
        self._requests: Final = requests
        # A random name, so that no producer can send a field of this name and forge rescued fields.
        self._rest_name: Final = f"_{secrets.token_hex(16)}"
        self._any_case: Final = spec.field_names == "case_insensitive"
        self._text_casts: Final = spec.format.is_text if text_casts is None else text_casts
        rules = FitRules(text_casts=self._text_casts, number_texts=self._text_casts, case_insensitive=self._any_case)
        self._inspector: Final = SchemaInspector(spec, rules)
        self._inspections: Final[dict[pa.Schema, tuple[pa.Schema, SchemaInspection]]] = {}
        self._targets: Final = [(column.steps, column.type) for column in spec.column_specs]
        self._has_rescued: Final = spec.rescued_column in spec.columns.names
        self._fitter: Final = self._plain_fitter() if spec.columns.names else None
        optional = {column.name for column in spec.columns if column.nullable}
        self._rescuing_columns: Final = sorted(optional.intersection(rescuing_columns(spec)))
        self._column_fitters: Final[dict[str, Fitter]] = {}

    def _plain_fitter(self) -> Fitter:
        policy: Literal["fail", "ignore"] = "fail" if self._spec.unknown_fields == "fail" else "ignore"
        plain_spec = replace(self._spec.without_evolution(self._rest_name), unknown_fields=policy)
        return Fitter.for_spec(plain_spec, text_casts=self._text_casts)

    def _column_fitter(self, name: str) -> Fitter:
        # Made when it is needed: for a thousand columns it takes a second.
        if name not in self._column_fitters:
            spec = self._spec.only({name})
            self._column_fitters[name] = Fitter(
                spec.column_specs, spec.columns, case_insensitive=self._any_case, text_casts=self._text_casts
            )
        return self._column_fitters[name]

    def check(self, schema: pa.Schema) -> list[str]:
        """Return each column that no value of this schema could fill, and why."""
        return [] if self._fitter is None else self._fitter.check(schema)

    def fit(self, value: pa.RecordBatch, records: pa.Int64Array | None = None) -> Fitted:
        """Fit rows to the columns. The rows are void if a schema change is requested. An empty batch requests none."""
        # If a value that does not fit can be rescued, it does not kill the other rows of its record.
        records = None if self._rescuing_columns else records
        value = renamed_values(value, self._targets, any_case=self._any_case)
        inspection = self._inspection(value.schema)
        rescued_names = set(inspection.rescued_paths)
        if self._spec.unknown_fields == "rescue":
            rescued_names |= inspection.untyped_fields
        dead: dict[int, Reason] = {}
        requests = SchemaRequests(self._spec.fold is not None)
        requests.add_all(inspection.requests)
        named = self._named(value, value, inspection, rescued_names, requests, dead)
        fitted = self._fitted(named, records)
        if too_large := [row for row, reason in fitted.dead.items() if reason.code is DeadCode.OUT_OF_RANGE]:
            requests.add_all(
                self._needed_widenings(named.take(pa.array(too_large, pa.int64())), inspection.range_requests)
            )
        requests.optional |= {(name,) for name in self._inspector.relaxable() if self._has_nulls(named, name)}
        # After a widening, they may fit the wider type.
        misfits = {} if requests.widens else self._find_misfits(named, fitted.dead)
        if misfits:
            names = {
                source_field.name
                for source_field, column in zip(value.schema, inspection.fields, strict=True)
                if column.name in misfits
            }
            fitting, rescued_values = _split_misfits(value, inspection, misfits, names - rescued_names)
            dead.clear()
            named = self._named(fitting, rescued_values, inspection, names | rescued_names, requests, dead)
            fitted = self._fitted(named, records)
        if len(value):
            self._requests.add_all(requests)
        return self._with_rescued(_without_dead(fitted, dead), value, inspection, misfits)

    def _find_misfits(self, named: pa.RecordBatch, dead: dict[int, Reason]) -> dict[str, pa.Int64Array]:
        """Return, for each undeclared column, the rows whose value it can't hold."""
        rows = pa.array([row for row, reason in dead.items() if reason.code in _INCOMPATIBLE], pa.int64())
        if not len(rows):
            return {}
        dead_rows = named.take(rows)
        names = dead_rows.schema.names
        misfits = {}
        for name in self._rescuing_columns:
            index = index_of_name(name, names, case_insensitive=self._any_case)
            if index is None or dead_rows.column(index).type == self._spec.columns.field(name).type:
                continue
            refused = self._column_fitter(name).fit(dead_rows.select([index])).dead
            if misfit_rows := [row for row, reason in refused.items() if reason.code in _INCOMPATIBLE]:
                misfits[names[index]] = rows.take(pa.array(misfit_rows, pa.int64()))
        return misfits

    def _with_rescued(
        self, fitted: Fitted, value: pa.RecordBatch, inspection: SchemaInspection, misfits: Mapping[str, pa.Int64Array]
    ) -> Fitted:
        """Count the rescued fields: those without a column, and those whose value does not fit their column."""
        if not (inspection.rescued_paths or misfits):
            return fitted
        rescued_paths = {".".join(path) for paths in inspection.rescued_paths.values() for path in paths}
        counts = [fitted.ignored.drop_names(rescued_paths)]
        for name, rows in misfits.items():
            (label,) = rescued_labels(self._spec, [(name,)])
            counts.append(UnknownFieldPairs(rows, pa.repeat(pa.scalar(label, pa.string()), len(rows))))
        for name, paths in inspection.rescued_paths.items():
            index = value.schema.get_field_index(name)
            rows = pc.indices_nonzero(present_mask(value.schema.field(index), value.column(index))).cast(pa.int64())
            labels = rescued_labels(self._spec, sorted(paths)[:_MAX_COUNTED])
            counts += [UnknownFieldPairs(rows, pa.repeat(pa.scalar(label, pa.string()), len(rows))) for label in labels]
        return replace(fitted, ignored=UnknownFieldPairs.concat(counts).at_positions(fitted.input_rows))

    def _needed_widenings(self, value: pa.RecordBatch, range_requests: SchemaRequests) -> SchemaRequests:
        """Return the widenings of columns for which some value is out of range."""
        needed = SchemaRequests(self._spec.fold is not None)
        values, columns = value.to_struct_array(), pa.struct(list(self._spec.columns))
        for path, data_type in range_requests.widens.items():
            for numbers, column in _values_at_path(values, columns, path, any_case=self._any_case):
                fitter = Fitter((ColumnSpec("number", column, required=False),), pa.schema([("number", column)]))
                dead = fitter.fit(pa.RecordBatch.from_arrays([numbers], ["number"])).dead
                if any(reason.code is DeadCode.OUT_OF_RANGE for reason in dead.values()):
                    needed.widen(path, data_type)
        return needed

    def _has_nulls(self, value: pa.RecordBatch, name: str) -> bool:
        """Return whether some row has no value for a column."""
        index = index_of_name(name, value.schema.names, case_insensitive=self._any_case)
        return len(value) > 0 and (index is None or plain(value.column(index)).null_count > 0)

    def _inspection(self, schema: pa.Schema) -> SchemaInspection:
        # Schemas are equal whatever their metadata, which have the former names of fields.
        inspected, inspection = self._inspections.get(schema, (None, None))
        if inspected is not None and inspection is not None and inspected.equals(schema, check_metadata=True):
            return inspection
        if len(self._inspections) >= _MAX_INSPECTIONS:
            del self._inspections[next(iter(self._inspections))]
        new_inspection = self._inspector.inspect(schema)
        self._inspections[schema] = schema, new_inspection
        return new_inspection

    def _named(
        self,
        value: pa.RecordBatch,
        rescued_values: pa.RecordBatch,
        inspection: SchemaInspection,
        rescued_names: set[str],
        requests: SchemaRequests,
        dead: dict[int, Reason],
    ) -> pa.RecordBatch:
        """Return the values under their columns' names, with the rescued fields, taken from `rescued_values`, as one text."""
        names = value.schema.names
        rescued_indices = tuple(index for index, name in enumerate(names) if name in rescued_names)
        indices = [
            index
            for index in range(len(names))
            if index not in rescued_indices or self._inspector.has_column(names[index])
        ]
        columns = [rename_struct_fields(value.column(index), inspection.fields[index].type) for index in indices]
        fields = [
            pa.field(inspection.fields[index].name, array.type) for index, array in zip(indices, columns, strict=True)
        ]
        texts = rescue_unknown_fields(rescued_values, rescued_indices, dead, pa.string())
        if texts.null_count < len(texts):
            if not self._has_rescued:
                requests.add((self._spec.rescued_column,), pa.string())
            columns.append(texts)
            fields.append(pa.field(self._rest_name, pa.string()))
        if not columns:
            return pa.RecordBatch.from_struct_array(pa.array([{}] * len(value), pa.struct([])))
        return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))

    def _fitted(self, value: pa.RecordBatch, records: pa.Int64Array | None) -> Fitted:
        if self._fitter is not None:
            return self._fitter.fit(value, records)
        rows = pa.RecordBatch.from_struct_array(pa.array([{}] * len(value), pa.struct([])))
        all_rows = Fitted(rows, pa.arange(0, len(value)), {}, NOTHING_UNKNOWN)
        dead: dict[int, Reason] = {}
        if self._spec.unknown_fields == "fail":
            refuse_unknown_fields(value, tuple(range(value.num_columns)), dead)
        return _without_dead(all_rows, dead)


def _split_misfits(
    value: pa.RecordBatch, inspection: SchemaInspection, misfits: Mapping[str, pa.Int64Array], names: Collection[str]
) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """Return values without the misfits, and values whose fields in `names` have nothing but their misfits.

    Args:
        value: The values.
        inspection: Names the column of each field.
        misfits: Column -> the rows whose value it can't hold.
        names: Fields with misfits that are not rescued anyway.
    """
    fitting, rescued_values = list(value.columns), list(value.columns)
    all_rows, no_row = pa.arange(0, len(value)), pa.scalar(None, pa.int64())
    for index, column in enumerate(inspection.fields):
        if column.name in misfits:
            is_misfit = pc.is_in(all_rows, value_set=misfits[column.name])
            fitting[index] = value.column(index).take(pc.if_else(is_misfit, no_row, all_rows))
            if value.schema.names[index] in names:
                rescued_values[index] = value.column(index).take(pc.if_else(is_misfit, all_rows, no_row))
    optional = pa.schema([source_field.with_nullable(nullable=True) for source_field in value.schema])
    return pa.RecordBatch.from_arrays(fitting, schema=optional), pa.RecordBatch.from_arrays(
        rescued_values, schema=optional
    )


def _values_at_path(
    array: pa.Array, column: pa.DataType, path: Path, *, any_case: bool
) -> Iterator[tuple[pa.Array, pa.DataType]]:
    """Yield the values of all rows at a path, and the column's type there. Names in the path are those of the values."""
    values = plain(array)
    if not path:
        yield values, column
        return
    name, rest = path[0], path[1:]
    match kind_of(values.type), kind_of(column):
        case Kind.LIST, Kind.LIST:
            yield from _values_at_path(as_lists(values).flatten(), column.value_type, rest, any_case=any_case)
        case Kind.MAP, Kind.MAP:
            items = values.filter(values.is_valid()).items
            yield from _values_at_path(items, column.item_type, rest, any_case=any_case)
        case Kind.STRUCT, Kind.MAP:
            for child in values.flatten():
                yield from _values_at_path(child, column.item_type, rest, any_case=any_case)
        case Kind.STRUCT, Kind.STRUCT:
            index = index_of_name(name, [child.name for child in values.type], case_insensitive=any_case)
            if index is not None:
                yield from _values_at_path(values.flatten()[index], column.field(name).type, rest, any_case=any_case)


def _without_dead(fitted: Fitted, dead: dict[int, Reason]) -> Fitted:
    """Return the fitted rows without further dead ones."""
    if not dead:
        return fitted
    good = pc.invert(pc.is_in(fitted.input_rows, value_set=pa.array(dead, pa.int64())))
    kept_rows = fitted.input_rows.filter(good)
    reasons = dict(sorted({**dead, **fitted.dead}.items()))
    return Fitted(fitted.rows.filter(good), kept_rows, reasons, fitted.ignored.at_positions(kept_rows))
