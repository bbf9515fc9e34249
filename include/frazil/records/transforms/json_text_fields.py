"""The Iceberg sink's JsonToMapTransform, with types: fields that hold JSON as text become columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from frazil.error_codes import BAD_TRANSFORM, FIELDS_UNFIT
from frazil.records.json.convert import check_characters
from frazil.records.json.exact import parse_object
from frazil.records.json.record import ExactDecoder
from frazil.records.model.dead_letter import Reason, Rejection
from frazil.records.model.format import BARE
from frazil.records.model.frame import Frame, MissingField, Transformed
from frazil.records.model.json_text import JsonValue, compact
from frazil.records.model.spec import RecordSpec
from frazil.records.transforms.fields import (
    batch_of,
    failure,
    lacking,
    no_field_message,
    put_column,
    reject_all,
    select,
)

PAYLOAD: Final = "payload"
_MAP: Final = pa.map_(pa.string(), pa.string())
ParseText = Callable[[bytes], object]


@dataclass(frozen=True, slots=True)
class JsonToMap:
    """Reads JSON objects from text fields, every digit of them.

    A value that is nothing but text (format `string`) becomes the one column `payload`, a map, or with `types` the columns
    that they declare. A text field of a value becomes a map or struct in its place. Null stays null. Types are declared
    because a column has one type for all records: the sink infers one per record. Records of a shape without the field
    fail, and so does a text that is no JSON object or does not fit its types.

    Attributes:
        json_root: Whether the fields stay together as map<string, string>: texts as they are, numbers as they were written,
            anything else as JSON text.
        types: Struct type whose fields are taken from the object otherwise; others are left out.
        field: Name of the text field.

    Raises:
        Terminal: neither `json_root` nor `types`, both, or types that JSON has no form for. On `apply`: the field is no text.
    """

    json_root: bool = False
    types: pa.StructType | None = None
    field: str = field(default=BARE)

    def __post_init__(self) -> None:
        if self.json_root == (self.types is not None):
            raise BAD_TRANSFORM.terminal(
                "JsonToMap: expected either json.root: true or declared types", next_step="declare the fields to take"
            )
        if self.types is not None:
            _decoder(self.types)

    def lacks(self, frame: Frame) -> Iterator[MissingField]:
        """Yield the configured fields that do not exist."""
        yield from lacking(frame.value, "field", [self.field])

    def apply(self, frame: Frame) -> Transformed:
        """Read the texts."""
        index = frame.value.schema.get_field_index(self.field)
        if index < 0:
            return reject_all(frame, no_field_message("JsonToMap", self.field, frame.value), self.field)
        texts = frame.value.column(index)
        if not (pa.types.is_string(texts.type) or pa.types.is_binary(texts.type)):
            raise FIELDS_UNFIT.terminal(
                f"JsonToMap: expected {self.field} as string, found {texts.type}", next_step="name a field that is text"
            )
        parsed, failed = self._read(texts.cast(pa.binary()))
        return select(frame.with_value(self._put(frame.value, parsed)), failed=failed)

    def _read(self, texts: pa.BinaryArray) -> tuple[pa.Array, dict[int, Reason]]:
        if self.types is None:
            rows, failed = _each(texts, _entries, self.field)
            return pa.array(rows, _MAP), failed
        decoder = _decoder(self.types)
        rows, failed = _each(texts, decoder.row, self.field)
        table = decoder.table([row if isinstance(row, dict) else {} for row in rows])
        absent = pa.array([row is None for row in rows], pa.bool_())
        fields = list(self.types)
        return pa.StructArray.from_arrays(table.columns, fields=fields, mask=absent), failed

    def _put(self, fields: pa.RecordBatch, parsed: pa.Array) -> pa.RecordBatch:
        if fields.schema.names != [BARE] or self.field != BARE:
            return put_column(fields, self.field, parsed)
        if self.types is None:
            return batch_of([(pa.field(PAYLOAD, _MAP), parsed)], len(parsed), like=fields)
        is_nullable = fields.schema.field(BARE).nullable  # not whether there is a null in this batch
        declared = [column.with_nullable(column.nullable or is_nullable) for column in self.types]
        return batch_of(list(zip(declared, parsed.flatten(), strict=True)), len(parsed), like=fields)


def _decoder(types: pa.StructType) -> ExactDecoder:
    return ExactDecoder(RecordSpec(pa.schema(list(types)), kafka_columns=None))


def _each(texts: pa.BinaryArray, read: ParseText, path: str) -> tuple[list[object], dict[int, Reason]]:
    """Read each text that is there; None stands for the others and for those that fail."""
    rows: list[object] = []
    failed: dict[int, Reason] = {}
    for row, text in enumerate(texts.to_pylist()):
        try:
            rows.append(None if text is None else read(text))
        except Rejection as e:
            rows.append(None)
            reason = e.with_parent(path).reason
            failed[row] = failure(f"JsonToMap: {reason.message} ({reason.code})", reason.path)
    return rows, failed


def _entries(text: bytes) -> list[tuple[str, str | None]]:
    return [(_checked_text(name), _text(value)) for name, value in parse_object(text).items()]


def _text(value: JsonValue) -> str | None:
    if value is None:
        return None
    return _checked_text(str(value) if isinstance(value, str) else compact(value))


def _checked_text(text: str) -> str:
    if not text.isascii():
        check_characters(text)
    return text
