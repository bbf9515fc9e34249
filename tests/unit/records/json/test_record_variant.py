"""Variant columns get only values that Spark stores without loss, in blocks and one by one. `tests/spark` compares the rule with Spark."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil.records.json.record import LONGEST_NAME, LONGEST_TEXT, variant_refusal
from frazil.records.model.column import WHOLE_VALUE
from frazil.records.model.dead_letter import DeadCode
from frazil.records.model.spec import RecordSpec
from frazil.records.transforms.catalogue import transform
from tests.format_specs import format_spec
from tests.unit.records.kafka_batches import OneTable, decode_both, kafka_batch

SPEC = RecordSpec(pa.schema([pa.field("doc", pa.string())]), sources={"doc": WHOLE_VALUE}, variants=frozenset({"doc"}))

STORED = {
    "integer": '{"a":1}',
    "smallest long": '{"a":-9223372036854775808}',
    "38 digits": '{"a":12345678901234567890123456789012345678}',
    "38 digits behind the point": '{"a":0.12345678901234567890123456789012345678}',
    "a decimal that no double holds": '{"a":0.1000000000000000055511151231257827}',
    "exponent that a double holds": '{"a":1E+37,"b":2.5e-3,"c":5e-324}',
    "39 digits that a double holds": '{"a":100000000000000000000000000000000000000000}',
    "zeros without end": '{"a":1.' + "0" * 60 + "}",
    "zero with sign": '{"a":-0.0,"b":-0}',
    "numbers within texts": '{"1e400":"1e400"}',
    "brackets within texts": '{"a":"' + "[" * 2000 + '"}',
    "whole pair": '{"a":"😀","b":"\\ud83d\\ude00"}',
    "a text that looks like half a pair": '{"a":"\\\\ud800"}',
    "quotes within texts": '{"a\\"1e400":"\\\\","b":"\\"1e400"}',
}

LOST = {
    "beyond every double": ('{"a":1e400}', DeadCode.LOSSY_CAST),
    "below every double": ('{"a":1e-400}', DeadCode.LOSSY_CAST),
    "39 digits": ('{"a":[123456789012345678901234567890123456789]}', DeadCode.LOSSY_CAST),
    "39 digits behind the point": ('{"a":0.123456789012345678901234567890123456789}', DeadCode.LOSSY_CAST),
    "20 digits with exponent": ('{"a":1.2345678901234567890e1}', DeadCode.LOSSY_CAST),
    "a thousand and one digits": ('{"a":1.' + "0" * 999 + "}", DeadCode.LOSSY_CAST),
    "half a pair": ('{"a":"\\ud800"}', DeadCode.LONE_SURROGATE),
    "half a pair in a name": ('{"\\udc00":1}', DeadCode.LONE_SURROGATE),
    "name without end": ('{"' + "n" * (LONGEST_NAME + 1) + '":1}', DeadCode.OUT_OF_RANGE),
    "text without end": ('{"a":"' + "x" * LONGEST_TEXT + '"}', DeadCode.OUT_OF_RANGE),
}


@pytest.mark.parametrize("text", STORED.values(), ids=STORED)
def test_document_that_spark_keeps_lands(text: str) -> None:
    """A document that Spark stores without loss lands."""
    assert variant_refusal(text) is None


@pytest.mark.parametrize(("text", "code"), LOST.values(), ids=LOST)
def test_document_that_spark_would_change_is_refused(text: str, code: DeadCode) -> None:
    """A document that Spark would change, or fail on, is refused with a reason."""
    reason = variant_refusal(text)
    assert reason is not None
    assert reason.code is code
    assert len(reason.message) < 200


def test_nesting_is_bounded_by_the_parser() -> None:
    """A thousand levels are taken, one more is not."""
    assert variant_refusal("[" * 1000 + "]" * 1000) is None
    reason = variant_refusal("[" * 1001 + "]" * 1001)
    assert reason is not None
    assert reason.code is DeadCode.TOO_DEEP


def test_lists_beside_each_other_do_not_count_as_levels() -> None:
    """Only levels count, not brackets."""
    assert variant_refusal("[" + "[]," * 5000 + "{}]") is None


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_every_double_lands(number: float) -> None:
    """Every double, as it is usually written, lands."""
    assert variant_refusal(f'{{"a":{number!r}}}') is None


def test_json_documents_are_checked_for_spark() -> None:
    """Documents that can't be kept are dead letters, the others rows, and a repeated name is gone."""
    values = [b'{"a":1,"a":2.50}', b'{"a":1e400}', b'{"z":"\\ud800"}', b"{}", b"1e400", b'"x"', b"[1e-400]", b"null"]
    outcomes = decode_both(SPEC, kafka_batch(values))
    assert outcomes.rows.column("doc").to_pylist() == ['{"a":2.50}', "{}", '"x"', "null"]
    assert outcomes.dead.column("code").to_pylist() == ["LOSSY_CAST", "LONE_SURROGATE", "LOSSY_CAST", "LOSSY_CAST"]


