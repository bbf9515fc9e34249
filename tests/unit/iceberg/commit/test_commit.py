"""The positioned commit: rivals, strangers, lost answers, changed tables. Whatever happens, nothing lands twice."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlparse

import pytest
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException, ServiceUnavailableError

from frazil.errors import OutcomeUnknown, Retryable, Terminal
from frazil.iceberg.catalog.catalog import Lake
from frazil.iceberg.commit.commit import ATTEMPTS, Refused, commit, snapshot_time
from frazil.iceberg.commit.summary_state import mirror
from tests.unit.iceberg.orders import (
    KEY,
    TABLE,
    answer_lost,
    batch,
    commit_batches,
    elsewhere,
    follow,
    foreign_append,
    ids,
    mark,
    never_arrived,
    overtaken,
    rows,
)

ERRORS = [
    CommitFailedException("conflict"),
    CommitStateUnknownException("no answer"),
    ServiceUnavailableError("503"),
    TimeoutError("socket"),
    ValueError("unexpected"),
]
kinds_of_error = pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)


def metadata_files(lake: Lake) -> int:
    """Commits the table has seen."""
    return len(lake.load_table(TABLE).metadata.metadata_log)


def test_rows_and_position_land_in_one_commit(orders: Lake) -> None:
    """Rows, summary and property are one commit: there is no moment with one of them only."""
    before = metadata_files(orders)

    snapshot_id = commit(orders, batch(orders, mark(1), None, rows(1, 2, 3)))

    table = orders.load_table(TABLE)
    head = table.current_snapshot()
    assert metadata_files(orders) == before + 1
    assert head is not None
    assert head.snapshot_id == snapshot_id
    assert head.summary is not None
    assert head.summary["added-records"] == "3"
    assert head.summary[KEY] == mark(1).to_json()
    assert head.summary["frazil.rows.written"] == "3"
    assert table.properties[KEY] == mirror(mark(1).to_json(), snapshot_id)
    assert snapshot_time(table, snapshot_id) is not None
    assert ids(orders) == [1, 2, 3]


def test_batch_without_files_moves_the_position(orders: Lake) -> None:
    """A batch whose records were all filtered still moves the position."""
    commit_batches(orders, 1)

    snapshot_id = commit(orders, batch(orders, mark(2), mark(1), rows()))

    assert orders.load_table(TABLE).properties[KEY] == mirror(mark(2).to_json(), snapshot_id)
    assert ids(orders) == [1]


def test_second_of_two_batches_from_one_base_is_refused(orders: Lake) -> None:
    """The second of two batches that were planned on the same head is refused, and the table stays readable."""
    first, second = batch(orders, mark(1, "a"), None, rows(1)), batch(orders, mark(1, "b"), None, rows(2))
    commit(orders, first)

    with pytest.raises(Refused, match="expected None"):
        commit(elsewhere(orders), second)

    assert ids(orders) == [1]


def test_concurrent_batch_during_a_commit_refuses_ours(orders: Lake) -> None:
    """A rival that commits after our check moved the head: the check is made again, and refuses."""
    commit_batches(orders, 1)
    rival, ours = batch(orders, mark(2, "a"), mark(1), rows(21)), batch(orders, mark(2, "b"), mark(1), rows(22))
    follow(orders, overtaken(lambda: commit(elsewhere(orders), rival)))

    with pytest.raises(Refused, match="expected"):
        commit(orders, ours)

    assert ids(orders) == [1, 21]
    assert all(Path(urlparse(file.path).path).exists() for file in ours.files)


@pytest.mark.parametrize("late", [False, True], ids=["before we look", "between look and commit"])
def test_batch_lands_on_top_of_a_foreign_append(orders: Lake, late: bool) -> None:
    """An append of another engine moves the head, not the position: we land on top, in one commit again."""
    commit_batches(orders, 1)
    ours = batch(orders, mark(2), mark(1), rows(2))
    before = metadata_files(orders)
    strangers = foreign_append(orders, 100)
    if late:
        follow(orders, overtaken(strangers))
    else:
        strangers()

    snapshot_id = commit(orders, ours)

    table = orders.load_table(TABLE)
    assert ids(orders) == [1, 2, 100]
    assert metadata_files(orders) == before + 2
    assert table.metadata.current_snapshot_id == snapshot_id
    assert table.properties[KEY] == mirror(mark(2).to_json(), snapshot_id)


def test_repeated_commit_lands_once(orders: Lake) -> None:
    """The same batch again, by us or by whoever finishes our work, is the same snapshot."""
    ours = batch(orders, mark(1), None, rows(1))
    snapshot_id = commit(orders, ours)
    foreign_append(orders, 100)()

    assert commit(orders, ours) == snapshot_id
    assert commit(elsewhere(orders), ours) == snapshot_id
    assert ids(orders) == [1, 100]


def test_late_repetition_below_younger_batches_lands_once(orders: Lake) -> None:
    """A zombie that finishes an old batch finds it below the younger ones."""
    first = batch(orders, mark(1), None, rows(1))
    snapshot_id = commit(orders, first)
    commit_batches(orders, 2, 3)

    assert commit(orders, first) == snapshot_id
    assert ids(orders) == [1, 2, 3]


@kinds_of_error
def test_lost_answer_lands_once(orders: Lake, error: Exception) -> None:
    """The commit landed and the writer hears an error: the table is read again and knows."""
    commit_batches(orders, 1)
    follow(orders, answer_lost(error))

    snapshot_id = commit(orders, batch(orders, mark(2), mark(1), rows(2)))

    table = orders.load_table(TABLE)
    assert ids(orders) == [1, 2]
    assert table.metadata.current_snapshot_id == snapshot_id
    assert len(table.metadata.snapshots) == 2


@kinds_of_error
def test_lost_answer_below_other_commits_lands_once(orders: Lake, error: Exception) -> None:
    """The same, when a stranger and the next batch came on top before the table is read again."""
    first = batch(orders, mark(1), None, rows(1))
    follow(
        orders,
        answer_lost(error, foreign_append(orders, 100), lambda: commit_batches(elsewhere(orders), 2)),
    )

    snapshot_id = commit(orders, first)

    snapshots = orders.load_table(TABLE).metadata.snapshots
    assert ids(orders) == [1, 2, 100]
    assert [s.snapshot_id for s in snapshots].index(snapshot_id) == 0
    assert len(snapshots) == 3


@kinds_of_error
def test_commit_that_never_arrived_is_repeated(orders: Lake, error: Exception) -> None:
    """An error that did hide nothing: the same files are committed again, once."""
    follow(orders, never_arrived(error))

    commit(orders, batch(orders, mark(1), None, rows(1)))

    assert ids(orders) == [1]


@pytest.mark.parametrize(
    ("error", "expected"),
    [(ERRORS[0], Retryable), (ERRORS[1], OutcomeUnknown), (ERRORS[3], Retryable), (ERRORS[4], Terminal)],
    ids=lambda value: getattr(value, "__name__", type(value).__name__),
)
def test_unresponsive_catalog_is_tried_a_bounded_number_of_times(
    orders: Lake, error: Exception, expected: type[Exception]
) -> None:
    """After a bounded number of attempts the error says what the caller may do; nothing landed."""
    steps = [never_arrived(error)] * 100
    follow(orders, *steps)

    with pytest.raises(expected, match=TABLE):
        commit(orders, batch(orders, mark(1), None, rows(1)))

    assert len(orders._catalog.script) >= 100 - ATTEMPTS * 3
    follow(orders)
    assert ids(orders) == []


@pytest.mark.parametrize("answer", ["the catalog", "the table"])
def test_unreadable_table_after_a_lost_answer_is_an_unknown_outcome(orders: Lake, answer: str) -> None:
    """Nobody knows whether the commit landed, and the error says so."""
    catalog = orders._catalog
    vanish = catalog.destroy_tables if answer == "the catalog" else lambda: catalog.drop_table(TABLE)
    follow(orders, answer_lost(CommitStateUnknownException("no answer"), vanish))

    with pytest.raises(OutcomeUnknown, match="was sent and the table can't be read again"):
        commit(orders, batch(orders, mark(1), None, rows(1)))


@pytest.mark.parametrize("error", ERRORS[:2], ids=lambda error: type(error).__name__)
def test_manifests_of_a_landed_commit_are_kept(orders: Lake, error: Exception) -> None:
    """A conflict that hid a landed commit, with no retry left: PyIceberg would delete the manifests it wrote."""
    with orders.load_table(TABLE).transaction() as transaction:
        transaction.set_properties({"commit.retry.num-retries": "0"})
    follow(orders, answer_lost(error))

    commit(orders, batch(orders, mark(1), None, rows(1)))

    assert ids(orders) == [1]
    assert len(orders.load_table(TABLE).metadata.snapshots) == 1


def test_files_of_a_refused_attempt_are_kept(orders: Lake) -> None:
    """Once a commit request was sent nothing of it is deleted, also not after another attempt landed."""
    follow(orders, overtaken(foreign_append(orders, 100)))

    snapshot_id = commit(orders, batch(orders, mark(1), None, rows(1)))

    metadata = Path(urlparse(orders.load_table(TABLE).location()).path) / "metadata"
    assert len(list(metadata.glob(f"snap-{snapshot_id}-*.avro"))) == 2


def test_manifests_are_merged_over_batches(orders: Lake) -> None:
    """Manifests are merged where the table asks for it, strangers' too, and every row stays."""
    commit_batches(orders, 1, 2)
    foreign_append(orders, 100)()
    commit_batches(orders, 3, 4)

    table = orders.load_table(TABLE)
    head = table.current_snapshot()
    assert head is not None
    assert len(head.manifests(table.io)) == 1
    assert ids(orders) == [1, 2, 3, 4, 100]
    assert ids(orders, "day = 'mon' and id > 2") == [3, 4, 100]


def test_two_who_finish_one_batch_land_it_once(orders: Lake) -> None:
    """A zombie lands the very same batch between our look and our commit: its snapshot is the answer."""
    commit_batches(orders, 1)
    ours = batch(orders, mark(2), mark(1), rows(2))
    follow(orders, overtaken(lambda: commit(elsewhere(orders), ours)))

    snapshot_id = commit(orders, ours)

    assert ids(orders) == [1, 2]
    assert orders.load_table(TABLE).metadata.current_snapshot_id == snapshot_id
