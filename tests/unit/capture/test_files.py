"""Files that are written, rotated, copied, packed and removed while they are captured: each line once."""

from __future__ import annotations

import gzip
import os
import shutil
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from frazil.capture.contents import LONGEST_LINE, FileContents, batches, end_mark, find_files
from frazil.capture.files import COPY_NS, FileMark, decide_files, files_state, marks_of
from frazil.errors import Retryable, Terminal
from tests.unit.capture.captured import Captured, append, capture_of


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "app.log"


def test_only_whole_lines_are_captured(log: Path) -> None:
    """A line that is still being written is left to the run that finds its end; nothing is decoded or stripped."""
    append(log, b"one\r\n\n\xff\xfe two\nthr")
    captured = Captured(capture_of(log))

    assert captured.run() == [b"one\r", b"", b"\xff\xfe two"]
    assert marks_of(captured.state)[0].unread == 3
    append(log, b"ee\n")
    assert captured.run() == [b"three"]
    before = captured.state
    assert (captured.run(), captured.state) == ([], before)


def test_records_say_where_they_are_from(log: Path) -> None:
    """Headers name the file by its first name, byte and line; a pattern makes keys; a line without it has none."""
    append(log, b"a=1 x\nnothing\n")
    captured = Captured(capture_of(f"{log}*", key_pattern=r"a=(\d+)"))
    captured.run()
    log.rename(f"{log}.1")
    append(Path(f"{log}.1"), b"a=2\n")
    captured.run()

    name = str(log).encode()
    assert [record.key for record in captured.records] == [b"1", None, b"2"]
    assert captured.records[2].headers == (
        ("frazil.file", name),
        ("frazil.offset", b"14"),
        ("frazil.line", b"3"),
    )


@pytest.mark.parametrize("pattern", ["app.log*", "app.log"], ids=["rotated names are named", "only the live name is"])
def test_renamed_file_is_read_once(log: Path, pattern: str) -> None:
    """The end of a renamed file comes first, found by its inode whether a pattern names it or not, then the new file."""
    append(log, b"1\n2\n")
    captured = Captured(capture_of(log.parent / pattern))
    captured.run()
    append(log, b"3\n")
    log.rename(f"{log}.1")
    append(log, b"1\n")
    os.utime(log)

    assert captured.run() == [b"3", b"1"]


def test_packed_file_is_read_once(log: Path) -> None:
    """A rotated file that was packed goes on behind what was captured of it; a new packed one is read whole, last line too."""
    append(log, b"1\n2\n")
    captured = Captured(capture_of(f"{log}*"))
    captured.run()
    append(log, b"3\nend")
    Path(f"{log}.1.gz").write_bytes(gzip.compress(log.read_bytes()))
    log.unlink()
    Path(f"{log}.2.gz").write_bytes(gzip.compress(b"old\n"))
    os.utime(f"{log}.2.gz", (1, 1))

    assert captured.run() == [b"old", b"3", b"end"]
    assert captured.run() == []


def test_file_packed_before_its_first_whole_line_is_captured_whole(log: Path) -> None:
    """Nothing was captured of it, so only its name says what became of it; it is captured from its beginning, and no loss."""
    append(log, b"on")
    captured = Captured(capture_of(f"{log}*"))
    captured.run()
    append(log, b"e\n")
    Path(f"{log}.1.gz").write_bytes(gzip.compress(log.read_bytes()))
    log.unlink()

    assert captured.look().losses == ()
    assert captured.run() == [b"one"]


def test_packed_files_of_equal_size_are_told_apart_by_checksum(log: Path) -> None:
    """An inode is given again, and packed sizes are few: what tells two packed files apart is the checksum at their ends."""
    packed = Path(f"{log}.gz")
    packed.write_bytes(gzip.compress(b"one\n"))
    captured = Captured(capture_of(f"{log}*"))
    captured.run()
    size = packed.stat().st_size
    packed.write_bytes(gzip.compress(b"two\n"))  # the same inode

    assert packed.stat().st_size == size
    assert [loss.mark.path for loss in captured.look().losses] == [str(packed)]


def test_file_with_the_header_of_a_removed_one_is_captured_whole(tmp_path: Path) -> None:
    """A header is in many files: one of another name is new, and captured whole, under its own name."""
    captured = Captured(capture_of(tmp_path / "o-*.csv"))
    append(tmp_path / "o-1.csv", b"id,name\n")
    captured.run()
    append(tmp_path / "o-2.csv", b"id,name\n1,a\n")  # before the other goes: it has an inode of its own
    (tmp_path / "o-1.csv").unlink()
    assert captured.run() == [b"id,name", b"1,a"]
    assert {dict(record.headers)["frazil.file"] for record in captured.records[1:]} == {
        str(tmp_path / "o-2.csv").encode()
    }

    rotated = Path(f"{tmp_path}/o-2.csv.1")
    rotated.write_bytes((tmp_path / "o-2.csv").read_bytes())
    (tmp_path / "o-2.csv").unlink()
    captured.run()
    packed = Path(f"{tmp_path}/o-2.csv.2.gz")
    packed.write_bytes(gzip.compress(rotated.read_bytes() + b"2,b\n"))
    rotated.unlink()
    assert captured.run() == [b"2,b"]


