"""The Iceberg sink's MongoDebeziumTransform: reads the Extended JSON of Debezium's MongoDB connector, for DebeziumTransform."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar, Final, Literal
from uuid import UUID

from frazil.records import pa
from frazil.records.model.dead_letter import MAX_DEPTH, DeadCode, Reason, Rejection
from frazil.records.model.format import Frame, MissingField, Transformed
from frazil.records.model.json_number import (
    EXPONENT_LIMIT,
    JsonObject,
    JsonValue,
    Number,
    compact,
    describe,
    exact_value,
)
from frazil.records.transforms.definition import SINK, ConnectClass, TransformDefinition, option
from frazil.records.transforms.fields import failure, find, lacking, put_column, select
from frazil.records.transforms.kinds.change_events import text_field
from frazil.records.transforms.kinds.nested import read_structs, struct_decoder

# What the types of MongoDB's "Extended JSON" (v2) become:
# - ObjectId, symbol, code, uuid: text; Decimal128: text or number; integers and doubles: numbers with every digit;
# - date and timestamp: ISO 8601 text in UTC; binary: base64 text; regular expression: `{"regex", "options"}`;
# - undefined: null; the smallest and largest key: the texts `MinKey` and `MaxKey`.

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_UUID_BYTES: Final = 16
_UUID_SUBTYPES: Final = {"04", "4"}
_MILLIS_DIGITS: Final = 15
"""Digits of the last millisecond of the year 9999, since 1970."""


class ExtendedJsonReader:
    """Converts parsed Extended JSON to plain JSON values.

    Decimal128 becomes text, as in the sink's transform, or a number; arrays stay, or become objects with the names
    `_0`, `_1` ….
    """

    def __init__(self, *, decimals: str = "text", arrays: str = "array") -> None:
        self._decimals: Final = decimals
        self._arrays: Final = arrays

    def value(self, extended: JsonValue) -> JsonValue:
        """Return the plain value.

        Raises:
            Rejection: a wrapper such as `$date` has invalid content.
        """
        # One Python frame per level: nesting up to MAX_DEPTH must fit into the recursion limit.
        if isinstance(extended, list):
            items: list[JsonValue] = []
            for item in extended:
                items.append(self.value(item))  # noqa: PERF401 - a comprehension is a frame more in some Pythons
            return items if self._arrays == "array" else {f"_{index}": item for index, item in enumerate(items)}
        if not isinstance(extended, dict):
            return extended
        if (
            extended
            and (name := next(iter(extended))).startswith("$")
            and (convert := self._wrapper_converter(name, extended)) is not None
        ):
            return convert(extended)
        plain: JsonObject = {}
        for name, item in extended.items():
            plain[name] = self.value(item)
        return plain

    def _wrapper_converter(self, name: str, wrapper: JsonObject) -> Callable[[JsonObject], JsonValue] | None:
        if name == "$numberDecimal" and self._decimals == "number":
            return _double
        names, convert = _WRAPPERS.get(name, (frozenset(), None))
        return convert if wrapper.keys() <= names else None


def _first_value(wrapper: JsonObject) -> JsonValue:
    return next(iter(wrapper.values()))


def _text(wrapper: JsonObject) -> JsonValue:
    value = _first_value(wrapper)
    if isinstance(value, str):
        return str(value)
    raise _wrong_content("text", wrapper)


def _integer(wrapper: JsonObject) -> JsonValue:
    return Number(_whole_digits(_first_value(wrapper), wrapper))


def _whole_digits(value: JsonValue, wrapper: JsonObject) -> str:
    if isinstance(value, str) and (value.removeprefix("-").isascii() and value.removeprefix("-").isdigit()):
        sign, digits = "-" * value.startswith("-"), value.removeprefix("-").lstrip("0")
        return f"{sign}{digits}" if digits else "0"
    raise _wrong_content("a whole number", wrapper)


def _double(wrapper: JsonObject) -> JsonValue:
    value = _first_value(wrapper)
    if isinstance(value, str):
        if value in {"NaN", "Infinity", "-Infinity"}:
            return str(value)
        try:
            exact = exact_value(Number(value))
        except ValueError as e:
            raise _wrong_content("a number", wrapper) from e
        if abs(exact.exponent) < EXPONENT_LIMIT:
            return Number(_json_number(value))
    raise _wrong_content("a number", wrapper)


def _json_number(text: str) -> str:
    # `exact_value` takes leading zeros, which JSON does not have.
    sign, rest = "-" * text.startswith("-"), text.removeprefix("-").lstrip("0")
    return f"{sign}{rest if rest[:1].isdigit() else f'0{rest}'}"


def _date(wrapper: JsonObject) -> JsonValue:
    value = _first_value(wrapper)
    if isinstance(value, dict) and value.keys() == {"$numberLong"}:
        value = Number(_whole_digits(_first_value(value), wrapper))
    return _instant(value, wrapper) if isinstance(value, Number) else _text(wrapper)


def _instant(millis: Number, wrapper: JsonObject) -> str:
    whole = _whole_digits(millis, wrapper)
    if len(whole.removeprefix("-")) <= _MILLIS_DIGITS:
        try:
            instant = _EPOCH + timedelta(milliseconds=int(whole))
        except OverflowError as e:
            raise _wrong_content("a time of the years 1 to 9999", wrapper) from e
        return f"{instant.replace(tzinfo=None).isoformat(timespec='milliseconds')}Z"
    raise _wrong_content("a time of the years 1 to 9999", wrapper)


def _timestamp(wrapper: JsonObject) -> JsonValue:
    value = _first_value(wrapper)
    if isinstance(value, dict) and isinstance(seconds := value.get("t"), Number):
        return _instant(Number(_whole_digits(seconds, wrapper) + "000"), wrapper)
    raise _wrong_content('{"t": seconds, "i": number}', wrapper)


def _binary(wrapper: JsonObject) -> JsonValue:
    inner = wrapper.get("$binary")
    content, kind = (
        (inner.get("base64"), inner.get("subType")) if isinstance(inner, dict) else (inner, wrapper.get("$type"))
    )
    if not isinstance(content, str):
        raise _wrong_content("base64 text", wrapper)
    try:
        raw = base64.b64decode(content.encode("ascii"), validate=True)
    except (binascii.Error, UnicodeEncodeError) as e:
        raise _wrong_content("base64 text", wrapper) from e
    return str(UUID(bytes=raw)) if kind in _UUID_SUBTYPES and len(raw) == _UUID_BYTES else str(content)


def _regex(wrapper: JsonObject) -> JsonValue:
    inner = wrapper.get("$regularExpression", wrapper)
    if not isinstance(inner, dict):
        raise _wrong_content('{"pattern": text, "options": text}', wrapper)
    pattern, options = inner.get("pattern", inner.get("$regex")), inner.get("options", inner.get("$options", ""))
    if not isinstance(pattern, str) or not isinstance(options, str):
        raise _wrong_content('{"pattern": text, "options": text}', wrapper)
    return {"regex": str(pattern), "options": str(options)}


def _wrong_content(expected: str, wrapper: JsonObject) -> Rejection:
    name = next(iter(wrapper))
    return Rejection(DeadCode.WRONG_TYPE, f"expected {expected} in {name}, found {describe(wrapper[name])}")


_WrapperConverter = Callable[[JsonObject], JsonValue]
_WRAPPERS: Final[dict[str, tuple[frozenset[str], _WrapperConverter]]] = {
    "$oid": (frozenset({"$oid"}), _text),
    "$numberDecimal": (frozenset({"$numberDecimal"}), _text),
    "$numberInt": (frozenset({"$numberInt"}), _integer),
    "$numberLong": (frozenset({"$numberLong"}), _integer),
    "$numberDouble": (frozenset({"$numberDouble"}), _double),
    "$date": (frozenset({"$date"}), _date),
    "$timestamp": (frozenset({"$timestamp"}), _timestamp),
    "$binary": (frozenset({"$binary", "$type"}), _binary),
    "$type": (frozenset({"$binary", "$type"}), _binary),
    "$uuid": (frozenset({"$uuid"}), _text),
    "$regularExpression": (frozenset({"$regularExpression"}), _regex),
    "$regex": (frozenset({"$regex", "$options"}), _regex),
    "$symbol": (frozenset({"$symbol"}), _text),
    "$code": (frozenset({"$code", "$scope"}), _text),
    "$undefined": (frozenset({"$undefined"}), lambda _: None),
    "$minKey": (frozenset({"$minKey"}), lambda _: "MinKey"),
    "$maxKey": (frozenset({"$maxKey"}), lambda _: "MaxKey"),
}
"""Wrappers by the first name of the object: all names that it may have, and its converter."""


_NAME: Final = "MongoDebezium"
_UPDATE: Final = "updateDescription"
_ID: Final = "_id"
_IMAGES: Final = ("after", "before", _UPDATE)
"""An envelope needs one of these fields."""
_INDEX_DIGITS: Final = 9

_WITHOUT_DOCUMENT: Final = frozenset({"t", "m", "d"})
"""Ops whose envelope needs no document: truncate and message have no row, and the key of a delete names its document."""


@dataclass(frozen=True, slots=True)
class MongoDebezium(TransformDefinition):
    """Reads the documents in envelopes of Debezium's MongoDB connector. A following `DebeziumTransform` removes the envelopes.

    `before` and `after`, documents in Extended JSON, become plain JSON or structs. If an update has no `after`, its
    `updateDescription` makes one: the document before, if it was sent, with updated fields and truncated arrays, without removed
    fields, and with `_id` from the key. An envelope needs one of these three fields, except for truncates (`t`), messages (`m`)
    and deletes (`d`), whose key names the row.
    """

    connect_class: ClassVar = ConnectClass(
        f"{SINK}MongoDebeziumTransform",
        note="MongoDebezium takes those fields of documents that its option types names; the sink takes all fields.",
    )

    array_handling_mode: Literal["array", "document"] = option(
        "`document`: arrays become objects with the fields `_0`, `_1` ….", "array"
    )
    types: Any = option("Fields of a document: `struct<_id: string>`. By default JSON text.", None, form="struct")
    decimals: Literal["text", "number"] = option("What Decimal128 becomes.", "text")

    def prepare(self) -> None:
        """Refuse types that have no form in JSON."""
        if self.types is not None:
            struct_decoder(self.types)

    def lacks(self, frame: Frame) -> Iterator[MissingField]:
        """Yield one missing field if no field has a document."""
        missing = list(lacking(frame.value, "", _IMAGES))
        if len(missing) == len(_IMAGES):
            yield missing[0]

    def apply(self, frame: Frame) -> Transformed:
        """Read the documents."""
        reader = ExtendedJsonReader(decimals=self.decimals, arrays=self.array_handling_mode)
        befores: list[str | None] = []
        afters: list[str | None] = []
        failed: dict[int, Reason] = {}
        for row, change in enumerate(_changes(frame)):
            try:
                before, after = _read(*change, reader)
            except Rejection as e:
                before = after = None
                failed[row] = failure(f"{_NAME}: {e.reason.message} ({e.reason.code})", e.reason.path)
            befores.append(before)
            afters.append(after)
        value = frame.value
        for name, texts in (("before", befores), ("after", afters)):
            value = put_column(value, name, self._column(name, texts, failed))
        return select(frame.with_value(value), failed=failed)

    def _column(self, name: str, texts: list[str | None], failed: dict[int, Reason]) -> pa.Array:
        if self.types is None:
            return pa.array(texts, pa.string())
        documents = [None if text is None else text.encode() for text in texts]
        return read_structs(_NAME, documents, self.types, name, failed)


def _changes(frame: Frame) -> Iterator[tuple[str | None, str | None, Mapping[str, object] | None, str | None, bool]]:
    """Yield of each row the documents before and after, the update, the key, and whether it needs a document."""
    update = find(frame.value, _UPDATE, nested=False)
    key = None if frame.key is None else find(frame.key, "id", nested=False)
    befores, afters, ops = (text_field(_NAME, frame.value, name).to_pylist() for name in ("before", "after", "op"))
    nothing: list[None] = [None] * len(frame)
    updates = nothing if update is None or not pa.types.is_struct(update.type) else update.to_pylist()
    keys = nothing if key is None or not pa.types.is_string(key.type) else key.to_pylist()
    return zip(befores, afters, updates, keys, (op not in _WITHOUT_DOCUMENT for op in ops), strict=True)


def _read(
    before_text: str | None,
    after_text: str | None,
    update: Mapping[str, object] | None,
    key: str | None,
    needs_document: bool,  # noqa: FBT001 - one of a row's values
    reader: ExtendedJsonReader,
) -> tuple[str | None, str | None]:
    """Return the documents before and after a change as plain JSON."""
    before, after = _document("before", before_text), _document("after", after_text)
    if after is None and update is not None:
        # `before` is parsed again, because the update is applied in place.
        after = _apply_update(_document("before", before_text) or {}, update)
        if _ID not in after and key is not None:
            after = {_ID: _id(key), **after}
    if before is None and after is None and needs_document:
        raise Rejection(DeadCode.WRONG_TYPE, f"expected before, after or {_UPDATE}, found none of them")
    return _plain_text(before, reader), _plain_text(after, reader)


def _plain_text(document: JsonObject | None, reader: ExtendedJsonReader) -> str | None:
    from frazil.records.json.convert import check_characters

    if document is None:
        return None
    text = compact(reader.value(document))
    if not text.isascii():
        check_characters(text)
    return text


def _document(path: str, text: object) -> JsonObject | None:
    from frazil.records.json.exact import parse_object

    if text is None:
        return None
    try:
        return parse_object(str(text).encode())
    except Rejection as e:
        raise e.with_parent(path) from e


def _id(key: str) -> JsonValue:
    """Return the id in a key's text, which is one JSON value."""
    from frazil.records.json.exact import parse_object

    return parse_object(f'{{"id":{key}}}'.encode())["id"]


