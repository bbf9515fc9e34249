"""Snapshots that may go: old ones that no branch keeps."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from frazil.iceberg.inspection import BranchRules, Inspection, SnapshotAge
from frazil.pipeline.maintenance import Expiry, parse_age

_AGE: Final = "history.expire.max-snapshot-age-ms"
_KEEP: Final = "history.expire.min-snapshots-to-keep"
_DEFAULT_AGE: Final = timedelta(days=5)
_UNITS: Final = (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))


def expiry_age(found: Inspection, rules: Expiry) -> timedelta:
    """Age at which a snapshot may go: by the pipeline file, else by the table, else five days."""
    if rules.older_than is not None:
        return parse_age(rules.older_than)
    own = found.properties.get(_AGE)
    return _DEFAULT_AGE if own is None else timedelta(milliseconds=int(own))


def shown_age(age: timedelta) -> str:
    """An age as pipeline files have it, in the largest unit that counts it whole: 5d, 36h, 90m."""
    seconds = round(age.total_seconds())
    unit, size = next(of for of in _UNITS if seconds % of[1] == 0)
    return f"{seconds // size}{unit}"


def expiry_keep(found: Inspection, rules: Expiry) -> int:
    """Snapshots of each branch that stay whatever their age."""
    return rules.keep if rules.keep is not None else int(found.properties.get(_KEEP, 1))


def expirable(found: Inspection, rules: Expiry, now: datetime) -> frozenset[int]:
    """Snapshots that an expiry would take. What a branch says of itself counts there, as for Iceberg."""
    before = int((now - expiry_age(found, rules)).timestamp() * 1000)
    stay = set(found.tags)
    for branch in found.branches.values():
        stay |= _stay(found, branch, expiry_keep(found, rules), before, int(now.timestamp() * 1000))
    past = _pasts(found)
    return frozenset(of.id for of in found.snapshots if of.id not in stay and (of.id in past or of.made_ms < before))


def _stay(found: Inspection, branch: BranchRules, keep: int, before: int, now_ms: int) -> set[int]:
    """Snapshots of a branch that stay."""
    least = branch.keep if branch.keep is not None else keep
    oldest = now_ms - branch.max_age_ms if branch.max_age_ms is not None else before
    stay: set[int] = set()
    for of in _ancestry(found, branch.head):
        if len(stay) >= least and of.made_ms < oldest:
            break
        stay.add(of.id)
    return stay


def _pasts(found: Inspection) -> frozenset[int]:
    """Snapshots of any branch's past; others go by their age alone."""
    return frozenset(of.id for branch in found.branches.values() for of in _ancestry(found, branch.head))


def _ancestry(found: Inspection, head: int) -> list[SnapshotAge]:
    by_id = {of.id: of for of in found.snapshots}
    past: list[SnapshotAge] = []
    at = by_id.get(head)
    while at is not None:
        past.append(at)
        at = by_id.get(at.parent) if at.parent is not None else None
    return past
