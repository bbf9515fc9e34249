"""Recognizes files across rotation: names change, so a file is identified by its inode and a fingerprint of what was captured."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from frazil.capture.contents import FileContents

PRINTED: Final = 1024
"""Bytes at either end of what was captured that make its fingerprint: enough to tell lines of logs apart, which begin with
times, and read at once."""

_ROTATED: Final = re.compile(r"(\.\d+)?(\.gz)?$")
"""What rotation adds to a name, and counts up."""

COPY_NS: Final = 600 * 10**9
"""How long a copy of a known file waits, since it was touched, for the original to go. Rotations take seconds; a copy that
stays is one that somebody made on purpose, and is captured."""

GONE_NS: Final = 7 * 24 * 3600 * 10**9
MAX_GONE_FILES: Final = 300
"""How long, and of how many files, marks are kept when the files are gone. One that was only away, as on a volume that was not
mounted, is not captured again; each is a part of every position that is written."""


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file that exists now.

    Attributes:
        path: One of its names.
        device: Device that it is on.
        inode: Its number there.
        size: Bytes, packed ones of a `.gz` file.
        changed: When it was written last, in nanoseconds since 1970; copies may bring it along.
        touched: When it was last written, renamed or given other permissions; programs can't set this time.
        is_asked: Whether a pattern names it; others were found beside a known file, to which a rotation may have moved it.
    """

    path: str
    device: int
    inode: int
    size: int
    changed: int
    touched: int
    is_asked: bool = True

    @property
    def id(self) -> tuple[int, int]:
        """Device and inode, which a renamed file keeps."""
        return self.device, self.inode

    @property
    def is_packed(self) -> bool:
        """Whether it is a compressed file, which is decompressed while it is read."""
        return self.path.endswith(".gz")


@dataclass(frozen=True, slots=True)
class FileMark:
    """How far a file was captured.

    Attributes:
        name: Path under which it was first seen; its records say so.
        path: Where it was last.
        device: Device that it was on.
        inode: Its number there.
        offset: Bytes that were captured, unpacked ones.
        lines: Lines that were captured.
        print: Fingerprint of those bytes: of the first and the last of them.
        unread: Bytes behind the offset when it was last looked at.
        packed: Bytes of a `.gz` file that was captured to its end, else 0.
        trailer: The last of those bytes: checksum and length of its contents.
        missing_since: Since when the file is missing, in nanoseconds since 1970; 0: it exists.
    """

    name: str
    path: str
    device: int
    inode: int
    offset: int = 0
    lines: int = 0
    print: str = ""
    unread: int = 0
    packed: int = 0
    trailer: str = ""
    missing_since: int = 0

    @property
    def id(self) -> tuple[int, int]:
        """Device and inode, which a renamed file keeps."""
        return self.device, self.inode

    @classmethod
    def initial(cls, file: FoundFile) -> FileMark:
        """The mark of a file of which nothing was captured."""
        return cls(file.path, file.path, *file.id)

    def moved_to(self, file: FoundFile) -> FileMark:
        """The mark with the present name and inode of its file."""
        return replace(self, path=file.path, device=file.device, inode=file.inode, missing_since=0)


_KEYS: Final = {"missing_since": "gone"}
"""Field of a mark -> its key in stored positions, where the two differ: the stored form stays."""

_FIELDS: Final = {key: name for name, key in _KEYS.items()}


def marks_of(state: Any) -> tuple[FileMark, ...]:
    """Read the marks from the state in a position."""
    return tuple(FileMark(**{_FIELDS.get(key, key): value for key, value in mark.items()}) for mark in state["files"])


def state_of(marks: Iterable[FileMark]) -> dict[str, Any]:
    """The state of a position with these marks, sorted."""
    ordered = sorted(marks, key=lambda mark: (mark.name, mark.id, mark.missing_since))
    return {"files": [{_KEYS.get(name, name): value for name, value in asdict(mark).items()} for mark in ordered]}


@dataclass(frozen=True, slots=True)
class Loss:
    """A file of which something may be missing."""

    mark: FileMark
    why: str


@dataclass(frozen=True, slots=True)
class FileDecisions:
    """Which files a run reads, which marks the position keeps, and what may be lost.

    Attributes:
        reads: Files to read on, oldest first, each from its mark.
        losses: Files of which bytes may be missing.
        captured_marks: Files that are gone, captured as far as they were seen.
        waiting: Files that are left alone now, and why.
        kept_marks: Marks of files that are gone, now or before, should they come back.
    """

    reads: tuple[tuple[FoundFile, FileMark], ...]
    losses: tuple[Loss, ...]
    captured_marks: tuple[FileMark, ...]
    waiting: tuple[tuple[FoundFile, str], ...]
    kept_marks: tuple[FileMark, ...] = ()


