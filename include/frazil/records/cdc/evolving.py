"""Changes in JSON for a table that follows its records: what their rows need that the table does not have.

Values are decoded as for any merged table, by the columns that it has now. Those that another schema may decode better are
looked at one by one: the rows of inserts and updates say what they need. Of deleted rows, and of rows as they were, only the
key is needed: nothing else of them asks for a column, or makes a record a dead letter.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from frazil.records.casting.fitter import Fitted
from frazil.records.casting.source import Kind, kind_of
from frazil.records.cdc.rows import ChangeFitter
from frazil.records.evolution.inspect import EVOLVABLE, Look, Seen
from frazil.records.evolution.schema_requests import Asked
from frazil.records.json.exact import parse_object
from frazil.records.json.values import Dead, JsonValues
from frazil.records.model.changes import ChangeFormat, Object, ParsedImages, ParsedValue
from frazil.records.model.dead_letter import DeadCode
from frazil.records.model.json_number import Number
from frazil.records.model.json_text import JsonValue, document
from frazil.records.model.rows import Block, in_order
from frazil.records.model.spec import RecordSpec

_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_COUNTED: Final = {Kind.INT, Kind.FLOAT, Kind.DECIMAL}


_LOOKED_AT: Final = EVOLVABLE | {DeadCode.LONE_SURROGATE}
"""Why a value is dead that another look may save: what is wrong may be in an image that does not count."""


class EvolvingChanges:
    """Makes rows of JSON values that tell of changes, and tells what they need that their table does not have.

    Args:
        spec: What is wanted of the records; its merge says what values hold.
        asked: Takes what they need.
        blocks: Whether values may be parsed as blocks where that is exact.

    Raises:
        Terminal: A default does not fit its column.
    """

    def __init__(self, spec: RecordSpec, asked: Asked, *, blocks: bool = True) -> None:
        merge = spec.merge
        if merge is None or merge.changes is None or merge.shape is None:
            raise AssertionError(spec)
        self._format: Final[ChangeFormat] = merge.changes
        # What no value can hold by chance: the fields of a row must not pass for the rest of one.
        self._rest_name: Final = f"_{secrets.token_hex(16)}"
        self._shape: Final = _renamed(merge.shape, spec.rescued_column, self._rest_name)
        self._fitter: Final = ChangeFitter(_plain(spec, self._rest_name), asked)
        self._json: Final = JsonValues(
            RecordSpec(
                self._shape,
                duplicate_keys=spec.duplicate_keys,
                field_names=spec.field_names,
                casts=spec.casts,
                kafka_columns=None,
            ),
            blocks=blocks,
        )
        self._fold: Final = spec.fold is not None
        self._repeats: Final = spec.duplicate_keys == "last"
        self._asked: Final = asked
        self._has_rescued: Final = spec.rescued_column in spec.columns.names
        self._rescued: Final = spec.rescued_column
        self._look: Final = None if spec.evolution is None else Look(spec.of_value)
        steps = [
            of.steps[0] for of in spec.of_value.column_specs if of.steps and of.name in (*merge.keys, merge.order_by)
        ]
        # Without a default, since that takes the place of null.
        self._never_null: Final = {
            self._key(of.steps[0])
            for of in spec.of_value.column_specs
            if of.name in (*merge.keys, merge.order_by) and len(of.steps) == 1 and not of.has_default
        }
        self._needed: Final = {self._key(name) for name in steps}
        # The look sees texts as what they become.
        kinds = {self._key(of.steps[0]): of.type for of in spec.of_value.column_specs if len(of.steps) == 1}
        self._figures: Final = kinds if self._format.text_casts else {}
        self._inferred: Final = {
            self._key(of.steps[0]): of.type
            for of in spec.of_value.column_specs
            if of.reading.inferred and len(of.steps) == 1
        }
        self._declared: Final = {self._key(of.steps[0]) for of in spec.of_value.column_specs if of.steps}

    def check(self) -> list[str]:
        """Return each column that no row could ever fill, and why."""
        return self._fitter.check(self._shape)

    def fit(self, values: pa.BinaryArray, key: pa.RecordBatch | None) -> Fitted:
        """Fit values, none of them null, each with its key. They have no meaning if anything is asked for."""
        block, dead = self._json.rows(values)
        if self._look is not None:
            block, dead = self._looked_at(self._look, values, block, dead)
        keys = None if key is None else key.take(block.positions)
        fitted = self._fitter.fit(block.rows, keys)
        reasons = dead | {block.positions[row].as_py(): of for row, of in fitted.dead.items()}
        kept = block.positions.take(fitted.kept)
        return Fitted(fitted.rows, kept, dict(sorted(reasons.items())), fitted.ignored.among(block.positions))

    def _key(self, name: str) -> str:
        return name.casefold() if self._fold else name

    def _looked_at(self, look: Look, values: pa.BinaryArray, block: Block, dead: Dead) -> tuple[Block, Dead]:
        """Ask for what rows need; return what was decoded, with those whose fields go elsewhere than their names say."""
        asked, texts = Asked(self._fold), dict[int, bytes]()
        for position in self._suspects(block, dead, len(values)):
            whole = self._parsed(values[position].as_py())
            images = self._format.sent(ParsedValue(whole, self._fold))
            if images.now and position in dead and dead[position].code not in EVOLVABLE:
                continue  # a text of a row that counts
            fits = position not in dead and not self._format.text_casts
            seen = [self._seen(look, image, images, fits=fits) for image in images.now]
            if any(of.rest for of in seen):
                self._put_aside(images, seen, values[position].as_py())
            if any(of.is_dead for of in seen) or not all(map(self._has_key, images.now)):
                continue
            for of in seen:
                asked.take(of.asked)
            if any(of.rest for of in seen) and not self._has_rescued:
                asked.add((self._rescued,), pa.string())
            if position in dead or any(of.rest or of.is_moved for of in seen):
                self._strip(images)
                texts[position] = document(whole).encode()
        self._asked.take(asked)
        return (block, dead) if asked or not texts else self._replaced(block, dead, texts)

    def _parsed(self, raw: bytes) -> Object:
        return parse_object(raw, repeated_keys=self._repeats, in_order=self._fold)

    def _suspects(self, block: Block, dead: Dead, size: int) -> list[int]:
        """Return the positions of values that are looked at, ascending."""
        if self._format.text_casts:
            found = set(range(size))
        else:
            plain = pc.is_in(pa.arange(0, size), value_set=block.plain)
            found = set(pc.indices_nonzero(pc.invert(plain)).to_pylist())
        return sorted(found.union(dead) - {at for at, of in dead.items() if of.code not in _LOOKED_AT})

    def _seen(self, look: Look, image: Object, images: ParsedImages, *, fits: bool) -> Seen:
        """Look at a row as it is; its fields that have a column for another type are moved there, the rest taken out."""
        original = dict(image)
        hidden = {name: item for name, item in image.items() if self._is_hidden(name, item, images)}
        shown = {name: self._figure(name, item) for name, item in image.items() if name not in hidden}
        seen = look.at(shown, is_row=fits)
        kept = {name: item for name, item in shown.items() if name not in seen.rest or look.has(name)}
        image.clear()
        image |= hidden | {
            name: self._text(name, original[name]) if name in original else self._moved(item)
            for name, item in kept.items()
        }
        return seen

    def _has_key(self, image: Object) -> bool:
        """Whether a row has what identifies and orders it: one without is a dead letter, whatever columns there are."""
        return self._never_null <= {self._key(name) for name, item in image.items() if item is not None}

    def _text(self, name: str, item: JsonValue) -> JsonValue:
        """Return a value with texts wherever a column that nobody declared has them: it takes any value as its text."""
        of = self._inferred.get(self._key(name))
        return item if of is None else _with_texts(item, of, self._key)

    def _moved(self, item: JsonValue) -> JsonValue:
        """Return a value at another name, as a text where all are."""
        if not self._format.text_casts or item is None:
            return item
        return document(item) if isinstance(item, bool) else str(item)

    def _put_aside(self, images: ParsedImages, seen: list[Seen], raw: bytes) -> None:
        """Give rows their fields without columns as one text, all of it as it was sent."""
        again = self._format.sent(ParsedValue(self._parsed(raw), self._fold))
        for image, of, original in zip(images.now, seen, again.now, strict=True):
            if of.rest:
                image[self._rest_name] = document({name: item for name, item in original.items() if name in of.rest})

    def _is_hidden(self, name: str, item: JsonValue, images: ParsedImages) -> bool:
        """Whether a field is none of the row, or a column's value that was not sent."""
        key = self._key(name)
        if key in self._declared:
            return images.is_left_out(item)
        return key in {self._key(of) for of in images.hidden}

    def _figure(self, name: str, item: JsonValue) -> JsonValue:
        """Return what a text becomes in its column, where all values are sent as texts."""
        of = self._figures.get(self._key(name))
        if of is None or type(item) is not str:
            return item
        if kind_of(of) in _COUNTED and _NUMBER.fullmatch(item):
            return Number(item)
        return {"true": True, "false": False}.get(item, item) if kind_of(of) is Kind.BOOL else item

    def _strip(self, images: ParsedImages) -> None:
        """Leave of other rows what is needed of them: the key, and values that the row as it is has from there."""
        left_out = {self._key(name) for row in images.now for name, item in row.items() if images.is_left_out(item)}
        hidden = {self._key(name) for name in images.hidden}
        kept = [
            *((row, self._needed | hidden | left_out) for row in images.others),
            *((row, hidden) for row in images.void),
        ]
        for row, names in kept:
            for name in [name for name in row if self._key(name) not in names]:
                del row[name]

    def _replaced(self, block: Block, dead: Dead, texts: Mapping[int, bytes]) -> tuple[Block, Dead]:
        places = pa.array(texts, pa.int64())
        kept = pc.invert(pc.is_in(block.positions, value_set=places))
        again, failed = self._json.rows(pa.array(list(texts.values()), pa.binary()))
        stays = Block(block.rows.filter(kept), block.positions.filter(kept))
        whole = in_order([stays, Block(again.rows, places.take(again.positions))], block.rows.schema)
        reasons = {at: of for at, of in dead.items() if at not in texts}
        return whole, reasons | {places[at].as_py(): of for at, of in failed.items()}


