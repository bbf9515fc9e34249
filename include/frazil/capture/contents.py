"""Finds files, reads and decompresses them, and makes records of their lines, in batches with the files' marks after them."""

from __future__ import annotations

import glob
import gzip
import hashlib
import os
import stat
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import BinaryIO, Final, cast

import pyarrow as pa
import pyarrow.compute as pc

from frazil.capture.files import PRINTED, FileDecisions, FileMark, FoundFile
from frazil.error_codes import CAPTURE_FILE_INVALID, CAPTURE_UNREADABLE, RECORD_TOO_LARGE
from frazil.errors import Retryable
from frazil.kafka.client.cluster import Header, OutgoingRecord
from frazil.pipeline.settings.capture import FileCapture
from frazil.pipeline.syntax.patterns import refused_because

_CHUNK: Final = 1 << 20

_TRAILER: Final = 8
"""Bytes at the end of a `.gz` file with the checksum and the length of its contents (RFC 1952)."""

_BROKEN: Final = (EOFError, zlib.error, gzip.BadGzipFile)
"""Errors of reading a compressed file that is cut off or damaged."""


def find_files(patterns: Iterable[str], marks: Iterable[FileMark], folders: Iterable[str]) -> tuple[FoundFile, ...]:
    """Find the files that match the patterns, and those in the folders of known files; each once, even with several links to it.

    Args:
        patterns: Names, with wildcards.
        marks: Known files.
        folders: Folders that captures may read. A link that leads outside is skipped.

    Raises:
        Terminal: A folder or file must not be read, or a pattern names files outside of the folders.
        Retryable: The storage fails, or is not mounted.
    """
    allowed = [Path(folder) for folder in folders]
    roots = [folder.resolve() for folder in allowed]
    marks = tuple(marks)
    named_paths = {path for pattern in patterns for path in glob.glob(pattern, recursive=True)}  # noqa: PTH207 - absolute ones
    neighbours = {path for folder in {Path(mark.path).parent for mark in marks} for path in _list_folder(folder)}
    files: dict[tuple[int, int], FoundFile] = {}
    for path in (*sorted(named_paths, key=os.path.islink), *sorted(neighbours - named_paths)):
        with translated(path):
            try:
                Path(path).stat()  # raises an error if links lead to each other in a circle
                target = Path(path).resolve()
                file_status = target.lstat()  # lstat: if the target became a link meanwhile, it is not followed
            except FileNotFoundError:  # just renamed, or a link to nothing
                continue
        if stat.S_ISREG(file_status.st_mode):
            if not any(target.is_relative_to(folder) for folder in roots):
                if path in named_paths and not any(Path(path).is_relative_to(folder) for folder in (*allowed, *roots)):
                    raise CAPTURE_UNREADABLE.terminal(
                        f"{path} is in no folder that captures may read; nothing is captured",
                        next_step="name other paths, or list the folder in the settings, under captures.folders",
                    )
                continue  # a link to the outside: whoever may create one must not stop the capture of other files
            times = file_status.st_mtime_ns, file_status.st_ctime_ns
            file = FoundFile(
                path, file_status.st_dev, file_status.st_ino, file_status.st_size, *times, path in named_paths
            )
            files.setdefault(file.id, file)
    present = [mark for mark in marks if not mark.missing_since]
    if present and not any(file.is_named for file in files.values()) and all(map(_is_folder_missing, present)):
        raise CAPTURE_UNREADABLE.retryable(
            f"all {len(present):,} known files and their folders are missing, such as {Path(present[0].path).parent}",
            next_step="check that the volume is mounted and that this machine has the files. Nothing was captured, no position was lost",
        )
    return tuple(files.values())


def _is_folder_missing(mark: FileMark) -> bool:
    """Whether the folder of a missing file is missing too, or on another device, as if its volume is not mounted."""
    folder = Path(mark.path).parent
    with translated(str(folder)):
        try:
            return folder.stat().st_dev != mark.device
        except (FileNotFoundError, NotADirectoryError):
            return True


def _list_folder(folder: Path) -> list[str]:
    with translated(str(folder)):
        try:
            return [entry.path for entry in os.scandir(folder) if os.access(entry.path, os.R_OK)]
        except FileNotFoundError:
            return []


def open_file(file: FoundFile) -> BinaryIO:
    """Open a file to read its uncompressed bytes.

    Raises:
        OSError: It can't be opened, or is another one by now.
    """
    raw = Path(file.path).open("rb")  # noqa: SIM115 - the caller closes it
    file_status = os.fstat(raw.fileno())
    if (file_status.st_dev, file_status.st_ino) != file.id:
        raw.close()
        raise FileNotFoundError(f"{file.path} is another file by now")
    if not file.is_compressed:
        return raw
    unpacked = gzip.GzipFile(fileobj=raw)
    unpacked.myfileobj = raw  # type: ignore[assignment]  # so that closing it closes the raw file too
    return cast("BinaryIO", unpacked)


