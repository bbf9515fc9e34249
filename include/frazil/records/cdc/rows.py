"""Fits changes to the columns of their table: each value becomes rows that say what happens to which key."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Final, Self

import pyarrow as pa
import pyarrow.compute as pc

from frazil.batch.changes import DELETE, TRUNCATE, UPSERT
from frazil.error_codes import FIELDS_UNFIT
from frazil.errors import Terminal
from frazil.records.casting.fitter import Fitted, Fitter
from frazil.records.cdc.images import has_op
from frazil.records.evolution.fitter import EvolvingFitter
from frazil.records.evolution.schema_requests import SchemaRequests
from frazil.records.formats.keys_and_headers import KeyColumns
from frazil.records.model.changes import FACTS, ChangeFormat, Images
from frazil.records.model.dead_letter import DeadCode, Reason
from frazil.records.model.format import JSON
from frazil.records.model.rows import NOTHING_UNKNOWN, UnknownFieldPairs
from frazil.records.model.spec import RecordSpec
from frazil.records.transforms.fields import batch_of
from frazil.records.transforms.kinds.change_events import cdc_struct


class PartialFitter:
    """Fits values and keys to some columns.

    Value or key is None if no column takes a field of it.
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
        if spec.of_key.union(spec.of_header).issuperset(spec.columns.names):  # no row brought any of its own yet
            return cls(None, keys)
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


_OPS: Final = (UPSERT, DELETE, TRUNCATE)


@dataclass(frozen=True)
class _ChangeRows:
    """Rows of one op in the block's schema, the index of each row's change, and the reasons of dead values by position."""

    rows: pa.RecordBatch
    changes: pa.Int64Array
    dead: Mapping[int, Reason]
    ignored: UnknownFieldPairs = NOTHING_UNKNOWN


