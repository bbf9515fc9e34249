"""One declared column: where its field is in decoded records, and how it becomes the column."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from frazil.records.casting.arrays import one_by_one, settle_plan
from frazil.records.casting.nested import ExactPlan, build, matching
from frazil.records.casting.scalar import Exact, FitRules, refuse
from frazil.records.casting.source import Kind, kind_of, plain, plain_type, values
from frazil.records.casting.type_names import spelled
from frazil.records.json.convert_nested import missing
from frazil.records.json.intermediate_types import Settled
from frazil.records.json.record import ExactDecoder
from frazil.records.json.variant import variant_refusal
from frazil.records.model.cells import too_wide, wide_rows, width_per_element
from frazil.records.model.column import ColumnSpec, Reading
from frazil.records.model.dead_letter import Reason, Rejection
from frazil.records.model.spec import RecordSpec

_TOGETHER: Final = 1_000
"""Rows that are decided one by one before those of records that are dead by then are left out."""


class _Judge:
    """Converts single values of a column. Made when the first one needs it: most shapes have none."""

    def __init__(self, source: pa.DataType, field: pa.Field, rules: FitRules, *, blocked: bool) -> None:
        self._source: Final = source
        self._field: Final = field
        self._rules: Final = rules
        self._blocked: Final = blocked

    @cached_property
    def plan(self) -> tuple[Exact, list[tuple[str, str]]]:
        """What converts, and path and verdict of the types that no value gets through."""
        if self._blocked:
            message = f"expected an object on the way, found {spelled(self._source)}"
            return partial(refuse, "object", self._source), [("", message)]
        plan = ExactPlan(self._rules)
        return plan.exact(self._source, self._field.type, ""), plan.problems

    def __call__(self, value: object) -> object:
        """Convert a value."""
        return self.plan[0](value)


@dataclass(frozen=True, slots=True)
class Column:
    """How one column is made of records of one shape.

    Attributes:
        name: Of the column.
        places: Which field at the top, which field of that one, and so on; empty if there is no such field. With
            `blocked` it ends at a field that has no fields.
        steps: Names of the fields, for the paths of reasons; none for the whole value.
        blocked: Whether a value at `places` is in the way.
        field: Of the rows; not nullable if null is refused.
        settle: Converts arrays.
        exact: Converts single values; decides.
        default: An array of one value, or None.
        variant: Whether its texts become variants.
        spec: What is declared of it.
        is_wide: Whether it holds lists whose elements take several cells.
    """

    name: str
    places: tuple[int, ...]
    steps: tuple[str, ...]
    blocked: bool
    field: pa.Field
    settle: Callable[[pa.Array], Settled]
    exact: _Judge
    default: pa.Array | None
    variant: bool
    spec: ColumnSpec
    is_wide: bool

    @property
    def problems(self) -> list[str]:
        """Why no value can ever become the column."""
        told = [f"{self.name}: {message}{_place(self.spec, path)}" for path, message in self.exact.plan[1]]
        if self.steps and not self.places and not self.field.nullable and not self.spec.has_default:
            told.append(f"{self.name}: a required column, and there is no field {'.'.join(self.spec.steps)}")
        return told

    def fit(self, batch: pa.RecordBatch, dead: dict[int, Reason], records: pa.Int64Array | None = None) -> pa.Array:
        """Return the column, and add reasons of rows that have none yet. What dead rows hold has no meaning.

        Args:
            batch: The fields.
            dead: Takes the reasons.
            records: The record of each row, where one that has a reason is dead with all its rows: the others need none.
        """
        if self.steps and not self.places and self.default is None and self.field.nullable:
            return pa.nulls(len(batch), self.field.type)
        found, absent = self._found(batch)
        if self.is_wide:
            found = self._without_wide(found, dead)
        made = self._settled(found, dead, records)
        if self.variant:
            _refuse_variants(made, dead)
        gaps = found.is_null() if found.null_count else None
        return made if gaps is None else self._without_value(made, gaps, absent, dead)

    def _without_wide(self, found: pa.Array, dead: dict[int, Reason]) -> pa.Array:
        """Return the field without the values that would fill too many cells of the column, whose rows are dead."""
        wide = wide_rows(found, self.field.type)
        if not wide.any():
            return found
        for row in np.flatnonzero(wide).tolist():
            _bury(dead, row, too_wide(), self.steps)
        return found.take(pa.array(np.arange(len(found)), mask=wide))

    def _found(self, batch: pa.RecordBatch) -> tuple[pa.Array, pa.BooleanArray | None]:
        """Return the field's array, and where there is no such field (None: wherever it is null)."""
        if not self.steps:
            return batch.to_struct_array(), None
        if not self.places:
            return pa.nulls(len(batch)), None
        array, absent = plain(batch.column(self.places[0])), pa.nulls(len(batch), pa.bool_()).is_valid()
        for place in self.places[1:]:
            absent = array.is_null()
            array = plain(array.flatten()[place])
        return array, None if self.blocked else absent

    def _settled(self, array: pa.Array, dead: dict[int, Reason], records: pa.Int64Array | None) -> pa.Array:
        made, doubt = self.settle(array)
        doubtful = pa.array([], pa.int64()) if doubt is None else pc.indices_nonzero(doubt)
        fixed: dict[int, object] = {}
        refused: list[int] = []
        for start in range(0, len(doubtful), _TOGETHER):
            rows = doubtful.slice(start, _TOGETHER)
            if records is not None and refused:
                gone = records.take(pa.array(refused, pa.int64()))
                rows = rows.filter(pc.invert(pc.is_in(records.take(rows), value_set=gone)))
            for row, value in zip(rows.to_pylist(), values(array.take(rows)), strict=True):
                try:
                    fixed[row] = self.exact(value)
                except Rejection as e:
                    _bury(dead, row, e, self.steps)
                    refused.append(row)
        return _patched(made, list(fixed), build(list(fixed.values()), self.field.type)) if fixed else made

    def _without_value(
        self, made: pa.Array, gaps: pa.BooleanArray, absent: pa.BooleanArray | None, dead: dict[int, Reason]
    ) -> pa.Array:
        if self.default is not None:
            chosen = gaps if absent is None or not self.field.nullable else pc.and_(gaps, absent)
            rows = pc.indices_nonzero(chosen).to_pylist()
            return _patched(made, rows, self.default.take(pa.array([0] * len(rows), pa.int64()))) if rows else made
        if not self.field.nullable:
            for row in pc.indices_nonzero(gaps).to_pylist():
                _bury(dead, row, missing(str(self.field.type)), self.steps)
        return made


