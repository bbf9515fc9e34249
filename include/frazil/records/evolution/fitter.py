"""Typed columns to the columns of a table that follows them."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from frazil.records.casting.fitter import Fitted, Fitter, refuse_unknown, rescued
from frazil.records.casting.nested import matching
from frazil.records.casting.renames import Settler, renamed
from frazil.records.casting.scalar import FitRules
from frazil.records.casting.source import Kind, as_lists, kind_of, plain, sent
from frazil.records.evolution.schema_requests import Asked, Path, rescued_from, rescued_names
from frazil.records.evolution.shapes import Shape, Shapes
from frazil.records.model.column import ColumnSpec
from frazil.records.model.dead_letter import DeadCode, Reason
from frazil.records.model.spec import RecordSpec
from frazil.records.model.unknown_fields import NOTHING_UNKNOWN, UnknownAt

_SHAPES: Final = 64
"""Shapes kept, as `frazil.records.casting.fitter` keeps plans."""

_INCOMPATIBLE: Final = frozenset({DeadCode.WRONG_TYPE, DeadCode.OUT_OF_RANGE, DeadCode.LOSSY_CAST})

_COUNTED: Final = 100
"""Fields in one field at the top that are counted because no column takes them."""


class EvolvingFitter:
    """Fits decoded columns to those of a table, and tells what they need that it does not have.

    Args:
        spec: What is wanted of the values, with an evolution.
        asked: Takes what they need.
        text_casts: Whether texts become numbers; None: as the format has it.

    Raises:
        Terminal: as `Fitter`.
    """

    def __init__(self, spec: RecordSpec, asked: Asked, *, text_casts: bool | None = None) -> None:
        self._spec: Final = spec
        self._asked: Final = asked
        self._rest_name: Final = f"_{secrets.token_hex(16)}"
        any_case = spec.field_names == "case_insensitive"
        self._any_case: Final = any_case
        self._text_casts: Final = spec.format.is_text if text_casts is None else text_casts
        rules = FitRules(text_casts=self._text_casts, number_texts=self._text_casts, case_insensitive=any_case)
        self._shapes: Final = Shapes(spec, rules)
        self._known: Final[dict[pa.Schema, tuple[pa.Schema, Shape]]] = {}
        types = {column.name: column.type for column in spec.columns}
        takers = [(of.steps, types[of.name]) for of in spec.column_specs if of.name in types]
        self._settler: Final = Settler(takers, any_case=any_case)
        self._has_rescued: Final = spec.rescued_column in spec.columns.names
        self._fitter: Final = self._made(spec, any_case=any_case) if spec.columns.names else None
        optional = {column.name for column in spec.columns if column.nullable}
        self._rescued_from: Final = sorted(optional.intersection(rescued_from(spec)))
        self._one_column: Final[dict[str, Fitter]] = {}

    def _made(self, spec: RecordSpec, *, any_case: bool) -> Fitter:
        sources = {**spec.sources, spec.rescued_column: (self._rest_name,)} if self._has_rescued else spec.sources
        plain_spec = replace(spec, evolution=None, unknown_fields="ignore", sources=sources)
        return Fitter(
            plain_spec.column_specs,
            plain_spec.columns,
            unknown_fields="fail" if spec.unknown_fields == "fail" else "ignore",
            others=spec.key_names,
            case_insensitive=any_case,
            text_casts=self._text_casts,
        )

    def _alone(self, name: str) -> Fitter:
        # Made when it is needed: a thousand columns take a second.
        if name not in self._one_column:
            of = self._spec.only({name})
            self._one_column[name] = Fitter(
                of.column_specs, of.columns, case_insensitive=self._any_case, text_casts=self._text_casts
            )
        return self._one_column[name]

    def check(self, schema: pa.Schema) -> list[str]:
        """Return, for values of `schema`, each column that none of them could ever fill, and why."""
        return [] if self._fitter is None else self._fitter.check(schema)

    def fit(self, value: pa.RecordBatch, records: pa.Int64Array | None = None) -> Fitted:
        """Fit rows to the columns. They have no meaning if anything is asked for. No rows ask for nothing.

        Args:
            value: The fields.
            records: As `Fitter.fit` has it.
        """
        # A row that does not fit is no dead one where its field may be rescued.
        records = None if self._rescued_from else records
        value = self._settler.values(value)
        shape = self._shape(value.schema)
        rest = sorted(shape.rest.keys() | (shape.others if self._spec.unknown_fields == "rescue" else set()))
        dead: dict[int, Reason] = {}
        asked = Asked(self._spec.fold is not None)
        asked.take(shape.asked)
        named = self._named(value, value, shape, rest, asked, dead)
        fitted = self._fitted(named, records)
        if too_large := [row for row, of in fitted.dead.items() if of.code is DeadCode.OUT_OF_RANGE]:
            asked.take(self._exceeded(named.take(pa.array(too_large, pa.int64())), shape.wider))
        if (evolution := self._spec.evolution) is not None:
            required = filter(evolution.relaxes, self._shapes.required())
            asked.optional |= {(name,) for name in required if self._lacks(named, name)}
        if misfits := {} if asked.widens else self._misfits(named, fitted.dead):  # else they may fit the wider type
            names = {of.name for of, at in zip(value.schema, shape.fields, strict=True) if at.name in misfits}
            kept, left = _parted(value, shape, misfits, names - set(rest))
            dead.clear()
            fitted = self._fitted(self._named(kept, left, shape, sorted(names | set(rest)), asked, dead), records)
        if len(value):
            self._asked.take(asked)
        return self._with_rescued(_without(fitted, dead), value, shape, misfits)

    def _misfits(self, named: pa.RecordBatch, dead: dict[int, Reason]) -> dict[str, pa.Int64Array]:
        """Return the rows of each column that nobody declared whose value it can't be."""
        rows = pa.array([row for row, of in dead.items() if of.code in _INCOMPATIBLE], pa.int64())
        part = named.take(rows) if len(rows) else named.slice(0, 0)
        found = {}
        names = part.schema.names
        for name in self._rescued_from if len(rows) else ():
            at = matching(name, names, case_insensitive=self._any_case)
            if at is None or part.column(at).type == self._spec.columns.field(name).type:
                continue
            refused = self._alone(name).fit(part.select([at])).dead
            if bad := [row for row, of in refused.items() if of.code in _INCOMPATIBLE]:
                found[part.schema.names[at]] = rows.take(pa.array(bad, pa.int64()))
        return found

    def _with_rescued(
        self, fitted: Fitted, value: pa.RecordBatch, shape: Shape, misfits: Mapping[str, pa.Int64Array]
    ) -> Fitted:
        """Return the same with the fields counted that have no column of their own, or another type than it."""
        if not (shape.rest or misfits):
            return fitted
        names = {".".join(path) for paths in shape.rest.values() for path in paths}
        counts = [fitted.ignored.without(names)]
        for name, rows in misfits.items():
            (label,) = rescued_names(self._spec, [(name,)])
            counts.append(UnknownAt(rows, pa.repeat(pa.scalar(label, pa.string()), len(rows))))
        for name, paths in shape.rest.items():
            at = value.schema.get_field_index(name)
            rows = pc.indices_nonzero(sent(value.schema.field(at), value.column(at))).cast(pa.int64())
            labels = rescued_names(self._spec, sorted(paths)[:_COUNTED])
            counts += [UnknownAt(rows, pa.repeat(pa.scalar(label, pa.string()), len(rows))) for label in labels]
        return replace(fitted, ignored=UnknownAt.together(counts).only(fitted.kept))

    def _exceeded(self, value: pa.RecordBatch, wider: Asked) -> Asked:
        """Return those of the wider types that a value is out of its column's range for: its neighbours stay as they are."""
        found = Asked(self._spec.fold is not None)
        values, columns = value.to_struct_array(), pa.struct(list(self._spec.columns))
        for path, of in wider.widens.items():
            for numbers, column in _parts_at(values, columns, path, any_case=self._any_case):
                fitter = Fitter((ColumnSpec("number", column, required=False),), pa.schema([("number", column)]))
                dead = fitter.fit(pa.RecordBatch.from_arrays([numbers], ["number"])).dead
                if any(reason.code is DeadCode.OUT_OF_RANGE for reason in dead.values()):
                    found.widen(path, of)
        return found

    def _lacks(self, value: pa.RecordBatch, name: str) -> bool:
        """Return whether a value has none for a column."""
        at = matching(name, value.schema.names, case_insensitive=self._any_case)
        return len(value) > 0 and (at is None or plain(value.column(at)).null_count > 0)

    def _shape(self, schema: pa.Schema) -> Shape:
        # Schemas are equal whatever their metadata is, which says how fields were called before.
        known, shape = self._known.get(schema, (None, None))
        if known is not None and shape is not None and known.equals(schema, check_metadata=True):
            return shape
        if len(self._known) >= _SHAPES:
            del self._known[next(iter(self._known))]
        made = self._shapes.of(schema)
        self._known[schema] = schema, made
        return made

    def _named(
        self,
        value: pa.RecordBatch,
        left: pa.RecordBatch,
        shape: Shape,
        rest: list[str],
        asked: Asked,
        dead: dict[int, Reason],
    ) -> pa.RecordBatch:
        """Return values under the names of the columns, and with the rest, of what is left of the same fields, as a text."""
        names = value.schema.names
        places = tuple(at for at, name in enumerate(names) if name in rest)
        kept = [at for at in range(len(names)) if at not in places or self._shapes.has(names[at])]
        columns = [renamed(value.column(at), shape.fields[at].type) for at in kept]
        fields = [pa.field(shape.fields[at].name, of.type) for at, of in zip(kept, columns, strict=True)]
        texts = rescued(left, places, dead, pa.string())
        if texts.null_count < len(texts):
            if not self._has_rescued:
                asked.add((self._spec.rescued_column,), pa.string())
            columns.append(texts)
            fields.append(pa.field(self._rest_name, pa.string()))
        if not columns:
            return pa.RecordBatch.from_struct_array(pa.array([{}] * len(value), pa.struct([])))
        return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))

    def _fitted(self, value: pa.RecordBatch, records: pa.Int64Array | None) -> Fitted:
        if self._fitter is not None:
            return self._fitter.fit(value, records)
        rows = pa.RecordBatch.from_struct_array(pa.array([{}] * len(value), pa.struct([])))
        whole = Fitted(rows, pa.arange(0, len(value)), {}, NOTHING_UNKNOWN)
        dead: dict[int, Reason] = {}
        if self._spec.unknown_fields == "fail":
            refuse_unknown(value, tuple(range(value.num_columns)), dead)
        return _without(whole, dead)


