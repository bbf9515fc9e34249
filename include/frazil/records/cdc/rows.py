"""Turns change events into rows to merge: a row has the columns of the table, and the operation on the row with its key.

`ChangeFitter` does it for decoded columns, `EvolvingChanges` for JSON values of a table whose schema follows its records.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Final, Self

import pyarrow as pa
import pyarrow.compute as pc

from frazil.batch.changes import DELETE, TRUNCATE, UPSERT
from frazil.error_codes import FIELDS_UNFIT
from frazil.errors import Terminal
from frazil.records.casting.fitter import Fitted, Fitter
from frazil.records.casting.source import Kind, kind_of
from frazil.records.cdc.debezium import has_op
from frazil.records.evolution.fitter import EvolvingFitter
from frazil.records.evolution.inspect import (
    EVOLVABLE,
    Inspection,
    ObjectInspector,
    replace_values,
    suspects,
    without_hopeless,
)
from frazil.records.evolution.schema_requests import SchemaRequests
from frazil.records.formats.keys_and_headers import KeyColumns
from frazil.records.json.exact import parse_object
from frazil.records.json.typed import Dead, JsonValues
from frazil.records.model.changes import FACTS, ChangeFormat, Images, ParsedImages, ParsedValue
from frazil.records.model.dead_letter import DeadCode, Reason
from frazil.records.model.format import JSON
from frazil.records.model.json_number import JsonObject, JsonValue, document, number_in
from frazil.records.model.rows import NOTHING_UNKNOWN, Block, UnknownFieldPairs
from frazil.records.model.spec import RecordSpec
from frazil.records.transforms.fields import batch_of, null_row
from frazil.records.transforms.kinds.change_events import cdc_struct


class PartialFitter:
    """Fits fields of values and of keys to some columns; either part is None if no column takes a field of it."""

    def __init__(self, value_fitter: Fitter | EvolvingFitter | None, key_columns: KeyColumns | None) -> None:
        self._value_fitter = value_fitter
        self._key_columns = key_columns

    @classmethod
    def for_all_columns(cls, spec: RecordSpec, requests: SchemaRequests, *, text_casts: bool) -> Self:
        """Return a fitter for all columns. It handles unknown fields and, if the schema evolves, requests schema changes."""
        keys = KeyColumns(spec) if spec.of_key else None
        if spec.evolution is not None:
            return cls(EvolvingFitter(spec.of_value, requests, text_casts=text_casts), keys)
        if spec.of_key.union(spec.of_header).issuperset(
            spec.columns.names
        ):  # no record brought a column of the value yet
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
        """Return each column that no value of this shape could fill, and why."""
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
    """Rows of one op in the block's schema, the index of each row's change, and the reasons of dead letters by position."""

    rows: pa.RecordBatch
    changes: pa.Int64Array
    dead: Mapping[int, Reason]
    ignored: UnknownFieldPairs = NOTHING_UNKNOWN


class ChangeFitter:
    """Turns changes into rows to merge.

    A deleted row has its key, the column of `order_by`, and the columns of facts about the change; all others are null, required
    or not. An update that changes the key becomes a delete of the old key and an upsert. Of one value, all deletes come first: one
    statement may change several keys, and give one row the key that another row had.
    """

    def __init__(self, spec: RecordSpec, requests: SchemaRequests) -> None:
        merge = spec.merge
        if merge is None or merge.changes is None:
            raise AssertionError(spec)
        self._format: Final[ChangeFormat] = merge.changes
        self._schema: Final = spec.block_schema
        self._key_columns: Final = spec.of_key
        self._keys: Final = [name for name in merge.keys if name not in spec.of_key]
        fact_paths = {name: path[1:] for name, path in spec.sources.items() if path[:1] == (FACTS,)}
        carried = fact_paths.keys() | ({merge.order_by} if merge.order_by is not None else set())
        # Strings in JSON are cast to the column's type: the pipeline file may declare a decimal that is sent as text.
        casts = spec.format.is_text or spec.format.name == JSON or merge.changes.text_casts
        self._fact_paths: Final = {*fact_paths.values()}
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
        """Return each column that no row in values of this shape could fill, and why."""
        images = self._format.images(null_row(shape))
        return self._upsert_fitter.check(self._fields(images).schema)

    def fit(self, value: pa.RecordBatch, key: pa.RecordBatch | None) -> Fitted:
        """Fit values, each with its key if keys are decoded. A value that changes no row is neither kept nor dead."""
        try:
            images = self._format.images(value)
            fields = self._fields(images)
        except Terminal as error:  # only records of this schema fail; those of another schema continue
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
        """Return the fields of rows, and the facts about their changes if a column takes one."""
        hidden = images.hidden - self._declared_fields
        columns = [column for name, column in images.row.items() if name not in hidden]
        if self._fact_paths:
            if FACTS in images.row:
                raise FIELDS_UNFIT.terminal(
                    f"the rows have a field named {FACTS}, a name that Frazil needs for the facts about a change",
                    next_step="rename the field with a transform, or remove the columns with facts about the change",
                )
            # A fact that no column takes would count as an unknown field of the records.
            selected = {name: array for name, array in images.facts.items() if (name,) in self._fact_paths}
            facts = cdc_struct(selected if len(selected) == len(self._fact_paths) else images.facts)
            columns.append((pa.field(FACTS, facts.type), facts))
        return batch_of(columns, len(images.value_positions))

    def _deletes_of_old_keys(self, images: Images, upserts: _ChangeRows) -> _ChangeRows:
        """Return deletes of the old keys of updates that changed the key."""
        had_before = images.has_before.take(upserts.changes)
        if self._old_key_fitter is None or not had_before.true_count:
            return _ChangeRows(upserts.rows.slice(0, 0), upserts.changes.slice(0, 0), {})
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
        """Return the rows of changes with one op; without a fitter they have the op alone."""
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
        """Return rows in the block's schema, with null in all other columns."""
        *names, last = self._schema.names
        arrays = [columns[name] if name in columns else pa.nulls(size, self._schema.field(name).type) for name in names]
        arrays.append(pa.repeat(pa.scalar(op, self._schema.field(last).type), size))
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def _fill_from_row(
    before: tuple[pa.Field, pa.Array], row: tuple[pa.Field, pa.Array] | None
) -> tuple[pa.Field, pa.Array]:
    """Return a key field before the change. An image may have changed fields alone: where it is null, the new row fills it."""
    field, values = before
    if row is None or row[1].type != values.type or pa.types.is_nested(values.type):
        return before
    return field.with_nullable(nullable=True), pc.coalesce(values, row[1])


