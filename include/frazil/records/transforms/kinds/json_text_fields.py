"""The Iceberg sink's JsonToMapTransform, with types: fields that hold JSON as text become columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar

from frazil.records import pa
from frazil.records.model.dead_letter import Reason, Rejection
from frazil.records.model.frame import BARE, Frame, Transformed
from frazil.records.model.json_text import JsonValue, compact
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
Parsed = TypeVar("Parsed")


@dataclass(frozen=True, slots=True)
class JsonToMap(TransformDefinition):
    """Reads JSON objects from a text field: as a map, or as declared fields.

    A value that is nothing but text (format `string`) becomes the one column `payload`, a map, or with `types` the columns
    that they declare. A text field of a value becomes a map or struct in its place. Null stays null. The map holds texts as they
    are, numbers as they were written, every digit of them, anything else as JSON text. Types are declared because a column has
    one type for all records: the sink infers one per record. Records of a shape without the field fail, and so does a text that
    is no JSON object or does not fit its types.
    """

    connect_class: ClassVar = ConnectClass(f"{SINK}JsonToMapTransform")
    reads: ClassVar = ("field",)

    json_root: bool = option("All fields of the object as one map of texts.", False, key="json.root")
    types: Any = option("Or the fields to take: `struct<id: long, name: string>`.", None, form="struct")
    field: str = option("The text field; `value` for values that are nothing but text.", BARE, min_length=1)

    def __post_init__(self) -> None:
        if self.json_root == (self.types is not None):
            raise ValueError("either json.root: true, or types")

    def prepare(self) -> None:
        """Refuse types that JSON has no form for."""
        if self.types is not None:
            struct_decoder(self.types)

    def apply(self, frame: Frame) -> Transformed:
        """Read the texts."""
        index = frame.value.schema.get_field_index(self.field)
        if index < 0:
            return reject_all(frame, no_field_message("JsonToMap", self.field, frame.value), self.field)
        kind, step = ("string", "string", "binary"), "name a field that is text"
        texts = require_type("JsonToMap", self.field, frame.value.column(index), kind, step)
        failed: dict[int, Reason] = {}
        documents = texts.cast(pa.binary()).to_pylist()
        if self.types is None:
            entries = _each("JsonToMap", documents, _entries, self.field, failed)
            parsed = pa.array(entries, pa.map_(pa.string(), pa.string()))
        else:
            parsed = read_structs("JsonToMap", documents, self.types, self.field, failed)
        return select(frame.with_value(self._put(frame.value, parsed)), failed=failed)

    def _put(self, fields: pa.RecordBatch, parsed: pa.Array) -> pa.RecordBatch:
        if fields.schema.names != [BARE] or self.field != BARE:
            return put_column(fields, self.field, parsed)
        if self.types is None:
            return batch_of([(pa.field(PAYLOAD, parsed.type), parsed)], len(parsed), like=fields)
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


def _text(value: JsonValue) -> str | None:
    if value is None:
        return None
    return _checked_text(str(value) if isinstance(value, str) else compact(value))


def _checked_text(text: str) -> str:
    from frazil.records.json.convert import check_characters

    if not text.isascii():
        check_characters(text)
    return text
