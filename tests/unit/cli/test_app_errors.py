"""How a command ends when something is wrong: what it says, and its exit code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from frazil.error_codes import INTERNAL
from frazil.errors import FrazilError, OutcomeUnknown, Retryable, Terminal
from frazil.project import Project

Frazil = Callable[..., Any]
Broken = Callable[[Exception], None]


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> Broken:
    """Let every command meet an error as soon as it reads its project."""

    def arrange(error: Exception) -> None:
        def load(env: object = None) -> Project:
            raise error

        monkeypatch.setattr(Project, "load", load)

    return arrange


@pytest.mark.parametrize(("kind", "code"), [(Retryable, 75), (OutcomeUnknown, 76), (Terminal, 78), (FrazilError, 1)])
def test_the_exit_code_tells_the_caller_what_it_may_do(
    frazil: Frazil, broken: Broken, kind: type[FrazilError], code: int
) -> None:
    """A scheduler retries what may be retried, and nothing else."""
    broken(kind("topic orders, partition 3: gone", code=INTERNAL, next_step="bring it back"))

    ended = frazil("run", "pizzas")

    assert ended.code == code
    assert ended.out == ""
    assert f"{kind.label}: topic orders, partition 3: gone" in ended.err
    assert "next: bring it back" in ended.err


def test_errors_that_a_user_can_fix_come_without_a_stack_trace(frazil: Frazil, broken: Broken) -> None:
    """The message is what counts; a trace would bury it."""
    broken(INTERNAL.terminal("no"))

    assert "Traceback" not in frazil("history", "pizzas").err


@pytest.mark.parametrize("arguments", [("--debug", "history", "pizzas"), ("history", "pizzas", "--debug")])
def test_debug_shows_the_stack_trace_wherever_it_stands(
    frazil: Frazil, broken: Broken, arguments: tuple[str, ...]
) -> None:
    """Whoever needs it adds it to the end of the line that failed."""
    broken(INTERNAL.retryable("later"))

    ended = frazil(*arguments)

    assert ended.code == Retryable.exit_code
    assert "Traceback" in ended.err
    assert "later" in ended.err


def test_unexpected_error_is_one_line_with_a_hint_for_details(frazil: Frazil, broken: Broken) -> None:
    """A bug of ours is not thrown at the reader as fifty lines, and not hidden either."""
    broken(KeyError("topics"))

    ended = frazil("history", "pizzas")

    assert ended.code == 1
    assert "unexpected error: KeyError: 'topics'" in ended.err
    assert "--debug" in ended.err
    assert "Traceback" not in ended.err


def test_ctrl_c_ends_as_shells_expect(frazil: Frazil, monkeypatch: pytest.MonkeyPatch) -> None:
    """A script around the command can tell an interruption from a failure."""

    def interrupted(env: object = None) -> Project:
        raise KeyboardInterrupt

    monkeypatch.setattr(Project, "load", interrupted)

    assert frazil("history", "pizzas").code == 130


def test_a_mistyped_pipeline_gets_the_nearest_name(frazil: Frazil) -> None:
    """Most unknown names are known ones with a slip."""
    ended = frazil("run", "pizas")

    assert ended.code == Terminal.exit_code
    assert "no pipeline is named 'pizas', did you mean 'pizzas'?" in ended.err
    assert (
        "known pipelines: customers_cdc, customers_upsert, payments, payments_by_type, pizzas, shop_events" in ended.err
    )


def test_the_message_is_printed_as_it_is(frazil: Frazil, broken: Broken) -> None:
    """Offsets in brackets are no markup, and long lines keep their coordinates in one piece."""
    broken(INTERNAL.terminal("expected [bold]offsets[/bold] [0, 5], found [1, 5] " + "x" * 200))

    err = frazil("history", "pizzas").err

    assert "expected [bold]offsets[/bold] [0, 5], found [1, 5] " + "x" * 200 in err


@pytest.mark.parametrize(
    "arguments",
    [
        ("completed-pizzas",),
        ("completed-pizzas", "--generate", "pizzas"),
        ("completed-pizzas", "--generate", "pizzas", "--count", "0"),
        ("completed-pizzas", "--generate", "cakes", "--count", "1"),
        ("completed-pizzas", "--generate", "pizzas", "--count", "1", "--file", "lines"),
        ("completed-pizzas", "--file", "lines", "--count", "1"),
    ],
)
def test_a_wrong_use_of_produce_sends_nothing(frazil: Frazil, arguments: tuple[str, ...]) -> None:
    """An option that contradicts another is refused before any broker is asked (a socket would fail this test)."""
    assert frazil("produce", *arguments).code == 2
