"""Payments: compact JSON records without a key."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice
from random import Random
from typing import Final
from uuid import UUID

from frazil.generators.broken import CUT_OFF, EMPTY, TEXT_FOR_NUMBER, breakages, broken_value
from frazil.kafka.client.record import OutgoingRecord

KINDS: Final = (TEXT_FOR_NUMBER, CUT_OFF, EMPTY)

_TYPES: Final = ("debit", "credit", "bank_slip")
_GIVEN_NAMES: Final = ("Ana", "Bruno", "Carla", "Davi", "Elisa", "João", "Luísa", "Mateus", "Nádia", "Zoë")
_FAMILY_NAMES: Final = ("Almeida", "Barbosa", "Conceição", "Fernandes", "Guimarães", "Lima", "Müller", "Souza")
_DOCUMENTS: Final = 100
_LARGEST_AMOUNT: Final = 10_000
_UUID_BITS: Final = 128
_WINDOW_SECONDS: Final = 86_400
"""Payments are spread over the day before now."""


def payments(
    count: int, *, seed: int | None = None, broken_per_thousand: int = 0, now: datetime | None = None
) -> Iterator[OutgoingRecord]:
    """Yield exactly `count` payments.

    The time carries no zone (it is UTC), the document is a number that stays text. Arguments: see
    `frazil.generators.Generator`.
    """
    random = Random(seed)
    how = breakages(random, broken_per_thousand, KINDS)
    latest = now or datetime.now(UTC)
    return (_record(random, latest, kind) for kind in islice(how, count))


def _record(random: Random, latest: datetime, kind: str | None) -> OutgoingRecord:
    amount = random.randint(1, _LARGEST_AMOUNT)
    created = latest - timedelta(seconds=random.randrange(_WINDOW_SECONDS))
    payment = {
        "id": str(UUID(int=random.getrandbits(_UUID_BITS), version=4)),
        "type": random.choice(_TYPES),
        "created_at": f"{created:%Y-%m-%dT%H:%M:%S}",
        "document": str(random.randint(1, _DOCUMENTS)),
        "payer": f"{random.choice(_GIVEN_NAMES)} {random.choice(_FAMILY_NAMES)}",
        "amount": str(amount) if kind == TEXT_FOR_NUMBER else amount,
    }
    text = json.dumps(payment, ensure_ascii=False, separators=(",", ":"))
    return OutgoingRecord(None, broken_value(text, kind), kind=kind)