def ends_of(stream: BinaryIO, offset: int) -> tuple[bytes, bytes]:
    """The first bytes of a stream and the last ones before an offset. Leaves the stream at that offset."""
    stream.seek(0)
    head = stream.read(min(PRINTED, offset))
    stream.seek(max(0, offset - PRINTED))
    return head, stream.read(min(PRINTED, offset))


def fingerprint(head: bytes, tail: bytes) -> str:
    """Fingerprint of the captured part of a file; empty if nothing was captured."""
    return hashlib.sha256(head + tail).hexdigest()[:32] if head else ""


def end_mark(file: FoundFile) -> FileMark | None:
    """The mark after the last whole line of a file; None if a compressed file can't be decompressed to its end.

    Raises:
        Terminal, Retryable: The file can't be read.
    """
    read_bytes = offset = lines = 0
    with translated(file.path), open_file(file) as stream:
        try:
            for chunk in iter(partial(stream.read, _CHUNK), b""):
                piece = chunk if file.is_compressed else chunk[: file.size - read_bytes]
                lines += piece.count(b"\n")
                offset = read_bytes + piece.rindex(b"\n") + 1 if b"\n" in piece else offset
                read_bytes += len(piece)
        except _BROKEN:
            return None
        offset = read_bytes if file.is_compressed else offset
        printed = fingerprint(*ends_of(stream, offset))
        trailer = trailer_of(file, stream)
    mark = replace(FileMark.initial(file), offset=offset, lines=lines, print=printed)
    if file.is_compressed:
        return replace(mark, packed=file.size, trailer=trailer)
    return replace(mark, unread=read_bytes - offset)


def trailer_of(file: FoundFile, stream: BinaryIO) -> str:
    """The last raw bytes of an open compressed file; empty for other files."""
    if not file.is_compressed:
        return ""
    return os.pread(stream.fileno(), _TRAILER, max(0, file.size - _TRAILER)).hex()


def is_captured(file: FoundFile, mark: FileMark) -> bool:
    """Whether a file has no bytes after its mark.

    Raises:
        Terminal, Retryable: It can't be read.
    """
    if not file.is_compressed:
        return file.size == mark.offset
    if file.size != mark.packed:
        return False
    with translated(file.path), open_file(file) as stream:
        return trailer_of(file, stream) == mark.trailer


class FileContents:
    """Reads and caches file contents.

    Args:
        most: Bytes to decompress at most, to check that compressed files are complete; further files count as complete.
            None: no limit.
    """

    def __init__(self, most: int | None = None) -> None:
        self._budget = most
        self._heads: dict[FoundFile, bytes] = {}
        self._sizes: dict[FoundFile, int | None] = {}

    def continues(self, file: FoundFile, mark: FileMark) -> bool:
        """Whether a file begins with all that was captured up to a mark."""
        if file.is_compressed and file.id == mark.id and is_captured(file, mark):
            return True
        if not file.is_compressed and file.size < mark.offset:
            return False
        ends = self._ends(file, mark.offset)
        return len(ends[1]) == min(PRINTED, mark.offset) and fingerprint(*ends) == mark.print

    def is_copy(self, file: FoundFile, original: FoundFile) -> bool:
        """Whether a file is a copy of another one, or of its beginning. An empty file is not."""
        head = self._head(file)
        if not head or self._head(original)[: len(head)] != head:
            return False
        size = self._size(file)
        if size is None:  # a compressed file that is still being written, and begins like the other one
            return True
        return self._ends(file, size) == self._ends(original, size)

    def is_whole(self, file: FoundFile) -> bool:
        """Whether a file is complete: a compressed one can be decompressed to its end, all others are."""
        return self._size(file) is not None or self._budget == 0

    def _head(self, file: FoundFile) -> bytes:
        if file not in self._heads:
            self._heads[file] = self._ends(file, PRINTED)[0]
        return self._heads[file]

    def _ends(self, file: FoundFile, offset: int) -> tuple[bytes, bytes]:
        with translated(file.path), open_file(file) as stream:
            try:
                return ends_of(stream, offset)
            except _BROKEN:  # a compressed file that ends before the offset
                return b"", b""

    def _size(self, file: FoundFile) -> int | None:
        """Uncompressed size of a file; None if it can't be decompressed to its end."""
        if not file.is_compressed:
            return file.size
        if file not in self._sizes:
            with translated(file.path), open_file(file) as stream:
                try:
                    self._sizes[file] = self._unpacked_size(stream)
                except _BROKEN:
                    self._sizes[file] = None
        return self._sizes[file]

    def _unpacked_size(self, stream: BinaryIO) -> int | None:
        size = 0
        while self._budget != 0:
            chunk = stream.read(_CHUNK if self._budget is None else min(_CHUNK, self._budget))
            if not chunk:
                return size
            size += len(chunk)
            self._budget = None if self._budget is None else self._budget - len(chunk)
        return None


