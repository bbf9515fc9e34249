"""`frazil reset` where something was lost: a look and a no leave the catalog alone, and only what was shown is done."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from frazil.errors import Retryable

Place = Any
"""A project of its own: `place.frazil(...)` runs the command in it. See conftest."""

ORDERS = "shop.orders"
RESET = ("reset", "orders", "--to", "earliest", "--reason", "a test")
GENERATED = ("--generate", "payments", "--count", "300", "--broken-per-thousand", "10", "--seed", "7")


@pytest.fixture
def filled(place: Place) -> Place:
    """A place with 300 payments in one run."""
    for command in (("produce", place.topic, *GENERATED), ("run", "orders")):
        assert place.frazil(*command).returncode == 0
    return place


def catalog(place: Place) -> SqlCatalog:
    home = place.root / "home"
    return SqlCatalog("lake", uri=f"sqlite:///{home}/catalog.db", warehouse=f"file://{home}/warehouse")


def heads(place: Place) -> dict[str, str]:
    """Every table of the catalog and its metadata file: another one after any commit."""
    found = catalog(place)
    return {".".join(name): found.load_table(name).metadata_location for name in found.list_tables("shop")}


def answered(place: Place, answer: str, *arguments: str) -> tuple[int, str]:
    """Run a command at a terminal, answer its question; its exit code and all that it wrote."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "frazil.cli", *arguments]
    with subprocess.Popen(
        command, env=place.environment, stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as asked:
        os.close(theirs)
        os.write(ours, f"{answer}\n".encode())
        written, _ = asked.communicate(timeout=120)
    os.close(ours)
    return asked.returncode, written


def test_look_or_no_makes_a_lost_table(filled: Place) -> None:
    """Nothing is in the catalog that was not there before, until somebody says yes."""
    catalog(filled).drop_table(ORDERS)
    before = heads(filled)

    shown = filled.frazil(*RESET, "--dry-run")
    assert shown.returncode == 0, shown.stderr
    assert f"the rows of all topics are gone from table {ORDERS}" in shown.stdout
    assert heads(filled) == before
    code, written = answered(filled, "", *RESET)
    assert (code, "nothing was changed" in written) == (1, True)
    assert heads(filled) == before

    code, written = answered(filled, "y", *RESET)
    assert (code, "begins epoch 1" in written) == (0, True), written
    assert json.loads(filled.frazil("run", "orders", "--json").stdout)["read"] == 300
    assert filled.frazil("verify", "orders").returncode == 0


def test_agreed_to_one_thing_another_is_done(filled: Place) -> None:
    """Following a rollback changed what a reset does: told as such, not done; a second look agrees with its deed."""
    assert filled.frazil("replay", "orders", "--from", "earliest", "--reason", "a test", "--yes").returncode == 0
    table = catalog(filled).load_table(ORDERS)
    table.manage_snapshots().rollback_to_snapshot(table.current_snapshot().parent_snapshot_id).commit()
    before = heads(filled)

    shown = json.loads(filled.frazil(*RESET, "--dry-run", "--json").stdout)
    assert heads(filled) == before
    assert "was rolled back: a reset follows that first" in shown["first"][0]
    assert shown["moves"]
    code, written = answered(filled, "y", *RESET)
    assert (code, "nothing was reset" in written) == (Retryable.exit_code, True), written

    code, written = answered(filled, "y", *RESET)
    assert (code, "the position stays where it is" in written) == (0, True), written
    assert json.loads(filled.frazil("run", "orders", "--json").stdout)["read"] == 300
    assert filled.frazil("verify", "orders").returncode == 0
