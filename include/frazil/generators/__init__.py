"""Made-up but plausible records for demos, tests and measurements, and the lines of a file.

Generators are seeded: the same arguments give the same bytes. A chosen share of the records is
broken on purpose and says how (`OutgoingRecord.kind`), so that a reader of the topic can be checked
against exact numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from types import MappingProxyType
from typing import Final, Protocol

from frazil.error_codes import BAD_FILE
from frazil.generators.payments import payments
from frazil.generators.pizzas import pizzas
from frazil.kafka.client.record import OutgoingRecord

__all__ = ["DEMO_BROKEN_PER_THOUSAND", "GENERATORS", "Generator", "lines", "payments", "pizzas"]

DEMO_BROKEN_PER_THOUSAND: Final = 3
"""Broken records per thousand in the demo: enough to see dead
letters from the first minute, far below the tolerated rate."""


class Generator(Protocol):
    """Makes exactly `count` records."""

    def __call__(
        self,
        count: int,
        *,
        seed: int | None = None,
        broken_per_thousand: int = 0,
        now: datetime | None = None,
    ) -> Iterator[OutgoingRecord]:
        """Yield the records.

        Args:
            count: How many, broken ones included.
            seed: Equal seeds (with equal `now`) give equal records; None for other ones each time.
            broken_per_thousand: How many of every thousand are broken, at places that the seed
                decides.
            now: The latest time in the records; None for the present.
        """
        ...


GENERATORS: Final[Mapping[str, Generator]] = MappingProxyType({"pizzas": pizzas, "payments": payments})
"""By the name that `frazil produce --generate` takes."""


def lines(path: Path) -> Iterator[OutgoingRecord]:
    """Yield one record without key per line: its bytes as they are, without the newline.

    An empty line is a record too.

    Raises:
        Terminal: the file can't be read.
    """
    try:
        with path.open("rb") as file:
            for line in file:
                yield OutgoingRecord(None, line.removesuffix(b"\n"))
    except OSError as error:
        raise BAD_FILE.terminal(
            f"can't read {path}: {error.strerror}",
            next_step="give a readable file with one record per line",
        ) from error
