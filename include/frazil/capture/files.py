"""Recognizes files after rotation: their names change, so their inode and a fingerprint of the captured bytes identify them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from frazil.capture.contents import FileContents

PRINTED: Final = 1024
"""Bytes at either end of the captured part that make its fingerprint. Lines of logs begin with times, so these differ between
files; and they are read at once."""

_ROTATED: Final = re.compile(r"(\.\d+)?(\.gz)?$")
"""Suffixes that rotation adds to a name."""

COPY_NS: Final = 600 * 10**9
"""How long a copy of a known file is left alone, after it was touched: a rotation removes the original within seconds. A copy
whose original stays was made on purpose, and is captured."""

GONE_NS: Final = 7 * 24 * 3600 * 10**9
MAX_GONE_FILES: Final = 300
"""How long, and for how many files, the marks of missing files are kept: a file that comes back, such as on a volume that is
mounted again, must not be captured again. Every position has these marks, so their number is bounded."""


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file that exists now.

    Attributes:
        path: One of its names.
        device: The device that it is on.
        inode: Its number there.
        size: Bytes of the file, compressed ones of a `.gz` file.
        changed: When it was last written, in nanoseconds since 1970. A copy may have the time of its original.
        touched: When it was last written, renamed or given other permissions. Programs can't set this time.
        is_named: Whether a pattern matches it. If not, it is in the folder of a known file, which may have been renamed to it.
    """

    path: str
    device: int
    inode: int
    size: int
    changed: int
    touched: int
    is_named: bool = True

    @property
    def id(self) -> tuple[int, int]:
        """Device and inode, which a renamed file keeps."""
        return self.device, self.inode

    @property
    def is_compressed(self) -> bool:
        """Whether the file is compressed."""
        return self.path.endswith(".gz")


