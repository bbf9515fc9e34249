"""Others write while rows are removed, or wrote before: no row of theirs is lost, none comes back."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException
from pyiceberg.manifest import DataFileContent
from pyiceberg.typedef import Record

from frazil.batch.changes import Coordinates, Removal
from frazil.errors import Retryable, Terminal
from frazil.iceberg.catalog.catalog import Lake
from frazil.iceberg.commit import removal
from frazil.iceberg.commit.commit import ATTEMPTS, REMOVED_KEY, Refused, commit
from frazil.iceberg.commit.removal import Rewriter, check_removable
from frazil.iceberg.files.data_files import DataFileWriter
from tests.unit.iceberg.coordinates import (
    COLUMNS,
    Row,
    change,
    create,
    data_paths,
    every_snapshot_is_readable,
    everything,
    foreign,
    foreign_deletes,
    numbered,
    positions,
    removing,
    summary_of,
)
from tests.unit.iceberg.orders import TABLE, answer_lost, elsewhere, follow, mark, never_arrived, overtaken


def test_foreign_append_during_a_removal_keeps_its_rows(lines: Lake) -> None:
    """A foreign append moves the head while files are rewritten: its rows stay, and those that match go as well."""
    commit(lines, change(lines, mark(1), None, numbered(range(10))))
    ours = change(lines, mark(2), mark(1), [Row(100, offset=4, batch=2)], removing(3, 6))
    strangers = [Row(200, topic=None, partition=None, offset=None, batch=None), Row(201, offset=5)]
    follow(lines, overtaken(lambda: foreign(lines, strangers)))

    commit(lines, ours)

    assert [row.id for row in everything(lines)] == [0, 1, 2, 6, 7, 8, 9, 100, 200]
    every_snapshot_is_readable(lines)


def test_compaction_during_a_removal_brings_no_rows_back(lines: Lake) -> None:
    """Every file was rewritten by somebody else meanwhile: the removal is computed on the new files."""
    commit(lines, change(lines, mark(1), None, numbered(range(10))))

    def compact() -> None:
        table = elsewhere(lines).load_table(TABLE)
        table.overwrite(table.scan().to_arrow())

    follow(lines, overtaken(compact))

    commit(lines, change(lines, mark(2), mark(1), [], removing(3, 6)))

    assert [row.id for row in everything(lines)] == [0, 1, 2, 6, 7, 8, 9]
    every_snapshot_is_readable(lines)


def test_concurrent_batch_during_a_removal_refuses_ours(lines: Lake) -> None:
    """A rival decided meanwhile: refused, and nothing of ours is in the table."""
    commit(lines, change(lines, mark(1), None, numbered(range(10))))
    ours = change(lines, mark(2, "b"), mark(1), [Row(100, batch=2)], removing(3, 6))
    rival = change(lines, mark(2, "a"), mark(1), [Row(300, batch=2)], removing(0, 9))
    follow(lines, overtaken(lambda: commit(elsewhere(lines), rival)))

    with pytest.raises(Refused, match="expected"):
        commit(lines, ours)

    assert [row.id for row in everything(lines)] == [9, 300]


def test_removal_from_a_busy_table_is_tried_a_bounded_number_of_times(lake: Lake) -> None:
    """Others win every time: a bounded number of attempts, each file is rewritten once, and the error says try later."""
    create(lake, [])
    commit(lake, change(lake, mark(1), None, numbered(range(10))))
    number = itertools.count(100)
    follow(lake, *[overtaken(lambda: foreign(lake, [Row(next(number), topic=None)]))] * 50)

    with pytest.raises(Retryable, match="head"):
        commit(lake, change(lake, mark(2), mark(1), [], removing(3, 6)))

    files = Path(lake.load_table(TABLE).location().removeprefix("file://")).rglob("data/**/*.parquet")
    assert len(list(files)) == 1 + 1 + ATTEMPTS  # the batch, its survivors once, the strangers'
    assert len(everything(lake)) == 10 + ATTEMPTS


@pytest.mark.parametrize("which", ["staged", "rewritten"])
def test_files_that_went_while_rows_were_rewritten_are_named_by_no_snapshot(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, which: str
) -> None:
    """Who sleeps in the middle of a removal, while an orphan removal takes what no snapshot names, is refused."""
    create(lake, [])
    commit(lake, change(lake, mark(1), None, numbered(range(10))))
    ours = change(lake, mark(2), mark(1), [Row(100, offset=4, batch=2)], removing(3, 6))
    rewritten = Rewriter.rewrite

    def rewrite(rewriter: Rewriter, table: Any, head: int | None) -> Any:
        result = rewritten(rewriter, table, head)
        (lost,) = ours.files if which == "staged" else result.added
        Path(lost.path.removeprefix("file://")).unlink()
        return result

    monkeypatch.setattr(Rewriter, "rewrite", rewrite)

    with pytest.raises(Refused, match="1 of 2 files that were staged are gone"):
        commit(lake, ours)
    assert [row.id for row in everything(lake)] == list(range(10))


def test_rewrites_of_many_tables_hold_rows_one_at_a_time(lines: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Followers get their parts at the same time; of the writers of survivors only one holds rows at any time."""
    commit(lines, change(lines, mark(1), None, numbered(range(10))))
    barrier, met = threading.Barrier(2), []

    class Writer(DataFileWriter):
        def write(self, rows: pa.RecordBatch) -> None:
            with contextlib.suppress(threading.BrokenBarrierError):
                met.append(barrier.wait(0.5))
            super().write(rows)

    monkeypatch.setattr(removal, "DataFileWriter", Writer)

    def rewrite(number: int) -> int:
        table = elsewhere(lines).load_table(TABLE)
        return Rewriter(TABLE, removing(number, number + 1)).rewrite(table, table.metadata.current_snapshot_id).rows

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(rewrite, (3, 6))) == [1, 1]

    assert met == []


