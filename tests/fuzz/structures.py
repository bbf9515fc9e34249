"""Inputs that are well formed, but hold what no producer should send: odd values in the right places."""

from __future__ import annotations

import re
from collections.abc import Callable
from io import BytesIO
from random import Random
from struct import pack

import fastavro

from tests.fuzz.writers import AVRO, AVRO_SCHEMA, JSON_SCHEMA, PROTOBUF, framed, in_envelope, in_json

Structure = Callable[[Random], bytes]

NUMBERS = (
    *(
        "0",
        "-0",
        "-0.0",
        "1",
        "7.0",
        "1e0",
        "10E-1",
        "0.5",
        "1.005",
        "99999999.99",
        "99999999.995",
        "2147483648",
        "-2147483649",
    ),
    *("9223372036854775807", "9223372036854775808", "-9223372036854775808", "1e18", "1e19", "1e308", "1e309", "5e-324"),
    *(
        "1e-400",
        "1E+9999",
        "0e999999999999",
        "123456789012345678901234567890123456789",
        "9" * 400,
        "0." + "0" * 400 + "1",
    ),
)
TEXTS = (
    *(
        "",
        "x",
        "NaN",
        "Infinity",
        "1",
        "1.5",
        "true",
        "AAAA",
        "AP8=",
        "AP8",
        "====",
        "\\u0000",
        "\\ud83e\\uddca",
        "\\ud800",
        "\\udc00x",
    ),
    *(
        "2024-02-29",
        "2023-02-29",
        "0000-01-01",
        "9999-12-31",
        "10000-01-01",
        "+002024-02-29",
        "2024-060",
        "24:00:00",
        "23:59:60",
    ),
    *(
        "2024-02-29T12:00:00Z",
        "2024-02-29 12:00:00.123456789+00",
        "2024-02-29T12:00:00-23:59",
        "2024-02-29T12:00",
        "2024-02-29T25:00:00Z",
    ),
    *(
        "0001-01-01T00:00:00+14:00",
        "9999-12-31T23:59:59.999999-14:00",
        "2024-02-29T12:00:00.1234567Z",
        "🧊" * 40,
        "\\n\\r\\t\\/",
        "a,b",
        "x" * 5000,
    ),
)
NAMES = (
    "id",
    "name",
    "price",
    "active",
    "score",
    "created",
    "day",
    "count",
    "tags",
    "place",
    "city",
    "lat",
    "",
    "ID",
    "i\\u0064",
    "more",
    "\\ud800",
    "a\\udc00",
    "\\u0000",
    "user-id",
    "a.b",
    "back`tick",
    "${env:HOME}",
    "_kafka_offset",
    "n" * 600,
)
KINDS = (
    "int8",
    "int16",
    "int32",
    "int64",
    "float",
    "double",
    "boolean",
    "string",
    "bytes",
    "struct",
    "array",
    "map",
    "x",
)
MEANINGS = (
    *(f"org.apache.kafka.connect.data.{name}" for name in ("Decimal", "Date", "Time", "Timestamp")),
    *(
        f"io.debezium.time.{name}"
        for name in ("Date", "Time", "MicroTime", "NanoTime", "Timestamp", "NanoTimestamp", "ZonedTimestamp")
    ),
    *(
        "io.debezium.data.Uuid",
        "io.debezium.data.Json",
        "io.debezium.data.VariableScaleDecimal",
        "io.debezium.data.geometry.Point",
    ),
)
_TEXT = r'"(?:[^"\\]|\\.)*"'
_TOKEN = re.compile(rf"{_TEXT}\s*:|({_TEXT}|-?[0-9][0-9.eE+-]*|true|false|null)".encode())
_KEY = re.compile(rf"({_TEXT})\s*:|{_TEXT}".encode())


def json_text(rng: Random, depth: int = 3) -> str:
    """A random JSON value."""
    shape = rng.randrange(9 if depth else 6)
    if shape < 3:
        return rng.choice(NUMBERS)
    if shape < 5:
        return f'"{rng.choice(TEXTS)}"'
    if shape == 5:
        return rng.choice(("true", "false", "null"))
    size = range(rng.randrange(5))
    if shape == 6:
        return f"[{','.join(json_text(rng, depth - 1) for _ in size)}]"
    return f"{{{', '.join(f'{_quoted(rng, NAMES)}: {json_text(rng, depth - 1)}' for _ in size)}}}"


def _quoted(rng: Random, texts: tuple[str, ...]) -> str:
    return f'"{rng.choice(texts)}"'


def _substituted(rng: Random, value: bytes, pattern: re.Pattern[bytes], new: Callable[[Random], str]) -> bytes:
    """Put something else in the place of one to three tokens, which the pattern has as its group."""
    for _ in range(rng.choice((1, 1, 2, 3))):
        matches = [match for match in pattern.finditer(value) if match[1] is not None]
        if matches:
            chosen = rng.choice(matches)
            value = value[: chosen.start(1)] + new(rng).encode() + value[chosen.end(1) :]
    return value


def json_object(rng: Random) -> bytes:
    """A good record with other values in some places, sometimes under other names."""
    if rng.random() < 0.1:
        return json_text(rng).encode()
    value = _substituted(rng, in_json(rng.randrange(1 << 20)), _TOKEN, json_text)
    return _substituted(rng, value, _KEY, lambda match: _quoted(match, NAMES)) if rng.random() < 0.2 else value


