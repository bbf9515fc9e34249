"""Decodes values and keys into fields, by common libraries: fastavro, Google's protobuf, csv, and struct for Kafka's numbers.

A field is a plain Python value, or `UNKNOWN` if its value can't be derived here.
"""

from __future__ import annotations

import csv
import io
import struct
import zlib
from base64 import b64decode
from collections.abc import Callable, Mapping
from datetime import date, timedelta
from decimal import Decimal
from functools import lru_cache, partial
from typing import Any, Final
from uuid import UUID

from frazil.extras import require
from frazil.pipeline.models.value import Decoding, Key
from frazil.pipeline.syntax.types import parse_type
from frazil.verify.values.json_document import EPOCH, NumberText, Unfit, decoder_of, document_of, object_of
from frazil.verify.values.native import (
    BARE,
    EXACT,
    LARGEST_NUMBER,
    UNKNOWN,
    Fields,
    Json,
    LineText,
    Schema,
    SchemaReader,
    UnjudgedError,
    python_value,
)
from frazil.verify.values.readers import Options, reader

Decode = Callable[[bytes, Mapping[str, bytes]], Fields]
"""Decodes the bytes of a value, given the record's headers. Raises Unfit if they are not of the format, UnjudgedError if that
can't be decided here.
"""


class TombstoneError(Exception):
    """A value that counts as a tombstone, such as an envelope without payload."""


def format_decoder(decoding: Decoding, registry: SchemaReader | None, *, truncates: bool = False) -> Decode | None:
    """Returns the function that decodes values of a format; None for a format that another package brings.

    Args:
        decoding: The format and its options.
        registry: Reads the schemas that values name; None if they name none.
        truncates: Whether times are truncated to microseconds.
    """
    half = "key" if isinstance(decoding, Key) else "value"
    if decoding.format in ("avro", "protobuf", "json-schema"):
        make_reader = _reader_maker(decoding.format, truncates=truncates)
        if decoding.registry is None or registry is None:
            schema = decoding.schema_ or "", decoding.options.get("schema_imports", {})
            message = decoding.options.get("message")
            schema_reader = lru_cache(1)(lambda: _reader_or_refusal(lambda: make_reader(schema, message)))
            return lambda raw, _: schema_reader()(raw)
        reader_of_id = lru_cache(1_000)(lambda key: _reader_or_refusal(lambda: make_reader(registry.read(key), None)))
        split = _FRAMES[registry.framing]

        def decode(raw: bytes, headers: Mapping[str, bytes]) -> Fields:
            schema_id, content = split(raw, headers, half)
            return reader_of_id(schema_id)(content)

        return decode
    if decoding.format == "json":
        return lambda raw, _: _json(raw, decoding, Options(truncates=truncates))
    read = _READERS.get(decoding.format)
    if read is not None:
        return lambda raw, _: read(raw, decoding)
    scalar = _SCALARS.get(decoding.format)
    return None if scalar is None else lambda raw, _: {BARE: scalar(raw)}


def _reader_maker(name: str, *, truncates: bool) -> Callable[[Schema, str | None], Callable[[bytes], Fields]]:
    """Returns the function that makes the reader of a schema. A format's library is imported only if values have that format."""
    if name == "json-schema":
        return _json_schema
    require(name, f"format {name}")
    if name == "avro":
        from frazil.verify.values.avro import avro_reader

        return avro_reader
    from frazil.verify.values.protobuf import protobuf_reader

    return partial(protobuf_reader, truncates=truncates)


def _reader_or_refusal(schema_reader: Callable[[], Callable[[bytes], Fields]]) -> Callable[[bytes], Fields]:
    """Make the reader of a schema; if that fails, a function that always raises the same UnjudgedError. So each schema is fetched
    and compiled only once.
    """
    try:
        return schema_reader()
    except UnjudgedError as error:
        why = str(error)

    def refuse(_: bytes) -> Fields:
        raise UnjudgedError(why)

    return refuse


def _confluent(raw: bytes, headers: Mapping[str, bytes], half: str) -> tuple[int | UUID, bytes]:
    """Split off the id of a schema, in a header or the first bytes, from a value as Confluent's serializers write it."""
    header = headers.get(f"__{half}_schema_id")
    wire = raw if header is None else header
    if wire[:1] != b"\0":
        raise UnjudgedError("its schema is named by a GUID, or not at all")
    if len(wire) < _ID_END:
        raise Unfit("no id of a schema")
    rest = raw[_ID_END:] if header is None else header[_ID_END:] + raw
    return int.from_bytes(wire[1:_ID_END], "big"), rest


