"""JSON objects become rows, and anything else a dead letter, in blocks and one by one."""

from __future__ import annotations

import pyarrow as pa
import pytest

from frazil.records.json.exact import nesting
from frazil.records.model.dead_letter import MAX_DEPTH, DeadCode
from frazil.records.model.spec import RecordSpec
from tests.unit.records.kafka_batches import decode_both, kafka_batch

SPEC = RecordSpec(pa.schema([pa.field("a", pa.int64()), pa.field("s", pa.string())]))
MEGABYTES = 10 << 20

GOOD = {
    "empty object": b"{}",
    "blanks around": b' \t\r\n{"a":1}\n\n',
    "pretty": b'{\n    "a": 1,\n    "s": "x"\n}',
    "pretty with CRLF": b'{\r\n\t"a": 1\r\n}\r\n',
    "byte order mark": b'\xef\xbb\xbf{"a":1}',
    "repeated key": b'{"a":"no","a":1}',
    "escaped key": b'{"\\u0061":1}',
    "unknown fields": b'{"a":1,"z":[{"a":"no"},1e999999,true],"y":{"a":[]}}',
    "half a surrogate in an unknown field": b'{"a":1,"z":"\\ud800"}',
    "escaped control character": b'{"s":"\\u0001\\n\\u007f"}',
    "raw delete character": b'{"s":"\x7f"}',
    "looks like Infinity, is text": b'{"s":", Infinity, NaN ]"}',
    "brackets in text": b'{"s":"' + b"[{" * MAX_DEPTH + b'"}',
    "as deep as allowed": b'{"z":' + b"[" * (MAX_DEPTH - 1) + b"]" * (MAX_DEPTH - 1) + b"}",
    "deep and stored": b'{"s":' + b"[" * (MAX_DEPTH - 1) + b"]" * (MAX_DEPTH - 1) + b"}",
    "ten megabytes": b'{"s":"' + b"x" * MEGABYTES + b'"}',
    "many items in a text column": b'{"s":[' + b"1," * 100_000 + b"1]}",
    "number beyond every type in an unknown field": b'{"a":1,"z":1e400,"y":-1E+999999999999,"x":-0}',
    "many digits in an unknown field": b'{"z":' + b"7" * 10_000 + b',"a":1}',
}

BAD = {
    "empty": (b"", DeadCode.EMPTY_VALUE),
    "only blanks": (b" \n", DeadCode.INVALID_JSON),
    "only a byte order mark": (b"\xef\xbb\xbf", DeadCode.INVALID_JSON),
    "two byte order marks": (b"\xef\xbb\xbf" * 2 + b"{}", DeadCode.INVALID_JSON),
    "UTF-16": ('{"a":1}'.encode("utf-16"), DeadCode.INVALID_UTF8),
    "UTF-16 without mark": ('{"a":1}'.encode("utf-16-le"), DeadCode.INVALID_JSON),
    "Latin-1": ('{"s":"é"}'.encode("latin-1"), DeadCode.INVALID_UTF8),
    "bad UTF-8 in an unknown field": (b'{"a":1,"z":"\xc3"}', DeadCode.INVALID_UTF8),
    "encoded surrogate": (b'{"s":"\xed\xa0\x80"}', DeadCode.INVALID_UTF8),
    "overlong slash": (b'{"s":"\xc0\xaf"}', DeadCode.INVALID_UTF8),
    "cut off": (b'{"a":1,"s":"x', DeadCode.INVALID_JSON),
    "cut before the end": (b'{"a":1', DeadCode.INVALID_JSON),
    "two documents": (b'{"a":1}{"a":2}', DeadCode.INVALID_JSON),
    "two lines": (b'{"a":1}\n{"a":2}', DeadCode.INVALID_JSON),
    "garbage behind": (b'{"a":1}x', DeadCode.INVALID_JSON),
    "NUL behind": (b'{"a":1}\0', DeadCode.INVALID_JSON),
    "brace behind": (b'{"a":1}}', DeadCode.INVALID_JSON),
    "comma at the end": (b'{"a":1,}', DeadCode.INVALID_JSON),
    "no comma": (b'{"a":1 "s":"x"}', DeadCode.INVALID_JSON),
    "bare key": (b"{a:1}", DeadCode.INVALID_JSON),
    "single quotes": (b"{'a':1}", DeadCode.INVALID_JSON),
    "comment": (b'{"a":1/*no*/}', DeadCode.INVALID_JSON),
    "leading zero": (b'{"a":01}', DeadCode.INVALID_JSON),
    "plus": (b'{"a":+1}', DeadCode.INVALID_JSON),
    "bare fraction": (b'{"z":.5}', DeadCode.INVALID_JSON),
    "hexadecimal": (b'{"z":0x1}', DeadCode.INVALID_JSON),
    "NaN in an unknown field": (b'{"a":1,"z":NaN}', DeadCode.INVALID_JSON),
    "Inf in an unknown list": (b'{"a":1,"z":[0, -Inf]}', DeadCode.INVALID_JSON),
    "Infinity in an unknown list": (b'{"a":1,"z":[\n-Infinity\n]}', DeadCode.INVALID_JSON),
    "raw line feed in text": (b'{"s":"a\nb"}', DeadCode.INVALID_JSON),
    "raw tab in text": (b'{"s":"a\tb"}', DeadCode.INVALID_JSON),
    "raw NUL in text": (b'{"s":"a\0b"}', DeadCode.INVALID_JSON),
    "bad escape": (b'{"z":"\\x"}', DeadCode.INVALID_JSON),
    "other blank": (b'\x0b{"a":1}', DeadCode.INVALID_JSON),
    "no-break space": ('{"a":1}\u00a0'.encode(), DeadCode.INVALID_JSON),
    "list": (b"[]", DeadCode.NOT_AN_OBJECT),
    "list of an object": (b'[{"a":1}]', DeadCode.NOT_AN_OBJECT),
    "text": (b'"{}"', DeadCode.NOT_AN_OBJECT),
    "number": (b"7" * 10_000, DeadCode.NOT_AN_OBJECT),
    "null": (b"null", DeadCode.NOT_AN_OBJECT),
    "too deep": (b'{"z":' + b"[" * MAX_DEPTH + b"]" * MAX_DEPTH + b"}", DeadCode.TOO_DEEP),
    "a thousand levels": (b'{"z":' + b"[" * 1000 + b"]" * 1000 + b"}", DeadCode.TOO_DEEP),
    "a thousand objects": (b'{"z":' * 1000 + b"1" + b"}" * 1000, DeadCode.TOO_DEEP),
    "escape cut short": (b'{"z":"\\u12"}', DeadCode.INVALID_JSON),
    "number without digits": (b'{"z":-}', DeadCode.INVALID_JSON),
    "number with a point at its end": (b'{"z":1.}', DeadCode.INVALID_JSON),
    "exponent without digits": (b'{"z":1e}', DeadCode.INVALID_JSON),
    "capital true": (b'{"z":True}', DeadCode.INVALID_JSON),
    "undefined": (b'{"z":undefined}', DeadCode.INVALID_JSON),
    "two colons": (b'{"z"::1}', DeadCode.INVALID_JSON),
    "two commas": (b'{"a":1,,"z":2}', DeadCode.INVALID_JSON),
    "comma at the start": (b'{,"a":1}', DeadCode.INVALID_JSON),
    "wrong bracket": (b'{"z":[1}', DeadCode.INVALID_JSON),
    "name without value": (b'{"a"}', DeadCode.INVALID_JSON),
    "number as a name": (b"{1:1}", DeadCode.INVALID_JSON),
    "byte order mark inside": (b'{\xef\xbb\xbf"a":1}', DeadCode.INVALID_JSON),
    "far too deep": (b'{"z":' + b"[" * 100_000 + b"]" * 100_000 + b"}", DeadCode.TOO_DEEP),
    "far too deep objects": (b'{"a":' * 100_000, DeadCode.TOO_DEEP),
}


