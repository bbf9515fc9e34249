"""Records by their age: small, the same however they are cut, and exact to a known bound."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil.batch.facts import FLOOR_SECONDS, LAST, Staged, age_seconds, ages_from, ages_json
from frazil.records.model.rows import TIMESTAMP, record_ages

INSTANT = datetime(2026, 5, 1, 12, tzinfo=UTC)


def counted(of: list[float | None]) -> dict[int, int]:
    written = [None if age is None else INSTANT - timedelta(seconds=age) for age in of]
    return record_ages(pa.array(written, TIMESTAMP), INSTANT)


@given(st.floats(0, 1.7e9).map(lambda age: round(age, 6)))
def test_age_class_is_precise_to_five_percent(of: float) -> None:
    """The value of a class differs from each age in it by 5 % or 50 ms at most: so does every quantile."""
    (age,) = counted([of])

    assert age_seconds(age) == pytest.approx(of, rel=0.05, abs=FLOOR_SECONDS / 2 + 1e-5)


@given(st.lists(st.lists(st.floats(0, 1e6), max_size=20), max_size=5), st.randoms(use_true_random=False))
def test_counts_do_not_depend_on_how_records_are_split(parts: list[list[float]], random: object) -> None:
    """Tasks end in any order, and a retry splits records in another way: the counts of the parts add up to that of the whole."""
    whole = counted([age for part in parts for age in part])
    each = [counted(list(part)) for part in parts]
    random.shuffle(each)  # type: ignore[attr-defined]

    staged = Staged.merged(Staged.from_json(Staged(ages=ages).to_json()) for ages in each)
    assert staged.ages == whole
    assert ages_from(ages_json(whole)) == whole


def test_record_without_a_timestamp_is_not_counted() -> None:
    """Without a timestamp there is no age; Spark has -1 ms then. If the producer's clock is ahead, the age is zero."""
    assert counted([None]) == {}
    assert record_ages(pa.array([-1000], pa.int64()).cast(TIMESTAMP), INSTANT) == {}
    assert counted([-3600.0]) == {0: 1}
    assert counted([]) == {}


def test_number_of_age_classes_is_bounded() -> None:
    """However old records are, there are 256 classes at most."""
    assert record_ages(pa.array([0], pa.int64()).cast(TIMESTAMP), datetime(9999, 1, 1, tzinfo=UTC)) == {LAST: 1}


@given(st.lists(st.none() | st.integers(-(2**63), 2**63 - 1), max_size=9))
def test_invalid_timestamp_is_counted(written: list[int | None]) -> None:
    """Producers may send any number: it is counted somewhere, and never a reason to fail."""
    ages = record_ages(pa.array(written, pa.int64()).cast(TIMESTAMP), INSTANT)

    assert sum(ages.values()) == sum(age is not None and age >= 0 for age in written)
    assert all(0 <= age <= LAST for age in ages)


def test_counts_of_a_million_records_fit_a_kilobyte() -> None:
    """The counts of a million records of five minutes take less than a kilobyte."""
    text = ages_json(counted([n * 300 / 1e5 for n in range(100_000)]))

    assert text is not None
    assert len(text) < 1_000


def test_batch_without_records_has_no_age() -> None:
    """Without records nothing is said, also where older ledgers did not count."""
    assert ages_json({}) is None
    assert ages_from(None) == {}
