"""What a refusal tells people to type, taken by its word: the command is found in the text, and done to the letter."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

from frazil.errors import Terminal
from tests.operations import repair, reset, to_table

_COMMAND = re.compile(r'frazil ((?:reset|repair) orders .*?) --reason (?:…|"[^"]*")(?: with (\{.*\}) in FILE\.json)?')
"""Either the message gives a reason, or the reader is to say one. Offsets go into a file."""


def named_command(refusal: object, file: Path = Path("FILE.json")) -> list[str]:
    """Words of the command that a refusal of pipeline `orders` names, but for the reason. Fails if it names none.

    What belongs into a file is written to `file`.
    """
    named = _COMMAND.search(str(refusal))
    assert named is not None, f"a refusal names no command:\n{refusal}"
    if named[2] is not None:
        file.write_text(named[2])
    return [str(file) if word == "FILE.json" else word for word in shlex.split(named[1])]


def refused(orders: Any) -> list[str]:
    """The command that a run is refused with."""
    try:
        orders.run()
    except Terminal as refusal:
        return named_command(refusal)
    raise AssertionError("the run was not refused")


def follow_refusals(orders: Any, most: int = 2) -> int:
    """Run, and do what each refusal says, until a run ends well. Returns how many commands that took."""
    for steps in range(most):
        try:
            orders.run()
        except Terminal as refusal:
            carry_out(orders, named_command(refusal))
        else:
            return steps
    orders.run()
    return most


def carry_out(orders: Any, words: list[str]) -> None:
    """Do what `named_command` found."""
    verb, _, *arguments = words
    if verb == "repair":
        (table,) = arguments
        repair(orders, table)
    elif arguments == ["--to-table"]:
        to_table(orders)
    else:
        option, target, *more = arguments
        assert (option, more) in (("--to", []), ("--to", ["--allow-duplicates"])), words
        reset(orders, target, allow_duplicates=bool(more))
