"""A capture whose topic is a list, for tests."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from frazil.capture.contents import FileContents, batches, find_files
from frazil.capture.files import FileDecisions, decide_files, files_state, marks_of
from frazil.kafka.client.cluster import OutgoingRecord
from frazil.pipeline.settings.capture import FileCapture


def capture_of(*paths: Path | str, **more: Any) -> FileCapture:
    return FileCapture(capture="file", name="logs", topic="logs", paths=tuple(map(str, paths)), **more)


@dataclass
class Captured:
    """A capture whose topic is a list."""

    capture: FileCapture
    state: Any = field(default_factory=lambda: files_state(()))
    records: list[OutgoingRecord] = field(default_factory=list)
    decided: FileDecisions | None = None

    def look(self) -> FileDecisions:
        """Find the files."""
        marks = marks_of(self.state)
        self.decided = decide_files(marks, find_files(self.capture.paths, marks, ["/"]), FileContents(), time.time_ns())
        return self.decided

    def run(self, transactions: int | None = None) -> list[bytes]:
        """Capture, and stop after so many transactions as if killed; the lines of this run."""
        before = len(self.records)
        for number, batch in enumerate(batches(self.capture, self.look())):
            if number == transactions:
                break
            self.records += batch.records
            self.state = files_state(batch.marks)
        return [record.value or b"" for record in self.records[before:]]

    @property
    def lines(self) -> list[bytes]:
        """All that was captured."""
        return [record.value or b"" for record in self.records]


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)
