"""Blocks of JSON values with broken or unusual ones among them: all others land, and each has its outcome."""

from __future__ import annotations

import json
import math

import pyarrow as pa
import pytest

from frazil.records.json.typed import typed_decoder
from frazil.records.model.spec import RecordSpec
from tests.unit.records.kafka_batches import decode_both, kafka_batch

FIELDS = [
    pa.field("id", pa.int64()),
    pa.field("idx", pa.string()),
    pa.field("sum", pa.decimal128(6, 2)),
    pa.field("in", pa.struct([("ok", pa.bool_())])),
    pa.field("é.$", pa.list_(pa.float64())),
]
SPEC = RecordSpec(pa.schema(FIELDS))
GOOD = b'{"id": 7, "idx": "x\\n", "sum": 1.50, "in": {"ok": true, "z": [1]}, "\xc3\xa9.$": [1e3, null], "other": {"a": []}}'

BROKEN = {
    "comma twice": GOOD.replace(b", ", b",, ", 1),
    "no comma": GOOD.replace(b", ", b" ", 1),
    "comma at the end": GOOD[:-1] + b",}",
    "cut": GOOD[:-1],
    "two documents": GOOD + GOOD,
    "NaN": GOOD.replace(b"[1]", b"[NaN]"),
    "wrong type": GOOD.replace(b"7", b'"7"'),
    "wrong type inside": GOOD.replace(b"true", b"1"),
    "wrong item": GOOD.replace(b"1e3", b'"1e3"'),
    "text for a decimal": GOOD.replace(b"1.50", b'"1.50"'),
    "decimal with an exponent": GOOD.replace(b"1.50", b"1e2"),
    "decimal too long": GOOD.replace(b"1.50", b"1.501"),
    "text for a repeated decimal": GOOD[:-1] + b', "sum": "NaN"}',
    "escape in a name": GOOD.replace(b'"sum"', b'"\\u0073um"'),
    "raw control character": GOOD.replace(b"\\n", b"\n"),
    "bare name": GOOD.replace(b'"other"', b"other"),
}
MORE = {
    "bad UTF-8": GOOD.replace(b"x\\n", b"\xff"),
    "repeated key": GOOD[:-1] + b', "id": 8}',
    "repeated key inside": GOOD.replace(b'"z"', b'"ok"'),
    "deep": GOOD[:-1] + b', "deep": ' + b"[" * 1000 + b"]" * 1000 + b"}",
    "empty": b"",
}