def _apply_update(document: JsonObject, update: Mapping[str, object]) -> JsonObject:
    for name, value in (_document(f"{_UPDATE}.updatedFields", update.get("updatedFields")) or {}).items():
        _set(document, name, value)
    for truncation in _as_list(update.get("truncatedArrays")):
        _truncate_array(document, truncation)
    for path in _as_list(update.get("removedFields")):
        _remove(document, str(path))
    return document


def _as_list(value: object) -> list[object]:
    return list(value) if isinstance(value, list) else []


def _set(document: JsonObject, path: str, value: JsonValue) -> None:
    if (levels := path.count(".") + 1) > MAX_DEPTH:
        message = f"expected at most {MAX_DEPTH} nested levels, found {levels}"
        raise Rejection(DeadCode.TOO_DEEP, message, f"{_UPDATE}.updatedFields")
    holder, last = _holder(document, path, make=True)
    if isinstance(holder, dict):
        holder[last] = value
        return
    if isinstance(holder, list) and last.isdigit() and len(last) <= _INDEX_DIGITS and int(last) <= len(holder):
        holder[int(last) : int(last) + 1] = [value]
        return
    message = f"expected a document that contains the parent of {describe(path)}, found none; is before sent?"
    raise Rejection(DeadCode.WRONG_TYPE, message, f"{_UPDATE}.updatedFields")


