"""Pages and series of a ledger: as the ledger is now, whoever rewrote it, and each file read once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor, wait
from datetime import timedelta
from threading import Event, Thread
from typing import Any

import pytest
from pyiceberg.types import LongType

from frazil.iceberg.ledger import ledger as ledger_files
from frazil.iceberg.ledger.ledger import read_letter_rows
from frazil.monitor import batches
from frazil.monitor.batches import Ledger, Ledgers
from frazil.project import Project
from frazil.report.history import history
from tests.unit.monitor.conftest import BEGIN, LEDGER, Write, batch

PATIENCE = 10.0
"""Bounds a wait for another thread."""

HOUR, DAY = timedelta(hours=1), timedelta(days=1)


@pytest.fixture
def ledgers() -> Ledgers:
    return Ledgers()


def look(ledgers: Ledgers, project: Project) -> Ledger:
    return ledgers.load(project, project.pipeline("orders"))


def counts(ledger: Ledger) -> tuple[int, int]:
    whole = ledger.total(BEGIN, BEGIN + 30 * DAY)
    return whole.batches, whole.read


def test_page_of_a_pipeline_without_runs_is_empty(ledgers: Ledgers, project: Project) -> None:
    """Without a ledger there are no batches, no points and no commit."""
    ledger = look(ledgers, project)

    assert ledger.page().batches == ()
    assert ledger.series(BEGIN, BEGIN + DAY, HOUR) == ()
    assert ledger.last_commit() is None
    assert ledger.letter_rows() == []
    assert counts(ledger) == (0, 0)


def test_pages_add_up_to_the_history(ledgers: Ledgers, project: Project, write: Write) -> None:
    """Pages put together, newest first, are the history; the total tells how many there are."""
    for n in range(1, 10, 3):
        write([batch(n), batch(n + 1), batch(n + 2)])
    ledger = look(ledgers, project)
    pages = [ledger.page(offset, 2) for offset in range(0, 10, 2)]

    listed = [batch_of_page for page in pages for batch_of_page in page.batches]
    assert {page.total for page in pages} == {9}
    assert list(reversed(listed)) == history(project, project.pipeline("orders"))
    assert ledger.page(100, 2).batches == ()


def test_dead_letters_of_page_and_command_agree(ledgers: Ledgers, project: Project, write: Write) -> None:
    """What the ledger says of letters is the same, kept or read anew, after each commit, with every reset in it."""
    kinds = ("ingest", "ingest", "replay", "ingest", "reset", "ingest", "dead_letters", "ingest")
    rows_read = []
    for n, kind in enumerate(kinds):
        write([batch(n, kind=kind)])
        rows_read.append(look(ledgers, project).letter_rows())
        assert rows_read[-1] == read_letter_rows(project.lake("lake"), LEDGER, "orders")

    assert [row["n"] for row in rows_read[-1]] == [n for n in (2, 3, 4, 6, 7) for _ in range(2)]
    assert ["position" in row for row in rows_read[-1]] == [False] * 2 + [True] * 4 + [False] * 2 + [True] * 2


def test_series_counts_each_batch_once(ledgers: Ledgers, project: Project, write: Write) -> None:
    """A batch has a row per table and counts once; replays and empty batches don't count; freshness is to the commit."""
    write(batch(n) for n in range(90))
    write([batch(90, kind="replay"), batch(91, records_read=0)])

    first, second = look(ledgers, project).series(BEGIN, BEGIN + DAY, HOUR)

    assert (first.begin, first.batches, first.read, first.rows, first.dead) == (BEGIN, 60, 6_000, 5_880, 120)
    assert (second.begin, second.batches, second.dead_codes) == (BEGIN + HOUR, 30, {"WRONG_TYPE": 60})
    assert first.freshness.p50 == pytest.approx(6 + 29, rel=0.06)
    assert first.freshness.p99 == first.freshness.p50


