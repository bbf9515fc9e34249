"""Fits JSON changes to a table whose schema evolves, and collects the schema changes that their rows need.

Values are decoded as for any merged table, by its present columns. Those that another schema may decode better are inspected
one by one: the rows of inserts and updates request schema changes. Of deleted rows, and of rows before a change, only the key
counts: nothing else of them requests a column, or makes a record a dead letter.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable
from typing import Final

import pyarrow as pa

from frazil.records.casting.fitter import Fitted
from frazil.records.casting.source import Kind, kind_of
from frazil.records.cdc.rows import ChangeFitter
from frazil.records.evolution.inspect import (
    EVOLVABLE,
    Inspection,
    ObjectInspector,
    replace_values,
    suspects,
    without_hopeless,
)
from frazil.records.evolution.schema_requests import SchemaRequests
from frazil.records.json.exact import parse_object
from frazil.records.json.values import Dead, JsonValues
from frazil.records.model.changes import ChangeFormat, Object, ParsedImages, ParsedValue
from frazil.records.model.dead_letter import DeadCode
from frazil.records.model.json_number import JsonValue, Number, document
from frazil.records.model.rows import Block
from frazil.records.model.spec import RecordSpec

_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_NUMBER_KINDS: Final = {Kind.INT, Kind.FLOAT, Kind.DECIMAL}


_INSPECTED_CODES: Final = EVOLVABLE | {DeadCode.LONE_SURROGATE}
"""Codes of dead values that an inspection may save: the fault may be in an image that does not count."""


class EvolvingChanges:
    """Turns JSON changes into rows to merge, and collects the schema changes that they need."""

    def __init__(self, spec: RecordSpec, requests: SchemaRequests, *, blocks: bool = True) -> None:
        merge = spec.merge
        if merge is None or merge.changes is None or merge.shape is None:
            raise AssertionError(spec)
        self._format: Final[ChangeFormat] = merge.changes
        # A random name, which no value holds by chance: no sender can fake the text of rescued fields.
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
        steps = [
            column.steps[0]
            for column in spec.of_value.column_specs
            if column.steps and column.name in (*merge.keys, merge.order_by)
        ]
        # A default would take the place of null.
        self._required_keys: Final = {
            self._key(column.steps[0])
            for column in spec.of_value.column_specs
            if column.name in (*merge.keys, merge.order_by) and len(column.steps) == 1 and not column.has_default
        }
        self._needed_fields: Final = {self._key(name) for name in steps}
        # Where all values are sent as texts, the inspection sees what they become.
        column_types = {
            self._key(column.steps[0]): column.type for column in spec.of_value.column_specs if len(column.steps) == 1
        }
        self._column_types: Final = column_types if self._format.text_casts else {}
        self._inferred_types: Final = {
            self._key(column.steps[0]): column.type
            for column in spec.of_value.column_specs
            if column.reading.inferred and len(column.steps) == 1
        }
        self._declared_fields: Final = {
            self._key(column.steps[0]) for column in spec.of_value.column_specs if column.steps
        }

    def check(self) -> list[str]:
        """Return each column that no row could ever fill, and why."""
        return self._fitter.check(self._shape)

    def fit(self, values: pa.BinaryArray, key: pa.RecordBatch | None) -> Fitted:
        """Fit values, none of them null, each with its key; the rows are void if a schema change is requested."""
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
        """Inspect values and request what their rows need; decode those again whose fields are rescued or moved."""
        requests, texts = SchemaRequests(self._fold), dict[int, bytes]()
        for position in self._suspects(block, dead, len(values)):
            parsed = self._parsed(values[position].as_py())
            images = self._format.find_images(ParsedValue(parsed, self._fold))
            if images.current_rows and position in dead and dead[position].code not in EVOLVABLE:
                continue  # a lone surrogate in a row that counts: no schema helps
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

    def _parsed(self, raw: bytes) -> Object:
        return parse_object(raw, repeated_keys=self._allows_repeated_keys, in_order=self._fold)

    def _suspects(self, block: Block, dead: Dead, size: int) -> list[int]:
        """Return the positions of the values to inspect, ascending."""
        if self._format.text_casts:
            return without_hopeless(range(size), dead, _INSPECTED_CODES)
        return suspects(block, dead, size, _INSPECTED_CODES)

    def _inspect_image(
        self, inspector: ObjectInspector, image: Object, images: ParsedImages, *, fits: bool
    ) -> Inspection:
        """Inspect a row after its change; move fields to their variant columns, and take rescued ones out of the row."""
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

    def _has_key(self, image: Object) -> bool:
        """Return whether a row has its identifier and order fields: without one it is a dead letter with any schema."""
        return self._required_keys <= {self._key(name) for name, item in image.items() if item is not None}

    def _text_if_inferred(self, name: str, item: JsonValue) -> JsonValue:
        """Return a value with JSON text for each undeclared string column: such a column accepts any value."""
        column_type = self._inferred_types.get(self._key(name))
        return item if column_type is None else _with_texts(item, column_type, self._key)

    def _variant_value(self, item: JsonValue) -> JsonValue:
        """Return a value for its variant column, as a text if the format sends all values as texts."""
        if not self._format.text_casts or item is None:
            return item
        return document(item) if isinstance(item, bool) else str(item)

    def _rescue_fields(self, images: ParsedImages, inspections: list[Inspection], raw: bytes) -> None:
        """Add to rows the JSON text of their rescued fields, just as they were sent."""
        original_images = self._format.find_images(ParsedValue(self._parsed(raw), self._fold))
        for image, inspection, original in zip(
            images.current_rows, inspections, original_images.current_rows, strict=True
        ):
            if inspection.rescued_fields:
                image[self._rest_name] = document(
                    {name: item for name, item in original.items() if name in inspection.rescued_fields}
                )

    def _is_hidden(self, name: str, item: JsonValue, images: ParsedImages) -> bool:
        """Return whether a field describes the change, not the row, or stands for a column's value that was not sent."""
        key = self._key(name)
        if key in self._declared_fields:
            return images.is_left_out(item)
        return key in {self._key(hidden_name) for hidden_name in images.hidden}

    def _parse_text(self, name: str, item: JsonValue) -> JsonValue:
        """Return a text as the number or boolean that it becomes in its column, if the format sends all values as texts."""
        column_type = self._column_types.get(self._key(name))
        if column_type is None or type(item) is not str:
            return item
        if kind_of(column_type) in _NUMBER_KINDS and _NUMBER.fullmatch(item):
            return Number(item)
        return {"true": True, "false": False}.get(item, item) if kind_of(column_type) is Kind.BOOL else item

    def _strip_other_rows(self, images: ParsedImages) -> None:
        """Reduce deleted rows and rows before a change to their key, and to values that the row after it lacks."""
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
