"""The Iceberg sink's JsonToMapTransform: fields that hold JSON as text become columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from math import isfinite
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar

from frazil.records import pa
from frazil.records.model.dead_letter import DeadCode, Reason, Rejection
from frazil.records.model.frame import BARE, Frame, Transformed
from frazil.records.model.json_number import JsonValue, Number, compact, double_holds
from frazil.records.transforms.definition import SINK, ConnectClass, Names, TransformDefinition, option
from frazil.records.transforms.fields import (
    batch_of,
    failure,
    no_field_message,
    put_column,
    reject_all,
    require_type,
    select,
)

if TYPE_CHECKING:
    from frazil.records.json.record import ExactDecoder

PAYLOAD: Final = "payload"
_NAME: Final = "JsonToMap"
_MAX_NAMES: Final = 2_000
"""The most names of fields in one call: keys that are data bring ever new ones."""

_MAX_SHAPES: Final = 250
"""The most shapes in one call that bring such names: each is a frame of its own."""

_WHOLE_DIGITS: Final = 38
Parsed = TypeVar("Parsed")


@dataclass(frozen=True, slots=True)
class JsonToMap(TransformDefinition):
    """Reads JSON objects from a text field: as a map, as declared fields, or as the fields that each object has.

    A value that is nothing but text (format `string`) becomes the one column `payload`, a map, or else the columns of its fields. A
    text field of a value becomes a map or struct in its place. Null stays null. The map holds texts as they are, numbers as they
    were written, every digit of them, anything else as JSON text.

    Without `json.root` and `types` the types of each object are inferred: whole numbers are long, or decimal(38,0), others double if
    that holds all digits, objects are maps as above, lists have the type of all items; what fits none of these is text. Null, `{}`
    and `[]` are no fields. Records of a shape without the field fail, and so does a text that is no JSON object or does not fit its
    types. Of records that are decoded together, those that bring more than 2,000 names, or names in more than 250 shapes, are
    `TOO_MANY_NAMES`: keys that are data belong into a map.
    """

    connect_class: ClassVar = ConnectClass(f"{SINK}JsonToMapTransform")
    reads: ClassVar = ("field",)

    json_root: bool = option("All fields of the object as one map of texts.", False, key="json.root")
    types: Any = option("Or the fields to take: `struct<id: long, name: string>`.", None, form="struct")
    field: str = option("The text field; `value` for values that are nothing but text.", BARE, min_length=1)

    def __post_init__(self) -> None:
        if self.json_root and self.types is not None:
            raise ValueError("either json.root: true, or types")

    @property
    def infers(self) -> bool:
        """Whether the types of each object are inferred."""
        return self.types is None and not self.json_root

    def prepare(self) -> None:
        """Refuse types that JSON has no form for."""
        if self.types is not None:
            struct_decoder(self.types)

    def apply(self, frame: Frame) -> Transformed:
        """Read the texts."""
        index = frame.value.schema.get_field_index(self.field)
        if index < 0:
            return reject_all(frame, no_field_message(_NAME, self.field, frame.value), self.field)
        kind, step = ("string", "string", "binary"), "name a field that is text"
        texts = require_type(_NAME, self.field, frame.value.column(index), kind, step)
        failed: dict[int, Reason] = {}
        documents = texts.cast(pa.binary()).to_pylist()
        if self.infers:
            return self._inferred(frame, documents)
        if self.types is None:
            entries = _each(_NAME, documents, _entries, self.field, failed)
            parsed = pa.array(entries, pa.map_(pa.string(), pa.string()))
        else:
            parsed = read_structs(_NAME, documents, self.types, self.field, failed)
        return select(frame.with_value(self._put(frame.value, parsed)), failed=failed)

    def _inferred(self, frame: Frame, documents: Sequence[bytes | None]) -> Transformed:
        """Read objects whose fields have inferred types: those of one shape continue in one frame."""
        failed: dict[int, Reason] = {}
        objects = _each(_NAME, documents, _typed_fields, self.field, failed)
        rows_by_type: dict[pa.StructType | None, list[int]] = {}
        names, naming_shapes = set[str](), 0
        for row, fields in enumerate(objects):
            if row in failed:
                continue
            new_names = fields.keys() - names if fields else set()
            if new_names and (naming_shapes == _MAX_SHAPES or len(names) + len(new_names) > _MAX_NAMES):
                limit = f"{_MAX_NAMES:,} names of fields, in {_MAX_SHAPES} shapes"
                message = f"{_NAME}: expected at most {limit}, in records that are decoded together, found more"
                failed[row] = Reason(DeadCode.TOO_MANY_NAMES, message, self.field)
                continue
            names |= new_names
            naming_shapes += bool(new_names)
            kind = None if fields is None else pa.struct([(name, fields[name][0]) for name in sorted(fields)])
            rows_by_type.setdefault(kind, []).append(row)
        done, positions = select(frame, failed=failed), frame.positions.to_pylist()
        frames = []
        for kind, rows in rows_by_type.items():
            alive = [row for row in rows if positions[row] not in done.dead]
            part = frame.take(pa.array(alive, pa.int64()))
            values = [{name: value for name, (_, value) in (objects[row] or {}).items()} for row in alive]
            parsed = pa.nulls(len(alive)) if kind is None else pa.array(values, kind)
            frames.append(part.with_value(self._put(part.value, parsed)))
        first, *other_frames = [part for part in frames if len(part)] or [done.frame]
        return Transformed(first, done.dead, done.filtered, tuple(other_frames))

    def _put(self, fields: pa.RecordBatch, parsed: pa.Array) -> pa.RecordBatch:
        if fields.schema.names != [BARE] or self.field != BARE:
            return put_column(fields, self.field, parsed)
        if self.json_root:
            return batch_of([(pa.field(PAYLOAD, parsed.type), parsed)], len(parsed), like=fields)
        if self.infers:
            columns = [] if pa.types.is_null(parsed.type) else zip(parsed.type, parsed.flatten(), strict=True)
            return batch_of(list(columns), len(parsed), like=fields)
        is_nullable = fields.schema.field(BARE).nullable  # not whether there is a null in this batch
        declared = [column.with_nullable(column.nullable or is_nullable) for column in self.types]
        return batch_of(list(zip(declared, parsed.flatten(), strict=True)), len(parsed), like=fields)

    def referenced_names(self) -> Names:
        """Return the fields that the options name."""
        return None if self.field == BARE else [self.field]


def struct_decoder(types: pa.StructType) -> ExactDecoder:
    """Return the decoder of JSON objects to a struct's fields.

    Raises:
        Terminal: A type has no JSON form.
    """
    from frazil.records.json.record import ExactDecoder
    from frazil.records.model.spec import RecordSpec

    return ExactDecoder(RecordSpec(pa.schema(list(types)), kafka_columns=None))


def read_structs(
    transform: str, texts: Sequence[bytes | None], types: pa.StructType, path: str, failed: dict[int, Reason]
) -> pa.StructArray:
    """Return JSON objects as structs, null where there is no text and where one fails; adds to the reasons by row."""
    decoder = struct_decoder(types)
    rows = _each(transform, texts, decoder.row, path, failed)
    table = decoder.table([row or {} for row in rows])
    absent = pa.array([row is None for row in rows], pa.bool_())
    return pa.StructArray.from_arrays(table.columns, fields=list(types), mask=absent)


def _each(
    transform: str, texts: Sequence[bytes | None], read: Callable[[bytes], Parsed], path: str, failed: dict[int, Reason]
) -> list[Parsed | None]:
    """Read each text that is there; None stands for the others and for those that fail."""
    rows: list[Parsed | None] = []
    for row, text in enumerate(texts):
        try:
            rows.append(None if text is None else read(text))
        except Rejection as e:
            rows.append(None)
            reason = e.with_parent(path).reason
            failed.setdefault(row, failure(f"{transform}: {reason.message} ({reason.code})", reason.path))
    return rows


def _entries(text: bytes) -> list[tuple[str, str | None]]:
    from frazil.records.json.exact import parse_object

    return [(_checked_text(name), _text(value)) for name, value in parse_object(text).items()]


Typed = tuple["pa.DataType", object]
"""A type and a value of it."""


def _typed_fields(text: bytes) -> Mapping[str, Typed]:
    """Return the fields of an object that have a type."""
    from frazil.records.json.exact import parse_object

    typed = {_checked_text(name): _typed(value) for name, value in parse_object(text).items()}
    return {name: field for name, field in typed.items() if field is not None}


def _typed(value: JsonValue) -> Typed | None:
    """Return a value with the type that it tells; None for null and for what holds nothing."""
    if isinstance(value, Number):
        return _typed_number(value)
    if isinstance(value, str):
        return pa.string(), _checked_text(value)
    if isinstance(value, bool):
        return pa.bool_(), value
    if isinstance(value, dict) and value:
        entries = [(_checked_text(name), _text(item)) for name, item in value.items()]
        return pa.map_(pa.string(), pa.string()), entries
    return _typed_list(value) if isinstance(value, list) else None


def _typed_list(items: Sequence[JsonValue]) -> Typed | None:
    typed = [_typed(item) for item in items]
    kinds = {item[0] for item in typed if item is not None}
    if len(kinds) > 1:
        return pa.list_(pa.string()), [_text(item) for item in items]
    return (pa.list_(kinds.pop()), [item and item[1] for item in typed]) if kinds else None


def _typed_number(number: Number) -> Typed:
    if len(number) <= _WHOLE_DIGITS and number.lstrip("-").isdigit():
        whole = int(number)
        return (pa.int64(), whole) if -(1 << 63) <= whole < 1 << 63 else (pa.decimal128(38, 0), Decimal(number))
    double = float(number)
    return (pa.float64(), double) if isfinite(double) and double_holds(number, double) else (pa.string(), str(number))


def _text(value: JsonValue) -> str | None:
    if value is None:
        return None
    return _checked_text(str(value) if isinstance(value, str) else compact(value))


def _checked_text(text: str) -> str:
    from frazil.records.json.convert import check_characters

    if not text.isascii():
        check_characters(text)
    return text