def _remove(document: JsonObject, path: str) -> None:
    holder, last = _holder(document, path, make=False)
    if isinstance(holder, dict):
        holder.pop(last, None)


def _truncate_array(document: JsonObject, truncation: object) -> None:
    path, size = (
        (truncation.get("field"), truncation.get("size", truncation.get("newSize")))
        if isinstance(truncation, dict)
        else (None, None)
    )
    holder, last = _holder(document, str(path), make=False)
    array = holder.get(last) if isinstance(holder, dict) else None
    if not isinstance(array, list) or not isinstance(size, int):
        message = f"expected an array to cut at {describe(str(path))}, found none; is before sent?"
        raise Rejection(DeadCode.WRONG_TYPE, message, f"{_UPDATE}.truncatedArrays")
    del array[size:]


def _holder(document: JsonObject, path: str, *, make: bool) -> tuple[JsonValue, str]:
    """Return the object or list that contains the last step of a dotted path, None if there is none; and that step."""
    *steps, last = path.split(".")
    holder: JsonValue = document
    for step in steps:
        if isinstance(holder, dict):
            holder = holder.setdefault(step, {}) if make else holder.get(step)
        elif isinstance(holder, list) and step.isdigit() and len(step) <= _INDEX_DIGITS and int(step) < len(holder):
            holder = holder[int(step)]
        else:
            return None, last
    return holder, last
