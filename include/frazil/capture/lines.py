"""Lines of files as records, in batches that carry the files' marks after them."""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import BinaryIO, Final

import pyarrow as pa
import pyarrow.compute as pc

from frazil.capture.contents import ends_of, fingerprint, is_captured, open_file, trailer_of, translated
from frazil.capture.files import PRINTED, FileDecisions, FileMark, FoundFile
from frazil.error_codes import CAPTURE_FILE_INVALID, CAPTURE_UNREADABLE, RECORD_TOO_LARGE
from frazil.errors import Retryable
from frazil.kafka.client.cluster import Header, OutgoingRecord
from frazil.pipeline.settings.capture import FileCapture
from frazil.pipeline.syntax.patterns import refused_because

BYTES_PER_TRANSACTION: Final = 32 * 2**20
"""Bounds memory, and the time for which a crash could hold readers of the topic back."""

LONGEST_LINE: Final = 64 * 2**20
"""Bounds memory where a file has no line breaks. Kafka's default limit of a record is a 64th of it."""

_PIECE: Final = 2**20

Place = tuple[str, int]
"""Path of a file, and the byte at which a line begins."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Records of one transaction, the source of each, and the files' marks after it."""

    records: tuple[OutgoingRecord, ...]
    places: tuple[Place, ...]
    marks: tuple[FileMark, ...]


def batches(capture: FileCapture, decided: FileDecisions) -> Iterator[Batch]:
    """Read all files from their marks to their ends, as they were when they were found.

    The last batch may have no records: marks move, too, when files are renamed, appear or go.

    Raises:
        Terminal: A line is longer than what is held in memory, a file must not be read, or RE2 does not take the pattern of keys.
        Retryable: A file was renamed, removed or truncated meanwhile, or the storage fails.
    """
    if capture.key_pattern is not None and (reason := refused_because(capture.key_pattern)) is not None:
        raise CAPTURE_FILE_INVALID.terminal(
            f"capture {capture.name}: key_pattern: {reason}", next_step="correct it in the capture file"
        )
    marks = {mark.id: mark for _, mark in decided.reads}
    kept_marks = decided.kept_marks
    as_record = _record_of(capture)
    records, places, size = list[OutgoingRecord](), list[Place](), 0
    for file, mark in decided.reads:
        if is_captured(file, mark):
            marks[mark.id] = replace(mark, unread=0)
            continue
        with _reading(file, mark) as reading:
            while (line := reading.line()) is not None:
                records.append(as_record(line, reading))
                places.append((file.path, reading.begins))
                size += records[-1].size
                if len(records) >= capture.max_records or size >= BYTES_PER_TRANSACTION:
                    marks[mark.id] = reading.mark()
                    yield Batch(_keyed(capture, records), tuple(places), (*marks.values(), *kept_marks))
                    records, places, size = [], [], 0
            marks[mark.id] = reading.mark(is_ended=True)
    yield Batch(_keyed(capture, records), tuple(places), (*marks.values(), *kept_marks))


def _keyed(capture: FileCapture, records: Sequence[OutgoingRecord]) -> tuple[OutgoingRecord, ...]:
    """Records with keys that a pattern extracts from their lines. RE2 takes linear time, whatever the lines hold."""
    if capture.key_pattern is None or not records:
        return tuple(records)
    lines = pa.array([record.value for record in records], pa.binary())
    around = f"(?s:\\A.*?)(?:{capture.key_pattern})(?s:.*)\\z"
    keys = pc.if_else(pc.match_substring_regex(lines, around), pc.replace_substring_regex(lines, around, r"\1"), None)
    return tuple(replace(record, key=key or None) for record, key in zip(records, keys.to_pylist(), strict=True))


def has_line(file: FoundFile, mark: FileMark) -> bool:
    """Whether a file has a whole line after its mark; of a packed one, whether it has anything.

    Raises:
        Terminal, Retryable: It can't be read.
    """
    if file.is_packed or is_captured(file, mark):
        return not is_captured(file, mark)
    with translated(file.path), open_file(file) as stream:
        stream.seek(mark.offset)
        # A line without end is looked at as far as a run would: it refuses a longer one.
        pieces = (stream.read(_PIECE) for _ in range(LONGEST_LINE // _PIECE))
        return any(b"\n" in piece for piece in takewhile(bool, pieces)) or file.size - mark.offset > LONGEST_LINE


@dataclass(slots=True)
class _Reading:
    """The state of reading a file from a mark to its end.

    Attributes:
        file: The file as it was found. Bytes appended since are left to the next run.
        began: The mark where reading began.
        stream: The open file.
        offset: Where the next line begins.
        begins: Where the last line began.
        lines: Number of lines before the next one.
        head: The first bytes of the file, as far as they were read.
        tail: The last bytes before the offset.
    """

    file: FoundFile
    began: FileMark
    stream: BinaryIO
    offset: int
    begins: int
    lines: int
    head: bytes
    tail: bytes

    def line(self) -> bytes | None:
        """The next line without its line feed; None if there is no whole one before the end.

        Raises:
            Terminal: It is longer than what is held in memory.
            Retryable: The file was truncated.
        """
        with translated(self.file.path):
            try:
                line = self.stream.readline(LONGEST_LINE + 1)
            except (EOFError, zlib.error, gzip.BadGzipFile) as error:
                raise self._changed() from error
        if len(line) > LONGEST_LINE:
            raise RECORD_TOO_LARGE.terminal(
                f"{self.file.path}: the line at byte {self.offset:,} is longer than {LONGEST_LINE:,} bytes; nothing after"
                " it is captured",
                next_step="check the file: only text files with lines can be captured",
            )
        if not line:
            if self.file.is_packed or self.offset >= self.file.size:
                return None
            raise self._changed()
        is_whole = line.endswith(b"\n")
        if not self.file.is_packed and (not is_whole or self.offset + len(line) > self.file.size):
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
            raise self._changed()
        return replace(
            self.began,
            offset=self.offset,
            lines=self.lines,
            print=fingerprint(self.head, self.tail),
            unread=0 if self.file.is_packed and is_ended else self._unread(),
            packed=self.file.size if self.file.is_packed and is_ended else 0,
            trailer=trailer,
        )

    def _unread(self) -> int:
        """Bytes not yet read. Of a packed file the number is not known, so 1 means "some"."""
        return 1 if self.file.is_packed else self.file.size - self.offset

    def _changed(self) -> Retryable:
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
            raise reading._changed()  # noqa: SLF001 - its own
        yield reading


def _record_of(capture: FileCapture) -> Callable[[bytes, _Reading], OutgoingRecord]:
    """A function that makes a record from a line."""

    def record(line: bytes, reading: _Reading) -> OutgoingRecord:
        name = os.fsencode(reading.began.name)
        key = name if capture.key == "file" else None
        headers: tuple[Header, ...] = ()
        if capture.headers:
            headers = (
                ("frazil.file", name),
                ("frazil.offset", str(reading.begins).encode()),
                ("frazil.line", str(reading.lines).encode()),
            )
        return OutgoingRecord(key, line, headers)

    return record