ERRORS = [CommitFailedException("conflict"), CommitStateUnknownException("no answer"), TimeoutError("socket")]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("step", [answer_lost, never_arrived], ids=["landed", "did not land"])
def test_lost_answer_removes_once(lines: Lake, error: Exception, step: Callable[[Exception], Any]) -> None:
    """Whether the commit landed behind the error or not, its rows are there once, and every manifest is."""
    commit(lines, change(lines, mark(1), None, numbered(range(10))))
    ours = change(lines, mark(2), mark(1), [Row(100, offset=4, batch=2)], removing(3, 6))
    follow(lines, step(error))

    snapshot_id = commit(lines, ours)

    assert [row.id for row in everything(lines)] == [0, 1, 2, 6, 7, 8, 9, 100]
    assert lines.load_table(TABLE).metadata.current_snapshot_id == snapshot_id
    assert commit(lines, ours) == snapshot_id
    every_snapshot_is_readable(lines)


def test_two_who_finish_one_batch_remove_once(lines: Lake) -> None:
    """A zombie lands the very same part between our look and our commit: its snapshot is the answer."""
    commit(lines, change(lines, mark(1), None, numbered(range(10))))
    ours = change(lines, mark(2), mark(1), [Row(100, offset=4, batch=2)], removing(3, 6))
    follow(lines, overtaken(lambda: commit(elsewhere(lines), ours)))

    snapshot_id = commit(lines, ours)

    assert [row.id for row in everything(lines)] == [0, 1, 2, 6, 7, 8, 9, 100]
    assert lines.load_table(TABLE).metadata.current_snapshot_id == snapshot_id


@pytest.mark.parametrize("spec", [[], ["day"]], ids=["unpartitioned", "by day"])
def test_rows_that_others_deleted_stay_deleted(lake: Lake, spec: list[str]) -> None:
    """Another engine deleted rows by position: survivors don't hold them, and its other deletes still count."""
    create(lake, spec)
    foreign(lake, numbered(range(10)))
    foreign(lake, numbered(range(20, 30)))
    partition = Record("mon") if spec else Record()
    deleted = {path: [0, 9] for path in data_paths(lake)}
    foreign_deletes(lake, DataFileContent.POSITION_DELETES, partition, positions(deleted))
    assert [row.id for row in everything(lake)] == [*range(1, 9), *range(21, 29)]

    snapshot_id = commit(lake, change(lake, mark(1), None, [], removing(0, 4)))

    assert [row.id for row in everything(lake)] == [*range(4, 9), *range(21, 29)]
    assert summary_of(lake, snapshot_id)[REMOVED_KEY] == "3"


def test_deletes_made_meanwhile_are_applied(lake: Lake) -> None:
    """Another engine deletes by position while files are rewritten: the survivors are written again without them."""
    create(lake, [])
    foreign(lake, numbered(range(10)))
    (path,) = data_paths(lake)
    follow(
        lake,
        overtaken(lambda: foreign_deletes(lake, DataFileContent.POSITION_DELETES, Record(), positions({path: [7]}))),
    )

    commit(lake, change(lake, mark(1), None, [], removing(0, 4)))

    assert [row.id for row in everything(lake)] == [4, 5, 6, 8, 9]


def test_equality_deletes_are_refused(lake: Lake) -> None:
    """PyIceberg can't apply them, so rewritten rows would come back: refused before anything is decided."""
    create(lake, [])
    foreign(lake, numbered(range(10)))
    ids = pa.table(
        [pa.array([5], pa.int32())], schema=pa.schema([pa.field("id", pa.int32(), metadata={"PARQUET:field_id": "1"})])
    )
    foreign_deletes(lake, DataFileContent.EQUALITY_DELETES, Record(), ids)
    before = lake.load_table(TABLE).metadata.current_snapshot_id

    with pytest.raises(Terminal, match=f"table {TABLE} has equality deletes, for example .*deletes-"):
        check_removable(lake.load_table(TABLE), TABLE, COLUMNS)
    with pytest.raises(Terminal, match="has equality deletes"):
        commit(lake, change(lake, mark(1), None, [], removing(0, 4)))

    assert lake.load_table(TABLE).metadata.current_snapshot_id == before


def test_table_without_kafka_coordinates_is_refused(orders: Lake) -> None:
    """A table that does not say where its rows came from is refused, and the columns it lacks are named."""
    table = orders.load_table(TABLE)

    with pytest.raises(Terminal, match="has no column _kafka_topic, _kafka_partition, _kafka_offset, _frazil_batch"):
        check_removable(table, TABLE, COLUMNS)
    with pytest.raises(Terminal, match="has no column batch"):
        Rewriter(TABLE, Removal(Coordinates("day", "id", "id", "batch"), ())).rewrite(table, None)


def test_missing_data_file_stops_the_removal(lines: Lake) -> None:
    """A data file that is gone from the storage stops the removal, and nothing is committed."""
    commit(lines, change(lines, mark(1), None, numbered(range(10))))
    ours = change(lines, mark(2), mark(1), [], removing(3, 6))
    for path in data_paths(lines):
        Path(path.removeprefix("file://")).unlink()

    with pytest.raises(Terminal, match="a file that is still needed is missing"):
        commit(lines, ours)

    assert len(lines.load_table(TABLE).metadata.snapshots) == 1
