"""Frazil's errors as task outcomes: errors that need a person are not retried, all others are."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from frazil.errors import Terminal
from frazil_airflow.compat import AirflowFailException

_EXIT_CODE = re.compile(r"Error code is: (-?\d+)")
"""How the Spark provider's hook tells the exit code of spark-submit; it offers no attribute."""


@contextmanager
def terminal_is_final() -> Iterator[None]:
    """Turn a `Terminal` into a task failure without retry; other errors pass unchanged.

    Raises:
        AirflowFailException: In place of a Terminal.
    """
    try:
        yield
    except Terminal as error:
        raise AirflowFailException(str(error)) from error


def exit_code(message: str) -> int | None:
    """Return the exit code of spark-submit in a message of the Spark provider; None when it names none."""
    match = _EXIT_CODE.search(message)
    return int(match[1]) if match else None


def job_lines(message: str, prefix: str) -> list[str]:
    """Return the lines that the job itself wrote for people, of the output quoted in a message."""
    return [line.removeprefix(prefix).strip() for line in message.splitlines() if line.startswith(prefix)]
