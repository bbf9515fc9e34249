"""Who runs batches for a home is found while it does, and is never kept from it."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from pathlib import Path

from frazil.runtime.drivers import drivers, registered
from frazil.runtime.home import Home


def test_unwritable_home_does_not_end_the_run(tmp_path: Path) -> None:
    """The run goes on, and says that nobody can find it."""
    (tmp_path / "drivers").write_text("in the way of the folder")
    lines: list[str] = []

    with registered(Home.resolve({"FRAZIL_HOME": str(tmp_path)}), "orders", "r1", lines.append):
        assert len(lines) == 1

    assert lines[0].startswith("`frazil stop` can't find this run")


def test_ended_run_is_not_found(tmp_path: Path) -> None:
    """Its process lives on, its run does not."""
    home = Home.resolve({"FRAZIL_HOME": str(tmp_path)})
    with registered(home, "orders", "r1", lambda _: None):
        (driver,) = drivers(home, "orders")
        assert (driver.pid, driver.run) == (os.getpid(), "r1")

    assert drivers(home, "orders") == []


FOR_EVER = """
import sys, time
from pathlib import Path
from frazil.runtime.drivers import registered
from frazil.runtime.home import Home
with registered(Home.resolve({"FRAZIL_HOME": sys.argv[1]}), "orders", "r1", print):
    print("at work", flush=True)
    time.sleep(600)
"""


def test_killed_run_is_not_found(tmp_path: Path) -> None:
    """Nobody takes its file away; nobody is found all the same."""
    home = Home.resolve({"FRAZIL_HOME": str(tmp_path)})
    command = [sys.executable, "-c", FOR_EVER, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "at work\n"
        (driver,) = drivers(home, "orders")
        assert (driver.pid, driver.is_here) == (child.pid, True)
        child.kill()

    assert drivers(home, "orders") == []
    assert list((tmp_path / "drivers").iterdir()) == []


def test_run_of_another_container_is_found_by_its_lock(tmp_path: Path) -> None:
    """Its pid is nobody's here: it is found as long as it holds its file, and nobody here gets its signal."""
    home = Home.resolve({"FRAZIL_HOME": str(tmp_path)})
    with registered(home, "orders", "r1", lambda _: None):
        (driver_file,) = (tmp_path / "drivers").glob("*.json")
        second_driver = json.loads(driver_file.read_text()) | {"start_ticks": 1, "host": "scheduler", "run": "r2"}
        file = driver_file.with_name("orders-other.json")
        with file.open("w") as lock_file:
            fcntl.flock(lock_file, fcntl.LOCK_EX)
            lock_file.write(json.dumps(second_driver))
            lock_file.flush()
            (driver,) = drivers(home, "orders", "r2")
            assert (driver.host, driver.is_here) == ("scheduler", False)
            driver.ask_to_stop()  # with our own pid: the signal would end the test

    assert drivers(home, "orders") == []


def test_file_that_is_being_written_is_left_alone(tmp_path: Path) -> None:
    """Until it is whole and locked nobody reads it, and nobody takes it away."""
    home = Home.resolve({"FRAZIL_HOME": str(tmp_path)})
    unfinished = tmp_path / "drivers" / "orders-x.unfinished"
    unfinished.parent.mkdir()
    unfinished.touch()

    assert drivers(home, "orders") == []
    assert unfinished.exists()
    with registered(home, "orders", "r1", lambda _: None):
        assert {file.suffix for file in unfinished.parent.iterdir()} == {".unfinished", ".json"}
