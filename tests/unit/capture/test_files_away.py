"""Files that are gone, for good or for a while."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from frazil.capture.contents import FileContents, find_files
from frazil.capture.files import GONE_NS, MAX_GONE_FILES, FileMark, decide_files, marks_of
from frazil.errors import Retryable
from tests.unit.capture.captured import Captured, append, capture_of


def test_file_that_comes_back_is_captured_from_its_position(tmp_path: Path) -> None:
    """Of a file that comes back, as a volume that is mounted late, what follows is captured; another one at its path is new."""
    away = tmp_path / "away"
    for log in (tmp_path / "a.log", away / "b.log", away / "c.log"):
        log.parent.mkdir(exist_ok=True)
        append(log, b"%s 1\n%s 2\n" % (log.name.encode(), log.name.encode()))
    captured = Captured(capture_of(tmp_path / "**" / "*.log"))
    captured.run()
    away.rename(tmp_path / "unmounted.d")
    (tmp_path / "unmounted.d").chmod(0)  # no pattern finds it there
    try:
        assert captured.run() == []
        assert captured.run() == []
    finally:
        (tmp_path / "unmounted.d").chmod(0o700)
    (tmp_path / "unmounted.d").rename(away)
    append(away / "b.log", b"3\n")
    (away / "c.log").write_bytes(b"another one\n")

    assert sorted(captured.run()) == [b"3", b"another one"]
    assert captured.run() == []


def test_entries_of_removed_files_are_bounded() -> None:
    """They are kept for a week, the last three hundred of them."""
    marks = [FileMark(f"/{n}", f"/{n}", 1, n, 2, 1, "x", missing_since=n + 1) for n in range(MAX_GONE_FILES + 9)]
    marks_kept = decide_files(marks, (), FileContents(), MAX_GONE_FILES + 10).kept_marks
    assert (len(marks_kept), marks_kept[-1].missing_since) == (MAX_GONE_FILES, 10)
    assert decide_files(marks, (), FileContents(), GONE_NS + MAX_GONE_FILES + 10).kept_marks == ()
    assert (
        decide_files([FileMark("/a", "/a", 1, 1, 2, 1, "x", 5)], (), FileContents(), 7).kept_marks[0].missing_since == 7
    )


def test_unmounted_volume_is_not_taken_for_removed_files(tmp_path: Path) -> None:
    """Without any file, and without the folders they were in, nobody knows: nothing is forgotten, and another try looks again."""
    log = tmp_path / "logs" / "app.log"
    log.parent.mkdir()
    append(log, b"1\n")
    captured = Captured(capture_of(log))
    captured.run()
    log.parent.rename(tmp_path / "elsewhere")
    with pytest.raises(Retryable, match=r"all 1 known files"):
        captured.run()
    (tmp_path / "elsewhere").rename(log.parent)
    assert captured.run() == []

    log.unlink()
    captured.look()  # removed, from a folder that is there
    (mark,) = marks_of(captured.state)
    with pytest.raises(Retryable, match=r"check that the volume is mounted"):
        find_files(captured.capture.paths, [replace(mark, device=mark.device + 1)], ["/"])
