"""Who runs batches on this machine is found while it does, and is never kept from it."""

from __future__ import annotations

import os
from pathlib import Path

from frazil.local.drivers import drivers, registered
from frazil.local.home import Home


def test_home_that_can_not_be_written_ends_the_run(tmp_path: Path) -> None:
    """The run goes on, and says that nobody can find it."""
    (tmp_path / "drivers").write_text("in the way of the folder")
    said: list[str] = []

    with registered(Home.resolve({"FRAZIL_HOME": str(tmp_path)}), "orders", "r1", said.append):
        assert len(said) == 1

    assert said[0].startswith("`frazil stop` can't find this run")


def test_ended_run_is_still_found(tmp_path: Path) -> None:
    """Its process lives on, its run does not."""
    home = Home.resolve({"FRAZIL_HOME": str(tmp_path)})
    with registered(home, "orders", "r1", lambda _: None):
        (found,) = drivers(home, "orders")
        assert (found.pid, found.run) == (os.getpid(), "r1")

    assert drivers(home, "orders") == []
