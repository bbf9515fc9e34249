"""Which files have a line that a run would capture."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from frazil.capture.contents import FileContents, find_files, has_line
from tests.unit.capture.captured import Captured, append, capture_of


@pytest.mark.parametrize(
    ("more", "waits"), [(b"", False), (b"thr", False), (b"three\n", True), (b"three\nfou", True), (b"x" * 2**20, False)]
)
def test_file_waits_once_a_line_of_it_is_whole(tmp_path: Path, more: bytes, waits: bool) -> None:
    """A line that is still written is left by a run, so it does not wait either."""
    log = tmp_path / "app.log"
    append(log, b"one\ntwo\n")
    captured = Captured(capture_of(log))
    captured.run()
    append(log, more)
    ((file, mark),) = captured.look().reads
    assert has_line(file, mark) == waits


def test_packed_file_waits_until_it_is_captured(tmp_path: Path) -> None:
    packed = tmp_path / "app.log.gz"
    packed.write_bytes(gzip.compress(b"one\ntwo"))
    captured = Captured(capture_of(packed))
    ((file, mark),) = captured.look().reads
    assert has_line(file, mark)
    captured.run()
    ((file, mark),) = captured.look().reads
    assert not has_line(file, mark)


def test_look_unpacks_no_more_than_it_may(tmp_path: Path) -> None:
    """Beyond that a packed file is taken for whole, whether it is or not."""
    for name, size in (("a", 300), ("b", 5_000)):
        (tmp_path / f"{name}.gz").write_bytes(gzip.compress(b"x" * size)[:-4])
    first, second = sorted(find_files([f"{tmp_path}/*.gz"], (), [str(tmp_path)]), key=lambda file: file.path)
    everything, little = FileContents(), FileContents(600)
    assert [everything.is_whole(file) for file in (first, second)] == [False, False]
    assert [little.is_whole(file) for file in (first, second)] == [False, True]
    assert FileContents(0).is_whole(first)
