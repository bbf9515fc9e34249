"""The stack of a demo: what the demo started is stopped at its end, however it ends; what ran before stays."""

import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from frazil.cli.progress import Progress
from frazil.local import stack
from frazil.local.files import write_atomically
from frazil.local.home import Home
from frazil.local.parts import PartName, names

_UNDISTURBED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def demo_stack(home: Home, progress: Progress) -> Iterator[None]:
    """Bring the stack up for the time of a block.

    Which parts are the demo's is written down first: a demo that was killed outright is cleaned up by the next.

    Raises:
        FrazilError: As `frazil.local.stack.up` and `down`.
    """
    record = home.run / "demo.json"
    now = stack.status(home)
    owned = [part for part in names(home.profile) if part in _recorded(record) or not now.is_running(part)]
    write_atomically(record, json.dumps(owned))
    try:
        with progress:
            stack.up(home, report=progress.done)
        yield
    finally:
        for number in _UNDISTURBED:
            signal.signal(number, signal.SIG_IGN)  # a second Ctrl-C must not leave half of the stack behind
        with progress:
            progress.doing("stopping")
            _stop(home, owned)
            progress.done(f"stopped: {', '.join(owned) or 'nothing, all of it ran before'}")
        record.unlink(missing_ok=True)


def _recorded(record: Path) -> list[str]:
    try:
        return list(json.loads(record.read_text(encoding="utf-8")))
    except (FileNotFoundError, ValueError):  # none, or cut off by a kill: then nothing is known to be the demo's
        return []


def _stop(home: Home, owned: list[PartName]) -> None:
    stack.down(home, only=None if set(owned) == set(names(home.profile)) else owned)
