"""Numbers that no double holds: the column is a decimal, or the record a dead letter. No number becomes another one."""

from __future__ import annotations

import itertools
import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil.pipeline.models.value import Column
from frazil.records.evolution.infer import widest
from frazil.records.evolution.types import number_evidence, read_type, type_from_evidence, write_type
from frazil.records.model.json_number import Number, double_holds
from frazil.records.model.spec import Evolution
from frazil.verify.values.column_readers import Bad, Expectation
from tests.unit.records.evolution.evolving import Landed, land, spec, transformed

DOUBLE = pa.field("id", pa.float64())


def numbers(landed: Landed) -> list[Any]:
    return [row["id"] for row in landed.rows]


def documents(*texts: str) -> list[bytes]:
    return [f'{{"id":{text}}}'.encode() for text in texts]


@pytest.mark.parametrize("split", [0, 1, 2])
def test_whole_numbers_and_fractions_make_a_decimal_that_holds_them(split: int) -> None:
    """9007199254740993 is no double: beside 1.5 it makes a decimal, whichever task reads which."""
    records = documents("9007199254740993", "1.5")
    landed = land([records[split:], records[:split]], spec())
    assert landed.columns == {"id": pa.decimal128(28, 9)}
    assert set(numbers(landed)) == {Decimal(9007199254740993), Decimal("1.5")}
    assert land([documents("2.25")], landed.spec).codes == []


def test_whole_numbers_beyond_long_make_a_decimal() -> None:
    """An unsigned number of 64 bits is held, and beside it those that are smaller."""
    landed = land([documents("18446744073709551600", "7")], spec())
    assert landed.columns == {"id": pa.decimal128(20, 0)}
    assert numbers(landed) == [18446744073709551600, 7]


def test_fraction_with_more_digits_than_a_double_makes_a_decimal() -> None:
    """Amounts with 18 digits after the point land as they were sent."""
    landed = land([documents("33.3333333333333333", "0.123456789012345678", "100")], spec())
    assert [str(each.normalize()) for each in numbers(landed)] == [
        "33.3333333333333333",
        "0.123456789012345678",
        "1E+2",
    ]
    assert landed.codes == []


@pytest.mark.parametrize(
    "texts",
    [
        ("1", "1.5"),
        ("9007199254740992", "0.1"),
        ("1e300", "0.30000000000000004", "5"),
        ("1e20", "1.5"),
        ("100000000000000000000", "1.5"),
        ("7", "-100000000000000000000", "1e300"),
    ],
)
def test_numbers_that_doubles_hold_stay_doubles(texts: tuple[str, ...]) -> None:
    """Nobody gets decimals for what a double is: whole numbers up to 2^53, fractions of up to 17 digits, exponents."""
    landed = land([documents(*texts)], spec())
    assert landed.columns == {"id": pa.float64()}
    assert numbers(landed) == [float(text) for text in texts]


@pytest.mark.parametrize("other_texts", [(), ("7",), ("18446744073709551615",), ("1.5", "9007199254740993")])
def test_large_integers_stay_whole_beside_doubles(
    other_texts: tuple[str, ...],
) -> None:
    """100000000000000000000 is a double; alone it may be an unsigned integer, and those beside it need a decimal."""
    landed = land([documents("100000000000000000000", *other_texts)], spec())
    assert pa.types.is_decimal128(landed.columns["id"])
    assert numbers(landed) == [Decimal(text) for text in ("100000000000000000000", *other_texts)]


LOST = [
    "9007199254740993",
    "18446744073709551600",
    "9007199254740993.0",
    "9.007199254740993e15",
    "1e-400",
    "0.123456789012345678",
]


@pytest.mark.parametrize("blocks", [True, False])
@pytest.mark.parametrize("through", [False, True])
def test_number_beyond_its_double_column_is_a_dead_letter(blocks: bool, through: bool) -> None:
    """LOSSY_CAST, among thousands of good ones and alone, whatever follows the table; never the nearest double."""
    values = [
        "1.5",
        "123456789012345.25",
        "6.02214076e23",
        "0.10000000000000000555",
        "0.1000000000000000000000000",
        "0.00012345678901234567",
        "-0.0",
        "5e-324",
    ]
    evolving_spec = spec([DOUBLE])
    landed = land(
        [documents(*values * 20, *LOST)], transformed(evolving_spec) if through else evolving_spec, blocks=blocks
    )
    assert landed.codes == ["LOSSY_CAST"] * len(LOST)
    assert numbers(landed) == [float(text) for text in values * 20]


