"""Names of tables that records bring, and that are not there yet."""

from __future__ import annotations

import re
from typing import Final

NAMES_TOLD: Final = 1_000
"""Names of new tables that staging tells, the first in their order: records may bring millions."""

_FORM = re.compile(r"[\w-]+(\.[\w-]+)+")
_LONGEST: Final = 255

_OWN: Final = ("__ledger", "__dead_letters")
"""What names of tables that Frazil keeps for itself end with, whichever pipeline they are of."""


def unfit_because(name: str) -> str | None:
    """Why no table can be made of a name that a record brings; None if one can.

    Such a name becomes part of paths and of statements: it has letters, digits, `_` and `-` only.
    """
    if not _FORM.fullmatch(name) or len(name) > _LONGEST:
        return "is not namespace.table, of letters, digits, '_' and '-'"
    if name.endswith(_OWN):
        return "is the name of a table that Frazil keeps for itself"
    return None


def first_names(*parts: tuple[str, ...]) -> tuple[str, ...]:
    """The first of some names in their order, each once: the same whoever saw which of them."""
    return tuple(sorted({name for part in parts for name in part})[:NAMES_TOLD])
