"""A broken value among many good ones: found before the block parser sees it, and never let through."""

from __future__ import annotations

import json
import re

import pyarrow as pa
import pytest

from frazil.records.json.blocks import block_decoder
from frazil.records.json.grammar import grammar
from frazil.records.spec import RecordSpec
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

FITS = [
    GOOD,
    b'{"i":"x"}',
    b'{"":{}}',
    b'{ "sum" : null , "z" : [ [ 1 ] , { } ] }',
    b'{"in":{}}',
    b'{"i\xc3\xa9":"\xf0\x9f\x98\x80"}',
]
FITS_NOT = {
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


def _matches(value: bytes) -> bool:
    expression = grammar(FIELDS)
    assert expression is not None
    return re.search(expression, value.decode()) is not None


@pytest.mark.parametrize("value", FITS, ids=str)
def test_good_value_fits(value: bytes) -> None:
    """Values that do not fit are decoded ten times more slowly."""
    assert _matches(value)


@pytest.mark.parametrize("value", FITS_NOT.values(), ids=FITS_NOT.keys())
def test_broken_value_does_not_fit(value: bytes) -> None:
    """One that did would spoil its whole block, or land a wrong decimal."""
    assert not _matches(value)


@pytest.mark.parametrize("bad", [*FITS_NOT.values(), *MORE.values()], ids=[*FITS_NOT, *MORE])
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
    decoder = block_decoder(SPEC)
    assert decoder is not None
    assert len(decoder.decode(pa.array(values, pa.binary())).positions) == 200


def test_wide_table_has_a_block_path() -> None:
    """Its expression would be too large to compile: the search for mistakes stands in."""
    spec = RecordSpec(pa.schema([pa.field(f"column_number_{number}", pa.int64()) for number in range(3000)]))
    assert grammar(list(spec.columns)) is None
    values = [json.dumps({f"column_number_{number}": number}).encode() for number in range(30)]
    assert decode_both(spec, kafka_batch(values)).rows.num_rows == 30


def test_names_that_need_an_escape_have_no_expression() -> None:
    """In JSON such a name never stands as it is."""
    assert grammar([pa.field('a"b', pa.int64())]) is None
    assert decode_both(
        RecordSpec(pa.schema([pa.field('a"b', pa.int64())])), kafka_batch([b'{"a\\"b":1}'])
    ).rows.num_rows
