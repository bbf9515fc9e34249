"""Changes fitted to the columns of their table: each value becomes rows that say what happens to which key."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from frazil.batch.changes import DELETE, TRUNCATE, UPSERT
from frazil.errors import Terminal
from frazil.records.casting.fitter import Fitted
from frazil.records.cdc.partial_rows import Part
from frazil.records.evolution.schema_requests import Asked
from frazil.records.model.changes import FACTS, ChangeFormat, Images
from frazil.records.model.dead_letter import DeadCode, Reason
from frazil.records.model.format import JSON
from frazil.records.model.spec import RecordSpec
from frazil.records.model.unknown_fields import NOTHING_UNKNOWN, UnknownAt
from frazil.records.transforms.cdc.change import cdc_struct
from frazil.records.transforms.fields import batch_of


@dataclass(frozen=True)
class _Rows:
    """Rows of the whole block, the change that each is of, and the reasons of other values."""

    rows: pa.RecordBatch
    at: pa.Int64Array
    dead: Mapping[int, Reason]
    ignored: UnknownAt = NOTHING_UNKNOWN


class ChangeFitter:
    """Makes rows of changes.

    A deleted row has its key, the column of `order_by`, and columns that take facts about the change; all others are null,
    required or not. An update that changes the key is a delete of the old key and then an upsert. Of one value all deletes
    come first: a statement that moves several keys may give one row the key that another one had.

    Args:
        spec: What is wanted of the records; it has a format of changes.
        asked: Takes what inserted and updated rows need that the table does not have.

    Raises:
        Terminal: A default does not fit its column.
    """

    def __init__(self, spec: RecordSpec, asked: Asked) -> None:
        merge = spec.merge
        if merge is None or merge.changes is None:
            raise AssertionError(spec)
        self._format: Final[ChangeFormat] = merge.changes
        self._schema: Final = spec.block_schema
        self._of_key: Final = spec.of_key
        self._keys: Final = [name for name in merge.keys if name not in spec.of_key]
        takes_facts = {name for name, path in spec.sources.items() if path[:1] == (FACTS,)}
        carried = takes_facts | ({merge.order_by} if merge.order_by is not None else set())
        # A JSON field is text by the file's own word: of a decimal that would not survive as a number, say.
        casts = spec.format.is_text or spec.format.name == JSON or merge.changes.text_casts
        self._takes_facts: Final = bool(takes_facts)
        self._carried: Final = carried - {*merge.keys}
        self._declared: Final = {of.steps[0] for of in spec.column_specs if of.steps}
        self._row: Final = Part.whole(spec, asked, text_casts=casts)
        self._gone: Final = Part.some(spec, {*merge.keys, *spec.of_key, *carried}, text_casts=casts)
        self._old: Final = Part.some(spec, {*self._keys}, text_casts=casts) if self._keys else None
        self._all: Final = Part.some(spec, self._carried - spec.of_key, text_casts=casts) if self._carried else None

    def check(self, shape: pa.Schema) -> list[str]:
        """Return, for values of one shape, each column that no row of them could ever fill, and why."""
        nothing = batch_of([(of.with_nullable(nullable=True), pa.nulls(1, of.type)) for of in shape], 1)
        images = self._format.images(nothing)
        return self._row.check(self._fields(images).schema)

    def fit(self, value: pa.RecordBatch, key: pa.RecordBatch | None) -> Fitted:
        """Fit values, each with its key, if keys are decoded. Values that tell of no row are neither kept nor dead."""
        try:
            images = self._format.images(value)
        except Terminal as misfit:  # of this schema, which its records brought: those of another one go on
            reason = Reason(DeadCode.TRANSFORM_FAILED, misfit.message)
            nothing = pa.RecordBatch.from_pylist([], self._schema)
            return Fitted(nothing, pa.array([], pa.int64()), dict.fromkeys(range(len(value)), reason), NOTHING_UNKNOWN)
        good = pc.invert(pc.is_in(images.of, value_set=pa.array(list(images.failed), pa.int64())))
        upserts = self._upserts(images, _where(good, images.op, UPSERT), key)
        made = [
            self._moves(images, upserts),
            self._deletes(images, _where(good, images.op, DELETE), key),
            self._truncates(images, _where(good, images.op, TRUNCATE)),
            upserts,
        ]
        dead = dict(images.failed)
        for part in made:
            dead = {**part.dead, **dead}
        rows = pa.Table.from_batches([part.rows for part in made]).combine_chunks()
        of = images.of.take(pa.concat_arrays([part.at for part in made]))
        order = pc.array_sort_indices(of)  # stable: of one value, deletes stay first
        alive = pc.invert(pc.is_in(of, value_set=pa.array(list(dead), pa.int64()))) if dead else None
        order = order if alive is None else order.filter(alive.take(order))
        batches = rows.take(order).combine_chunks().to_batches()
        whole = batches[0] if batches else made[0].rows.slice(0, 0)
        kept = of.take(order)
        return Fitted(whole, kept, dict(sorted(dead.items())), upserts.ignored.only(kept))

    def _fields(self, images: Images) -> pa.RecordBatch:
        """The fields of rows, and the facts about their changes where a column takes one."""
        hidden = images.hidden - self._declared
        columns = [of for name, of in images.row.items() if name not in hidden]
        if self._takes_facts:
            if FACTS in images.row:
                raise Terminal(
                    f"the rows have a field {FACTS} themselves, and columns take facts about the change from there",
                    next_step="rename the field with a transform, or take no facts",
                )
            facts = cdc_struct(images.facts)
            columns.append((pa.field(FACTS, facts.type), facts))
        return batch_of(columns, len(images.of))

    def _upserts(self, images: Images, at: pa.Int64Array, key: pa.RecordBatch | None) -> _Rows:
        return self._placed(images, at, self._fitted(self._row, images, at, key), UPSERT)

    def _deletes(self, images: Images, at: pa.Int64Array, key: pa.RecordBatch | None) -> _Rows:
        return self._placed(images, at, self._fitted(self._gone, images, at, key), DELETE)

    def _truncates(self, images: Images, at: pa.Int64Array) -> _Rows:
        if self._all is None:
            return _Rows(self._filled({}, len(at), TRUNCATE), at, {})
        return self._placed(images, at, self._fitted(self._all, images, at, None), TRUNCATE)

    def _moves(self, images: Images, upserts: _Rows) -> _Rows:
        """Deletes of the keys that updated rows had before."""
        mask = images.had.take(upserts.at)
        nothing = _Rows(upserts.rows.slice(0, 0), upserts.at.slice(0, 0), {})
        if self._old is None or not mask.true_count:
            return nothing
        at, after = upserts.at.filter(mask), upserts.rows.filter(mask)
        before = {name: _or_else(of, images.row.get(name)) for name, of in images.before.items()}
        fitted = self._old.fit(batch_of(list({**images.row, **before}.values()), len(images.of)).take(at), None)
        now = after.take(fitted.kept)
        differ = [pc.not_equal(fitted.rows.column(name), now.column(name)) for name in self._keys]
        moved = pc.fill_null(_any(differ), fill_value=False)
        old, now = fitted.rows.filter(moved), now.filter(moved)
        columns = {name: now.column(name) for name in (*self._carried, *self._of_key)}
        columns |= {name: old.column(name) for name in self._keys}
        dead = {images.of[at[row].as_py()].as_py(): of.within("before") for row, of in fitted.dead.items()}
        return _Rows(self._filled(columns, len(old), DELETE), at.take(fitted.kept).filter(moved), dead)

    def _fitted(self, part: Part, images: Images, at: pa.Int64Array, key: pa.RecordBatch | None) -> Fitted:
        keys = None if key is None else key.take(images.of.take(at))
        return part.fit(self._fields(images).take(at), keys)

    def _placed(self, images: Images, at: pa.Int64Array, fitted: Fitted, op: str) -> _Rows:
        of, rows = images.of.take(at), fitted.rows
        columns = {name: rows.column(name) for name in rows.schema.names}
        dead = {of[row].as_py(): reason for row, reason in reversed(fitted.dead.items())}
        return _Rows(self._filled(columns, rows.num_rows, op), at.take(fitted.kept), dead, fitted.ignored.among(of))

    def _filled(self, columns: Mapping[str, pa.Array], size: int, op: str) -> pa.RecordBatch:
        """Rows of the whole block: what is not given is null."""
        *names, last = self._schema.names
        arrays = [columns[name] if name in columns else pa.nulls(size, self._schema.field(name).type) for name in names]
        arrays.append(pa.repeat(pa.scalar(op, self._schema.field(last).type), size))
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def _where(good: pa.BooleanArray, op: pa.StringArray, sought: str) -> pa.Int64Array:
    return pc.indices_nonzero(pc.and_(good, pc.fill_null(pc.equal(op, sought), fill_value=False))).cast(pa.int64())


def _any(masks: Collection[pa.BooleanArray]) -> pa.BooleanArray:
    first, *more = masks
    for mask in more:
        first = pc.or_kleene(first, mask)
    return first


def _or_else(before: tuple[pa.Field, pa.Array], row: tuple[pa.Field, pa.Array] | None) -> tuple[pa.Field, pa.Array]:
    """A field as it was: an image that holds only what changed has null for the rest, and no key is null."""
    declared, values = before
    if row is None or row[1].type != values.type or pa.types.is_nested(values.type):
        return before
    return declared.with_nullable(nullable=True), pc.coalesce(values, row[1])
