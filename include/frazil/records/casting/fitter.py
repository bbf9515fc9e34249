"""Typed columns to the declared columns of a destination: the last step before rows are written.

Whatever decoding and transforms made, here it gets the exact types of the table, or a reason. Values that come out equal
those that went in; nothing is rounded, cut, wrapped around or nulled.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final, Literal

import pyarrow as pa
import pyarrow.compute as pc

from frazil.errors import Terminal
from frazil.records.casting.column import Column, column_plan
from frazil.records.casting.nested import unknown
from frazil.records.casting.renames import Settler
from frazil.records.casting.scalar import FitRules
from frazil.records.casting.source import sent, values
from frazil.records.casting.text import json_form, unique
from frazil.records.casting.unknown_struct_fields import LeftOut, left_out
from frazil.records.model.column import ColumnSpec
from frazil.records.model.dead_letter import Reason, Rejection
from frazil.records.model.json_text import compact
from frazil.records.model.positions import mask_without
from frazil.records.model.unknown_fields import NOTHING_UNKNOWN, UnknownAt

_PLANS: Final = 64
"""Shapes kept: a topic has a handful of writer schemas at a time; planning again costs a millisecond."""

Dead = dict[int, Reason]


@dataclass(frozen=True, slots=True)
class Fitted:
    """What became of decoded rows.

    Attributes:
        rows: Exactly of the columns' schema.
        kept: int64, per row which row of the input it is, ascending.
        dead: Reasons of the other rows, ascending.
        ignored: The fields that no column takes and that have a value, with the rows of the input where they have.
    """

    rows: pa.RecordBatch
    kept: pa.Int64Array
    dead: Dead
    ignored: UnknownAt


@dataclass(frozen=True, slots=True)
class _Plan:
    schema: pa.Schema
    columns: tuple[Column, ...]
    unknown: tuple[int, ...]
    inside: tuple[tuple[int, LeftOut], ...]


class Fitter:
    """Fits decoded columns to declared ones. Keeps its plans for the shapes it saw last.

    Args:
        columns: What is declared of each column.
        columns_schema: The schema of the rows; with `rescue` it also has the rescued column.
        unknown_fields: What happens to fields at the top that no column takes, where they are not null: left out and
            counted, kept as a JSON object, or a dead letter (fields of structs too).
        rescued_column: Where `rescue` puts them.
        others: Names of columns that are filled from elsewhere: fields by such a name are not unknown.
        case_insensitive: Whether names that differ by case only are the same field; an exact match goes first.
        text_casts: Whether text becomes numbers, bools and bytes (base64), and these become text.
        local_time: A timestamp with zone in a column without: its wall time, or a dead letter.
        blocks: Whether whole arrays are converted where that is exact. Without, the outcome is the same, later.

    Raises:
        Terminal: columns and schema don't name the same columns, or a default does not fit.
    """

    def __init__(  # noqa: PLR0913 - all but two are options
        self,
        columns: tuple[ColumnSpec, ...],
        columns_schema: pa.Schema,
        *,
        unknown_fields: Literal["ignore", "rescue", "fail"] = "ignore",
        rescued_column: str = "_rescued",
        others: Collection[str] = (),
        case_insensitive: bool = False,
        text_casts: bool = False,
        local_time: Literal["wall", "reject"] = "wall",
        blocks: bool = True,
    ) -> None:
        self._schema: Final = columns_schema
        self._unknown: Final = unknown_fields
        self._others: Final = frozenset(name.casefold() if case_insensitive else name for name in others)
        self._rescued: Final = rescued_column if unknown_fields == "rescue" else None
        self._rules: Final = FitRules(
            text_casts=text_casts,
            number_texts=text_casts,
            local_time=local_time,
            case_insensitive=case_insensitive,
            strict=unknown_fields == "fail",
        )
        self._blocks: Final = blocks
        self._specs: Final = _in_order(columns, columns_schema, self._rescued)
        self._takers: Final = [(spec.steps, columns_schema.field(spec.name).type) for spec in self._specs]
        self._settler: Final = Settler(self._takers, any_case=case_insensitive)
        self._plans: Final[dict[pa.Schema, _Plan]] = {}
        # A default that does not fit is told now. Columns without a field are planned once, however many shapes there are.
        self._absent: Final = {column.name: column for column in self._plan(pa.schema([])).columns}

    def check(self, schema: pa.Schema) -> list[str]:
        """Return, for values of `schema`, each column that none of them could ever fill, and why."""
        return [problem for column in self._plan(self._settler.fields(schema)).columns for problem in column.problems]

    def fit(self, value: pa.RecordBatch, records: pa.Int64Array | None = None) -> Fitted:
        """Fit rows to the columns. No value makes this fail.

        Args:
            value: The fields.
            records: The record of each row, where records of several rows land whole or not at all; None: each has one.
        """
        value = self._settler.values(value)
        plan = self._plan(value.schema)
        dead: Dead = {}
        if self._unknown == "fail":
            refuse_unknown(value, plan.unknown, dead)
        columns = {column.name: column.fit(value, dead, records) for column in plan.columns}
        if self._rescued is not None:
            columns[self._rescued] = rescued(value, plan.unknown, dead, self._schema.field(self._rescued).type)
        rows = pa.RecordBatch.from_arrays([columns[name] for name in self._schema.names], schema=self._schema)
        kept, left = pa.arange(0, len(value)), self._without(value, plan)
        if dead:
            alive = mask_without(len(value), dead)
            kept, rows = kept.filter(alive), rows.filter(alive)
            left = left.only(kept)
        return Fitted(rows, kept, dict(sorted(dead.items())), left)

    def _without(self, value: pa.RecordBatch, plan: _Plan) -> UnknownAt:
        """Return the values that no column takes. Those inside of structs can't be rescued."""
        if self._unknown == "fail":
            return NOTHING_UNKNOWN
        top = [_named(value, at) for at in plan.unknown] if self._unknown == "ignore" else []
        rows = pa.arange(0, len(value)) if plan.inside else None
        inside = (
            found for at, of in plan.inside for found in of.of(value.column(at), rows, f"{value.schema.names[at]}.")
        )
        return UnknownAt.together([*top, *inside])

    def _plan(self, schema: pa.Schema) -> _Plan:
        # Schemas are equal whatever their metadata is, which says what stands in for nothing.
        if (found := self._plans.get(schema)) is not None and found.schema.equals(schema, check_metadata=True):
            return found
        names = {self._key(name) for name in schema.names}
        columns = tuple(self._column(spec, schema, names) for spec in self._specs)
        taken = {column.places[0] for column in columns if column.places}
        whole = any(not column.steps for column in columns)
        others = (
            ()
            if whole
            else tuple(at for at in range(len(schema)) if at not in taken and not self._is_other(schema, at))
        )
        made = _Plan(schema, columns, others, tuple(self._inside(schema)))
        if len(self._plans) >= _PLANS:
            del self._plans[next(iter(self._plans))]
        self._plans[schema] = made
        return made

    def _column(self, spec: ColumnSpec, schema: pa.Schema, names: AbstractSet[str]) -> Column:
        if len(schema) and spec.steps and self._key(spec.steps[0]) not in names:
            return self._absent[spec.name]
        return column_plan(spec, self._schema.field(spec.name), schema, self._rules, blocks=self._blocks)

    def _key(self, name: str) -> str:
        return name.casefold() if self._rules.case_insensitive else name

    def _is_other(self, schema: pa.Schema, at: int) -> bool:
        return self._key(schema.names[at]) in self._others

    def _inside(self, schema: pa.Schema) -> Iterator[tuple[int, LeftOut]]:
        """Return what is left out inside of fields that columns take."""
        found = left_out(pa.struct(list(schema)), self._takers, any_case=self._rules.case_insensitive)
        if found is not None:
            yield from found.inner