def _with_texts(item: JsonValue, of: pa.DataType, key: Callable[[str], str]) -> JsonValue:
    kind = kind_of(of)
    if kind is Kind.TEXT:
        return item if item is None or type(item) is str else document(item)  # a Number is a str
    if kind is Kind.LIST and isinstance(item, list):
        return [_with_texts(each, of.value_type, key) for each in item]
    if kind is Kind.MAP and isinstance(item, dict):
        return {name: _with_texts(each, of.item_type, key) for name, each in item.items()}
    if kind is Kind.STRUCT and isinstance(item, dict):
        types = {key(part.name): part.type for part in of}
        return {
            name: each if (type_ := types.get(key(name))) is None else _with_texts(each, type_, key)
            for name, each in item.items()
        }
    return item


def _renamed(shape: pa.Schema, name: str, to: str) -> pa.Schema:
    return pa.schema([_renamed_field(of, name, to) for of in shape])


def _renamed_field(of: pa.Field, name: str, to: str) -> pa.Field:
    if pa.types.is_struct(of.type):
        of = of.with_type(pa.struct([_renamed_field(inner, name, to) for inner in of.type]))
    elif pa.types.is_list(of.type):
        of = of.with_type(pa.list_(_renamed_field(of.type.value_field, name, to)))
    return of.with_name(to) if of.name == name else of


def _plain(spec: RecordSpec, rest_name: str) -> RecordSpec:
    """Return what is wanted of values whose table stays as it is, and the rest of a row by its own name."""
    has = spec.rescued_column in spec.columns.names
    sources = {**spec.sources, spec.rescued_column: (rest_name,)} if has else spec.sources
    return replace(spec, evolution=None, unknown_fields="ignore", sources=sources)
