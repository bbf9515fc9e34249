"""The lines of a file as records."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from frazil.error_codes import BAD_FILE
from frazil.kafka.client.record import OutgoingRecord


def lines(path: Path) -> Iterator[OutgoingRecord]:
    """Yield one record without key per line: its bytes as they are, without the newline.

    An empty line is a record too.

    Raises:
        Terminal: the file can't be read.
    """
    try:
        with path.open("rb") as file:
            for line in file:
                yield OutgoingRecord(None, line.removesuffix(b"\n"))
    except OSError as error:
        raise BAD_FILE.terminal(
            f"can't read {path}: {error.strerror}",
            next_step="give a readable file with one record per line",
        ) from error