def _apicurio(kind: str, raw: bytes, headers: Mapping[str, bytes], half: str) -> tuple[int | UUID, bytes]:
    """Split off the id of a schema from a value of Apicurio's serializers: 8 bytes, in a header or after a 0."""
    header = headers.get(f"apicurio.{half}.{kind}")
    if header is not None and len(header) != _LONG_ID_END - 1:
        raise Unfit("no id of a schema")
    if header is not None:
        return int.from_bytes(header, "big"), raw
    if f"apicurio.{half}.{'globalId' if kind == 'contentId' else 'contentId'}" in headers:
        raise UnjudgedError("its schema is named by an id of another kind")
    if raw[:1] != b"\0" or len(raw) < _LONG_ID_END:
        raise Unfit("no id of a schema")
    return int.from_bytes(raw[1:_LONG_ID_END], "big"), raw[_LONG_ID_END:]


def _glue(raw: bytes, _headers: Mapping[str, bytes], _half: str) -> tuple[int | UUID, bytes]:
    """Split off the id of a schema from a value of AWS Glue's serializers: version 3, a byte for the compression, a UUID."""
    if len(raw) < _GLUE_END or raw[0] != _GLUE_VERSION or raw[1] not in (0, _GLUE_PACKED):
        raise Unfit("no id of a schema")
    key, rest = UUID(bytes=raw[2:_GLUE_END]), raw[_GLUE_END:]
    if raw[1] == 0:
        return key, rest
    unpacker, most = zlib.decompressobj(), min(2**24, 2**12 + 100 * len(rest))
    try:
        value = unpacker.decompress(rest, most)
    except zlib.error as error:
        raise Unfit("not packed by zlib") from error
    if len(value) >= most or not unpacker.eof or unpacker.unused_data:
        raise Unfit("not packed by zlib, or too much")
    return key, value


_ID_END: Final = 5
_LONG_ID_END: Final = 9
_GLUE_END, _GLUE_VERSION, _GLUE_PACKED = 18, 3, 5

_FRAMES: Final[Mapping[str, Callable[[bytes, Mapping[str, bytes], str], tuple[int | UUID, bytes]]]] = {
    "confluent": _confluent,
    "apicurio-content-id": partial(_apicurio, "contentId"),
    "apicurio-global-id": partial(_apicurio, "globalId"),
    "glue": _glue,
}


def _text(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise Unfit("not UTF-8") from error


def _number(form: str, raw: bytes) -> Any:
    try:
        return struct.unpack(form, raw)[0]
    except struct.error as error:
        raise Unfit("another number of bytes") from error


def _boolean(raw: bytes) -> bool:
    if raw not in (b"\0", b"\1"):
        raise Unfit("neither 0 nor 1")
    return raw == b"\1"


_SCALARS: Final[Mapping[str, Callable[[bytes], Any]]] = {
    "string": _text,
    "bytes": bytes,
    "boolean": _boolean,
    "short": partial(_number, ">h"),
    "int": partial(_number, ">i"),
    "long": partial(_number, ">q"),
    "float": partial(_number, ">f"),
    "double": partial(_number, ">d"),
}


def _json(raw: bytes, decoding: Decoding, options: Options) -> Fields:
    """Decode a JSON object by the declared types of its fields."""
    if not isinstance(decoding.fields, dict):
        raise UnjudgedError("its fields are not declared")
    whole = object_of(
        raw, decoder_of(once=getattr(decoding, "duplicate_keys", "last") == "dead_letter", any_case=False)
    )
    fields = {}
    for name, text in decoding.fields.items():
        column_type = parse_type(text)
        read = reader(column_type, options)
        fields[name] = None if whole.get(name) is None else python_value(column_type, read(whole[name]))
    return fields


def _json_schema(_schema: Schema, _message: str | None) -> Callable[[bytes], Fields]:
    def read(raw: bytes) -> Fields:
        whole = document_of(raw)
        return {name: Json(value) for name, value in (whole if isinstance(whole, dict) else {BARE: whole}).items()}

    return read


def _delimited(raw: bytes, decoding: Decoding) -> Fields:
    names = decoding.fields if isinstance(decoding.fields, tuple) else ()
    options = decoding.options
    quote, null_text = options["quote"], options["null_text"]
    dialect = {"delimiter": options["delimiter"], "quotechar": quote, "escapechar": options["escape"]}
    quoting = csv.QUOTE_NONE if quote is None else csv.QUOTE_MINIMAL
    try:
        rows = list(csv.reader(io.StringIO(_text(raw), newline=""), quoting=quoting, strict=True, **dialect))  # type: ignore[arg-type]
    except csv.Error as error:
        raise UnjudgedError("a line that csv does not read") from error
    if options["header"]:
        names = tuple(rows.pop(0)) if rows else ()
    if len(rows) != 1 or len(rows[0]) != len(names):
        raise UnjudgedError("not one line of the declared fields")
    # Only a text without quotes can be null, and the csv module does not tell whether a text had quotes.
    null = UNKNOWN if quote is not None and quote.encode() in raw else None
    return {name: null if text == null_text else LineText(text) for name, text in zip(names, rows[0], strict=True)}


def _envelope(raw: bytes, _decoding: Decoding) -> Fields:
    whole = object_of(raw)
    schema, payload = whole.get("schema"), whole.get("payload")
    if payload is None:
        raise TombstoneError
    if not isinstance(schema, dict):
        raise UnjudgedError("an envelope without schema")
    try:
        value = _connect(schema, payload)
    except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError) as error:
        raise UnjudgedError("an envelope whose schema is none of Kafka Connect's, or of another value") from error
    return value if isinstance(value, dict) and schema.get("type") == "struct" else {BARE: value}


