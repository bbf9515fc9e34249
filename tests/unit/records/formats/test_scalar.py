"""Values that are one text or one number, as Kafka's serializers write them."""

from __future__ import annotations

import math
import pickle
import struct

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from frazil.records.formats.scalar.scalar import ScalarFormat
from frazil.records.model.dead_letter import DeadCode
from frazil.records.model.format import BARE, Decoded

PACK = {"short": ">h", "int": ">i", "long": ">q", "float": ">f", "double": ">d"}
TYPES = {
    "string": pa.string(),
    "bytes": pa.binary(),
    "boolean": pa.bool_(),
    "short": pa.int32(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
}


def decoded_values(kind: str, values: list[bytes]) -> tuple[dict[int, object], dict[int, DeadCode]]:
    decoded = ScalarFormat(kind).decode(pa.array([b"xx", *values, b"x"], pa.binary())[1:-1])
    dead = {position: reason.code for position, reason in decoded.dead.items()}
    if not decoded.groups:
        return {}, dead
    (group,) = decoded.groups
    group.columns.validate(full=True)
    assert group.columns.schema == pa.schema([pa.field(BARE, TYPES[kind], nullable=False)])
    return dict(zip(group.positions.to_pylist(), group.columns.column(BARE).to_pylist(), strict=True)), dead


CASES: dict[str, tuple[str, bytes, object]] = {
    "text": ("string", "é🧊".encode(), "é🧊"),
    "empty text": ("string", b"", ""),
    "text keeps a byte order mark": ("string", b"\xef\xbb\xbfx", "\ufeffx"),
    "text keeps NUL": ("string", b"\0", "\0"),
    "not UTF-8": ("string", b"ab\xffc", DeadCode.INVALID_UTF8),
    "encoded surrogate": ("string", b"\xed\xa0\x80", DeadCode.INVALID_UTF8),
    "overlong": ("string", b"\xc0\xaf", DeadCode.INVALID_UTF8),
    "cut character": ("string", b"\xf0\x9f\xa7", DeadCode.INVALID_UTF8),
    "beyond Unicode": ("string", b"\xf5\x80\x80\x80", DeadCode.INVALID_UTF8),
    "bytes": ("bytes", b"\xff\0", b"\xff\0"),
    "empty bytes": ("bytes", b"", b""),
    "true": ("boolean", b"\1", True),
    "false": ("boolean", b"\0", False),
    "no truth value": ("boolean", b"\2", DeadCode.INVALID_SCALAR),
    "empty boolean": ("boolean", b"", DeadCode.INVALID_SCALAR),
    "two booleans": ("boolean", b"\0\1", DeadCode.INVALID_SCALAR),
    "least short": ("short", b"\x80\0", -(1 << 15)),
    "long as short": ("short", bytes(8), DeadCode.INVALID_SCALAR),
    "int": ("int", b"\0\0\1\2", 258),
    "short int": ("int", b"\0\1", DeadCode.INVALID_SCALAR),
    "least long": ("long", b"\x80" + bytes(7), -(1 << 63)),
    "greatest long": ("long", b"\x7f" + b"\xff" * 7, (1 << 63) - 1),
    "empty long": ("long", b"", DeadCode.INVALID_SCALAR),
    "long of 7": ("long", bytes(7), DeadCode.INVALID_SCALAR),
    "long of 9": ("long", bytes(9), DeadCode.INVALID_SCALAR),
    "long as text": ("long", b"42", DeadCode.INVALID_SCALAR),
    "long as text of 8 looks like a number": ("long", b"12345678", 0x3132333435363738),
    "float": ("float", struct.pack(">f", 1.5), 1.5),
    "double as float": ("float", bytes(8), DeadCode.INVALID_SCALAR),
    "double": ("double", struct.pack(">d", 0.1), 0.1),
    "infinite double": ("double", struct.pack(">d", -math.inf), -math.inf),
    "float as double": ("double", bytes(4), DeadCode.INVALID_SCALAR),
}


@pytest.mark.parametrize(("kind", "raw", "expected"), CASES.values(), ids=CASES.keys())
def test_value_is_read_as_its_serializer_wrote_it(kind: str, raw: bytes, expected: object) -> None:
    """One value has one meaning, alone and among good and bad neighbours."""
    width = {"string": 1, "bytes": 1, "boolean": 1}.get(kind) or struct.calcsize(PACK[kind])
    good, bad = bytes(width), b"\xff" * (1 if kind == "string" else width + 1)
    for neighbours in ([], [good], [bad, good, bad]):
        values, dead = decoded_values(kind, [*neighbours, raw, *neighbours])
        assert (values | dead)[len(neighbours)] == expected
        assert len(values) + len(dead) == 2 * len(neighbours) + 1


def test_message_names_the_expected_value() -> None:
    """The reason names width and first bad byte."""
    values = pa.array([b"ab\xffc", b"123"])
    assert ScalarFormat("string").decode(values).dead[0].message == (
        "expected UTF-8, found byte 0xff at position 2: invalid start byte"
    )
    assert ScalarFormat("long").decode(values).dead[1].message == "expected a long of 8 bytes, found 3"
    assert ScalarFormat("boolean").decode(pa.array([b"2"])).dead[0].message == (
        "expected a boolean as byte 0x00 or 0x01, found 0x32"
    )


def test_bad_texts_are_found_wherever_they_are() -> None:
    """In a long batch exactly the bad ones are dead."""
    bad = {0, 63, 64, 130, 131, 299}
    values, dead = decoded_values("string", [b"\xff" if n in bad else b"%d" % n for n in range(300)])
    assert dead == dict.fromkeys(sorted(bad), DeadCode.INVALID_UTF8)
    assert values == {n: str(n) for n in range(300) if n not in bad}


@pytest.mark.parametrize("kind", TYPES)
def test_nothing_is_decoded_to_nothing(kind: str) -> None:
    """A batch without values, or with bad ones only, is no failure."""
    assert ScalarFormat(kind).decode(pa.array([], pa.binary())) == Decoded((), {})
    assert pickle.loads(pickle.dumps(ScalarFormat(kind))) == ScalarFormat(kind)  # noqa: S301 (made here)


@pytest.mark.parametrize("kind", PACK)
@settings(deadline=None)
@given(data=st.data())
def test_bits_of_numbers_survive(kind: str, data: st.DataObject) -> None:
    """Every bit pattern comes back, that of NaN too, and every other length is dead."""
    width = struct.calcsize(PACK[kind])
    raw = data.draw(st.lists(st.binary(min_size=width, max_size=width) | st.binary(max_size=9), max_size=9))
    decoded = ScalarFormat(kind).decode(pa.array(raw, pa.binary()))
    good = [position for position, value in enumerate(raw) if len(value) == width]
    assert decoded.dead.keys() == set(range(len(raw))) - set(good)
    column = decoded.groups[0].columns.column(BARE) if decoded.groups else pa.array([], TYPES[kind])
    if kind == "short":
        assert column.to_pylist() == [struct.unpack(">h", raw[position])[0] for position in good]
    else:
        stored = column.buffers()[1].to_pybytes()[: width * len(good)] if good else b""
        assert [stored[start : start + width][::-1] for start in range(0, len(stored), width)] == [
            raw[index] for index in good
        ]


@settings(deadline=None)
@given(st.lists(st.binary(max_size=6) | st.text(max_size=4).map(lambda text: text.encode("utf-8", "surrogatepass"))))
def test_text_is_what_python_takes_for_utf8(raw: list[bytes]) -> None:
    """Arrow and Python agree on what UTF-8 is, in a block and alone."""
    values, dead = decoded_values("string", raw)
    assert {position: text.encode() for position, text in values.items()} == {
        position: value for position, value in enumerate(raw) if position not in dead
    }
    for position in dead:
        with pytest.raises(UnicodeDecodeError):
            raw[position].decode()