def test_variant_beside_declared_columns_is_checked_for_spark() -> None:
    """The rule holds as well where other columns take fields of the value."""
    columns = pa.schema([pa.field("a", pa.string()), pa.field("doc", pa.string())])
    spec = RecordSpec(columns, sources=SPEC.sources, variants=SPEC.variants)
    outcomes = decode_both(spec, kafka_batch([b'{"a":"x"}', b'{"a":"y","b":1e400}']))
    assert outcomes.rows.column("doc").to_pylist() == ['{"a":"x"}']
    assert outcomes.dead.column("code").to_pylist() == ["LOSSY_CAST"]


def test_variant_of_other_formats_is_checked_for_spark() -> None:
    """The rule holds, too, if values are first decoded to their own columns, here because of a transform."""
    steps = (transform("MaskField", {"fields": ["b"]}),)
    fields = pa.schema([pa.field("a", pa.string()), pa.field("b", pa.string())])
    spec = RecordSpec(
        SPEC.columns, fields=fields, sources=SPEC.sources, variants=SPEC.variants, transforms=steps, casts="text"
    )
    outcomes = OneTable(spec, 1).decode(
        kafka_batch([b'{"a":"1e400","b":"x"}', b'{"a":"' + b"x" * LONGEST_TEXT + b'"}'])
    )
    assert outcomes.rows.column("doc").to_pylist() == ['{"a":"1e400","b":""}']
    assert outcomes.dead.column("code").to_pylist() == ["OUT_OF_RANGE"]


def test_variant_of_a_typed_format_is_checked() -> None:
    """Avro's doubles have no text that JSON knows for infinity; strings come as they are."""
    schema = '{"type":"record","name":"r","fields":[{"name":"a","type":"string"}]}'
    spec = RecordSpec(
        SPEC.columns, format=format_spec(name="avro", schema=schema), sources=SPEC.sources, variants=SPEC.variants
    )
    big = b"x" * LONGEST_TEXT
    outcomes = OneTable(spec, 1).decode(kafka_batch([b"\x02z", _zigzag(len(big)) + big]))
    assert outcomes.rows.column("doc").to_pylist() == ['{"a":"z"}']
    assert outcomes.dead.column("code").to_pylist() == ["OUT_OF_RANGE"]


def _zigzag(number: int) -> bytes:
    rest, encoded = number << 1, bytearray()
    while rest > 127:
        encoded.append(rest & 127 | 128)
        rest >>= 7
    return bytes([*encoded, rest])


@given(
    st.from_regex(
        r"-?(0|[1-9][0-9]{0,8})(\.[0-9]{1,6})?[eE][+-]?[0-9]{1,2}", fullmatch=True, alphabet="0123456789-+.eE"
    )
)
def test_short_number_with_an_exponent_keeps_its_digits(number: str) -> None:
    """Such numbers are let through unseen, for millions of them may be in one document: their double is written so again."""
    assert variant_refusal(f"[{number}]") is None
    assert Decimal(repr(float(number))) == Decimal(number)