@pytest.mark.parametrize("bad", [*BROKEN.values(), *MORE.values()], ids=[*BROKEN, *MORE])
@pytest.mark.parametrize("every", [10, 250])
def test_broken_values_leave_their_neighbours_alone(bad: bytes, every: int) -> None:
    """Wherever they stand, few or many, all others land."""
    values = [bad if number % every == every // 2 else GOOD for number in range(1000)]
    outcomes = decode_both(SPEC, kafka_batch(values))
    assert outcomes.rows.num_rows >= 1000 - 1000 // every


def test_values_nested_more_deeply_are_still_blocks() -> None:
    """Webhooks nest deeply in fields that nobody reads."""
    deep: object = 1
    for _ in range(20):
        deep = {"a": [deep]}
    values = [json.dumps({"id": number, "deep": deep}).encode() for number in range(200)]
    decoder = typed_decoder(SPEC)
    assert decoder is not None
    assert len(decoder.decode(pa.array(values, pa.binary())).positions) == 200


@pytest.mark.parametrize("inner", [pa.decimal128(6, 2), pa.float64(), pa.struct([("a", pa.decimal128(6, 2))])], ids=str)
def test_numbers_in_lists_are_decoded_together(inner: pa.DataType) -> None:
    """A text is told from a number there too: pyarrow took both for a decimal."""
    spec = RecordSpec(pa.schema([pa.field("x", pa.list_(inner))]))
    shown = '{{"a":{}}}' if pa.types.is_struct(inner) else "{}"
    good = [f'{{"x":[{shown.format(number)},null]}}'.encode() for number in ("1.5", "-0", "null", "9999.99")]
    bad = [f'{{"x":[{shown.format(number)}]}}'.encode() for number in ('"1.5"', "\n[1,\n2]", "1e400", "true")]
    decoder = typed_decoder(spec)
    assert decoder is not None
    assert decoder.decode(pa.array([*good, *bad], pa.binary())).positions.to_pylist() == [0, 1, 2, 3]
    assert decode_both(spec, kafka_batch([*good, *bad] * 20)).rows.num_rows == 80


@pytest.mark.parametrize(
    ("number", "is_held"),
    [("9007199254740993", False), ("0.30000000000000004", True), ("1234567890.12345678", False), ("1e-400", False),
     ("123456789012345678e-5", False), ("5e-324", True), ("1.7976931348623157e308", True), ("1e-5", True)],
)  # fmt: skip
@pytest.mark.parametrize("shown", ['{{"d":{}}}', '{{"id":1, "d" : -{} }}', '{{"d":{},"id":1763950000000000000}}'])
def test_double_holds_all_digits_or_the_record_is_dead(number: str, is_held: bool, shown: str) -> None:
    """Wherever the number stands, and among values whose numbers are all short."""
    spec = RecordSpec(pa.schema([pa.field("id", pa.int64()), pa.field("d", pa.float64())]))
    values = [b'{"id":1,"d":0.5}'] * 30 + [shown.format(number).encode()]
    outcomes = decode_both(spec, kafka_batch(values))
    assert outcomes.rows.num_rows == 30 + is_held
    torn = [b"x" * at for at in range(9)]
    assert decode_both(spec, kafka_batch([*torn, *values])).rows.num_rows == 30 + is_held


@pytest.mark.parametrize("shown", ['{{"d":{}}}', '{{"d":{} }}', '{{"d":{},"id":1}}', '{{"id":7,"d":\n{}\n}}'])
@pytest.mark.parametrize("zero", ["-0", "-0.0", "-0e0", "-0E5", "-0e-400"])
def test_sign_of_zero_lands(zero: str, shown: str) -> None:
    """Whatever stands beside it in the batch: a retry of other bounds lands the same."""
    spec = RecordSpec(pa.schema([pa.field("id", pa.int64()), pa.field("d", pa.float64())]))
    value = shown.format(zero).encode()
    for neighbours in ([], [b'{"id":-1,"d":0.5}'] * 30, [b'{"d":0.12345678901234567}']):
        rows = decode_both(spec, kafka_batch([*neighbours, value])).rows
        assert math.copysign(1, rows.column("d").to_pylist()[-1]) == -1


def test_name_that_repeats_in_a_list_of_objects_is_seen_among_many_values() -> None:
    """Also where its values are equal or null; a text that looks like a name costs time and nothing else."""
    items = pa.list_(pa.struct([("a", pa.int64()), ("b", pa.string())]))
    spec = RecordSpec(pa.schema([pa.field("x", items), pa.field("y", pa.int64())]), duplicate_keys="dead_letter")
    good = b'{"x":[{"a":1,"b":null},{},null,{"b":"c"}],"y":null}'
    decoder = typed_decoder(spec)
    assert decoder is not None
    assert len(decoder.decode(pa.array([good, b"{}", b'{"x":null}', b'{"x": []}'], pa.binary())).positions) == 4
    repeated = [good.replace(b'{"b":"c"}', b'{"b":null,"b":null}'), good[:-1] + b',"y":null}']
    colon = good.replace(b'"c"', b'"\\":"')
    outcomes = decode_both(spec, kafka_batch([good, colon, *repeated] * 10))
    assert outcomes.dead.column("code").to_pylist() == ["DUPLICATE_KEY"] * 20


HOSTILE = {
    "deep": b'{"id":1,"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "deep, never closed": b'{"id":1,"x":' + b'{"a":' * 100_000,
    "large number": b'{"id":1,"x":' + b"1" * 1_000_000 + b"}",
    "large id": b'{"id":' + b"1" * 1_000_000 + b"}",
    "large fraction": b'{"id":1,"d":0.' + b"1" * 1_000_000 + b"}",
    "large exponent": b'{"id":1,"d":1e' + b"1" * 1_000_000 + b"}",
    "many names": b'{"id":1,' + b",".join(b'"n%d":%d' % (number, number) for number in range(100_000)) + b"}",
    "one name, many times": b"{" + b",".join([b'"id":1'] * 100_000) + b"}",
    "long name": b'{"id":1,"' + b"n" * 1_000_000 + b'":1}',
}


@pytest.mark.parametrize("value", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_value_has_the_outcome_of_one_alone(value: bytes) -> None:
    """The cost of a hostile value follows its size."""
    spec = RecordSpec(pa.schema([pa.field("id", pa.int64()), pa.field("d", pa.float64())]))
    outcomes = decode_both(spec, kafka_batch([b'{"id":7,"d":1.5}', value, b'{"id":7,"d":1.5}']))
    assert outcomes.rows.column("id").to_pylist().count(7) == 2


@pytest.mark.parametrize("fields", [300, 1_001])
def test_wide_tables_land_the_same(fields: int) -> None:
    """Of very many columns each value is decoded alone: msgspec compares each name with all of them."""
    names = [f"column {number}" for number in range(fields)]
    spec = RecordSpec(pa.schema([pa.field(name, pa.int64()) for name in names]))
    assert (typed_decoder(spec) is None) == (fields > 1_000)
    values = [json.dumps(dict.fromkeys(names, 1)).encode(), json.dumps(dict.fromkeys(reversed(names))).encode()]
    more = json.dumps({f"n{number}": number for number in range(5_000)}).encode()
    assert decode_both(spec, kafka_batch([*values, more, b"{}"])).rows.num_rows == 4
