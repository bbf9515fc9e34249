"""The model of a merged table: the last change of each key, and the rows of the table."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from frazil.verify.model import ExpectedRow, Model, RecordPlace, TableRow
from frazil.verify.values.cdc_expectation import RowChange


@pytest.fixture
def model() -> Iterator[Model]:
    empty_model = Model()
    yield empty_model
    empty_model.close()


def upsert(key: int, order: object = None) -> tuple[RowChange, bytes]:
    return RowChange("upsert", (key,), order, (key,)), b"row"


def delete(key: int, order: object = None) -> tuple[RowChange, bytes]:
    return RowChange("delete", (key,), order), b""


def place(offset: int, partition: int = 0) -> RecordPlace:
    return RecordPlace("t", partition, offset, 1)


def truncate(order: object = None) -> tuple[RowChange, bytes]:
    return RowChange("truncate", order=order), b""


def only(model: Model) -> ExpectedRow:
    """The expected row of the only key."""
    [row] = model.expected_rows()
    return row


def rows_of_model(model: Model) -> dict[str, tuple[int, bool]]:
    """Key -> offset of its last change, and whether there must be a row."""
    return {row.shown: (row.place.offset, row.is_there) for row in model.expected_rows()}


def test_latest_change_counts(model: Model) -> None:
    """Without `order_by` the offset decides, in any order of additions."""
    model.add_change(place(5), 0, [delete(1)])
    model.add_change(place(3), 0, [upsert(1)])
    assert rows_of_model(model) == {"(1,)": (5, False)}


def test_order_column_wins_over_offsets(model: Model) -> None:
    """`order_by` decides across partitions; with equal values the later record, and the later row within it."""
    model.add_change(place(1, 1), 0, [upsert(1, "b")])
    model.add_change(place(9), 0, [delete(1, "a")])
    model.add_change(place(4), 0, [delete(2, "a"), upsert(2, "a")])
    model.add_change(place(3), 0, [delete(2, "a")])
    assert rows_of_model(model) == {"(1,)": (1, True), "(2,)": (4, True)}


def test_truncate_removes_exactly_older_rows(model: Model) -> None:
    """A truncate removes the rows whose last change is older."""
    model.add_change(place(1), 0, [upsert(1, 10)])
    model.add_change(place(2), 0, [upsert(2, 30)])
    model.add_change(place(3), 0, [truncate(20)])
    assert rows_of_model(model) == {"(1,)": (1, False), "(2,)": (2, True)}


@pytest.mark.parametrize("stamps", [(5, 6), (5, 5), (None, -1), (None, None)])
def test_between_partitions_the_timestamp_decides(model: Model, stamps: tuple[int | None, int | None]) -> None:
    """With equal timestamps the larger partition decides; a record without timestamp is the oldest."""
    model.add_change(place(9), stamps[0], [upsert(1)])
    model.add_change(place(1, 1), stamps[1], [delete(1)])
    row = only(model)
    assert (row.place, row.is_there, row.depends_on_batches) == (place(1, 1), False, False)


def test_only_timestamps_that_go_back_in_a_partition_make_the_cut_matter(model: Model) -> None:
    """They matter only for a key in several partitions: within one partition the offset decides."""
    for key, partition, stamps in ((1, 0, (5, 4)), (2, 0, (5, 4)), (2, 1, (3,)), (3, 0, (5, 4, 6)), (3, 1, (3,))):
        for offset, stamp in enumerate(stamps):
            model.add_change(place(10 * key + offset, partition), stamp, [upsert(key)])
    assert {row.shown: row.depends_on_batches for row in model.expected_rows()} == {
        "(1,)": False,
        "(2,)": True,
        "(3,)": False,
    }


@pytest.mark.parametrize(
    ("at", "stamp", "n", "expected"),
    [
        (place(2, 1), 5, 1, (False, False)),
        (place(2, 1), 3, 1, (True, False)),
        (place(2, 0), 5, 1, (True, True)),  # time went back within the partition
        (place(9, 0), 5, 1, (False, False)),
        (place(2, 1), 5, 0, (False, True)),  # read before the row that it is later than
    ],
)
def test_truncate_of_a_partition_removes_older_rows_of_all(
    model: Model, at: RecordPlace, stamp: int, n: int, expected: tuple[bool, bool]
) -> None:
    """The offset decides in its own partition, the timestamp in others."""
    model.add_change(place(8, 0), 4, [upsert(1)])
    model.add_change(at._replace(batch=n), stamp, [truncate()])
    model.add_change(place(9, 2), 1, [truncate()])
    row = only(model)
    assert (row.is_there, row.depends_on_batches) == expected


def test_older_row_of_another_partition_may_be_late(model: Model) -> None:
    """A row from the same partition can't be late, because the older change was read before."""
    for key in (1, 2):
        model.add_change(place(key), 1, [upsert(key)])
    model.add_change(place(5, 1), 7, [delete(1)])
    model.add_change(place(5), 7, [delete(2)])
    for key in (1, 2):
        model.add_row((key,), None, 1, TableRow(place(key), b"row", is_deleted=False))
    assert {row.shown: row.is_late for row in model.expected_rows()} == {"(1,)": True, "(2,)": False}


def test_duplicate_and_unknown_rows_are_reported(model: Model) -> None:
    """Duplicate rows and rows without change are reported with their keys."""
    model.add_change(place(1), 0, [upsert(1)])
    for key in (1, 1, 2):
        model.add_row((key,), None, 0, TableRow(place(1), b"row", is_deleted=False))
    assert [row.table_row is not None for row in model.expected_rows()] == [True, True]
    assert [(shown, count) for shown, _, count in model.duplicate_keys()] == [("(1,)", 2)]
    assert [shown for shown, _ in model.rows_without_change()] == ["(2,)"]


@given(
    changes=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5), st.booleans()), max_size=30),
    cut=st.integers(0, 30),
)
@settings(max_examples=50, deadline=None)
def test_order_of_reading_does_not_count(changes: list[tuple[int, int, bool]], cut: int) -> None:
    """The model is the same, with whichever record reading begins."""
    read = list(enumerate(changes))
    rows_read = []
    for order in (read, read[cut:] + read[:cut]):
        model = Model()
        for offset, (key, version, is_delete) in order:
            model.add_change(place(offset, key % 2), 0, [(delete if is_delete else upsert)(key, version)])
        rows_read.append(rows_of_model(model))
        model.close()
    latest = {
        f"({key},)": max(
            (version, offset, not is_deleted) for offset, (row_key, version, is_deleted) in read if row_key == key
        )[1:]
        for key in {key for key, _, _ in changes}
    }
    assert rows_read == [latest, latest]


def test_truncate_leaves_rows_of_another_topic(model: Model) -> None:
    """A truncate only removes rows of its own topic."""
    model.add_change(RecordPlace("a", 0, 1, 1), 0, [upsert(1, 10)])
    model.add_change(RecordPlace("b", 0, 2, 1), 0, [truncate(20)])
    assert rows_of_model(model) == {"(1,)": (1, True)}
