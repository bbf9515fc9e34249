"""Codes of errors: each names one kind, explains it, and arrives wherever an error is shown."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from frazil import error_codes
from frazil.error_codes import INTERNAL, TOPIC_MISSING
from frazil.errors import ErrorCode, Retryable, Terminal, error_from_json, error_to_json

ROOT = Path(__file__).parents[2]
CODES = {name: code for name, code in vars(error_codes).items() if isinstance(code, ErrorCode)}


def test_a_number_names_one_kind() -> None:
    """Somebody may have looked it up."""
    numbers = Counter(code.number for code in CODES.values())

    assert [number for number, count in numbers.items() if count > 1] == []
    assert all(101 <= number <= 999 for number in numbers)


@pytest.mark.parametrize("name", CODES)
def test_every_code_is_explained(name: str) -> None:
    """A page with a gap sends its reader away."""
    code = CODES[name]

    assert code.title
    assert [text for text in (code.meaning, code.reason, code.action) if not text.endswith(".")] == []


def test_every_code_is_used() -> None:
    """An explanation of what never happens hides those of what does."""
    files = [file for folder in ("include", "plugins") for file in (ROOT / folder).rglob("*.py")]
    sources = "\n".join(file.read_text(encoding="utf-8") for file in files if file.name != "error_codes.py")

    assert [name for name in CODES if name not in sources] == []


def test_code_ends_the_first_line_of_an_error() -> None:
    """Lines below it list what is wrong; the next step is a line of its own."""
    error = TOPIC_MISSING.terminal("no such topic:\n  orders", next_step="create it")

    assert str(error) == "no such topic: [FRZ-204]\n  orders\n  next: create it"
    assert error.message == "no such topic:\n  orders"


@pytest.mark.parametrize("error", [TOPIC_MISSING.terminal("gone", next_step="create it"), INTERNAL.retryable("odd")])
def test_error_of_a_task_reaches_the_driver_whole(error: Retryable | Terminal) -> None:
    """An executor hands it over as text."""
    handed_over = error_from_json(error_to_json(error))

    assert (type(handed_over), str(handed_over)) == (type(error), str(error))