def json_schema_object(rng: Random) -> bytes:
    """The same behind a frame."""
    return framed(JSON_SCHEMA, json_object(rng))


def envelope(rng: Random) -> bytes:
    """An envelope with other values, types or meanings in some places."""
    head, _, payload = in_envelope(rng.randrange(1 << 20)).partition(b'"payload"')
    if rng.random() < 0.8:
        payload = _substituted(rng, payload, _TOKEN, json_text)
    if rng.random() < 0.5:
        names = rng.choice((KINDS, MEANINGS, NAMES))
        head = _substituted(rng, head, _TOKEN, lambda match: _quoted(match, names))
    if rng.random() < 0.1:
        head = _substituted(rng, head, _TOKEN, json_text)
    if rng.random() < 0.1:
        payload = payload[:-1] + rng.choice((b',"more": 1}', b',"payload": null}', b',"schema": null}', b"} ", b"}}"))
    return head + b'"payload"' + payload


RAW_SCHEMA = {
    **AVRO_SCHEMA,
    "name": "RawSale",
    "fields": [
        {**one, "type": one["type"]["type"]} if isinstance(one["type"], dict) and "logicalType" in one["type"] else one
        for one in AVRO_SCHEMA["fields"]
        if one["name"] not in {"node", "attributes"}
    ],
}
_RAW = fastavro.parse_schema(RAW_SCHEMA)
_INT, _LONG = (1 << 31) - 1, (1 << 63) - 1


def _integer(rng: Random, most: int) -> int:
    return rng.choice((0, 1, -1, most, -most - 1, most // 1000, rng.randint(-most, most), rng.randint(-(10**6), 10**6)))


def _float(rng: Random) -> float:
    number: float = rng.choice((0.0, -0.0, float("nan"), float("inf"), -float("inf"), 5e-324, 1.5, rng.gauss(0, 1e9)))
    return number


def _string(rng: Random) -> str:
    return rng.choice(TEXTS)


def avro(rng: Random) -> bytes:
    """A record of the schema's physical types, with any values of these."""
    examples = {
        "id": _integer(rng, _LONG),
        "name": rng.choice((None, _string(rng))),
        "price": rng.randbytes(rng.choice((0, 1, 4, 5, 8, 16, 17, 200))),
        "active": rng.random() < 0.5,
        "score": _float(rng),
        "created": _integer(rng, _LONG),
        "day": _integer(rng, _INT),
        "count": _integer(rng, _INT),
        "tags": [_string(rng) for _ in range(rng.choice((0, 1, 100)))],
        "place": {"city": _string(rng), "lat": _float(rng), "lon": _float(rng)},
    }
    buffer = BytesIO()
    fastavro.schemaless_writer(buffer, _RAW, examples)
    node = b"\2" * rng.choice((0, 0, 0, 1, 5, 63, 64, 65, 200)) + b"\0"
    entries = b"".join(
        b"\2\2" + bytes([97 + number]) + rng.choice((b"\0", b"\2\2x", b"\4\x0a")) for number in range(rng.randrange(4))
    )
    return framed(AVRO, buffer.getvalue() + node + entries + b"\0")


def varint(number: int) -> bytes:
    """A number of at most 64 bits as Protobuf has it."""
    number &= (1 << 64) - 1
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*encoded, number])


def _field(rng: Random, depth: int) -> bytes:
    wire = rng.choice((0, 0, 1, 2, 2, 2, 5))
    tag = varint(rng.randrange(1, 13) << 3 | wire)
    if wire == 0:
        return tag + varint(_integer(rng, _LONG))
    if wire in {1, 5}:
        return tag + (pack("<d", _float(rng)) if wire == 1 else rng.randbytes(4))
    inner = (
        message(rng, depth - 1)
        if depth and rng.random() < 0.6
        else rng.choice((_string(rng).encode(), rng.randbytes(5)))
    )
    return tag + varint(len(inner)) + inner


def message(rng: Random, depth: int = 3) -> bytes:
    """Any fields, in any order, also twice and of other types than the schema says."""
    return b"".join(_field(rng, depth) for _ in range(rng.randrange(8)))


def protobuf(rng: Random) -> bytes:
    """A message behind the frame of a Schema Registry."""
    return framed(PROTOBUF, b"\0" + message(rng))


def line(rng: Random) -> bytes:
    """Ten fields, or about that, some of them quoted."""
    size = 10 if rng.random() < 0.9 else rng.randrange(14)
    fields = [rng.choice((rng.choice(NUMBERS), _string(rng))) for _ in range(size)]
    fields[:1] = [str(_integer(rng, _LONG))] if rng.random() < 0.8 else fields[:1]
    shown = [f'"{one}"' if rng.random() < 0.3 else one.replace(",", ";") for one in fields]
    return (",".join(shown) + rng.choice(("", "", "\n", "\r\n", "\n\n"))).encode()


def fixed(width: int) -> Structure:
    """Any bytes of a width."""
    return lambda rng: rng.choice(
        (rng.randbytes(width), bytes(width), b"\xff" * width, b"\x7f" + b"\xff" * (width - 1))
    )
