"""Parts that mean something in a format, or nearly do."""

from __future__ import annotations

from struct import pack

from tests.fuzz.structures import varint

JSON_TOKENS = (
    *(b"NaN", b"-Infinity", b"1e999999999", b"-0", b"-0.0", b"0.1e-400", b"9" * 400, b"1.5", b"01", b"+1", b"null"),
    *(
        b"true",
        b'"',
        b"\\",
        b"{",
        b"}",
        b"[",
        b"]",
        b":",
        b",",
        b'{"id": 1}',
        b'"id": null,',
        b'"id": 1e0,',
        b'"id": 7,',
    ),
    *(
        b'"\\ud800"',
        b'"\\udc00\\ud800"',
        b"\\u0000",
        b"\0",
        b"\xed\xa0\x80",
        b"\xef\xbb\xbf",
        b"\xff",
        b"\xc0\x80",
        b"\r\n",
    ),
    *(
        b'"tags": [[[[]]]],',
        b'"place": [],',
        b'"place": {"city": {}},',
        b'"day": "9999-12-31",',
        b'"day": "0000-00-00",',
    ),
    *(b'"created": "2024-02-29T23:59:60.999999999999-23:59",', b'"price": 99999999.995,', b'"price": 1e-3,', b"/**/"),
    *(b"[" * 1200 + b"]" * 1200, b'{"a":' * 1200 + b"1" + b"}" * 1200, b"[" * 40, b'{"place":' * 9),
)
ENVELOPE_TOKENS = (
    *(
        b'"schema": null,',
        b'"payload": null,',
        b'"payload": 1,',
        b'"optional": true,',
        b'"default": 1,',
        b'"type": "map",',
    ),
    *(
        b'"type": "struct",',
        b'"type": "array",',
        b'"fields": [],',
        b'"keys": {"type": "string"},',
        b'"scale": "-9999999"',
    ),
    *(
        b'"values": {"type": "int8"},',
        b'"items": null,',
        b'"version": 1,',
        b'"name": "io.debezium.data.VariableScaleDecimal",',
    ),
    *(b'"name": "io.debezium.time.NanoTimestamp",', b'"name": "io.debezium.time.Year",', b'"field": "id",', b'"int32"'),
)
BINARY_TOKENS = (
    *(
        b"\0",
        b"\1",
        b"\2",
        b"\x7f",
        b"\x80",
        b"\xff",
        b"\xff" * 9 + b"\1",
        b"\xff" * 10,
        b"\xff" * 20,
        b"\x80" * 9 + b"\1",
    ),
    *(
        b"\xff\xff\xff\xff\x0f",
        b"\xfe\xff\xff\xff\x0f",
        b"\xff\xff\xff\xff\x07",
        b"\0\0\0\0\1",
        b"\0\0\0\0\2",
        b"\0\0\0\0\3",
    ),
    *(
        pack("<d", float("nan")),
        pack("<d", float("inf")),
        pack("<q", -(1 << 63)),
        pack(">q", (1 << 63) - 1),
        b"\2" * 300,
    ),
)
PROTO_TOKENS = (
    *(
        b"\x5b" * 500,
        b"\x5b\x5c",
        b"\x5a\x02\x0a\x00",
        b"\x08\1",
        b"\x09",
        b"\x0d",
        b"\x52\x00",
        b"\x32\x0b\x08" + b"\xff" * 9,
    ),
    *(
        b"\x3a\x06\x08\xff\xff\xff\xff\x0f",
        b"\x1a\x04\x0a\x00\x18\x7f",
        b"\x07",
        b"\x03\x04",
        b"\xf8\xff\xff\xff\x0f\1",
    ),
)
LINE_TOKENS = (
    *(
        b",",
        b'"',
        b'""',
        b'","',
        b"\r",
        b"\n",
        b"\r\n",
        b'"\n"',
        b"\\",
        b"\\,",
        b"\0",
        b"\xef\xbb\xbf",
        b"\xff",
        b" ",
        b"\xe2\x80\xa8",
    ),
    *(
        b"NaN",
        b"1e5",
        b"9" * 40,
        b"-",
        b"0x1",
        b"true",
        b"2024-13-01",
        b"," * 300,
        b'"' * 301,
        b"id,name",
        b"1,2,3,4,5,6,7,8,9,0",
    ),
)
TEXT_TOKENS = (
    b"\xff",
    b"\xed\xa0\x80",
    b"\xc0\x80",
    b"\xf4\x90\x80\x80",
    b"\0",
    b"\xef\xbb\xbf",
    "🧊".encode(),
    b"\xe2\x82",
)


HOSTILE_TOKENS = (
    *(
        b'"${env:HOME}": 1,',
        b'"user-id": {"a-b": 1},',
        b'"a.b": 1,',
        b'"": {"": ""},',
        b'"`": 1,',
        b'"\\u0000": 1,',
        b'"Id": 1,',
    ),
    *(
        b'"_rescued": 1,',
        b'"_kafka_offset": "x",',
        b'"_frazil_op": {},',
        b'"id__string": 1,',
        b'"added": [],',
        b'"op": "d",',
    ),
    *(b'"%s": 1,' % (b"n" * 500), b'"%s": {"a": 1},' % ("ñ".encode() * 256), b'"%s": [],' % (b"x" * 256)),
    *(
        b'"mixed": [null, 1, "1", {}],',
        b'"mixed": [[1], {"a": 1}, 2.5],',
        b'"mixed": {"a": 1},',
        b'"mixed": 9223372036854775808,',
    ),
    *(b'"deep": %s1%s,' % (b'{"a":' * times, b"}" * times) for times in (9, 30, 48, 49, 62, 300)),
    *(b'"lists": %s%s,' % (b"[" * times, b"]" * times) for times in (23, 49, 64, 300)),
    b'"many": {%s},' % b",".join(b'"key_%d": %d' % (number, number) for number in range(300)),
    b"%s" % b"".join(b'"key_%d": "v",' % number for number in range(500)),
)
"""Of JSON, most of all: names, levels, numbers of fields and mixtures that a producer may send."""


def deep(opening: bytes, times: int) -> bytes:
    """Protobuf's Struct within Struct: a field `a` that holds a struct, so many times."""
    inner = b""
    for _ in range(times):
        value = b"\x2a" + varint(len(inner)) + inner
        entry = b"\x0a\x01a\x12" + varint(len(value)) + value
        inner = b"\x0a" + varint(len(entry)) + entry
    return opening + varint(len(inner)) + inner
