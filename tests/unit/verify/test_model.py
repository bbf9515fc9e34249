"""The model of a merged table: the last change of each key, beside what the table holds."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from frazil.verify.model import Held, Model, Place
from frazil.verify.told import Told


@pytest.fixture
def model() -> Iterator[Model]:
    made = Model()
    yield made
    made.close()


def upsert(key: int, order: object = None) -> tuple[Told, bytes]:
    return Told("upsert", (key,), order, (key,)), b"row"


def delete(key: int, order: object = None) -> tuple[Told, bytes]:
    return Told("delete", (key,), order), b""


def place(offset: int, partition: int = 0) -> Place:
    return Place("t", partition, offset, 1)


def there(model: Model) -> dict[str, tuple[int, bool]]:
    """Key -> offset of its last change, and whether there must be a row."""
    return {of.shown: (of.place.offset, of.is_there) for of in model.wanted()}


def test_an_older_change_counts(model: Model) -> None:
    """Without an order the offset decides, whatever comes first."""
    model.change(place(5), [delete(1)])
    model.change(place(3), [upsert(1)])
    assert there(model) == {"(1,)": (5, False)}


def test_offsets_outdo_the_order(model: Model) -> None:
    """With an order it decides, over partitions; of equal ones the later record, and within it the later row."""
    model.change(place(1, 1), [upsert(1, "b")])
    model.change(place(9), [delete(1, "a")])
    model.change(place(4), [delete(2, "a"), upsert(2, "a")])
    model.change(place(3), [delete(2, "a")])
    assert there(model) == {"(1,)": (1, True), "(2,)": (4, True)}


def test_a_truncate_takes_later_rows_or_leaves_earlier_ones(model: Model) -> None:
    """Rows whose last change is older go."""
    model.change(place(1), [upsert(1, 10)])
    model.change(place(2), [upsert(2, 30)])
    model.change(place(3), [(Told("truncate", order=20), b"")])
    assert there(model) == {"(1,)": (1, False), "(2,)": (2, True)}


def test_a_key_of_two_partitions_is_taken_for_ordered(model: Model) -> None:
    """Offsets of two partitions say nothing of each other."""
    model.change(place(1), [upsert(1)])
    model.change(place(1, 1), [upsert(1)])
    assert [of.is_moved for of in model.wanted()] == [True]


def test_a_row_twice_or_of_no_record_is_not_seen(model: Model) -> None:
    """Both come out with their keys."""
    model.change(place(1), [upsert(1)])
    for key in (1, 1, 2):
        model.row((key,), Held(place(1), None, b"row", is_deleted=False))
    assert [of.held is not None for of in model.wanted()] == [True, True]
    assert [(shown, count) for shown, _, count in model.doubles()] == [("(1,)", 2)]
    assert [shown for shown, _ in model.others()] == ["(2,)"]


@given(
    changes=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5), st.booleans()), max_size=30),
    cut=st.integers(0, 30),
)
@settings(max_examples=50, deadline=None)
def test_the_order_of_reading_counts(changes: list[tuple[int, int, bool]], cut: int) -> None:
    """The model is the same from whichever change on the topic is read."""
    read = list(enumerate(changes))
    found = []
    for order in (read, read[cut:] + read[:cut]):
        model = Model()
        for offset, (key, version, is_delete) in order:
            model.change(place(offset, key % 2), [(delete if is_delete else upsert)(key, version)])
        found.append(there(model))
        model.close()
    latest = {
        f"({key},)": max((version, offset, not gone) for offset, (of, version, gone) in read if of == key)[1:]
        for key in {key for key, _, _ in changes}
    }
    assert found == [latest, latest]


def test_a_truncate_takes_rows_of_another_topic(model: Model) -> None:
    """It is of its own topic, as each table's changes are."""
    model.change(Place("a", 0, 1, 1), [upsert(1, 10)])
    model.change(Place("b", 0, 2, 1), [(Told("truncate", order=20), b"")])
    assert there(model) == {"(1,)": (1, True)}
