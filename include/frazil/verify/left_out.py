"""Records that a batch left out on purpose: where nobody but the writer can say which, the ledger says how many."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from frazil.verify.coverage import Key
from frazil.verify.ledger import READING, Batch
from frazil.verify.result import Difference


@dataclass
class LeftOut:
    """Records without outcome, held against the ledger's count of each batch.

    Attributes:
        allowed: Batch number -> records that it left out.
        found: Batch number -> records without outcome, as far as they were looked at.
        held: Partition -> the first offset from which on Kafka surely holds every record.
    """

    allowed: Mapping[int, int] = field(default_factory=dict)
    found: Counter[int] = field(default_factory=Counter)
    held: dict[Key, int] = field(default_factory=dict)

    @classmethod
    def of(cls, batches: Sequence[Batch]) -> LeftOut:
        """What the ledger says."""
        return cls({batch.n: batch.filtered for batch in batches if batch.kind in READING})

    def takes(self, n: int) -> bool:
        """Whether a record without outcome may be one that batch `n` left out. Counts it if so."""
        if self.found[n] >= self.allowed.get(n, 0):
            return False
        self.found[n] += 1
        return True

    def room(self, n: int) -> int:
        """How many further records without outcome may be ones that batch `n` left out."""
        return self.allowed.get(n, 0) - self.found[n]

    def takes_some(self, n: int, count: int) -> int:
        """Count so many records without outcome as left out by batch `n`, which has room for them."""
        self.found[n] += count
        return count

    def differences(self, whole: Sequence[Batch], of: Collection[int]) -> Iterator[Difference]:
        """Batches that left out fewer records than the ledger says: some of those have an outcome.

        Args:
            whole: Batches whose outcomes are all there, and were all looked at.
            of: Numbers of the batches whose records were counted here.
        """
        for batch in whole:
            seen = all(self.held.get((r.topic, r.partition), r.end) <= r.start for r in batch.ranges)
            if batch.n in of and seen and self.found[batch.n] < batch.filtered:
                expected = f"{batch.filtered} records of batch {batch.n} without outcome, as many as it left out"
                yield Difference("ledger", expected, f"{self.found[batch.n]}", batch=batch.n)