@dataclass(frozen=True, slots=True)
class FileMark:
    """How far a file was captured.

    Attributes:
        name: Its path when it was first seen, which its records have.
        path: Its last path.
        device: The device that it was on.
        inode: Its number there.
        offset: Captured bytes, after decompression.
        lines: Captured lines.
        print: Fingerprint of the first and the last captured bytes.
        unread: Bytes after the offset when the file was last read.
        packed: Compressed bytes of a `.gz` file that was captured to its end, else 0.
        trailer: The last of those bytes: checksum and length of its contents.
        missing_since: Since when the file is missing, in nanoseconds since 1970; 0 if it exists.
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
        """The mark of a file before anything of it is captured."""
        return cls(file.path, file.path, *file.id)

    def moved_to(self, file: FoundFile) -> FileMark:
        """The mark with the present name and inode of its file."""
        return replace(self, path=file.path, device=file.device, inode=file.inode, missing_since=0)


_KEYS: Final = {"missing_since": "gone"}
"""Field of a mark -> its key in stored positions, if they differ. The stored form must not change."""

_FIELDS: Final = {key: name for name, key in _KEYS.items()}


def marks_of(state: Any) -> tuple[FileMark, ...]:
    """Read the marks from the state in a position."""
    return tuple(FileMark(**{_FIELDS.get(key, key): value for key, value in mark.items()}) for mark in state["files"])


def files_state(marks: Iterable[FileMark]) -> dict[str, Any]:
    """The state for a position with these marks."""
    ordered = sorted(marks, key=lambda mark: (mark.name, mark.id, mark.missing_since))
    return {"files": [{_KEYS.get(name, name): value for name, value in asdict(mark).items()} for mark in ordered]}


@dataclass(frozen=True, slots=True)
class Loss:
    """A file of which lines may be lost."""

    mark: FileMark
    why: str


@dataclass(frozen=True, slots=True)
class FileDecisions:
    """The files that a run reads, the marks that the position keeps, and possible losses.

    Attributes:
        reads: Files to read, oldest first, each from its mark.
        losses: Files of which lines may be lost.
        captured_marks: Marks of files that are gone, but were captured as far as they were seen.
        waiting: Files that this run leaves alone, and why.
        kept_marks: Marks of missing files, which the position keeps in case that they come back.
    """

    reads: tuple[tuple[FoundFile, FileMark], ...]
    losses: tuple[Loss, ...]
    captured_marks: tuple[FileMark, ...]
    waiting: tuple[tuple[FoundFile, str], ...]
    kept_marks: tuple[FileMark, ...] = ()


def decide_files(
    marks: Sequence[FileMark], files: Sequence[FoundFile], contents: FileContents, instant: int
) -> FileDecisions:
    """Match each known file with an existing one, by inode or contents, and find the new files.

    A rotation that renames keeps the inode. One that copies and truncates, or compresses, moves the captured bytes to another
    file, where capturing continues. Until it ends both files exist: the copy waits until the original is gone. A file that was
    missing and came back is recognized by its path and its contents.
    """
    matches = _match_marks(marks, files, contents)
    unmatched = [file for file in files if file not in matches.values()]
    by_id = {file.id: file for file in unmatched}  # a matched file may have reused the inode of a missing one
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
    lost.sort(
        key=lambda mark: -mark.offset
    )  # last those without captured bytes, because any file with such a name fits them
    # The newest first, because several files may have had one path.
    missing = sorted((mark for mark in marks if mark.missing_since), key=lambda mark: -mark.missing_since)
    for mark in (*lost, *missing):
        # The longest first, because a copy of a copy may be shorter.
        for file in sorted(unmatched, key=lambda file: (-file.size, file.path)):
            if _may_follow(file, mark) and contents.is_whole(file) and contents.continues(file, mark):
                matches[mark] = file
                unmatched.remove(file)
                break
    return matches


def _missing_marks(missing: Iterable[FileMark], files: Iterable[FoundFile], instant: int) -> tuple[FileMark, ...]:
    """The marks of missing files to keep: recent ones, unless another file has their path and inode now."""
    present = {(file.path, file.id) for file in files}
    marks = [
        replace(mark, missing_since=mark.missing_since or instant)
        for mark in missing
        if mark.offset and (mark.path, mark.id) not in present
    ]
    recent = sorted(
        (mark for mark in marks if instant - mark.missing_since < GONE_NS), key=lambda mark: -mark.missing_since
    )
    return tuple(recent[:MAX_GONE_FILES])


def _may_be(file: FoundFile, mark: FileMark) -> bool:
    """Whether a file with the inode of a known file may be this file.

    Compression creates a new file, which may get the inode of a removed one. If nothing of that one was captured, its contents
    can't tell them apart, but its suffix can.
    """
    return bool(mark.offset) or file.is_compressed == mark.path.endswith(".gz")


def _may_follow(file: FoundFile, mark: FileMark) -> bool:
    """Whether a file that begins like a known one may be it, renamed or copied.

    Many files begin with the same few bytes, such as a header: then the names must fit, too. A file that was missing must have
    the same path.
    """
    if mark.missing_since:
        return file.path == mark.path
    return mark.offset >= PRINTED or file.path.startswith(_ROTATED.sub("", mark.path))


def _loss(mark: FileMark, by_id: dict[tuple[int, int], FoundFile]) -> Loss | None:
    file = by_id.get(mark.id)
    if file is not None and file.path == mark.path:
        return Loss(
            mark, f"was truncated or rewritten: {mark.offset:,} bytes were captured, it has {file.size:,} bytes now"
        )
    if mark.unread:
        return Loss(mark, f"is gone, with {mark.unread:,} bytes that were not captured")
    return None


def _new_files(
    unmatched: Iterable[FoundFile], matches: Mapping[FileMark, FoundFile], contents: FileContents, instant: int
) -> tuple[list[FoundFile], list[tuple[FoundFile, str]]]:
    new, waiting = list[FoundFile](), list[tuple[FoundFile, str]]()
    # If a file and its copy are both new, the one to which a program probably still writes comes first.
    for file in sorted(unmatched, key=lambda file: (file.is_compressed, -file.size, len(file.path), file.path)):
        if not file.is_named:
            continue
        original = None
        if instant - file.touched < COPY_NS:
            # A file that has the former path of a known one is no copy, but its successor after a rotation by renaming.
            originals = [
                original_file for mark, original_file in matches.items() if file.path not in (mark.name, mark.path)
            ]
            original = next((candidate for candidate in (*originals, *new) if contents.is_copy(file, candidate)), None)
        if original is not None:
            waiting.append((file, f"begins like {original.path}, as a copy does while files are rotated"))
        elif not contents.is_whole(file):
            waiting.append((file, "is not complete yet"))
        else:
            new.append(file)
    return new, waiting