def _in_order(columns: tuple[ColumnSpec, ...], schema: pa.Schema, rescued: str | None) -> list[ColumnSpec]:
    specs = {spec.name: spec for spec in columns if spec.name != rescued}
    wanted = [name for name in schema.names if name != rescued]
    if set(specs) != set(wanted) or len(set(wanted)) < len(wanted):
        raise Terminal(
            f"declared columns are not those of the rows: expected {', '.join(wanted)}, found {', '.join(specs)}",
            next_step="declare each column of the table once",
        )
    if rescued is not None:
        _check_rescued(rescued, schema)
    return [specs[name] for name in wanted]


def _check_rescued(name: str, schema: pa.Schema) -> None:
    found = schema.field(name) if name in schema.names else None
    fits = found is not None and found.nullable and found.type in {pa.string(), pa.large_string()}
    if not fits:
        raise Terminal(
            f"unknown fields are to be kept in {name}: expected an optional column of text, found {found}",
            next_step=f"add the column {name} as an optional string, or ignore unknown fields",
        )


def _named(value: pa.RecordBatch, at: int) -> UnknownAt:
    rows = pc.indices_nonzero(sent(value.schema.field(at), value.column(at))).cast(pa.int64())
    return UnknownAt(rows, pa.repeat(pa.scalar(value.schema.names[at], pa.string()), len(rows)))


def _present(value: pa.RecordBatch, others: tuple[int, ...], dead: Dead) -> Iterable[tuple[int, list[int]]]:
    """Yield each row that is alive and has values in unknown fields, with these fields."""
    found: dict[int, list[int]] = {}
    for at in others:
        for row in pc.indices_nonzero(sent(value.schema.field(at), value.column(at))).to_pylist():
            found.setdefault(row, []).append(at)
    return ((row, fields) for row, fields in sorted(found.items()) if row not in dead)


def refuse_unknown(value: pa.RecordBatch, others: tuple[int, ...], dead: Dead) -> None:
    """Add reasons of the rows that have a value in one of these fields."""
    for row, fields in list(_present(value, others, dead)):
        dead[row] = unknown([value.schema.names[at] for at in fields]).reason


def rescued(value: pa.RecordBatch, others: tuple[int, ...], dead: Dead, kind: pa.DataType) -> pa.Array:
    """Return the values of unknown fields as JSON objects, null where there is none."""
    if not others:
        return pa.nulls(len(value), kind)
    found = {at: values(value.column(at)) for at in others}
    forms = {at: json_form(value.column(at).type) for at in others}
    texts: list[str | None] = [None] * len(value)
    for row, fields in list(_present(value, others, dead)):
        try:
            texts[row] = compact(unique((value.schema.names[at], forms[at](found[at][row])) for at in fields))
        except Rejection as e:
            dead[row] = e.reason
    return pa.array(texts, kind)
