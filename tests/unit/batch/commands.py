"""Commands that an error tells its reader to run, taken apart as a shell and `frazil reset` would."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass
from typing import Any

from frazil.errors import FrazilError


@dataclass(frozen=True)
class ResetCommand:
    """`frazil reset`: the pipeline, where to, one topic or all, and what the file of offsets is to hold."""

    pipeline: str
    to: str
    topic: str | None = None
    offsets: Any = None


def reset_command(error: FrazilError) -> ResetCommand:
    """The command in an error's next step; fails where a shell or `frazil reset` could not read it."""
    assert error.next_step is not None
    _, found, text = error.next_step.partition("frazil reset ")
    assert found, error.next_step
    command, with_file, body = text.partition(" with ")
    pipeline, *words = shlex.split(command)
    options = dict(zip(words[::2], words[1::2], strict=True))
    assert options.keys() <= {"--to", "--topic", "--reason"}
    assert options["--reason"]
    offsets = json.loads(body.removesuffix(" in FILE.json")) if with_file else None
    return ResetCommand(pipeline, options["--to"], options.get("--topic"), offsets)