@contextmanager
def translated(path: str) -> Iterator[None]:
    """Translate an OSError into an error of Frazil.

    Raises:
        Terminal: The permissions forbid to read the file.
        Retryable: The file is gone, or the storage fails.
    """
    try:
        yield
    except PermissionError as error:
        raise CAPTURE_UNREADABLE.terminal(
            f"{path} can't be read: {error.strerror}", next_step="grant read access to the user that runs captures"
        ) from error
    except FileNotFoundError as error:
        raise CAPTURE_UNREADABLE.retryable(
            f"{path} was renamed or removed while it was read", next_step="run again: it is listed again"
        ) from error
    except OSError as error:
        raise CAPTURE_UNREADABLE.retryable(
            f"{path} can't be read: {error.strerror or error}",
            next_step="check that the disk or mount can be reached, then run it again",
        ) from error


BYTES_PER_TRANSACTION: Final = 32 * 2**20
"""Bounds memory, and the time for which an open transaction of a crashed run holds back readers of the topic."""

LONGEST_LINE: Final = 64 * 2**20
"""Bounds memory if a file has no line breaks. It is 64 times Kafka's default limit of a record."""


@dataclass(frozen=True, slots=True)
class Batch:
    """The lines of one transaction.

    Attributes:
        records: The records.
        starts: For each record, the path of its file and the byte at which its line begins.
        marks: The files' marks after these lines.
    """

    records: tuple[OutgoingRecord, ...]
    starts: tuple[tuple[str, int], ...]
    marks: tuple[FileMark, ...]


def batches(capture: FileCapture, decisions: FileDecisions) -> Iterator[Batch]:
    """Read all files from their marks to the ends that they had when they were found.

    The last batch may have no records, but other marks than before: files were renamed, are new or are gone.

    Raises:
        Terminal: A line is longer than `LONGEST_LINE`, a file must not be read, or RE2 refuses the pattern of keys.
        Retryable: A file was renamed, removed or truncated meanwhile, or the storage fails.
    """
    if capture.key_pattern is not None and (reason := refused_because(capture.key_pattern)) is not None:
        raise CAPTURE_FILE_INVALID.terminal(
            f"capture {capture.name}: key_pattern: {reason}", next_step="correct it in the capture file"
        )
    marks = {mark.id: mark for _, mark in decisions.reads}
    kept_marks = decisions.kept_marks
    records, starts, size = list[OutgoingRecord](), list[tuple[str, int]](), 0
    for file, mark in decisions.reads:
        if is_captured(file, mark):
            marks[mark.id] = replace(mark, unread=0)
            continue
        with _reading(file, mark) as reading:
            while (line := reading.line()) is not None:
                records.append(_record(capture, line, reading))
                starts.append((file.path, reading.begins))
                size += records[-1].size
                if len(records) >= capture.max_records or size >= BYTES_PER_TRANSACTION:
                    marks[mark.id] = reading.mark()
                    yield Batch(_with_keys(capture, records), tuple(starts), (*marks.values(), *kept_marks))
                    records, starts, size = [], [], 0
            marks[mark.id] = reading.mark(is_ended=True)
    yield Batch(_with_keys(capture, records), tuple(starts), (*marks.values(), *kept_marks))


def _with_keys(capture: FileCapture, records: Sequence[OutgoingRecord]) -> tuple[OutgoingRecord, ...]:
    """The records, with keys that the capture's pattern extracts from their lines. RE2 takes linear time for any line."""
    if capture.key_pattern is None or not records:
        return tuple(records)
    lines = pa.array([record.value for record in records], pa.binary())
    pattern = f"(?s:\\A.*?)(?:{capture.key_pattern})(?s:.*)\\z"
    keys = pc.if_else(pc.match_substring_regex(lines, pattern), pc.replace_substring_regex(lines, pattern, r"\1"), None)
    return tuple(replace(record, key=key or None) for record, key in zip(records, keys.to_pylist(), strict=True))