class ChangeFitter:
    """Turns changes into rows to merge.

    A deleted row has its key, the column of `order_by`, and columns that take facts about the change; all others are null,
    required or not. An update that changes the key is a delete of the old key and then an upsert. Of one value all deletes
    come first: a statement that moves several keys may give one row the key that another one had.
    """

    def __init__(self, spec: RecordSpec, requests: SchemaRequests) -> None:
        merge = spec.merge
        if merge is None or merge.changes is None:
            raise AssertionError(spec)
        self._format: Final[ChangeFormat] = merge.changes
        self._schema: Final = spec.block_schema
        self._key_columns: Final = spec.of_key
        self._keys: Final = [name for name in merge.keys if name not in spec.of_key]
        takes_facts = {name for name, path in spec.sources.items() if path[:1] == (FACTS,)}
        carried = takes_facts | ({merge.order_by} if merge.order_by is not None else set())
        # A JSON string is cast to its column's type: the pipeline file may declare a decimal that is sent as text.
        casts = spec.format.is_text or spec.format.name == JSON or merge.changes.text_casts
        self._takes_facts: Final = bool(takes_facts)
        self._carried: Final = carried - {*merge.keys}
        self._declared_fields: Final = {column.steps[0] for column in spec.column_specs if column.steps}
        self._upsert_fitter: Final = PartialFitter.for_all_columns(spec, requests, text_casts=casts)
        self._delete_fitter: Final = PartialFitter.for_columns(
            spec, {*merge.keys, *spec.of_key, *carried}, text_casts=casts
        )
        self._old_key_fitter: Final = (
            PartialFitter.for_columns(spec, {*self._keys}, text_casts=casts) if self._keys else None
        )
        self._truncate_fitter: Final = (
            PartialFitter.for_columns(spec, self._carried - spec.of_key, text_casts=casts) if self._carried else None
        )

    def check(self, shape: pa.Schema) -> list[str]:
        """Return, for values of one shape, each column that no row of them could ever fill, and why."""
        null_row = batch_of(
            [(shape_field.with_nullable(nullable=True), pa.nulls(1, shape_field.type)) for shape_field in shape], 1
        )
        images = self._format.images(null_row)
        return self._upsert_fitter.check(self._fields(images).schema)

    def fit(self, value: pa.RecordBatch, key: pa.RecordBatch | None) -> Fitted:
        """Fit values, each with its key if keys are decoded. A value that changes no row is neither kept nor dead."""
        try:
            images = self._format.images(value)
            fields = self._fields(images)
        except Terminal as error:  # these records brought this schema: they fail, those with another schema go on
            reason = Reason(DeadCode.TRANSFORM_FAILED, error.message)
            no_rows = pa.RecordBatch.from_pylist([], self._schema)
            return Fitted(no_rows, pa.array([], pa.int64()), dict.fromkeys(range(len(value)), reason), NOTHING_UNKNOWN)
        is_good = pc.invert(pc.is_in(images.value_positions, value_set=pa.array(list(images.failed), pa.int64())))
        changes = {op: pc.indices_nonzero(pc.and_(is_good, has_op(images.op, op))).cast(pa.int64()) for op in _OPS}
        upserts = self._change_rows(images, fields, changes[UPSERT], self._upsert_fitter, key, UPSERT)
        changed_rows = [
            self._deletes_of_old_keys(images, upserts),
            self._change_rows(images, fields, changes[DELETE], self._delete_fitter, key, DELETE),
            self._change_rows(images, fields, changes[TRUNCATE], self._truncate_fitter, None, TRUNCATE),
            upserts,
        ]
        dead = dict(images.failed)
        for op_rows in changed_rows:
            dead = {**op_rows.dead, **dead}
        table = pa.Table.from_batches([op_rows.rows for op_rows in changed_rows]).combine_chunks()
        values_of_rows = images.value_positions.take(pa.concat_arrays([op_rows.changes for op_rows in changed_rows]))
        order = pc.array_sort_indices(values_of_rows)  # stable: of one value, deletes stay first
        alive = pc.invert(pc.is_in(values_of_rows, value_set=pa.array(list(dead), pa.int64()))) if dead else None
        order = order if alive is None else order.filter(alive.take(order))
        batches = table.take(order).combine_chunks().to_batches()
        merged_rows = batches[0] if batches else changed_rows[0].rows.slice(0, 0)
        kept_values = values_of_rows.take(order)
        return Fitted(merged_rows, kept_values, dict(sorted(dead.items())), upserts.ignored.at_positions(kept_values))

    def _fields(self, images: Images) -> pa.RecordBatch:
        """Return the fields of rows, with the facts about their changes if a column takes one."""
        hidden = images.hidden - self._declared_fields
        columns = [column for name, column in images.row.items() if name not in hidden]
        if self._takes_facts:
            if FACTS in images.row:
                raise FIELDS_UNFIT.terminal(
                    f"the rows have a field named {FACTS}, a name that Frazil needs for the facts about a change",
                    next_step="rename the field with a transform, or remove the columns with facts about the change",
                )
            facts = cdc_struct(images.facts)
            columns.append((pa.field(FACTS, facts.type), facts))
        return batch_of(columns, len(images.value_positions))

    def _deletes_of_old_keys(self, images: Images, upserts: _ChangeRows) -> _ChangeRows:
        """Return deletes of the old keys of updates that changed the key."""
        had_before = images.has_before.take(upserts.changes)
        no_moves = _ChangeRows(upserts.rows.slice(0, 0), upserts.changes.slice(0, 0), {})
        if self._old_key_fitter is None or not had_before.true_count:
            return no_moves
        updates, after = upserts.changes.filter(had_before), upserts.rows.filter(had_before)
        before = {name: _fill_from_row(column, images.row.get(name)) for name, column in images.before.items()}
        fitted = self._old_key_fitter.fit(
            batch_of(list({**images.row, **before}.values()), len(images.value_positions)).take(updates), None
        )
        new_rows = after.take(fitted.input_rows)
        key_changed = [pc.not_equal(fitted.rows.column(name), new_rows.column(name)) for name in self._keys]
        moved = pc.fill_null(reduce(pc.or_kleene, key_changed), fill_value=False)
        old_keys, new_rows = fitted.rows.filter(moved), new_rows.filter(moved)
        columns = {name: new_rows.column(name) for name in (*self._carried, *self._key_columns)}
        columns |= {name: old_keys.column(name) for name in self._keys}
        dead = {
            images.value_positions[updates[row].as_py()].as_py(): reason.with_parent("before")
            for row, reason in fitted.dead.items()
        }
        return _ChangeRows(
            self._filled(columns, len(old_keys), DELETE), updates.take(fitted.input_rows).filter(moved), dead
        )

    def _change_rows(
        self,
        images: Images,
        fields: pa.RecordBatch,
        changes: pa.Int64Array,
        fitter: PartialFitter | None,
        key: pa.RecordBatch | None,
        op: str,
    ) -> _ChangeRows:
        """Return the rows of changes with an op; without a fitter nothing but the op is in them."""
        if fitter is None:
            return _ChangeRows(self._filled({}, len(changes), op), changes, {})
        values_of_changes = images.value_positions.take(changes)
        fitted = fitter.fit(fields.take(changes), None if key is None else key.take(values_of_changes))
        rows = fitted.rows
        columns = {name: rows.column(name) for name in rows.schema.names}
        dead = {values_of_changes[row].as_py(): reason for row, reason in reversed(fitted.dead.items())}
        return _ChangeRows(
            self._filled(columns, rows.num_rows, op),
            changes.take(fitted.input_rows),
            dead,
            fitted.ignored.map_positions(values_of_changes),
        )

    def _filled(self, columns: Mapping[str, pa.Array], size: int, op: str) -> pa.RecordBatch:
        """Return rows in the block's schema; columns that are not given are null."""
        *names, last = self._schema.names
        arrays = [columns[name] if name in columns else pa.nulls(size, self._schema.field(name).type) for name in names]
        arrays.append(pa.repeat(pa.scalar(op, self._schema.field(last).type), size))
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def _fill_from_row(
    before: tuple[pa.Field, pa.Array], row: tuple[pa.Field, pa.Array] | None
) -> tuple[pa.Field, pa.Array]:
    """Return a key field before the change: an image of the changed fields alone has null there, so the new row fills it."""
    field, values = before
    if row is None or row[1].type != values.type or pa.types.is_nested(values.type):
        return before
    return field.with_nullable(nullable=True), pc.coalesce(values, row[1])