# Values are first decoded by the present columns of the table. Those that another schema may decode better are inspected one by
# one: rows of inserts and updates request schema changes. Of deleted rows, and of rows before a change, only the key matters:
# their other fields request no column and make no record a dead letter.

_NUMBER_KINDS: Final = {Kind.INT, Kind.FLOAT, Kind.DECIMAL}

_INSPECTED_CODES: Final = EVOLVABLE | {DeadCode.LONE_SURROGATE}
"""Codes of dead letters that an inspection may make good: the fault may be in an image that does not matter."""


class EvolvingChanges:
    """Turns JSON changes into rows to merge, and collects the schema changes that they need."""

    def __init__(self, spec: RecordSpec, requests: SchemaRequests, *, blocks: bool = True) -> None:
        merge = spec.merge
        if merge is None or merge.changes is None or merge.shape is None:
            raise AssertionError(spec)
        self._format: Final[ChangeFormat] = merge.changes
        # A random name, so that no producer can send a field of this name and forge rescued fields.
        self._rest_name: Final = f"_{secrets.token_hex(16)}"
        self._shape: Final = _renamed_schema(merge.shape, spec.rescued_column, self._rest_name)
        self._fitter: Final = ChangeFitter(spec.without_evolution(self._rest_name), requests)
        self._json: Final = JsonValues(
            RecordSpec(
                self._shape,
                format=spec.format,
                duplicate_keys=spec.duplicate_keys,
                field_names=spec.field_names,
                casts=spec.casts,
                kafka_columns=None,
            ),
            blocks=blocks,
        )
        self._fold: Final = spec.fold is not None
        self._allows_repeated_keys: Final = spec.duplicate_keys == "last"
        self._requests: Final = requests
        self._has_rescued: Final = spec.rescued_column in spec.columns.names
        self._rescued_column: Final = spec.rescued_column
        self._inspector: Final = None if spec.evolution is None else ObjectInspector(spec.of_value)
        columns = [(self._key(column.steps[0]), column) for column in spec.of_value.column_specs if column.steps]
        whole_fields = [(key, column) for key, column in columns if len(column.steps) == 1]
        identifying = {*merge.keys, merge.order_by}
        self._declared_fields: Final = {key for key, _ in columns}
        self._needed_fields: Final = {key for key, column in columns if column.name in identifying}
        self._required_fields: Final = {
            key
            for key, column in whole_fields
            if column.name in identifying and not column.has_default  # a default replaces null
        }
        # If all values are sent as texts, the inspection sees the numbers and booleans that they become.
        self._column_types: Final = {key: column.type for key, column in whole_fields if self._format.text_casts}
        self._inferred_types: Final = {key: column.type for key, column in whole_fields if column.reading.inferred}

    def check(self) -> list[str]:
        """Return each column that no row could fill, and why."""
        return self._fitter.check(self._shape)

    def fit(self, values: pa.BinaryArray, key: pa.RecordBatch | None) -> Fitted:
        """Fit values, none of them null, each with its key. The rows are void if a schema change is requested."""
        block, dead = self._json.rows(values)
        if self._inspector is not None:
            block, dead = self._inspect_suspects(self._inspector, values, block, dead)
        keys = None if key is None else key.take(block.positions)
        fitted = self._fitter.fit(block.rows, keys)
        reasons = dead | {block.positions[row].as_py(): reason for row, reason in fitted.dead.items()}
        kept_positions = block.positions.take(fitted.input_rows)
        return Fitted(
            fitted.rows, kept_positions, dict(sorted(reasons.items())), fitted.ignored.map_positions(block.positions)
        )

    def _key(self, name: str) -> str:
        return name.casefold() if self._fold else name

    def _inspect_suspects(
        self, inspector: ObjectInspector, values: pa.BinaryArray, block: Block, dead: Dead
    ) -> tuple[Block, Dead]:
        """Inspect values and request the columns that their rows need. Decode those again whose fields are rescued or moved."""
        requests, texts = SchemaRequests(self._fold), dict[int, bytes]()
        for position in self._suspects(block, dead, len(values)):
            parsed = self._parsed(values[position].as_py())
            images = self._format.find_images(ParsedValue(parsed, self._fold))
            if images.current_rows and position in dead and dead[position].code not in EVOLVABLE:
                continue  # a lone surrogate in a row that matters: no schema helps
            fits = position not in dead and not self._format.text_casts
            inspections = [self._inspect_image(inspector, image, images, fits=fits) for image in images.current_rows]
            if any(inspection.rescued_fields for inspection in inspections):
                self._rescue_fields(images, inspections, values[position].as_py())
            if any(inspection.is_dead for inspection in inspections) or not all(
                map(self._has_key, images.current_rows)
            ):
                continue
            for inspection in inspections:
                requests.add_all(inspection.requests)
            if any(inspection.rescued_fields for inspection in inspections) and not self._has_rescued:
                requests.add((self._rescued_column,), pa.string())
            if position in dead or any(inspection.rescued_fields or inspection.is_moved for inspection in inspections):
                self._strip_other_rows(images)
                texts[position] = document(parsed).encode()
        self._requests.add_all(requests)
        return (block, dead) if requests or not texts else replace_values(self._json, block, dead, texts, {})

    def _parsed(self, raw: bytes) -> JsonObject:
        return parse_object(raw, repeated_keys=self._allows_repeated_keys, in_order=self._fold)

    def _suspects(self, block: Block, dead: Dead, size: int) -> list[int]:
        """Return the positions of the values to inspect, ascending."""
        if self._format.text_casts:
            return without_hopeless(range(size), dead, _INSPECTED_CODES)
        return suspects(block, dead, size, _INSPECTED_CODES)

    def _inspect_image(
        self, inspector: ObjectInspector, image: JsonObject, images: ParsedImages, *, fits: bool
    ) -> Inspection:
        """Inspect a row after its change. Move fields to their variant columns, and remove rescued fields from the row."""
        original = dict(image)
        hidden = {name: item for name, item in image.items() if self._is_hidden(name, item, images)}
        row = {name: self._parse_text(name, item) for name, item in image.items() if name not in hidden}
        inspection = inspector.inspect(row, is_row=fits)
        remaining = {
            name: item
            for name, item in row.items()
            if name not in inspection.rescued_fields or inspector.has_column(name)
        }
        image.clear()
        image |= hidden | {
            name: self._text_if_inferred(name, original[name]) if name in original else self._variant_value(item)
            for name, item in remaining.items()
        }
        return inspection

    def _has_key(self, image: JsonObject) -> bool:
        """Return whether a row has its key and order fields: without one it is a dead letter with any schema."""
        return self._required_fields <= {self._key(name) for name, item in image.items() if item is not None}

    def _text_if_inferred(self, name: str, item: JsonValue) -> JsonValue:
        """Return a value with JSON texts where its undeclared column has strings: such a column accepts any value."""
        column_type = self._inferred_types.get(self._key(name))
        return item if column_type is None else _with_texts(item, column_type, self._key)

    def _variant_value(self, item: JsonValue) -> JsonValue:
        """Return a value for its variant column, as a text if the format sends all values as texts."""
        if not self._format.text_casts or item is None:
            return item
        return document(item) if isinstance(item, bool) else str(item)

    def _rescue_fields(self, images: ParsedImages, inspections: list[Inspection], raw: bytes) -> None:
        """Add to rows the JSON text of their rescued fields, as these were sent."""
        original_images = self._format.find_images(ParsedValue(self._parsed(raw), self._fold))
        for image, inspection, original in zip(
            images.current_rows, inspections, original_images.current_rows, strict=True
        ):
            if inspection.rescued_fields:
                image[self._rest_name] = document(
                    {name: item for name, item in original.items() if name in inspection.rescued_fields}
                )

    def _is_hidden(self, name: str, item: JsonValue, images: ParsedImages) -> bool:
        """Return whether a field describes the change rather than the row, or marks a column's value that was not sent."""
        key = self._key(name)
        if key in self._declared_fields:
            return images.is_left_out(item)
        return key in {self._key(hidden_name) for hidden_name in images.hidden}

    def _parse_text(self, name: str, item: JsonValue) -> JsonValue:
        """Return a text as the number or boolean that it becomes in its column, if the format sends all values as texts."""
        column_type = self._column_types.get(self._key(name))
        if column_type is None or type(item) is not str:
            return item
        if kind_of(column_type) in _NUMBER_KINDS:
            return number_in(item) or item
        return {"true": True, "false": False}.get(item, item) if kind_of(column_type) is Kind.BOOL else item

    def _strip_other_rows(self, images: ParsedImages) -> None:
        """Reduce deleted rows and rows before a change to their key, and to the fields that were not sent for the row after."""
        left_out = {
            self._key(name) for row in images.current_rows for name, item in row.items() if images.is_left_out(item)
        }
        hidden = {self._key(name) for name in images.hidden}
        kept_names = [
            *((row, self._needed_fields | hidden | left_out) for row in images.past_rows),
            *((row, hidden) for row in images.ignored_rows),
        ]
        for row, names in kept_names:
            for name in [name for name in row if self._key(name) not in names]:
                del row[name]


