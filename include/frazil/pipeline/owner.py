"""Whose a pipeline file is, also one that can't be used: somebody has to be told of it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import yaml

_LINE: Final = re.compile(r"^owner\s*:\s(.*)$", re.MULTILINE)


def stated_owner(file: Path) -> str | None:
    """The `owner` that a pipeline file states, whatever else is in it; None if it can't be told."""
    try:
        said = [yaml.safe_load(line) for line in _LINE.findall(file.read_text(encoding="utf-8"))]
    except (OSError, ValueError, yaml.YAMLError):  # a date that there is not is a ValueError
        return None
    owner = said[0] if len(said) == 1 else None
    return owner if isinstance(owner, str) and owner.strip() and "${" not in owner else None
