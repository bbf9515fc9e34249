"""The runbooks of docs/runbooks: one per kind of alert, with the commands that it tells people to type."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from frazil.runtime.home import project_root

FOLDER = project_root() / "docs" / "runbooks"

PARTS = ("What it means", "See", "Do", "Over")
"""Each runbook has them, in this order."""

_PART = re.compile(rf"^\*\*({'|'.join(PARTS)})\*\*: ", re.MULTILINE)
_BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Command:
    """A line to type, and the exit codes that the page says it may have."""

    line: str
    codes: frozenset[int] = frozenset({0})


@dataclass(frozen=True)
class Runbook:
    """What to do about one kind of alert: its parts, by name."""

    parts: Mapping[str, str]

    @property
    def see(self) -> tuple[Command, ...]:
        """Commands that show the trouble."""
        return tuple(_commands(self.parts["See"]))

    @property
    def do(self) -> tuple[Command, ...]:
        """Commands that end it."""
        return tuple(_commands(self.parts["Do"]))


def runbooks() -> dict[str, Runbook]:
    """Kind of alert -> its runbook."""
    pages = (page for page in sorted(FOLDER.glob("*.md")) if page.name != "README.md")
    return {page.stem: Runbook(_parted(page.read_text(encoding="utf-8"))) for page in pages}


def _parted(section: str) -> dict[str, str]:
    _, *parts = _PART.split(section)
    return dict(zip(parts[::2], parts[1::2], strict=True))


def _commands(text: str) -> Iterator[Command]:
    """Lines after `$`. A comment that begins with a number says the codes: `$ frazil lag PIPELINE  # 75 while it lasts`."""
    for block in _BLOCK.findall(text):
        for typed in re.findall(r"^\$ (.+)$", block, re.MULTILINE):
            line, _, comment = typed.partition("  # ")
            codes = re.findall(r"\b\d+\b", comment) if comment[:1].isdigit() else ["0"]
            yield Command(line.strip(), frozenset(map(int, codes)))


def commands_in(next_step: str, file: Path) -> Iterator[str]:
    """The commands that a message names as the next step; what belongs into a file is written to it."""
    for line in next_step.splitlines():
        match = re.search(r"(?:^|[:`] ?)((?:frazil|kafka-configs\.sh) [^`(]+)", line)
        if match is None:
            continue
        command, _, body = match[1].strip().partition(" with {")
        if body:
            file.write_text("{" + body.removesuffix(" in FILE.json"), encoding="utf-8")
        yield command.replace("FILE.json", str(file))
