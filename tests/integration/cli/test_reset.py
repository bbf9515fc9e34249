"""`frazil reset` where something was lost: a look and a no leave the catalog alone, and only what was shown is done."""

from __future__ import annotations

from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from frazil.errors import Terminal

Place = Any
"""A project of its own: `place.frazil(...)` runs the command in it. See conftest."""

ORDERS = "shop.orders"
RESET = ("reset", "orders", "--to", "earliest", "--reason", "a test")
TO_TABLE = ("reset", "orders", "--to-table", "--reason", "a test")
GENERATED = ("--generate", "payments", "--count", "300", "--broken-per-thousand", "10", "--seed", "7")


@pytest.fixture
def filled(place: Place) -> Place:
    """A place with 300 payments in one run."""
    for command in (("produce", place.topic, *GENERATED), ("run", "orders")):
        place.succeed(*command)
    return place


def catalog(place: Place) -> SqlCatalog:
    home = place.root / "home"
    return SqlCatalog("lake", uri=f"sqlite:///{home}/catalog.db", warehouse=f"file://{home}/warehouse")


def heads(place: Place) -> dict[str, str]:
    """Every table of the catalog and its metadata file: another one after any commit."""
    lake = catalog(place)
    return {".".join(name): lake.load_table(name).metadata_location for name in lake.list_tables("shop")}


def test_reset_preview_or_refusal_creates_no_lost_table(filled: Place) -> None:
    """Nothing is in the catalog that was not there before, until somebody says yes."""
    catalog(filled).drop_table(ORDERS)
    before = heads(filled)

    shown = filled.succeed(*RESET, "--dry-run")
    assert f"the rows of all topics are gone from table {ORDERS}" in shown.stdout
    assert heads(filled) == before
    code, written = filled.answer("", *RESET)
    assert (code, "nothing was changed" in written) == (1, True), written
    assert heads(filled) == before

    code, written = filled.answer("y", *RESET)
    assert (code, "begins epoch 1" in written) == (0, True), written
    assert filled.json("run", "orders")["read"] == 300
    filled.succeed("verify", "orders")


def test_rewind_is_shown_before_it_is_done(filled: Place) -> None:
    """A reset to the table shows what goes and what comes again; anywhere else it is refused, naming that command."""
    filled.succeed("replay", "orders", "--from", "earliest", "--reason", "a test", "--yes")
    table = catalog(filled).load_table(ORDERS)
    table.manage_snapshots().rollback_to_snapshot(table.current_snapshot().parent_snapshot_id).commit()
    before = heads(filled)

    code, written = filled.answer("y", *RESET)
    assert (code, "frazil reset orders --to-table" in written) == (Terminal.exit_code, True), written
    shown = filled.json(*TO_TABLE, "--dry-run")
    assert heads(filled) == before
    assert "the pipeline was at batch" in shown["first"][0]
    assert shown["moves"]
    code, written = filled.answer("y", *TO_TABLE)
    assert (code, "begins epoch 1" in written) == (0, True), written
    code, written = filled.answer("y", *TO_TABLE)
    assert (code, "there is nothing to rewind" in written) == (0, True), written
    assert filled.json("run", "orders")["read"] == 300
    filled.succeed("verify", "orders")


def test_rewind_beside_lost_dead_letters_warns_of_removed_rows(filled: Place) -> None:
    """The lost table gives nothing back, the destination does: nobody is told that records will stand twice."""
    filled.succeed("replay", "orders", "--from", "earliest", "--reason", "a test", "--yes")
    table = catalog(filled).load_table(ORDERS)
    table.manage_snapshots().rollback_to_snapshot(table.current_snapshot().parent_snapshot_id).commit()
    catalog(filled).drop_table(f"{ORDERS}__dead_letters")

    shown = filled.succeed(*TO_TABLE, "--dry-run").stdout

    assert " rows and 0 dead letters" in shown
    assert "nothing is removed" not in shown