def test_new_batch_costs_only_its_own_files(
    ledgers: Ledgers, project: Project, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a commit only its file and its manifest are read."""
    for n in range(5):
        write([batch(n)])
    assert counts(look(ledgers, project)) == (5, 500)
    read: list[int] = []
    read_one = ledger_files._rows
    monkeypatch.setattr(ledger_files, "_rows", lambda *arguments: read.append(1) or read_one(*arguments))
    listed: list[str] = []
    list_one = ledger_files._files_of_manifest
    monkeypatch.setattr(
        ledger_files,
        "_files_of_manifest",
        lambda manifest, table: listed.append(manifest.manifest_path) or list_one(manifest, table),
    )
    write([batch(5)])

    assert counts(look(ledgers, project)) == (6, 600)
    assert counts(look(ledgers, project)) == (6, 600)
    assert (read, len(listed)) == ([1], 1)


def test_compacted_ledger_counts_once(ledgers: Ledgers, project: Project, write: Write) -> None:
    """Files that were rewritten are forgotten with what was read of them."""
    for n in range(40):
        table = write([batch(n)])
        assert counts(look(ledgers, project)) == (n + 1, 100 * (n + 1))
    table.overwrite(table.scan().to_arrow())

    assert counts(look(ledgers, project)) == (40, 4_000)
    write([batch(40)])
    assert counts(look(ledgers, project)) == (41, 4_100)
    assert look(ledgers, project).page(0, 3).batches[0].n == 40


def test_rolled_back_ledger_drops_its_batches(ledgers: Ledgers, project: Project, write: Write) -> None:
    """After a rollback only what main still has counts, and what lands then."""
    snapshot_id = write([batch(0)]).metadata.current_snapshot_id
    table = write([batch(1)])
    assert counts(look(ledgers, project)) == (2, 200)
    table.manage_snapshots().set_current_snapshot(snapshot_id).commit()

    assert counts(look(ledgers, project)) == (1, 100)
    write([batch(1, records_read=7)])
    assert counts(look(ledgers, project)) == (2, 107)


def test_recreated_ledger_drops_the_old_batches(ledgers: Ledgers, project: Project, write: Write) -> None:
    """A ledger that was dropped is empty, and another one under its name has its own batches."""
    write([batch(0), batch(1)])
    assert counts(look(ledgers, project)) == (2, 200)
    project.lake("lake")._catalog.drop_table(LEDGER)
    assert counts(look(ledgers, project)) == (0, 0)

    write([batch(0)])
    assert counts(look(ledgers, project)) == (1, 100)


def test_ledger_of_an_older_version_is_readable(ledgers: Ledgers, project: Project, write: Write) -> None:
    """Columns that are missing are nothing; freshness is then not told."""
    table = write([batch(0)])
    with table.update_schema(allow_incompatible_changes=True) as update:
        update.delete_column("record_ages")

    whole = look(ledgers, project).total(BEGIN, BEGIN + DAY)

    assert (whole.batches, whole.freshness.p50) == (1, None)


def test_upgrade_leaves_an_open_page_working(ledgers: Ledgers, project: Project, write: Write) -> None:
    """A ledger gets the columns of a newer version while a process looks at it."""
    table = write([batch(0)])
    look(ledgers, project).page()
    with table.update_schema() as update:
        update.add_column("more", LongType())
    write([batch(1)])

    assert [batch_of_page.n for batch_of_page in look(ledgers, project).page().batches] == [1, 0]
    assert counts(look(ledgers, project)) == (2, 200)


def test_page_of_a_compacted_ledger_takes_little_memory(
    ledgers: Ledgers, project: Project, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a large file only the batches of the page are kept for it, and after it none; small files beside it are as ever."""
    monkeypatch.setattr(ledger_files, "_PIECE", 7)
    pieces: list[int] = []
    keep = ledger_files._of_batches
    monkeypatch.setattr(
        ledger_files, "_of_batches", lambda numbers, rows: pieces.append(len(rows)) or keep(numbers, rows)
    )
    write(batch(n) for n in range(1, 100))
    large = max(batches._size(file) for file in look(ledgers, project)._files)
    monkeypatch.setattr(batches, "LARGE_FILE", large - 1)
    write([batch(100), batch(101)])
    ledger = look(ledgers, project)
    pages = [ledger.page(offset, 10) for offset in range(0, 101, 10)]

    assert list(reversed([batch_of_page for page in pages for batch_of_page in page.batches])) == history(
        project, project.pipeline("orders")
    )
    assert max(pieces) == 7
    assert {file.n for part in ledger._rows._parts for file in ledger._files if file.key in part[0]} == {(100, 101)}


def test_read_larger_than_the_memory_is_not_cached(
    project: Project, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is answered and forgotten, and does not push out the others."""
    monkeypatch.setattr(batches, "PAGES_MEMORY", 20_000)
    write(batch(n) for n in range(1, 100))
    write([batch(100)])
    ledger = look(Ledgers(), project)

    assert [batch_of_page.n for batch_of_page in ledger.page(0, 1).batches] == [100]
    memory = ledger._rows.nbytes
    assert [batch_of_page.n for batch_of_page in ledger.page(50, 2).batches] == [50, 49]
    assert ledger._rows.nbytes == memory > 0


def test_memory_for_many_ledgers_is_bounded(project: Project, write: Write) -> None:
    """Those that nobody looked at for longest are forgotten; the one looked at is kept, and read again costs time only."""
    write([batch(0)])
    ledgers = Ledgers(memory=0)
    first = look(ledgers, project)
    assert counts(first) == (1, 100)
    other_pipeline = project.pipeline("orders").model_copy(update={"name": "other"})
    ledgers.load(project, other_pipeline)

    assert look(ledgers, project) is not first
    assert counts(look(ledgers, project)) == (1, 100)


def test_hanging_storage_of_one_ledger_leaves_the_others_working(
    ledgers: Ledgers, project: Project, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a file of one is read, others are found, weighed and shown."""
    write([batch(0)])
    slow = look(ledgers, project)
    reading, answers = Event(), Event()
    read_one = ledger_files._rows

    def hang(*arguments: Any) -> Any:
        reading.set()
        assert answers.wait(PATIENCE)
        return read_one(*arguments)

    monkeypatch.setattr(ledger_files, "_rows", hang)
    thread = Thread(target=counts, args=(slow,))
    thread.start()
    assert reading.wait(PATIENCE)
    other_pipeline = project.pipeline("orders").model_copy(update={"name": "other"})
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(ledgers.load, project, other_pipeline)
        done, _ = wait([answer], PATIENCE)
        answers.set()
    thread.join()

    assert done == {answer}
    assert slow.nbytes > 0


def test_threads_see_whole_ledgers(ledgers: Ledgers, project: Project, write: Write) -> None:
    """While one thread writes, others always see batches from the first to some last one, each once."""
    write([batch(0)])
    wrong: list[tuple[int, int]] = []

    def watch() -> None:
        for _ in range(20):
            number, read = counts(look(ledgers, project))
            if read != 100 * number:
                wrong.append((number, read))

    threads = [Thread(target=watch) for _ in range(3)]
    for thread in threads:
        thread.start()
    for n in range(1, 8):
        write([batch(n)])
    for thread in threads:
        thread.join()

    assert wrong == []
    assert counts(look(ledgers, project)) == (8, 800)
