"""Versions of what one Frazil writes and another one reads, perhaps an older one.

A written form that changes in any way gets the next version, and its reader keeps reading the former ones: texts of each are
kept with the tests.
"""

from __future__ import annotations

from frazil import __version__
from frazil.errors import Terminal

UPGRADE = "upgrade this Frazil to the one that wrote it or a newer one; docs/upgrading.md has the order of parts"


def check_version(what: str, found: object, newest: int, oldest: int = 1) -> None:
    """Refuse a version that is not read.

    Args:
        what: What was found, such as `position`.
        found: Its version, as it stands there.
        newest: The version that this Frazil writes.
        oldest: The oldest version that it reads.

    Raises:
        Terminal: A newer Frazil wrote it, or one that is too old.
        ValueError: It is no version.
    """
    if not isinstance(found, int) or isinstance(found, bool) or found < 1:
        raise ValueError(f"version {found!r}")
    reads = f"version {newest}" if oldest == newest else f"versions {oldest} to {newest}"
    if found > newest:
        raise Terminal(
            f"{what} of version {found} was found, written by a newer Frazil: this one, {__version__}, reads {reads}",
            next_step=UPGRADE,
        )
    if found < oldest:
        raise Terminal(
            f"{what} of version {found} was found, written by an older Frazil: this one, {__version__}, reads {reads}",
            next_step="run again: what is handed over within a run is written anew by the next one",
        )
