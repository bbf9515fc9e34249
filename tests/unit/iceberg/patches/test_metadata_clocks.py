"""Hosts whose clocks differ commit to one table: its history never goes back, and Java can read it."""

from __future__ import annotations

import time
from itertools import pairwise

import pytest
from pyiceberg.exceptions import BadRequestError

from frazil.errors import Retryable, Terminal
from frazil.iceberg.catalog.catalog import Lake
from frazil.iceberg.commit.commit import commit
from frazil.iceberg.errors import as_frazil
from frazil.iceberg.patches.metadata import MAX_SKEW
from tests.unit.iceberg.orders import TABLE, batch, commit_batches, ids, mark, rows
from tests.unit.iceberg.prepared import decide

JAVA_TOLERANCE_MS = 60_000
"""TableMetadata.ONE_MINUTE of Iceberg's Java library."""


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How many seconds the clock of this host is ahead; the last entry counts."""
    ahead, really = [0.0], time.time
    monkeypatch.setattr(time, "time", lambda: really() + ahead[-1])
    return ahead


def assert_java_reads(lake: Lake) -> None:
    """What the constructor of Java's TableMetadata asks of times."""
    metadata = lake.load_table(TABLE).metadata
    for log in (metadata.snapshot_log, metadata.metadata_log):
        times = [entry.timestamp_ms for entry in log] + [metadata.last_updated_ms]
        assert all(after - before >= -JAVA_TOLERANCE_MS for before, after in pairwise(times)), times


def test_commit_after_a_fast_clock_is_dated_after_it(orders: Lake, clock: list[float]) -> None:
    """Within the tolerance: the next host's commit is dated behind the fast one's."""
    clock.append(50)
    commit_batches(orders, 1)
    clock.append(0)
    commit(orders, batch(orders, mark(2), mark(1), rows(2)))

    metadata = orders.load_table(TABLE).metadata
    first, second = (entry.timestamp_ms for entry in metadata.snapshots)
    assert second == first + 1
    assert metadata.last_updated_ms >= second
    assert [entry.timestamp_ms for entry in metadata.snapshot_log] == [first, second]
    assert_java_reads(orders)


def test_commit_far_behind_a_fast_clock_waits(orders: Lake, clock: list[float]) -> None:
    """Beyond the tolerance nothing is committed; both times are named, and the run goes on when the time is there."""
    clock.append(180)
    commit_batches(orders, 1)
    clock.append(0)
    late = batch(orders, mark(2), mark(1), rows(2))

    with pytest.raises(
        Retryable, match=r"changed last at .* clock of this host .* behind; expected at most 0:01:00"
    ) as error:
        commit(orders, late)
    assert f"catalog {orders.name}" in str(error.value.next_step)
    assert ids(orders) == [1]

    clock.append(125)
    commit(orders, late)
    assert ids(orders) == [1, 2]
    assert_java_reads(orders)


def test_property_in_the_error_allows_commits_to_a_table_of_next_year(orders: Lake, clock: list[float]) -> None:
    """A clock that was wrong by a year stops no pipeline for a year: what the error says works."""
    clock.append(365 * 86_400)
    commit_batches(orders, 1)
    clock.append(0)
    late = batch(orders, mark(2), mark(1), rows(2))
    with pytest.raises(Retryable) as error:
        commit(orders, late)

    bound = str(error.value.next_step).partition(f'{MAX_SKEW}: "')[2].partition('"')[0]
    orders._catalog.properties[MAX_SKEW] = bound
    commit(orders, late)
    assert ids(orders) == [1, 2]
    assert_java_reads(orders)

    orders._catalog.properties[MAX_SKEW] = "1m"
    with pytest.raises(Terminal, match="expected milliseconds, found '1m'"):
        commit(orders, batch(orders, mark(3), mark(2), rows(3)))


def test_head_moved_without_a_new_snapshot_is_dated_after_the_last(orders: Lake, clock: list[float]) -> None:
    """A merge makes main a snapshot that is there already; the catalog dates that move by the host's clock."""
    clock.append(50)
    commit_batches(orders, 1)
    clock.append(0)
    decide(orders, batch(orders, mark(2), mark(1), rows(2)))

    times = [entry.timestamp_ms for entry in orders.load_table(TABLE).metadata.snapshot_log]
    assert times == sorted(times)
    assert_java_reads(orders)


@pytest.mark.parametrize("message", ["Invalid update timestamp 5: before last snapshot log entry at 9"])
def test_answer_of_a_server_with_a_slow_clock_is_retryable(message: str) -> None:
    """Iceberg's REST server answers 400 to a commit that its own clock dates before the table's last change."""
    error = as_frazil(BadRequestError(f"IllegalArgumentException: {message}"), "committing to table t")
    assert isinstance(error, Retryable)
    assert message in error.message
    assert "clock" in str(error.next_step)
