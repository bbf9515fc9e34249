"""Crash points hit exactly where they are told to: a sweep with a point that never fires proves nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from frazil.failpoints import VARIABLE, Failpoint, hit

INCLUDE = Path(__file__).parents[2] / "include"

CHILD = """
import sys
from frazil.failpoints import Failpoint, hit
for name in sys.argv[1:]:
    print(name, flush=True)
    hit(Failpoint(name))
print("end", flush=True)
"""


def child(orders: str | None, *points: str) -> subprocess.Popen[str]:
    """A process that passes the points one after the other and prints each before it gets there."""
    environment = {key: value for key, value in os.environ.items() if key != VARIABLE}
    orders_variable = {} if orders is None else {VARIABLE: orders}
    command = [sys.executable, "-c", CHILD, *points]
    return subprocess.Popen(
        command, env=environment | orders_variable | {"PYTHONPATH": str(INCLUDE)}, stdout=subprocess.PIPE, text=True
    )


@pytest.mark.parametrize(
    ("orders", "passed"),
    [
        ("staged=kill", ["planned", "staged"]),
        ("staged:1=kill", ["planned", "staged"]),
        ("staged:2=kill", ["planned", "staged", "audited", "staged"]),
        ("staged:3=kill,audited=kill", ["planned", "staged", "audited"]),
        ("audited=kill,planned=kill", ["planned"]),
    ],
)
def test_process_is_killed_at_the_requested_failpoint(orders: str, passed: list[str]) -> None:
    """The nth time, and the first of several orders."""
    with child(orders, "planned", "staged", "audited", "staged") as process:
        out, _ = process.communicate(timeout=60)

    assert out.split() == passed
    assert process.returncode == -signal.SIGKILL


@pytest.mark.parametrize(
    "orders", [None, "", "nowhere=kill", "staged:5=kill", "stage=kill", "decide=kill", "STAGED=kill"], ids=str
)
def test_process_without_a_matching_order_lives(orders: str | None) -> None:
    """Without the variable, at a point with another name, or fewer times than asked, nothing happens."""
    with child(orders, "planned", "staged", "audited", "staged") as process:
        out, _ = process.communicate(timeout=60)

    assert out.split() == ["planned", "staged", "audited", "staged", "end"]
    assert process.returncode == 0


def test_paused_process_waits_until_it_is_continued() -> None:
    """A zombie stands still at its point, and goes on from there when it is continued."""
    with child("audited=stop", "planned", "audited", "staged") as process:
        _, status = os.waitpid(process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        assert os.WSTOPSIG(status) == signal.SIGSTOP
        assert process.stdout is not None
        assert [process.stdout.readline().strip() for _ in range(2)] == ["planned", "audited"]

        process.send_signal(signal.SIGCONT)
        out, _ = process.communicate(timeout=60)

    assert out.split() == ["staged", "end"]
    assert process.returncode == 0


def test_names_of_failpoints_have_no_separators() -> None:
    """Orders are split at commas, colons and equals signs, so no name has one of these."""
    assert not [point for point in Failpoint if set(point) & set(",:=")]


def test_failpoints_are_passed_without_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the variable this very process passes every point."""
    monkeypatch.delenv(VARIABLE, raising=False)

    for point in Failpoint:
        hit(point)