@pytest.mark.parametrize("value", GOOD.values(), ids=GOOD.keys())
def test_object_of_rfc_8259_becomes_a_row(value: bytes) -> None:
    """Blanks, escapes, byte order marks and the like never make a JSON object a dead letter."""
    outcomes = decode_both(SPEC, kafka_batch([value]))
    assert outcomes.dead.to_pylist() == []
    assert outcomes.rows.num_rows == 1


@pytest.mark.parametrize(("value", "code"), BAD.values(), ids=BAD.keys())
def test_anything_else_is_a_dead_letter_with_its_bytes(value: bytes, code: DeadCode) -> None:
    """The dead letter has a reason and the bytes of the value; its neighbours land."""
    outcomes = decode_both(SPEC, kafka_batch([b'{"a":1}', value, b'{"a":2}']))
    assert outcomes.rows.column("a").to_pylist() == [1, 2]
    (letter,) = outcomes.dead.to_pylist()
    assert (letter["code"], letter["stage"], letter["value"]) == (code, code.stage, value)


def test_place_of_a_broken_document_is_said_once() -> None:
    """Some words of Python's parser end in `at`, others do not."""
    cut = decode_both(SPEC, kafka_batch([b'{"a":1,"s":"x', b"-"])).dead.column("message").to_pylist()

    assert cut == [
        "expected one JSON document: Unterminated string starting at line 1 column 12",
        "expected one JSON document: Expecting value at line 1 column 1",
    ]


@pytest.mark.parametrize(
    "parts",
    [
        (b'{"a":1', b',"s":"x"}'),
        (b'{"a":1,"z":{', b"}}"),
        (b'{"a":1}{"a":2}', b" "),
        (b'{"a":1', b',"s":"x"}{"a":2}'),
        (b'{"s":"', b'"}'),
        (b'{"a":1}{"s":"}', b'}"}'),
        (b'{"z":[{"a":1}', b',{"a":2}]}'),
    ],
    ids=str,
)
def test_broken_neighbours_stay_two_dead_letters(parts: tuple[bytes, bytes]) -> None:
    """Two broken values that are good JSON together stay two dead letters."""
    outcomes = decode_both(SPEC, kafka_batch([b'{"a":7}', *parts, b'{"a":8}']))
    assert outcomes.rows.column("a").to_pylist() == [7, 8]
    assert outcomes.dead.column("value").to_pylist() == list(parts)


def test_message_names_byte_and_place_of_bad_utf8_behind_a_mark() -> None:
    """The position counts from the start of the value, byte order mark included."""
    outcomes = decode_both(SPEC, kafka_batch([b'\xef\xbb\xbf{"s":"\xff"}']))
    assert "byte 0xff at position 9" in outcomes.dead.column("message")[0].as_py()


def test_nesting_is_counted_outside_of_texts_only() -> None:
    """Brackets in texts, escaped quotes and cut texts don't count."""
    assert nesting(r'{"a":"[[[","b\"[":[{}],"c":"[[') == 3
