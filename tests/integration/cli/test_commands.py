"""From an empty home to rows and back: every command that reads or writes, as a process with its output piped."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from typing import Any

import pytest

from frazil.errors import Retryable, Terminal

Place = Any
"""A project of its own: `place.frazil(...)` runs the command in it. See conftest."""

ASKED_FOR_SECONDS = 20.0
"""How long a broker that doesn't answer is asked at most: 6 s on an idle machine."""


AUTO, SPARK, STAY = ("--engine", "auto"), ("--engine", "spark"), ("--stay", "1s")


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("how", "settings"),
    [
        ((), ""),
        (AUTO, ""),
        (STAY, ""),
        # Each starts a JVM.
        pytest.param(AUTO, "auto: {inline_below: 1}\n", marks=pytest.mark.full),
        pytest.param((*SPARK, *STAY), "", marks=pytest.mark.full),
        pytest.param((*AUTO, *STAY), "auto: {inline_below: 1}\n", marks=pytest.mark.full),
    ],
)
def test_a_run_accounts_for_every_record_and_the_next_finds_nothing(
    place: Place, how: tuple[str, ...], settings: str
) -> None:
    """Read = written + dead, counted in the tables; a second run publishes nothing and says so. Whoever lands, and stays or not."""
    file = place.root / "settings.yaml"
    file.write_text(file.read_text() + settings)
    produced = place.json(
        *("produce", place.topic, "--generate", "payments", "--count", "2000", "--broken-per-thousand", "5")
    )
    result = place.json("run", "orders", *how)
    second = place.json("run", "orders", *how)
    rows = place.json("sql", "SELECT count(*) AS n FROM shop.orders")
    dead = place.json("sql", "SELECT count(*) AS n FROM shop.orders__dead_letters")

    assert produced["count"] == 2000
    assert produced["created"] is True
    assert (result["batches"], result["read"], result["written"], result["dead"], result["filtered"]) == (
        1,
        2000,
        1990,
        10,
        0,
    )
    assert sum(result["position"][place.topic]) == 2000
    assert len(result["position"][place.topic]) == 6
    assert second["batches"] == 0
    assert second["position"] == result["position"]
    assert rows == [{"n": 1990}]
    assert dead == [{"n": 10}]


def test_json_is_all_that_stdout_gets(place: Place) -> None:
    """A program reads the last line; progress goes where people look."""
    place.succeed("produce", place.topic, "--generate", "payments", "--count", "10")

    ended = place.succeed("run", "orders", "--json")

    assert ended.stdout.count("\n") == 1
    keys = {"pipeline", "batches", "read", "written", "dead", "filtered", "position", "seconds"}
    assert keys <= json.loads(ended.stdout).keys()
    assert "batch 1: finished" in ended.stderr


@pytest.mark.parametrize("env", [{}, {"FORCE_COLOR": "1", "TERM": "xterm-256color"}])
def test_nothing_that_is_piped_has_control_codes(place: Place, env: dict[str, str]) -> None:
    """Logs and files are read by people and programs, not by terminals."""
    commands = [
        ("produce", place.topic, "--generate", "payments", "--count", "10"),
        ("plan", "orders"),
        ("run", "orders"),
        ("history", "orders"),
        ("status",),
        ("validate",),
        ("sql", "FROM shop.orders"),
    ]

    ended = [place.succeed(*command, **env) for command in commands]

    written = "".join(each.stdout + each.stderr for each in ended)
    assert "\x1b" not in written
    assert "\r" not in written


def test_the_plan_is_what_the_run_reads(place: Place) -> None:
    """Planning shows the ends and moves nothing; after the run there is nothing left to plan."""
    place.succeed("produce", place.topic, "--generate", "payments", "--count", "100")

    before = place.json("plan", "orders")
    again = place.json("plan", "orders")
    result = place.json("run", "orders")
    after = place.json("plan", "orders")

    assert before["records"] == again["records"] == result["read"] == 100
    assert before["plan"]["topics"][place.topic]["end"] == result["position"][place.topic]
    assert after["plan"] is None
    assert after["complete_through"] is not None


def test_history_shows_snapshot_of_every_batch(place: Place) -> None:
    """What happened when, and where the position went, from the ledger alone."""
    for _ in range(2):
        place.succeed("produce", place.topic, "--generate", "payments", "--count", "50")
        place.succeed("run", "orders")

    batches = place.json("history", "orders")
    snapshots = place.json("sql", "SELECT snapshot_id FROM shop.orders.snapshots")
    shown = place.succeed("history", "orders").stdout

    assert [batch["read"] for batch in batches] == [0, 50, 50]
    assert [batch["snapshot_id"] for batch in batches] == [row["snapshot_id"] for row in snapshots]
    assert all(str(batch["snapshot_id"]) in shown for batch in batches)


def test_lines_of_a_file_become_records(place: Place) -> None:
    """One line is one record, as it is; a line that is no JSON becomes a dead letter, not a failure."""
    lines = place.root / "lines.json"
    lines.write_text('{"id": "1", "amount": 5}\nnot json\n{"id": "2"}\n', encoding="utf-8")

    place.succeed("produce", place.topic, "--file", str(lines), "--partitions", "2")
    result = place.json("run", "orders")

    assert (result["read"], result["written"], result["dead"]) == (3, 2, 1)
    assert len(result["position"][place.topic]) == 2


def test_a_topic_that_is_there_keeps_its_partitions(place: Place, topic: Callable[..., str]) -> None:
    """Producing into somebody's topic does not insist on six partitions."""
    existing = topic(partitions=3)

    produced = place.json("produce", existing, "--generate", "payments", "--count", "30")

    assert produced["created"] is False


def test_a_missing_topic_is_named_with_who_was_asked(place: Place, broker: str) -> None:
    """Nothing is created behind the user's back; the message says what to do."""
    lines = place.root / "lines.json"
    lines.write_text("{}\n", encoding="utf-8")

    for command in (("run", "orders"), ("produce", place.topic, "--file", str(lines))):
        ended = place.frazil(*command)

        assert ended.returncode == Terminal.exit_code
        assert place.topic in ended.stderr
        assert broker in ended.stderr
        assert "next: " in ended.stderr
        assert "Traceback" not in ended.stderr


@pytest.mark.short("run")
@pytest.mark.parametrize(
    "command",
    [("run", "orders"), ("plan", "orders"), ("produce", "t", "--generate", "payments", "--count", "1")],
    ids=["run", "plan", "produce"],
)
def test_unreachable_broker_is_reported_in_time(lonely_place: Place, command: tuple[str, ...]) -> None:
    """Who was asked and what to do, as an error that may be tried again, soon after what any command takes here."""
    began = time.monotonic()
    lonely_place.succeed("validate")
    started = time.monotonic()
    ended = lonely_place.frazil(*command)
    seconds, any_command = time.monotonic() - started, started - began

    assert ended.returncode == Retryable.exit_code
    assert re.search(r"asked at|127\.0\.0\.1:\d+", ended.stderr)
    assert "frazil up --only kafka" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert seconds < ASKED_FOR_SECONDS + 4 * any_command