_READERS: Final[Mapping[str, Callable[[bytes, Decoding], Fields]]] = {
    "json-envelope": _envelope,
    "delimited": _delimited,
}

READ: Final = frozenset((*_READERS, *_SCALARS, "json", "avro", "protobuf", "json-schema"))
"""Formats that are read here; values of other formats are not compared."""


def _connect(schema: Any, value: Any) -> Any:  # noqa: PLR0911 - a case for each kind
    """Convert a value by its schema of Kafka Connect."""
    if value is None:
        return UNKNOWN if schema.get("default") is not None else None
    kind, name = schema.get("type"), schema.get("name")
    if kind in _CONNECT_NESTED:
        return UNKNOWN if str(name).startswith("io.debezium.data") else _CONNECT_NESTED[kind](schema, value)
    if name in _CONNECT_NAMED:
        return _CONNECT_NAMED[name](schema, value)
    if str(name).startswith(("io.debezium.", "org.apache.kafka.")):
        return UNKNOWN
    if kind in _CONNECT_WHOLE and type(value) is NumberText:
        return int(value) if value.removeprefix("-").isdecimal() else UNKNOWN
    if kind in ("float", "double") and type(value) is NumberText:
        return float(value) if kind == "double" else UNKNOWN
    if kind == "bytes" and type(value) is str:
        return b64decode(value)
    return value if (kind, type(value)) in (("boolean", bool), ("string", str)) else UNKNOWN


_CONNECT_WHOLE: Final = ("int8", "int16", "int32", "int64")


def _connect_pairs(schema: Any, value: Any) -> Any:
    if not isinstance(value, dict):
        return UNKNOWN
    return {name: _connect(schema["values"], element) for name, element in value.items()}


_CONNECT_NESTED: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "struct": lambda schema, value: {
        field["field"]: _connect(field, value.get(field["field"])) for field in schema["fields"]
    },
    "array": lambda schema, value: [_connect(schema["items"], element) for element in value],
    "map": _connect_pairs,
}


def _since_epoch(**unit: int) -> Callable[[Any, Any], Any]:
    step = timedelta(**unit)
    return lambda _, value: EPOCH + int(value) * step


def _decimal(schema: Any, value: Any) -> Decimal:
    if len(value) > LARGEST_NUMBER * 4 // 3:
        raise UnjudgedError(f"a number of more than {LARGEST_NUMBER} bytes")
    scale = int(str(schema.get("parameters", {}).get("scale", 0)))
    return Decimal(int.from_bytes(b64decode(value), "big", signed=True)).scaleb(-scale, EXACT)


_CONNECT_NAMED: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "org.apache.kafka.connect.data.Decimal": _decimal,
    "org.apache.kafka.connect.data.Date": lambda _, value: date(1970, 1, 1) + timedelta(int(value)),
    "org.apache.kafka.connect.data.Time": lambda _, value: (EPOCH + timedelta(milliseconds=int(value))).time(),
    "org.apache.kafka.connect.data.Timestamp": _since_epoch(milliseconds=1),
    "io.debezium.time.Date": lambda _, value: date(1970, 1, 1) + timedelta(int(value)),
    "io.debezium.time.Timestamp": _since_epoch(milliseconds=1),
    "io.debezium.time.MicroTimestamp": _since_epoch(microseconds=1),
    "io.debezium.time.ZonedTimestamp": lambda _, value: value,
    "io.debezium.data.Uuid": lambda _, value: UUID(value),
}