def _refuse_variants(texts: pa.Array, dead: dict[int, Reason]) -> None:
    for row, text in enumerate(texts.to_pylist()):
        if row not in dead and text is not None and (reason := variant_refusal(text)) is not None:
            dead[row] = reason


def _bury(dead: dict[int, Reason], row: int, verdict: Rejection, steps: tuple[str, ...]) -> None:
    """Keep the first reason of a row, with its path from the root."""
    reason = verdict.reason
    for step in reversed(steps):
        reason = reason.within(step)
    dead.setdefault(row, reason)


def _patched(array: pa.Array, rows: list[int], others: pa.Array) -> pa.Array:
    """Return an array with other values in some (ascending) rows."""
    size = len(array)
    marked = pc.is_in(pa.array(range(size), pa.int64()), value_set=pa.array(rows, pa.int64()))
    order = pc.replace_with_mask(
        pa.array(range(size), pa.int64()), marked, pa.array(range(size, size + len(rows)), pa.int64())
    )
    return pa.concat_arrays([array, others]).take(order)


def column_plan(spec: ColumnSpec, field: pa.Field, schema: pa.Schema, rules: FitRules, *, blocks: bool) -> Column:
    """Plan a column for records of a schema.

    Raises:
        Terminal: the default does not fit.
    """
    wanted = field.with_nullable(field.nullable and not spec.required)
    places, source, blocked = _locate(spec.steps, schema, rules)
    rules = _reading(spec.reading, rules)
    steps = spec.steps[: len(places)] if blocked else spec.steps
    settle = settle_plan if blocks else one_by_one
    return Column(
        name=spec.name,
        places=places,
        steps=steps,
        blocked=blocked,
        field=wanted,
        settle=_doubted(wanted.type) if blocked else settle(source, wanted.type, rules),
        exact=_Judge(source, wanted, rules, blocked=blocked),
        default=_default(spec, wanted),
        variant=spec.variant,
        spec=spec,
        is_wide=width_per_element(wanted.type) > 1,
    )


def _place(spec: ColumnSpec, path: str) -> str:
    """Where in a value a problem is, if the column's name does not say it."""
    place = f"{'.'.join(spec.steps)}{path}".removeprefix("." if not spec.steps else "")
    return "" if place in ("", spec.name) else f" in the field {place!r}"


def _reading(reading: Reading, rules: FitRules) -> FitRules:
    """Return the rules of one column: what it declares itself comes on top."""
    return replace(
        rules,
        unit=reading.unit,
        local_time="reject" if reading.local_time == "dead_letter" else rules.local_time,
        number_texts=rules.number_texts or reading.cast_text,
        json_texts=rules.json_texts or reading.inferred,
        text_counts=rules.text_casts or reading.cast_text,
    )


def _doubted(target: pa.DataType) -> Callable[[pa.Array], Settled]:
    return partial(_all_doubted, target)


def _all_doubted(target: pa.DataType, array: Any) -> Settled:
    return pa.nulls(len(array), target), array.is_valid()


def _locate(steps: tuple[str, ...], schema: pa.Schema, rules: FitRules) -> tuple[tuple[int, ...], pa.DataType, bool]:
    """Return the places of a field, its plain type, and whether the way to it ends early at a value without fields."""
    places: list[int] = []
    source: pa.DataType = pa.struct(list(schema)) if not steps else pa.null()
    for step in steps:
        if not places:
            at = _at_top(step, schema, rules)
        elif kind_of(source) is not Kind.STRUCT:
            return tuple(places), source, kind_of(source) is not Kind.NULL
        else:
            at = matching(step, [field.name for field in source], case_insensitive=rules.case_insensitive)
        if at is None:
            return (), pa.null(), False
        source = plain_type((source if places else schema).field(at).type)
        places.append(at)
    return tuple(places), source, False


def _at_top(step: str, schema: pa.Schema, rules: FitRules) -> int | None:
    # As `matching`, without a list of all names for each column.
    found = schema.get_all_field_indices(step)
    if found or not rules.case_insensitive:
        return int(found[-1]) if found else None
    return matching(step, schema.names, case_insensitive=True)


def _default(spec: ColumnSpec, field: pa.Field) -> pa.Array | None:
    """Return the default as a JSON record would bring it, in an array of one."""
    if not spec.has_default:
        return None
    name, unit = spec.name, spec.reading.unit
    units = {} if unit is None else {name: unit}
    schema = pa.schema([field.with_name(name)])
    decoder = ExactDecoder(RecordSpec(schema, defaults={name: spec.default}, units=units, kafka_columns=None))
    return decoder.table([decoder.row(b"{}")]).column(0)