def _with_texts(item: JsonValue, data_type: pa.DataType, key: Callable[[str], str]) -> JsonValue:
    kind = kind_of(data_type)
    if kind is Kind.TEXT:
        return item if item is None or type(item) is str else document(item)  # a Number is a str
    if kind is Kind.LIST and isinstance(item, list):
        return [_with_texts(each, data_type.value_type, key) for each in item]
    if kind is Kind.MAP and isinstance(item, dict):
        return {name: _with_texts(each, data_type.item_type, key) for name, each in item.items()}
    if kind is Kind.STRUCT and isinstance(item, dict):
        types = {key(part.name): part.type for part in data_type}
        return {
            name: each if (type_ := types.get(key(name))) is None else _with_texts(each, type_, key)
            for name, each in item.items()
        }
    return item


def _renamed_schema(shape: pa.Schema, name: str, new_name: str) -> pa.Schema:
    return pa.schema([_renamed_field(field, name, new_name) for field in shape])


def _renamed_field(field: pa.Field, name: str, new_name: str) -> pa.Field:
    if pa.types.is_struct(field.type):
        field = field.with_type(pa.struct([_renamed_field(inner, name, new_name) for inner in field.type]))
    elif pa.types.is_list(field.type):
        field = field.with_type(pa.list_(_renamed_field(field.type.value_field, name, new_name)))
    return field.with_name(new_name) if field.name == name else field