def test_copy_in_the_making_is_captured_once(log: Path) -> None:
    """While a rotation copies or packs, both files are there: the copy waits, and is gone on with when the original went."""
    append(log, b"first line of it\n2\n")
    captured = Captured(capture_of(f"{log}*"))
    captured.run()
    append(log, b"3\n")
    copy, packed = Path(f"{log}.1"), Path(f"{log}.2.gz")
    copy.write_bytes(log.read_bytes()[:9])
    packed.write_bytes(gzip.compress(log.read_bytes())[:-4])

    assert captured.run() == [b"3"]
    assert captured.decided is not None
    assert sorted(file.path for file, _ in captured.decided.waiting) == [str(copy), str(packed)]
    packed.unlink()
    append(log, b"4\n")
    shutil.copyfile(log, copy)
    log.write_bytes(b"5\n")
    os.utime(log)
    assert captured.run() == [b"4", b"5"]


def test_lasting_copy_of_a_file_is_captured(log: Path) -> None:
    """A copy that stays beside its original is a file like any other, some minutes later."""
    append(log, b"1\n")
    captured = Captured(capture_of(f"{log}*"))
    captured.run()
    shutil.copyfile(log, f"{log}.kept")
    files = find_files(captured.capture.paths, (), ["/"])

    (waits, _), *_ = captured.look().waiting
    assert waits.path == f"{log}.kept"
    decided = decide_files(marks_of(captured.state), files, FileContents(), time.time_ns() + COPY_NS)
    assert ([file.path for file, _ in decided.reads], decided.waiting) == ([str(log), f"{log}.kept"], ())


def test_truncated_file_is_reported_and_read_from_its_beginning(log: Path) -> None:
    """A file that was written anew is a loss, whether it is shorter or longer than before; one that is gone unread, too."""
    append(log, b"1\n2\n")
    captured = Captured(capture_of(log))
    captured.run()
    for anew in (b"", b"9\n8\n7\n6\n"):
        log.write_bytes(anew)
        (loss,) = captured.look().losses
        assert "truncated" in loss.why
    log.write_bytes(b"1\n2\nunfinished")
    captured.run()
    log.unlink()
    (loss,) = captured.look().losses
    assert "gone, with 10 bytes" in loss.why


def test_removed_captured_file_is_no_loss(log: Path) -> None:
    """Rotation ends with the removal of what was captured; a new file that is given its inode is a new file."""
    append(log, b"1\n")
    captured = Captured(capture_of(f"{log}*"))
    captured.run()
    (mark,) = marks_of(captured.state)
    log.unlink()

    decided = captured.look()
    assert (decided.losses, decided.captured_marks) == ((), (mark,))
    append(Path(f"{log}.new"), b"2\n")
    (file,) = find_files(captured.capture.paths, (), ["/"])
    decided = decide_files(
        [FileMark(mark.name, mark.path, *file.id, 2, 1, mark.print)], [file], FileContents(), time.time_ns()
    )
    assert (decided.losses, [file.path for file, _ in decided.reads]) == ((), [f"{log}.new"])


def test_start_at_the_end_keeps_the_line_being_written(log: Path) -> None:
    """It begins behind the last whole line, and counts lines on."""
    append(log, b"1\n2\n3")
    captured = Captured(capture_of(log))
    (file,) = find_files(captured.capture.paths, (), ["/"])
    mark = end_mark(file)
    assert mark is not None
    captured.state = files_state([mark])
    append(log, b"x\n")

    assert captured.run() == [b"3x"]
    assert captured.records[0].headers[2] == ("frazil.line", b"3")


def test_file_that_changes_while_it_is_read_is_not_committed(log: Path) -> None:
    """Truncated, renamed or replaced behind the look: another try finds out, and nothing of it is committed."""
    append(log, b"1\n2\n")
    captured = Captured(capture_of(log, max_records=1))
    decided = captured.look()
    going = batches(captured.capture, decided)
    next(going)
    log.write_bytes(b"")
    with pytest.raises(Retryable, match="truncated or rewritten"):
        list(going)
    log.unlink()
    with pytest.raises(Retryable, match="renamed or removed"):
        list(batches(captured.capture, decided))
    log.mkdir()
    assert captured.look().reads == ()


def test_line_without_an_end_is_refused(log: Path) -> None:
    """A file that is not of lines is refused where its line begins."""
    append(log, b"1\n")
    os.truncate(log, LONGEST_LINE + 10)

    with pytest.raises(Terminal, match="line at byte 2 is longer"):
        Captured(capture_of(log)).run()


def test_links_to_one_file_are_captured_once(log: Path) -> None:
    """Hard and symbolic links lead to one file, which is captured once."""
    append(log, b"1\n")
    (log.parent / "app.log.current").symlink_to(log)
    (log.parent / "app.log.hard").hardlink_to(log)
    (log.parent / "app.log.nowhere").symlink_to(log.parent / "gone")
    captured = Captured(capture_of(f"{log}*"))

    assert (captured.run(), captured.run()) == ([b"1"], [])


@given(st.lists(st.binary(max_size=6), max_size=20), st.integers(1, 5))
@settings(max_examples=50, deadline=None)
def test_whole_lines_are_captured_however_transactions_are_cut(
    tmp_path_factory: pytest.TempPathFactory, data: list[bytes], most: int
):
    """However a file is written and cut, what is captured is its whole lines."""
    log = tmp_path_factory.mktemp("log") / "app.log"
    captured = Captured(capture_of(log, max_records=most))
    for part in data:
        append(log, part)
        captured.run(transactions=1)
    captured.run()

    *whole, _ = b"".join(data).split(b"\n")
    assert captured.lines == whole
