"""What `records.variant` lets through is what Spark's own `parse_json` keeps, and what it refuses is not."""

from __future__ import annotations

import json
import random
import string
from decimal import Decimal

import pytest
from pyspark.sql import SparkSession

from frazil.records.json.record import variant_refusal
from frazil.records.model.json_number import JsonValue, Number, document

NUMBERS = (
    *(
        "0",
        "-0",
        "-0.0",
        "1.10",
        "100",
        "1e0",
        "1E+37",
        "1e22",
        "1e23",
        "5e-324",
        "2e-324",
        "1e308",
        "1.8e308",
        "1e400",
    ),
    *("9223372036854775807", "9223372036854775808", "-9223372036854775808", "-9223372036854775809", "1e-400", "-1e400"),
    *(
        "9" * 38,
        "9" * 39,
        "1" + "0" * 40,
        "0." + "1" * 38,
        "0." + "1" * 39,
        "0." + "0" * 37 + "1",
        "0." + "0" * 38 + "1",
    ),
    *("1." + "0" * 60, "1" * 1000, "1." + "3" * 990, "123456789012345678901234567890.123456789", "0.1e-1", "12.5E+2"),
    *(
        "0.1000000000000000055511151231257827",
        "1.0000000000000000000000000000000000000e0",
        "9007199254740993e0",
        "0e400",
    ),
)


def number(chance: random.Random) -> Number:
    """A number in any spelling: digits to 45, points and exponents anywhere."""
    digits = "".join(chance.choices(string.digits, k=chance.choice([1, 2, 5, 16, 17, 18, 19, 20, 37, 38, 39, 45])))
    digits = digits.lstrip("0") or "0"
    fraction = "." + "".join(chance.choices("0" + string.digits, k=chance.choice([1, 3, 17, 38, 39])))
    exponent = chance.choice("eE") + chance.choice(["", "+", "-"]) + str(chance.choice([0, 1, 7, 22, 300, 320, 400]))
    parts = [chance.choice(["", "-"]), digits, chance.choice(["", fraction]), chance.choice(["", "", exponent])]
    return Number("".join(parts))


def value(chance: random.Random, depth: int = 0) -> JsonValue:
    """Any JSON value: nested, with odd names and texts."""
    kind = chance.randrange(8 if depth < 4 else 5)
    if kind == 0:
        return chance.choice([True, False, None])
    if kind in (1, 2):
        return number(chance)
    if kind in (3, 4):
        return "".join(chance.choices('aé😀\x00\n\t"\\/{}[]:,1e\ud800\udc00\u2028', k=chance.randrange(4)))
    names = ["", "a", "a.b", 'q"', "é😀", "\\", "1e400", "x" * 300]
    if kind in (5, 6):
        return {name: value(chance, depth + 1) for name in chance.sample(names, chance.randrange(5))}
    return [value(chance, depth + 1) for _ in range(chance.randrange(5))]


def shown_texts(spark: SparkSession, texts: list[str], parse: str = "parse_json") -> list[str | None]:
    """The texts as Spark shows their variants."""
    rows = spark.createDataFrame([(index, text) for index, text in enumerate(texts)], "at int, text string")
    shown_rows = rows.selectExpr("at", f"CAST({parse}(text) AS STRING) AS shown").collect()
    return [row.shown for row in sorted(shown_rows, key=lambda row: int(row.at))]


def parsed(text: str) -> JsonValue:
    """A document whose numbers are their texts; NaN and the infinities are texts that no document has."""
    value: JsonValue = json.loads(
        text, parse_int=Number, parse_float=Number, parse_constant=lambda name: f"no number: {name}"
    )
    return value


def is_same(value: JsonValue, shown: JsonValue) -> bool:
    """Whether two documents are equal, numbers as numbers."""
    if type(value) is not type(shown):
        return False
    if isinstance(value, Number) and isinstance(shown, Number):
        numbers = {Decimal(shown)}
        if "e" in value.lower() or len(value) > 38:
            # Java before 19 does not always show the shortest text of a double: 1e23 as 9.999999999999999E22, the same one.
            numbers |= {Decimal(repr(float(shown))), Decimal(float(shown))}
        return Decimal(value) in numbers
    if isinstance(value, dict) and isinstance(shown, dict):
        return value.keys() == shown.keys() and all(is_same(member, shown[name]) for name, member in value.items())
    if isinstance(value, list) and isinstance(shown, list):
        return len(value) == len(shown) and all(map(is_same, value, shown))
    return value == shown


def is_kept(text: str, shown: str | None) -> bool:
    """Whether Spark shows the same document."""
    return shown is not None and is_same(parsed(text), parsed(shown))


def test_accepted_documents_come_out_equal(spark: SparkSession) -> None:
    """Thousands of documents of all shapes, parsed in one job, come out equal."""
    chance = random.Random(7)
    texts = [document({"v": value(chance)}) for _ in range(4000)]
    accepted = [text for text in texts if variant_refusal(text) is None]
    assert len(accepted) > 1000
    changed = [
        (text, shown)
        for text, shown in zip(accepted, shown_texts(spark, accepted), strict=True)
        if not is_kept(text, shown)
    ]
    assert changed == []


def test_numbers_are_accepted_exactly_where_spark_keeps_them(spark: SparkSession) -> None:
    """The rule says of each number exactly what Spark does."""
    chance = random.Random(8)
    texts = [f'{{"v":{literal}}}' for literal in (*NUMBERS, *(number(chance) for _ in range(3000)))]
    assert {variant_refusal(text) is None for text in texts} == {True, False}
    wrong = [
        (text, shown)
        for text, shown in zip(texts, shown_texts(spark, texts, "try_parse_json"), strict=True)
        if is_kept(text, shown) != (variant_refusal(text) is None)
    ]
    assert wrong == []


@pytest.mark.parametrize(
    "text",
    [
        "[" * 1000 + "]" * 1000,
        '{"' + "n" * 50_000 + '":1}',
        "[" + "1e0," * (2**22 - 2) + "1]",
        '"' + "x" * (2**24 - 2) + '"',
    ],
    ids=["deep", "name", "list", "text"],
)
def test_largest_accepted_document_does_not_fail_job(spark: SparkSession, text: str) -> None:
    """At each bound Spark still takes the document."""
    assert variant_refusal(text) is None
    rows = spark.createDataFrame([(text,)], "text string")
    assert rows.selectExpr("parse_json(text) IS NOT NULL AS there").collect()[0].there
