"""A catalog is opened once, by one of those who wait for it, and closed."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier, Lock, Semaphore
from typing import Any
from urllib.parse import quote

import pytest
from pyarrow.fs import FileSelector, LocalFileSystem
from pyiceberg.catalog.sql import SqlCatalogBaseTable
from sqlalchemy import event

from frazil.error_codes import INTERNAL
from frazil.errors import Retryable, Terminal
from frazil.iceberg.catalog import sql
from frazil.iceberg.catalog.catalog import Lake
from tests.unit.iceberg.orders import TABLE, commit_batches


class Gate:
    """A lock that tells how many came to it."""

    def __init__(self) -> None:
        self.lock, self.came = Lock(), Semaphore(0)

    def __enter__(self) -> None:
        self.came.release()
        self.lock.acquire()

    def __exit__(self, *_: object) -> None:
        self.lock.release()


class Guarded:
    """The local files, with a folder that nobody may read; tests are often root's, who may."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def get_file_info(self, selector: FileSelector) -> Any:
        """What is in a folder."""
        if Path(selector.base_dir).name == self.folder:
            raise PermissionError(f"cannot open directory {selector.base_dir}: permission denied")
        return LocalFileSystem().get_file_info(selector)


def test_threads_waiting_for_an_unreachable_catalog_share_its_failure(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that waited while it was tried have the failure; whoever asks later tries again."""
    gate, tries = Gate(), []

    def fail() -> None:
        tries.append(1)
        if len(tries) == 1:
            assert all(gate.came.acquire(timeout=20) for _ in range(4))
        raise INTERNAL.retryable("it does not answer")

    new = Lake(lake.name, lake.uri, lake.warehouse, {})
    monkeypatch.setattr(new, "_opening", gate)
    monkeypatch.setattr(new, "_open", fail)
    with ThreadPoolExecutor(4) as pool:
        futures = [pool.submit(new.find_table, TABLE) for _ in range(4)]
        assert {str(future.exception(20)) for future in futures} == {"it does not answer [FRZ-901]"}
    assert len(tries) == 1
    with pytest.raises(Retryable):
        new.find_table(TABLE)
    assert len(tries) == 2


def test_closed_catalog_releases_its_connections(lake: Lake) -> None:
    """A closed catalog lets its connections go, and opens again for who still asks."""
    lake.tables()
    pool = lake._catalog.engine.pool
    assert pool.checkedin() == 1
    lake.close()
    assert lake._opened is None
    assert pool.checkedin() == 0
    assert lake.tables() == []
    lake.close()


def test_threads_opening_a_new_catalog_share_one(tmp_path: Path) -> None:
    """Whoever comes first opens it, the others wait: all of them get the same catalog."""
    for number in range(3):
        new = Lake("lake", f"sqlite:///{tmp_path}/{number}.db", f"file://{tmp_path}/warehouse", {})
        barrier = Barrier(8)

        def opened(lake: Lake = new, barrier: Barrier = barrier) -> Any:
            barrier.wait()
            return lake._catalog

        with ThreadPoolExecutor(8) as pool:
            catalogs = [future.result() for future in [pool.submit(opened) for _ in range(8)]]

        assert len(set(map(id, catalogs))) == 1
        catalogs[0].close()


def test_processes_may_open_a_new_catalog_at_once(tmp_path: Path) -> None:
    """A rival makes the catalog's tables after we saw that there are none: both have the catalog."""
    ours, rival = (Lake("lake", f"sqlite:///{tmp_path}/c.db", f"file://{tmp_path}/warehouse", {}) for _ in range(2))
    event.listen(SqlCatalogBaseTable.metadata, "before_create", lambda *_, **__: rival.tables(), once=True)

    assert ours.tables() == []

    ours.close()
    rival.close()


def test_new_database_over_existing_tables_is_refused(orders: Lake, tmp_path: Path) -> None:
    """It would know no table, and no position: the pipelines would land everything again. What is meant is said by hand."""
    commit_batches(orders, 1)
    file, warehouse = tmp_path / "catalog.db", tmp_path / "warehouse"
    file.rename(tmp_path / "aside")

    for place in (f"file://{warehouse}", str(warehouse)):
        with pytest.raises(Terminal, match=f"{file} is missing, but warehouse {place} holds tables") as caught:
            _tables(orders, place)
        assert TABLE.replace(".", "/") in str(caught.value)
        assert not file.exists()

    (tmp_path / "aside").rename(file)
    assert _tables(orders, orders.warehouse) == [TABLE]
    file.write_bytes(b"")
    assert _tables(orders, orders.warehouse) == []
    file.unlink()
    warehouse.rename(tmp_path / "former")
    assert _tables(orders, orders.warehouse) == []


def test_lost_database_is_not_recreated_by_a_running_process(tmp_path: Path) -> None:
    """A second connection, opened when the file is gone, fails: an empty file would undo the refusal for all others."""
    file = tmp_path / "cata %23?log.db"
    lake = Lake("lake", f"sqlite:///{quote(str(file))}", f"file://{tmp_path}/warehouse", {})
    assert lake.tables() == []
    assert file.exists()
    with lake._catalog.engine.connect():
        file.unlink()
        with pytest.raises(Retryable, match="unable to open database file"):
            lake.tables()
    assert not file.exists()
    lake.close()


def test_unreadable_folder_does_not_stop_a_first_start(orders: Lake, tmp_path: Path) -> None:
    """A disk of its own has root's lost+found. Tables in the folders beside it are found; the warehouse itself must be read."""
    commit_batches(orders, 1)
    warehouse = tmp_path / "warehouse"
    (warehouse / "lost+found").mkdir()

    assert sql._any_table(Guarded("lost+found"), str(warehouse)) == str(warehouse / TABLE.replace(".", "/"))
    assert sql._any_table(Guarded(TABLE.partition(".")[0]), str(warehouse)) is None
    with pytest.raises(PermissionError):
        sql._any_table(Guarded("warehouse"), str(warehouse))


def test_concurrent_first_start_is_not_a_lost_catalog(
    orders: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It made database and table while we looked for both: nothing is lost."""
    commit_batches(orders, 1)
    file, aside = tmp_path / "catalog.db", tmp_path / "aside"
    file.rename(aside)
    look = sql._any_table

    def looked(*arguments: Any) -> str | None:
        if aside.exists():
            aside.rename(file)
        return look(*arguments)

    monkeypatch.setattr(sql, "_any_table", looked)

    assert _tables(orders, orders.warehouse) == [TABLE]


def _tables(lake: Lake, warehouse: str | None) -> list[str]:
    """What is in a catalog, as somebody sees it who opens it now."""
    opened = Lake(lake.name, lake.uri, warehouse, {})
    try:
        return opened.tables()
    finally:
        opened.close()