def has_line(file: FoundFile, mark: FileMark) -> bool:
    """Whether a file has a whole line after its mark; for a compressed file, whether it has any bytes after it.

    Raises:
        Terminal, Retryable: The file can't be read.
    """
    if file.is_compressed or is_captured(file, mark):
        return not is_captured(file, mark)
    with translated(file.path), open_file(file) as stream:
        stream.seek(mark.offset)
        # A run would refuse a line that is longer than `LONGEST_LINE`, so the search for its end stops there.
        pieces = (stream.read(_CHUNK) for _ in range(LONGEST_LINE // _CHUNK))
        return any(b"\n" in piece for piece in takewhile(bool, pieces)) or file.size - mark.offset > LONGEST_LINE


@dataclass(slots=True)
class _Reading:
    """The state of reading a file from a mark to its end.

    Attributes:
        file: The file as it was found. Bytes appended since are left to the next run.
        first_mark: The mark where reading began.
        stream: The open file.
        offset: The byte at which the next line begins.
        begins: The byte at which the last line began.
        lines: Number of lines before the next one.
        head: The first bytes of the file, as far as they were read.
        tail: The last bytes before the offset.
    """

    file: FoundFile
    first_mark: FileMark
    stream: BinaryIO
    offset: int
    begins: int
    lines: int
    head: bytes
    tail: bytes

    def line(self) -> bytes | None:
        """The next line without its line feed; None if there is no whole line before the end.

        Raises:
            Terminal: The line is longer than `LONGEST_LINE`.
            Retryable: The file was truncated.
        """
        with translated(self.file.path):
            try:
                line = self.stream.readline(LONGEST_LINE + 1)
            except _BROKEN as error:
                raise self.changed_error() from error
        if len(line) > LONGEST_LINE:
            raise RECORD_TOO_LARGE.terminal(
                f"{self.file.path}: the line at byte {self.offset:,} is longer than {LONGEST_LINE:,} bytes; nothing after"
                " it is captured",
                next_step="check the file: only text files with lines can be captured",
            )
        if not line:
            if self.file.is_compressed or self.offset >= self.file.size:
                return None
            raise self.changed_error()
        is_whole = line.endswith(b"\n")
        if not self.file.is_compressed and (not is_whole or self.offset + len(line) > self.file.size):
            return None  # it is still being written
        self.begins, self.offset = self.offset, self.offset + len(line)
        self.lines += 1
        if len(self.head) < PRINTED:
            self.head = (self.head + line)[:PRINTED]
        self.tail = (self.tail + line)[-PRINTED:]
        return line[:-1] if is_whole else line

    def mark(self, *, is_ended: bool = False) -> FileMark:
        """The mark after the last line.

        Raises:
            Retryable: The file was truncated.
        """
        with translated(self.file.path):
            size = os.fstat(self.stream.fileno()).st_size
            trailer = trailer_of(self.file, self.stream) if is_ended else ""
        if size < self.file.size:
            raise self.changed_error()
        mark = replace(
            self.first_mark,
            offset=self.offset,
            lines=self.lines,
            print=fingerprint(self.head, self.tail),
            packed=0,
            trailer=trailer,
        )
        if not self.file.is_compressed:
            return replace(mark, unread=self.file.size - self.offset)
        # How many bytes of a compressed file are unread is unknown, so 1 stands for some.
        return replace(mark, unread=0, packed=self.file.size) if is_ended else replace(mark, unread=1)

    def changed_error(self) -> Retryable:
        """The error if the file was truncated or rewritten meanwhile."""
        return CAPTURE_UNREADABLE.retryable(
            f"{self.file.path} was truncated or rewritten while it was read, after byte {self.offset:,}",
            next_step="run again: the next run checks it again",
        )


@contextmanager
def _reading(file: FoundFile, mark: FileMark) -> Iterator[_Reading]:
    with translated(file.path):
        stream = open_file(file)
    with stream:
        with translated(file.path):
            head, tail = ends_of(stream, mark.offset)
        reading = _Reading(file, mark, stream, mark.offset, mark.offset, mark.lines, head, tail)
        if len(tail) < min(PRINTED, mark.offset) or fingerprint(head, tail) != mark.print:
            raise reading.changed_error()
        yield reading


def _record(capture: FileCapture, line: bytes, reading: _Reading) -> OutgoingRecord:
    """The record of the line that was read last."""
    name = os.fsencode(reading.first_mark.name)
    headers: tuple[Header, ...] = ()
    if capture.headers:
        headers = (
            ("frazil.file", name),
            ("frazil.offset", str(reading.begins).encode()),
            ("frazil.line", str(reading.lines).encode()),
        )
    return OutgoingRecord(name if capture.key == "file" else None, line, headers)