def test_number_beyond_its_double_column_gets_a_variant_column() -> None:
    """`variant_column` puts a whole number into a long, or a decimal."""
    landed = land(
        [documents("9007199254740993", "18446744073709551600", "1.5")],
        spec([DOUBLE], Evolution("add", "variant_column")),
    )
    assert landed.columns == {"id": pa.float64(), "id__decimal": pa.decimal128(20, 0), "id__long": pa.int64()}
    assert landed.codes == []
    assert landed.rows[0]["id__long"] == 9007199254740993
    assert landed.rows[1]["id__decimal"] == 18446744073709551600


def test_numbers_through_transforms_are_never_changed() -> None:
    """There whole numbers and fractions are columns before the table's is known: what it does not hold is kept beside it."""
    landed = land([documents("9007199254740993", "1.5")], transformed(spec()))
    assert (landed.codes, numbers(landed)) == ([], [None, 1.5])
    assert landed.rows[0]["_rescued"] == '{"id":9007199254740993}'
    chosen = spec((), Evolution(on_incompatible="dead_letter"))
    landed = land([documents("9007199254740993", "1.5")], transformed(chosen))
    assert (landed.codes, numbers(landed)) == (["LOSSY_CAST"], [1.5])
    for text in ("18446744073709551600", "0.12345678901234567890"):
        assert numbers(land([documents(text)], transformed(spec()))) == [Decimal(text)]


texts = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.floats(allow_nan=False, allow_infinity=False).map(
        lambda value: f"{value:.20f}" if abs(value) < 1e30 else repr(value)
    ),
    st.decimals(allow_nan=False, allow_infinity=False, places=12).map(str),
    st.integers().map(str),
    st.integers(-60, 60).map(lambda power: str(3 * 2 ** abs(power + 4))),
    st.sampled_from([*LOST, "1e22", "1e23", "1E+400", "-1e-5", "123456789012345678e-3", "1." + "0" * 900]),
).filter(lambda text: "E" not in text or not text.startswith("E"))


@given(texts)
def test_block_parser_exact_decoder_and_verify_agree_on_doubles(text: str) -> None:
    """A number lands with the double that gives its digits back, on every path, or on none."""
    raw = f'{{"id":{text}}}'.encode()
    fast, slow = land([[raw] * 3], spec([DOUBLE])), land([[raw] * 3], spec([DOUBLE]), blocks=False)
    assert (fast.codes, list(map(repr, fast.rows))) == (slow.codes, list(map(repr, slow.rows)))
    expected = Expectation({"id": Column(type="double")}).row(raw)
    assert isinstance(expected, Bad) if slow.codes else [repr(expected[0])] * 3 == list(map(repr, numbers(slow)))


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_every_double_is_held_however_it_is_written(value: float) -> None:
    """Python's and JavaScript's shortest texts, 17 digits, all of its digits: each is a text of the same double."""
    for text in (repr(value), f"{value:.16e}", str(Decimal(value)), f"{Decimal(value):f}"):
        assert double_holds(Number(text), float(text)), text


@given(st.lists(texts, min_size=1, max_size=4), st.randoms())
def test_numbers_request_the_same_column_in_any_order_and_split(texts: list[str], random: Any) -> None:
    """Evidence is put together in whichever order, and travels as text."""
    evidence = [number_evidence(Number(text)) for text in texts]
    shuffled = random.sample(evidence, len(evidence))
    cut = random.randint(0, len(shuffled))
    parts = [_all(part) for part in (shuffled[:cut], shuffled[cut:]) if part]
    assert _all([read_type(write_type(part)) for part in parts]) == _all(evidence)
    assert type_from_evidence(_all(evidence)) in {pa.int64(), pa.float64()} or pa.types.is_decimal128(
        type_from_evidence(_all(evidence))
    )


def _all(evidence: list[pa.DataType]) -> pa.DataType:
    *_, last = itertools.accumulate(evidence, widest)
    return last


def test_rows_of_a_new_column_hold_their_numbers_or_keep_them_aside() -> None:
    """Any numbers together: each row's value equals what was sent; what no column holds is kept as its text."""
    many = ["1", "9007199254740993", "1.5", "1e300", "18446744073709551600", "0.1234567890123456789", "1e-7", "7" * 40]
    for pair in itertools.combinations(many, 2):
        landed = land([documents(*pair)], spec())
        for index, text in enumerate(pair):
            row = landed.row(0, index)
            exact = json.loads(text, parse_int=Decimal, parse_float=Decimal)
            assert row is not None
            values = (
                row["id"]
                if row["id"] is not None
                else json.loads(row["_rescued"], parse_int=Decimal, parse_float=Decimal)["id"]
            )
            assert Decimal(str(values)) == exact, (pair, landed.columns)
