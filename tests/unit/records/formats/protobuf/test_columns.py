"""Protocol Buffers: messages that are read as columns have the same outcomes as messages that are read alone."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from struct import pack

import pyarrow as pa
import pytest

from frazil.errors import Terminal
from frazil.records.formats.protobuf.protobuf import MessageCodec, ProtobufFormat
from frazil.records.model.dead_letter import DeadCode
from tests.unit.records.formats.protobuf_messages import SOURCE, codec, message, outcomes

PROTO2 = """
syntax = "proto2";
import "confluent/meta.proto";
import "confluent/type/decimal.proto";
import "google/protobuf/timestamp.proto";
import "google/type/date.proto";
message M {
  required int32 r = 1; optional string s = 2 [default = "q"]; optional group G = 3 { optional int32 x = 1; }
  enum Kind { A = 0; B = 1; } optional Kind kind = 4; repeated Kind kinds = 5; repeated string texts = 6;
  repeated M more = 7; oneof one { int32 oi = 8; N on = 9; } map<int32, N> map = 10; repeated N list = 11;
  repeated sint64 unpacked = 12; repeated fixed32 packed = 13 [packed = true];
  optional google.protobuf.Timestamp ts = 14; repeated google.protobuf.Timestamp stamps = 15;
  optional google.type.Date day = 16; repeated double numbers = 17; repeated N.O deep = 18;
  optional confluent.type.Decimal price = 19
    [(confluent.field_meta) = { params: [{ key: "precision", value: "6" }, { key: "scale", value: "2" }] }];
  optional confluent.type.Decimal long_price = 20
    [(confluent.field_meta) = { params: [{ key: "precision", value: "30" }, { key: "scale", value: "9" }] }];
  extensions 100 to 200;
}
message N { required int32 x = 1; repeated O os = 2; message O { optional string t = 1; optional google.type.Date d = 2; } }
extend M { optional N extra = 100; }
"""
NUMBERS = (
    0,
    1,
    2,
    5,
    127,
    128,
    300,
    999_999_999,
    10**9,
    1000,
    2024,
    31,
    12,
    (1 << 31) - 1,
    (1 << 64) - 1,
    (1 << 64) - 5,
)
TEXTS = (b"", b"a", b"\xff", "\N{ICE CUBE}".encode(), b"\0", b"\x01\x86\xa0", b"\xff" * 9, b"\x7f" + b"\xff" * 20)


def varint(rng: Random, number: int) -> bytes:
    """A number, now and then with more bytes than it needs."""
    digits = bytearray()
    while number > 0x7F:
        digits.append(number & 0x7F | 0x80)
        number >>= 7
    padding = rng.choice((0,) * 30 + (1, 2))
    return bytes([*digits, number | 0x80, *b"\x80" * (padding - 1), 0] if padding else [*digits, number])


def field(rng: Random, highest: int, depth: int) -> bytes:
    """One field of any number and wire type."""
    number = rng.choice((rng.randint(1, highest), rng.randint(1, 3), rng.choice((77, 100, 101))))
    wire = rng.choice((0, 0, 0, 1, 2, 2, 2, 2, 3, 5))
    tag = varint(rng, number << 3 | wire)
    if wire == 0:
        return tag + varint(rng, rng.choice(NUMBERS))
    if wire in {1, 5}:
        return tag + (
            pack("<d", rng.choice((0.0, -0.0, 1.5, float("nan")))) if wire == 1 else pack("<i", rng.choice((0, -1)))
        )
    inner = fields(rng, highest, depth - 1) if depth and rng.random() < 0.7 else rng.choice(TEXTS)
    return tag + inner + varint(rng, number << 3 | 4) if wire == 3 else tag + varint(rng, len(inner)) + inner


def fields(rng: Random, highest: int, depth: int = 4) -> bytes:
    """Fields in any order, some of them twice, unknown, or of another type than the schema says."""
    return b"".join(field(rng, highest, depth) for _ in range(rng.randrange(5)))


def all_kinds(rng: Random) -> bytes:
    """A message with every kind of field, written as the reference runtime writes it, but for one part now and then."""
    good = message(
        i32=-5,
        u64=rng.choice(NUMBERS),
        f=0.1,
        d=-0.0,
        s="a",
        y=b"\xff",
        e=rng.choice((0, 1, 77)),
        m={"x": 1},
        r=[1, 2, 0],
        rm=[{"x": 1}, {}],
        mp={"a": 1, "b": 2},
        mm={1: {"x": 2}},
        ts={"seconds": 253_402_300_799 + rng.randrange(2), "nanos": 1_000 + rng.randrange(2)},
        gd={"year": 1900, "month": rng.choice((1, 2, 13)), "day": rng.choice((28, 29, 30))},
        cd={"value": rng.choice(TEXTS), "scale": rng.choice((2, 2, 2, 1, 3))},
        w={"value": 0},
        mb={True: "x"},
        st={"a": {"b": [1, None]}},
        self={"i32": 1},
        ws={},
        gt={"hours": 23, "minutes": 59},
    ).SerializeToString()
    return rng.choice((good, good, good + fields(rng, 38, 1), good[: rng.randrange(len(good))], fields(rng, 38)))


def proto2(rng: Random) -> bytes:
    """A message whose required field is there, or not."""
    return rng.choice((b"\x08\1", b"\x08\1", b"\x08\1", b"")) + fields(rng, 20)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize(
    ("name", "text", "make"), [("All", SOURCE, all_kinds), ("M", PROTO2, proto2)], ids=["proto3", "proto2"]
)
def test_columns_are_what_single_messages_become(
    name: str, text: str, make: Callable[[Random], bytes], seed: int
) -> None:
    """Values, types, reasons of dead letters and unknown fields are the same, whatever the bytes."""
    rng = Random(seed)
    payloads = pa.array([make(rng) for _ in range(500)], pa.binary())
    kind = codec(name, text)

    columns, alone = outcomes(kind.decode(payloads)), outcomes(kind.rows.decode(payloads))

    assert columns == alone
    assert len(columns) == len(payloads)
    assert len({type(outcome) for outcome in columns.values()}) == 2


def decoded(kind: MessageCodec, values: list[bytes]) -> tuple[list[object], dict[int, tuple[DeadCode, str | None]]]:
    """The rows of the one group, and codes and paths of dead letters."""
    result = kind.decode(pa.array(values, pa.binary()))
    (group,) = result.groups
    return group.columns.to_pylist(), {position: (dead.code, dead.path) for position, dead in result.dead.items()}


def test_a_bad_item_of_a_list_kills_its_own_record() -> None:
    """Records before it have no items, and the reason names the item."""
    text = 'syntax = "proto3"; import "google/type/date.proto"; message M { repeated google.type.Date d = 1; int32 n = 2; }'
    days = [[], [], [(2024, 2, 29)], [], [(2024, 1, 1), (2023, 2, 29), (0, 0, 0)], [], [(1, 1, 1)]]
    values = [
        message("M", text, n=n, d=[dict(zip(("year", "month", "day"), day, strict=True)) for day in some])
        for n, some in enumerate(days)
    ]

    rows, dead = decoded(codec("M", text), [value.SerializeToString() for value in values])

    assert [row["n"] for row in rows] == [0, 1, 2, 3, 5, 6]
    assert [len(row["d"]) for row in rows] == [0, 0, 1, 0, 0, 1]
    assert dead == {4: (DeadCode.INVALID_TIME, "d[1]")}


def test_every_day_of_the_calendar_is_its_date() -> None:
    """Months of all lengths and both ends of the calendar, beside days that no month has."""
    text = 'syntax = "proto3"; import "google/type/date.proto"; message M { google.type.Date d = 1; }'
    days = [
        (year, month, day)
        for year in (0, 1, 1900, 1969, 2000, 2023, 9999, 10_000)
        for month in range(14)
        for day in range(33)
    ]
    payloads = pa.array(
        [
            message("M", text, d=dict(zip(("year", "month", "day"), day, strict=True))).SerializeToString()
            for day in days
        ],
        pa.binary(),
    )
    kind = codec("M", text)

    assert outcomes(kind.decode(payloads)) == outcomes(kind.rows.decode(payloads))


def test_cells_of_maps_are_counted_for_each_record() -> None:
    """Many records whose maps make more cells together than one record may are rows."""
    value = message(mp={str(n): n for n in range(4_000)}).SerializeToString()

    rows, dead = decoded(codec(), [value] * 200)

    assert (len(rows), dead) == (200, {})


def test_values_of_many_steps_are_one_group() -> None:
    """Lists that may make many cells are read in steps, in the order of their records."""
    values = [message(i32=n, rm=[{"x": n}] * 400).SerializeToString() for n in range(2_000)]

    rows, dead = decoded(codec(), values)

    assert ([row["i32"] for row in rows], dead) == (list(range(2_000)), {})


def test_values_that_may_be_too_wide_are_counted_first() -> None:
    """One makes too many cells for its bytes and is dead; values of the same size beside it are rows."""
    numbers = "".join(f"int32 n{number} = {number}; " for number in range(1, 11))
    text = f'syntax = "proto3"; message M {{ repeated N n = 1; string s = 2; }} message N {{ {numbers} }}'
    empty_items = message("M", text, n=[{}] * 200_000).SerializeToString()
    letters = message("M", text, s="x" * len(empty_items)).SerializeToString()

    result = codec("M", text).decode(pa.array([letters, empty_items, letters, b""], pa.binary()))

    assert {position: reason.code for position, reason in result.dead.items()} == {1: DeadCode.TOO_WIDE}
    assert sorted(position for group in result.groups for position in group.positions.to_pylist()) == [0, 2, 3]


def test_steps_hold_messages_that_become_texts() -> None:
    """A parsed message takes memory for each field of its type, also where its column is a text: few are held at once."""
    tree = codec("M", 'syntax = "proto3"; message M { M left = 1; M right = 2; string text = 3; }')
    flat = codec("M", 'syntax = "proto3"; message M { string left = 1; string right = 2; string text = 3; }')

    assert (tree.text_cells, flat.text_cells) == (3, 0)


@pytest.mark.parametrize("name", ["HasField", "ListFields", "DESCRIPTOR", "SerializePartialToString"])
def test_field_with_the_name_of_a_method_is_an_unusable_schema(name: str) -> None:
    """Who registers a schema could else end a run."""
    with pytest.raises(Terminal, match=f"the name of a method of messages: {name}"):
        ProtobufFormat.of_schema(f'syntax = "proto3"; message M {{ int32 {name} = 1; }}', "M")
