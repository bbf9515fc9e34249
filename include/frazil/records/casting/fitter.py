"""Fits decoded columns to the declared columns of a destination: the last step before rows are written.

Each row gets exactly the types of the table, or a reason. Converted values equal the original ones: nothing is rounded, cut off,
wrapped around or made null.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final, Literal

import pyarrow as pa
import pyarrow.compute as pc

from frazil.records.casting.column import ColumnPlan
from frazil.records.casting.nested import unmatched_fields
from frazil.records.casting.renames import UnmatchedFields, find_unmatched_fields, renamed_schema, renamed_values
from frazil.records.casting.scalar import FitRules
from frazil.records.casting.source import json_form, physical_values, present_mask, unique_members
from frazil.records.model.column import ColumnSpec
from frazil.records.model.dead_letter import Reason, Rejection
from frazil.records.model.json_number import compact
from frazil.records.model.rows import NOTHING_UNKNOWN, UnknownFieldPairs, mask_without
from frazil.records.model.spec import RecordSpec

_PLANS: Final = 64
"""Plans that are cached, one per schema. A topic has a handful of writer schemas at a time; a new plan costs a millisecond."""

Dead = dict[int, Reason]
"""Reasons of dead letters by the index of their row, or by the position of their record."""


@dataclass(frozen=True, slots=True)
class Fitted:
    """The result of fitting decoded rows to columns.

    Attributes:
        rows: Rows of exactly the columns' schema.
        input_rows: int64, the index in the input of each row, ascending.
        dead: The reasons of all other rows by their index in the input, ascending.
        ignored: Fields that are not null and that no column takes, by index in the input.
    """

    rows: pa.RecordBatch
    input_rows: pa.Int64Array
    dead: Dead
    ignored: UnknownFieldPairs


@dataclass(frozen=True, slots=True)
class _Plan:
    schema: pa.Schema
    columns: tuple[ColumnPlan, ...]
    unmatched: tuple[int, ...]
    nested: tuple[tuple[int, UnmatchedFields], ...]


class Fitter:
    """Fits decoded columns to declared ones. Caches a plan per schema of decoded columns.

    Args:
        columns: The declaration of each column.
        columns_schema: The schema of the rows; with `rescue` it also has the rescued column.
        unknown_fields: What fields at the top become that no column takes and that are not null: they are left out and counted,
            or rescued as a JSON object, or make the record a dead letter (fields of structs, too).
        rescued_column: The column for rescued fields.
        known_names: Names of columns that are filled from elsewhere (keys, say). Fields with such a name are not unknown.
        case_insensitive: Whether names that differ by case only are the same field; an exact match goes first.
        text_casts: Whether text becomes numbers, bools and bytes (base64), and these become text.
        blocks: False converts each value alone: the outcome is the same, but takes longer.

    Raises:
        Terminal: a default does not fit.
    """

    def __init__(  # noqa: PLR0913 - all but two are options
        self,
        columns: tuple[ColumnSpec, ...],
        columns_schema: pa.Schema,
        *,
        unknown_fields: Literal["ignore", "rescue", "fail"] = "ignore",
        rescued_column: str = "_rescued",
        known_names: Collection[str] = (),
        case_insensitive: bool = False,
        text_casts: bool = False,
        blocks: bool = True,
    ) -> None:
        self._schema: Final = columns_schema
        self._unknown_policy: Final = unknown_fields
        self._known_names: Final = frozenset(name.casefold() if case_insensitive else name for name in known_names)
        self._rescued: Final = rescued_column if unknown_fields == "rescue" else None
        self._rules: Final = FitRules(
            text_casts=text_casts,
            number_texts=text_casts,
            case_insensitive=case_insensitive,
            strict=unknown_fields == "fail",
        )
        self._blocks: Final = blocks
        specs = {spec.name: spec for spec in columns}
        self._specs: Final = [specs[name] for name in columns_schema.names if name != self._rescued]
        self._targets: Final = [(spec.steps, columns_schema.field(spec.name).type) for spec in self._specs]
        self._plans: Final[dict[pa.Schema, _Plan]] = {}
        # A default that does not fit raises here. Columns without a source field are planned once for all shapes.
        self._absent: Final = {column.spec.name: column for column in self._plan(pa.schema([])).columns}

    @classmethod
    def for_spec(cls, spec: RecordSpec, *, text_casts: bool) -> Fitter:
        """Return the fitter of all columns that a spec declares."""
        return cls(
            spec.column_specs,
            spec.columns,
            unknown_fields=spec.unknown_fields,
            rescued_column=spec.rescued_column,
            known_names=spec.known_names,
            case_insensitive=spec.field_names == "case_insensitive",
            text_casts=text_casts,
        )

    def check(self, schema: pa.Schema) -> list[str]:
        """Return a message for each column that no value of `schema` could ever fill."""
        renamed = renamed_schema(schema, self._targets, any_case=self._rules.case_insensitive)
        return [problem for column in self._plan(renamed).columns for problem in column.problems]

    def fit(self, value: pa.RecordBatch, records: pa.Int64Array | None = None) -> Fitted:
        """Fit rows to the columns. No value makes this fail.

        Args:
            value: The rows.
            records: The record of each row, if records of several rows land whole or not at all.
        """
        value = renamed_values(value, self._targets, any_case=self._rules.case_insensitive)
        plan = self._plan(value.schema)
        dead: Dead = {}
        if self._unknown_policy == "fail":
            refuse_unknown_fields(value, plan.unmatched, dead)
        columns = {column.spec.name: column.fit(value, dead, records) for column in plan.columns}
        if self._rescued is not None:
            columns[self._rescued] = rescue_unknown_fields(
                value, plan.unmatched, dead, self._schema.field(self._rescued).type
            )
        rows = pa.RecordBatch.from_arrays([columns[name] for name in self._schema.names], schema=self._schema)
        input_rows, ignored = pa.arange(0, len(value)), self._ignored_fields(value, plan)
        if dead:
            alive = mask_without(len(value), dead)
            input_rows, rows = input_rows.filter(alive), rows.filter(alive)
            ignored = ignored.at_positions(input_rows)
        return Fitted(rows, input_rows, dict(sorted(dead.items())), ignored)

    def _ignored_fields(self, value: pa.RecordBatch, plan: _Plan) -> UnknownFieldPairs:
        """Return the fields that no column takes and that are not rescued. Fields inside structs are never rescued."""
        if self._unknown_policy == "fail":
            return NOTHING_UNKNOWN
        top = [_unknown_pairs(value, index) for index in plan.unmatched] if self._unknown_policy == "ignore" else []
        rows = pa.arange(0, len(value)) if plan.nested else None
        nested = (
            pairs
            for index, fields in plan.nested
            for pairs in fields.find_pairs(value.column(index), rows, f"{value.schema.names[index]}.")
        )
        return UnknownFieldPairs.concat([*top, *nested])

    def _plan(self, schema: pa.Schema) -> _Plan:
        # Schemas may be equal but for their metadata, which tells which value stands for an absent field.
        if (cached := self._plans.get(schema)) is not None and cached.schema.equals(schema, check_metadata=True):
            return cached
        names = {self._key(name) for name in schema.names}
        columns = tuple(self._column(spec, schema, names) for spec in self._specs)
        matched = {column.indexes[0] for column in columns if column.indexes}
        takes_all = any(not column.steps for column in columns)
        unmatched = tuple(
            index
            for index, field in enumerate(schema)
            if not takes_all and index not in matched and self._key(field.name) not in self._known_names
        )
        nested = find_unmatched_fields(pa.struct(list(schema)), self._targets, any_case=self._rules.case_insensitive)
        plan = _Plan(schema, columns, unmatched, () if nested is None else nested.inner)
        # The first key of a dict is the one that was added first: the oldest plan is dropped.
        if len(self._plans) >= _PLANS:
            del self._plans[next(iter(self._plans))]
        self._plans[schema] = plan
        return plan

    def _column(self, spec: ColumnSpec, schema: pa.Schema, names: AbstractSet[str]) -> ColumnPlan:
        if len(schema) and spec.steps and self._key(spec.steps[0]) not in names:
            return self._absent[spec.name]
        return ColumnPlan(spec, self._schema.field(spec.name), schema, self._rules, blocks=self._blocks)

    def _key(self, name: str) -> str:
        return name.casefold() if self._rules.case_insensitive else name


def _unknown_pairs(value: pa.RecordBatch, index: int) -> UnknownFieldPairs:
    field = value.schema.field(index)  # `schema.names` would list all names for each field
    rows = pc.indices_nonzero(present_mask(field, value.column(index))).cast(pa.int64())
    return UnknownFieldPairs(rows, pa.repeat(pa.scalar(field.name, pa.string()), len(rows)))


def _rows_with_fields(value: pa.RecordBatch, indexes: tuple[int, ...], dead: Dead) -> Iterable[tuple[int, list[int]]]:
    """Yield the rows, not dead yet, that have a value in one of these fields, each with the indexes of such fields."""
    fields_by_row: dict[int, list[int]] = {}
    for index in indexes:
        for row in pc.indices_nonzero(present_mask(value.schema.field(index), value.column(index))).to_pylist():
            fields_by_row.setdefault(row, []).append(index)
    return ((row, fields) for row, fields in sorted(fields_by_row.items()) if row not in dead)


def refuse_unknown_fields(value: pa.RecordBatch, indexes: tuple[int, ...], dead: Dead) -> None:
    """Add a reason for each row that has a value in one of these fields."""
    for row, fields in _rows_with_fields(value, indexes, dead):
        dead[row] = unmatched_fields([value.schema.names[index] for index in fields]).reason


def rescue_unknown_fields(value: pa.RecordBatch, indexes: tuple[int, ...], dead: Dead, kind: pa.DataType) -> pa.Array:
    """Return for each row a JSON object of its values in these fields, null if it has none."""
    if not indexes:
        return pa.nulls(len(value), kind)
    column_values = {index: physical_values(value.column(index)) for index in indexes}
    forms = {index: json_form(value.column(index).type) for index in indexes}
    texts: list[str | None] = [None] * len(value)
    for row, fields in _rows_with_fields(value, indexes, dead):
        try:
            texts[row] = compact(
                unique_members((value.schema.names[index], forms[index](column_values[index][row])) for index in fields)
            )
        except Rejection as e:
            dead[row] = e.reason
    return pa.array(texts, kind)