def decide_files(
    marks: Sequence[FileMark], files: Sequence[FoundFile], contents: FileContents, instant: int
) -> FileDecisions:
    """Match each known file with the existing ones, by inode or contents, and find the new files.

    A rotation that renames keeps the inode. One that copies and truncates, or compresses, moves the captured bytes to another
    file, where capturing continues. Until it ends both files exist: the copy of a known file waits until the original is gone.
    A file that disappeared and came back is recognised by its path and its contents.
    """
    matches = _match_marks(marks, files, contents)
    unmatched = [file for file in files if file not in matches.values()]
    by_id = {file.id: file for file in unmatched}  # a held one only has the inode of one that is gone
    missing = [mark for mark in marks if mark not in matches and not mark.missing_since]
    losses = [loss for mark in missing if (loss := _loss(mark, by_id)) is not None]
    lost_marks = {loss.mark for loss in losses}
    new, waiting = _new_files(unmatched, matches, contents, instant)
    reads = [(file, mark.moved_to(file)) for mark, file in matches.items()] + [
        (file, FileMark.initial(file)) for file in new
    ]
    reads.sort(key=lambda read: (read[0].changed, read[0].path))
    captured_marks = tuple(mark for mark in missing if mark not in lost_marks)
    kept_marks = _missing_marks([mark for mark in marks if mark not in matches], files, instant)
    return FileDecisions(tuple(reads), tuple(losses), captured_marks, tuple(waiting), kept_marks)


def _match_marks(
    marks: Sequence[FileMark], files: Sequence[FoundFile], contents: FileContents
) -> dict[FileMark, FoundFile]:
    """Match the known files with existing ones."""
    by_id = {file.id: file for file in files}
    present = [mark for mark in marks if not mark.missing_since]
    matches = {
        mark: file
        for mark in present
        if (file := by_id.get(mark.id)) is not None and _may_be(file, mark) and contents.continues(file, mark)
    }
    unmatched = [file for file in files if file not in matches.values()]
    lost = [mark for mark in present if mark not in matches and (mark.offset or mark.unread)]
    lost.sort(key=lambda mark: -mark.offset)  # where nothing was captured, any file of such a name fits
    # The last one first: a path may have been that of several files.
    away_marks = sorted((mark for mark in marks if mark.missing_since), key=lambda mark: -mark.missing_since)
    for mark in (*lost, *away_marks):
        # The longest first: a copy of a copy may be shorter.
        for file in sorted(unmatched, key=lambda file: (-file.size, file.path)):
            if _may_follow(file, mark) and contents.is_whole(file) and contents.continues(file, mark):
                matches[mark] = file
                unmatched.remove(file)
                break
    return matches


def _missing_marks(missing: Iterable[FileMark], files: Iterable[FoundFile], instant: int) -> tuple[FileMark, ...]:
    """Marks to keep of missing files, unless another file now has their path and inode."""
    occupied = {(file.path, file.id) for file in files}
    marks = [
        replace(mark, missing_since=mark.missing_since or instant)
        for mark in missing
        if mark.offset and (mark.path, mark.id) not in occupied
    ]
    last = sorted(
        (mark for mark in marks if instant - mark.missing_since < GONE_NS), key=lambda mark: -mark.missing_since
    )
    return tuple(last[:MAX_GONE_FILES])


def _may_be(file: FoundFile, mark: FileMark) -> bool:
    """Whether a file with the inode of a known one may be that one.

    Packing makes a new file, which may get the inode of a packed one that is gone. Where nothing was captured of that, any
    content would fit.
    """
    return bool(mark.offset) or file.is_packed == mark.path.endswith(".gz")


def _may_follow(file: FoundFile, mark: FileMark) -> bool:
    """Whether a file may be the renamed or copied successor of a known one, if both begin alike.

    A few bytes, such as a header, are in many files: then its name must say so. One that was away has its path.
    """
    if mark.missing_since:
        return file.path == mark.path
    return mark.offset >= PRINTED or file.path.startswith(_ROTATED.sub("", mark.path))


def _loss(mark: FileMark, by_id: dict[tuple[int, int], FoundFile]) -> Loss | None:
    file = by_id.get(mark.id)
    if file is not None and file.path == mark.path:
        return Loss(
            mark, f"was truncated or written anew: {mark.offset:,} bytes were captured, {file.size:,} are there now"
        )
    if mark.unread:
        return Loss(mark, f"is gone, with {mark.unread:,} bytes that were not captured")
    return None


def _new_files(
    unmatched: Iterable[FoundFile], matches: Mapping[FileMark, FoundFile], contents: FileContents, instant: int
) -> tuple[list[FoundFile], list[tuple[FoundFile, str]]]:
    new, waiting = list[FoundFile](), list[tuple[FoundFile, str]]()
    # Of a file and its copy, both new, the one that is likely to be written on is taken.
    for file in sorted(unmatched, key=lambda file: (file.is_packed, -file.size, len(file.path), file.path)):
        if not file.is_asked:
            continue
        original = None
        if instant - file.touched < COPY_NS:
            # At a name that the known file had before, it is what follows: a rotation that renames copies nothing.
            originals = [
                original_file for mark, original_file in matches.items() if file.path not in (mark.name, mark.path)
            ]
            original = next((candidate for candidate in (*originals, *new) if contents.is_copy(file, candidate)), None)
        if original is not None:
            waiting.append((file, f"holds what {original.path} begins with, as a copy would while files are rotated"))
        elif not contents.is_whole(file):
            waiting.append((file, "is not whole yet"))
        else:
            new.append(file)
    return new, waiting
