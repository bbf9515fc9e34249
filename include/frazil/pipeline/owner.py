"""Whose a pipeline file is, also one that can't be used: somebody has to be told of it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import yaml

from frazil.pipeline.files import UnreadableFileError, parse_yaml, read_text

_LINE: Final = re.compile(r"^owner\s*:\s(.*)$", re.MULTILINE)


def stated_owner(file: Path) -> str | None:
    """The `owner` that a pipeline file states, whatever else is in it; None if it can't be told."""
    try:
        said = [parse_yaml(line) for line in _LINE.findall(read_text(file, file.parent))]
    except (UnreadableFileError, yaml.YAMLError):
        return None
    owner = said[0] if len(said) == 1 else None
    return owner if isinstance(owner, str) and owner.strip() and "${" not in owner else None
