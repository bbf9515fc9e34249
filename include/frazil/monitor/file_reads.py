"""What was read of a ledger's files, kept until they are gone."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final, Generic, Protocol, TypeVar

from frazil.iceberg.ledger_files import LedgerFile

_PARTS: Final = 16
"""Reads that are kept apart; more are joined, so that many small ones take no more than they hold."""


class Sized(Protocol):
    """What tells the memory that it takes."""

    @property
    def nbytes(self) -> int:
        """Bytes."""


T = TypeVar("T", bound=Sized)


class FileReads(Generic[T]):
    """Reads files of a ledger once. Not safe for threads by itself.

    Args:
        read: Reads files.
        join: Shows what was read of several as one.
        pack: Makes one piece of that.
        most: Bytes to keep; what was read longest ago is forgotten first. One read of more is not kept at all.
    """

    def __init__(
        self,
        read: Callable[[Sequence[LedgerFile]], T],
        join: Callable[[Sequence[T]], T],
        pack: Callable[[T], T],
        most: float = math.inf,
    ) -> None:
        self._read, self._join, self._pack, self._most = read, join, pack, most
        self._parts: list[tuple[frozenset[str], T]] = []

    @property
    def nbytes(self) -> int:
        """Memory that it takes."""
        return sum(part.nbytes for _, part in self._parts)

    def keep(self, files: Sequence[LedgerFile]) -> None:
        """Forget what was read of, or together with, files other than these."""
        keys = {of.key for of in files}
        self._parts = [part for part in self._parts if part[0] <= keys]

    def of(self, files: Sequence[LedgerFile]) -> T | None:
        """What is in these files, and perhaps in others of the ledger; None if there are none."""
        missing = [file for file in files if not any(file.key in keys for keys, _ in self._parts)]
        if missing:
            read = self._read(missing)
            if read.nbytes > self._most:
                return self._join([*(part for _, part in self._parts), read])
            self._parts.append((frozenset(of.key for of in missing), read))
        asked = {file.key for file in files}
        while (
            self.nbytes > self._most and (old := next((p for p in self._parts if not p[0] & asked), None)) is not None
        ):
            self._parts.remove(old)
        if len(self._parts) > _PARTS:
            keys = frozenset[str]().union(*(keys for keys, _ in self._parts))
            self._parts = [(keys, self._pack(self._join([part for _, part in self._parts])))]
        return self._join([part for _, part in self._parts]) if self._parts else None
