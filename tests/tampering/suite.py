"""Every way to tamper, and what `frazil verify` says of it; docs/reliability.md has it as a table."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from frazil.errors import FrazilError
from frazil.verify.facts.result import Difference, Verification
from tests.tampering import ledger_edits, row_edits
from tests.tampering.pipelines import ORDERS, Landed
from tests.tampering.tampering import Tampering

LOG: Final = logging.getLogger(__name__)

TAMPERINGS: Final = (*row_edits.TAMPERINGS, *ledger_edits.TAMPERINGS)

NOT_SEEN: Final = "nothing"
"""What verify says of an edit that it does not see."""

MISSED: Final[Mapping[str, Mapping[str, str]]] = json.loads(Path(__file__).with_name("missed.json").read_text("utf-8"))
"""Circumstance, and `_edited` if the file was edited since -> edit -> what verify says, where it does not say what it must yet."""


def missed(landed: Landed, circumstance: str, *, is_edited: bool) -> dict[str, str]:
    """Tamper in every way, and return by edit what verify says where it does not say what it must; log its sentences.

    Args:
        landed: What is tampered with; it is restored after each edit.
        circumstance: Its name.
        is_edited: Whether its pipeline file was edited since.
    """
    verdicts: dict[str, str] = {}
    for one in TAMPERINGS:
        if expected := one.expected(circumstance, is_edited=is_edited):
            words, lines = verdict(one, landed)
            landed.restore()
            if words != expected:
                name = one.edit.__name__
                verdicts[name] = words
                sentences = "\n  ".join(lines[:5])
                LOG.warning("%s, is_edited=%s: expected %s, said %s\n  %s", name, is_edited, expected, words, sentences)
    return verdicts


def documented_verdict(tampering: Tampering, circumstance: str, *, is_edited: bool) -> str:
    """What the table says that verify says: bold where it must say more."""
    misses = MISSED.get(f"{circumstance}_edited" if is_edited else circumstance, {})
    return (
        f"**{misses[tampering.edit.__name__]}**"
        if tampering.edit.__name__ in misses
        else tampering.expected(circumstance, is_edited=is_edited)
    )


def verdict(tampering: Tampering, landed: Landed) -> tuple[str, list[str]]:
    """Tamper, and put what verify says of it in the words of `expected`; beside it its sentences."""
    tampering.edit(landed)
    try:
        verification = landed.verified()
    except FrazilError as error:
        return "refused" if tampering.words in str(error) else "refused, without the reason", [str(error)]
    return _kinds(tampering, verification), [str(difference) for difference in verification.differences]


def _kinds(tampering: Tampering, verification: Verification) -> str:
    kinds = {each.kind if _is_named(tampering, each) else f"{each.kind} elsewhere" for each in verification.differences}
    if verification.foreign:
        kinds.add("foreign")
    if verification.batches_not_judged:
        kinds.add("not compared")
    if verification.notes:
        kinds.add("noted")
    return ", ".join(sorted(kinds)) or NOT_SEEN


def _is_named(tampering: Tampering, difference: Difference) -> bool:
    """Whether a difference is about what was done, and no innocent record or table."""
    if difference.kind == "ledger" or difference.offset is None or difference.partition is None:
        return tampering.words in str(difference)
    is_place = tampering.at is None or (difference.partition, difference.offset) in tampering.at
    return is_place and (difference.table in (None, ORDERS) or tampering.kind in ("ledger", "position"))
