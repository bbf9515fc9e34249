"""A log of changes: of each record all rows that it tells of must be there, each once, with what happened and its place."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from confluent_kafka import Message

from frazil.pipeline.changes import TOLD
from frazil.pipeline.types import ColumnType, Primitive
from frazil.verify.canonical import Digest, digest
from frazil.verify.compare import Comparison, micros
from frazil.verify.expected import Bad
from frazil.verify.outcomes import Outcome
from frazil.verify.spans import Passes

TOLD_TYPES: dict[str, ColumnType] = dict(zip(TOLD, (Primitive("string"), Primitive("int")), strict=True))
"""Columns of a log behind those of its rows."""


@dataclass
class HistoryComparison(Comparison):
    """One partition of a log of changes."""

    def _record(self, message: Message, offset: int, found: Sequence[Outcome], passes: Passes) -> None:
        value, topic = message.value(), self.subject.topic
        if self.rules.unread is not None or not value or self.rules.leaves_out(value, topic):
            super()._record(message, offset, found, passes)
            return
        told = self.rules.row(value, topic)
        for n in passes:
            mine = [outcome for outcome in found if outcome.batch == n]
            if n in self.rules.older or isinstance(told, Bad) or any(outcome.code is not None for outcome in mine):
                super()._record(message, offset, mine, (n,))
            elif not told and not mine:
                self.filtered += 1
            else:
                stamp = micros(message)
                wanted = Counter(digest((*of.row, of.op, at, stamp)) for at, of in enumerate(told))
                self._hold(offset, n, wanted, mine)
        self._not_of(passes, offset, found)

    def _hold(self, offset: int, n: int, wanted: Counter[Digest], mine: Sequence[Outcome]) -> None:
        """Hold the rows of a record and a batch against what the record tells."""
        there = Counter(outcome.digest for outcome in mine if isinstance(outcome.digest, bytes))
        lacking, strange = (wanted - there).total(), (there - wanted).total()
        rows = f"{wanted.total()} rows of changes"
        if changed := min(lacking, strange):
            self._add("changed", offset, n, rows, f"{changed} with other values", times=changed)
        if lacking > strange:
            self._add("missing", offset, n, rows, f"{there.total()}", times=lacking - strange)
        if strange > lacking:
            self._add("duplicate", offset, n, rows, f"{there.total()}", times=strange - lacking)