def _parted(
    value: pa.RecordBatch, shape: Shape, misfits: Mapping[str, pa.Int64Array], names: Collection[str]
) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """Return values without those that are not what their columns hold, and with nothing else of these fields.

    Args:
        value: The values.
        shape: Tells their columns.
        misfits: Column -> the rows whose value it can't be.
        names: Of these fields. Another one is kept as it is in any case: all of it stays in the second.
    """
    kept, left = list(value.columns), list(value.columns)
    every, nowhere = pa.arange(0, len(value)), pa.scalar(None, pa.int64())
    for at, column in enumerate(shape.fields):
        if column.name in misfits:
            out = pc.is_in(every, value_set=misfits[column.name])
            kept[at] = value.column(at).take(pc.if_else(out, nowhere, every))
            if value.schema.names[at] in names:
                left[at] = value.column(at).take(pc.if_else(out, every, nowhere))
    optional = pa.schema([of.with_nullable(nullable=True) for of in value.schema])
    return pa.RecordBatch.from_arrays(kept, schema=optional), pa.RecordBatch.from_arrays(left, schema=optional)


def _parts_at(
    array: pa.Array, column: pa.DataType, path: Path, *, any_case: bool
) -> Iterator[tuple[pa.Array, pa.DataType]]:
    """Yield the values of a part of a column, of all rows, and its type. Fields are in the spelling of their source."""
    values = plain(array)
    if not path:
        yield values, column
        return
    name, rest = path[0], path[1:]
    match kind_of(values.type), kind_of(column):
        case Kind.LIST, Kind.LIST:
            yield from _parts_at(as_lists(values).flatten(), column.value_type, rest, any_case=any_case)
        case Kind.MAP, Kind.MAP:
            items = values.filter(values.is_valid()).items
            yield from _parts_at(items, column.item_type, rest, any_case=any_case)
        case Kind.STRUCT, Kind.MAP:
            for each in values.flatten():
                yield from _parts_at(each, column.item_type, rest, any_case=any_case)
        case Kind.STRUCT, Kind.STRUCT:
            at = matching(name, [of.name for of in values.type], case_insensitive=any_case)
            if at is not None:
                yield from _parts_at(values.flatten()[at], column.field(name).type, rest, any_case=any_case)


def _without(fitted: Fitted, dead: dict[int, Reason]) -> Fitted:
    """Return what was fitted less some rows more."""
    if not dead:
        return fitted
    good = pc.invert(pc.is_in(fitted.kept, value_set=pa.array(dead, pa.int64())))
    kept = fitted.kept.filter(good)
    reasons = dict(sorted({**dead, **fitted.dead}.items()))
    return Fitted(fitted.rows.filter(good), kept, reasons, fitted.ignored.only(kept))
