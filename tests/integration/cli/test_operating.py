"""The commands of an operator: what they show, what they ask, and what they leave."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from frazil.errors import Terminal
from frazil.kafka.admin.consumer_group import group_offsets
from frazil.kafka.client.cluster import Cluster
from tests.refusals import named_command

Place = Any
"""A project of its own: `place.frazil(...)` runs the command in it. See conftest."""

WRONG_USE = 2
LETTERS = "shop.orders__dead_letters"
REASON = ("--reason", "a test")


@pytest.fixture
def filled(place: Place) -> Place:
    """A place with 1,000 payments in one run, 10 of them dead letters."""
    generated = ("--generate", "payments", "--count", "1000", "--broken-per-thousand", "10", "--seed", "7")
    for command in (("produce", place.topic, *generated), ("run", "orders")):
        place.succeed(*command)
    return place


def count(place: Place, table: str = "shop.orders") -> int:
    """Rows of a table."""
    return len(place.json("sql", f"FROM {table}"))


def test_reset_moves_what_it_showed(filled: Place, broker: str) -> None:
    """Shown first, done after `--yes`, told with the new epoch; the consumer group moves with it."""
    shown = filled.succeed("reset", "orders", "--to", "earliest", *REASON, "--dry-run")

    assert "removed, to land again: 990 rows and 10 dead letters" in shown.stdout
    assert sum(int(n.replace(",", "")) for n in re.findall(r"([\d,]+) to read again", shown.stdout)) == 1000
    assert count(filled) == 990
    done = filled.succeed("reset", "orders", "--to", "earliest", *REASON, "--yes")
    assert "batch 2 begins epoch 1" in done.stdout
    assert "consumer group frazil-orders was moved too" in done.stdout
    mirrored = group_offsets(Cluster("local", {"bootstrap.servers": broker}), "frazil-orders")
    assert {offset for (topic, _), offset in mirrored.items() if topic == filled.topic} == {0}
    assert (count(filled), count(filled, LETTERS)) == (0, 0)
    assert filled.json("run", "orders")["read"] == 1000
    filled.succeed("verify", "orders")


@pytest.mark.parametrize(
    "command",
    [
        ("reset", "--to", "earliest", *REASON),
        ("replay", "--from", "earliest"),
    ],
)
def test_reset_without_terminal_needs_explicit_yes(filled: Place, command: tuple[str, ...]) -> None:
    """Nobody there to ask and no `--yes`: refused as a wrong use, and nothing is changed."""
    verb, *options = command

    ended = filled.frazil(verb, "orders", *options)

    assert ended.returncode == WRONG_USE
    assert "--yes" in ended.stderr
    assert count(filled) == 990
    assert filled.json("history", "orders")[-1]["n"] == 1


def test_answer_decides_about_reset(filled: Place) -> None:
    """At a terminal it asks; no is the default and changes nothing, yes does it."""
    command = ("reset", "orders", "--to", "earliest", *REASON)

    code, written = filled.answer("", *command)
    assert (code, "Do it? [y/N]" in written, "nothing was changed" in written) == (1, True, True), written
    assert count(filled) == 990
    code, written = filled.answer("y", *command)
    assert (code, "begins epoch 1" in written) == (0, True), written
    assert count(filled) == 0


def test_reset_without_reason_or_with_bad_file_is_refused(filled: Place) -> None:
    """A reason is part of the audit; a file that does not fit is refused in words."""
    file = filled.root / "offsets.json"
    file.write_text('{"elsewhere": {"0": 1}}', encoding="utf-8")

    assert filled.frazil("reset", "orders", "--to", "earliest", "--yes").returncode == WRONG_USE
    for target in (str(file), str(filled.root / "none.json"), "yesterday"):
        ended = filled.frazil("reset", "orders", "--to", target, *REASON, "--yes")
        assert ended.returncode == Terminal.exit_code
        assert "Traceback" not in ended.stderr
    assert count(filled) == 990


def test_reset_reports_moves_as_json(filled: Place) -> None:
    """One line of JSON with every move and what went."""
    file = filled.root / "offsets.json"
    file.write_text(json.dumps({filled.topic: {"0": 3}}), encoding="utf-8")

    result = filled.json("reset", "orders", "--to", str(file), *REASON, "--yes")

    (move,) = result["moves"]
    assert (move["partition"], move["to"], move["recreated"]) == (0, 3, False)
    assert (result["done"], result["n"], result["epoch"]) == (True, 2, 1)
    assert sum(result["removed"].values()) == move["from"] - 3


def test_replay_replaces_its_range_and_shows_it(filled: Place) -> None:
    """The ranges are shown, the result comes from the ledger, the position stays."""
    file = filled.root / "offsets.json"
    file.write_text(json.dumps({filled.topic: {"0": 50}}), encoding="utf-8")
    before = filled.json("plan", "orders")["position"]

    result = filled.json("replay", "orders", "--from", str(file), *REASON, "--yes")
    shown = filled.succeed("replay", "orders", "--from", str(file), *REASON, "--yes")

    assert result["batches"] == 1
    assert result["read"] == before[filled.topic][0] - 50
    assert result["position"] == before
    assert f"{result['read']:,} offsets to read" in shown.stdout
    assert (count(filled), count(filled, LETTERS)) == (990, 10)
    assert [b["reason"] for b in filled.json("history", "orders")][2:] == ["a test"] * 2
    filled.succeed("verify", "orders")


def test_repair_command_of_error_works(filled: Place) -> None:
    """The command that the refusal names ends it."""
    from pyiceberg.catalog.sql import SqlCatalog

    home = filled.root / "home"
    catalog = SqlCatalog("lake", uri=f"sqlite:///{home}/catalog.db", warehouse=f"file://{home}/warehouse")
    catalog.drop_table(LETTERS)
    refused = filled.frazil("run", "orders")
    assert refused.returncode == Terminal.exit_code
    words = (*named_command(refused.stderr), *REASON)

    assert filled.frazil(*words).returncode == WRONG_USE
    result = filled.json(*words, "--yes")

    assert (result["table"], result["gone"], result["not_replayed"]) == (LETTERS, [], None)
    assert result["replay"]["dead"] == 10
    assert count(filled, LETTERS) == 10
    assert "nothing to repair" in filled.succeed(*words, "--yes").stdout
    filled.succeed("verify", "orders")
    assert "lost at most, of batches 0 to" in filled.succeed("history", "orders").stdout
    settled = filled.frazil("settle", "orders", "--table", LETTERS, *REASON)
    assert settled.returncode == Terminal.exit_code
    assert "frazil repair PIPELINE TABLE --reason" in settled.stderr
