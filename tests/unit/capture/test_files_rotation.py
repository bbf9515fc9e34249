"""A log that is rotated in every way while it is captured: each line once, in order."""

from __future__ import annotations

import gzip
import os
import shutil
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from tests.unit.capture.captured import Captured, append, capture_of


class Rotation(RuleBasedStateMachine):
    """A log that grows, and is rotated in every way that keeps its lines, while captures run and are killed."""

    @initialize(is_renamed=st.booleans())
    def begin(self, is_renamed: bool) -> None:
        """An empty log."""
        self.folder = tempfile.TemporaryDirectory()
        self.log = Path(self.folder.name) / "app.log"
        self.log.touch()
        self.is_renamed, self.number, self.half = is_renamed, 0, b""
        self.captured = Captured(capture_of(f"{self.log}*", max_records=3))
        self.captured.run()

    def teardown(self) -> None:
        """Everything is there, once, in its order."""
        if not hasattr(self, "folder"):
            return
        if self.half:
            append(self.log, b"\n")
        self.captured.run()
        assert self.captured.lines == [b"line %d" % number for number in range(self.number)]
        self.folder.cleanup()

    @rule(count=st.integers(1, 8), is_whole=st.booleans())
    def write(self, count: int, is_whole: bool) -> None:
        """The log grows, maybe by half a line."""
        data = b"\n" if self.half else b""
        for number in range(self.number, self.number + count):
            data += b"line %d\n" % number
        self.number += count
        self.half = b"" if is_whole else data[:-1]
        append(self.log, data if is_whole else data[:-1])

    @rule(transactions=st.integers(0, 3) | st.none())
    def capture(self, transactions: int | None) -> None:
        """A run, killed after some transactions."""
        self.captured.run(transactions)
        assert self.captured.decided is not None
        assert self.captured.decided.losses == ()

    @precondition(lambda self: not self.half and self.log.stat().st_size)
    @rule()
    def rotate(self) -> None:
        """The log gets a number, older ones the next."""
        old = sorted((path for path in self.log.parent.iterdir() if path != self.log), key=_age, reverse=True)
        for path in old:
            path.rename(path.with_name(f"app.log.{_age(path) + 1}{'.gz' if path.suffix == '.gz' else ''}"))
        rotated = Path(f"{self.log}.1")
        if self.is_renamed:
            self.log.rename(rotated)
            self.log.touch()
        else:
            shutil.copyfile(self.log, rotated)
            os.truncate(self.log, 0)

    @rule()
    def pack(self) -> None:
        """Rotated files become smaller."""
        for path in self.log.parent.glob("app.log.[0-9]*"):
            if path.suffix != ".gz":
                packed = path.with_name(f"{path.name}.gz")
                packed.write_bytes(gzip.compress(path.read_bytes()))
                os.utime(packed, ns=(path.stat().st_mtime_ns, path.stat().st_mtime_ns))
                path.unlink()

    @rule()
    def remove(self) -> None:
        """Rotated files go, all captured."""
        self.captured.run()
        for path in self.log.parent.glob("app.log.[0-9]*"):
            path.unlink()


def _age(path: Path) -> int:
    return int(path.name.split(".")[2])


TestRotation = Rotation.TestCase
TestRotation.settings = settings(max_examples=60, stateful_step_count=20, deadline=None)


def test_packed_file_with_the_inode_of_an_empty_one_is_known_by_its_lines() -> None:
    """The second of two files that are packed at once gets the inode that the first, unread so far, leaves."""
    rotation = Rotation()
    rotation.begin(is_renamed=True)
    rotation.write(count=1, is_whole=True)
    rotation.rotate()
    rotation.capture(transactions=None)
    rotation.write(count=1, is_whole=True)
    rotation.rotate()
    rotation.pack()
    rotation.teardown()
