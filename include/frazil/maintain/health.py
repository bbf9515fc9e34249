"""The health of a table as one number, and what takes from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from frazil.iceberg.inspection import Inspection

WEIGHTS: Final[Mapping[str, int]] = {"small files": 40, "delete files": 20, "snapshots": 20, "manifests": 20}
"""Points that each ailment takes at most; together they are 100."""

_FEW: Final = 20
"""Shares are of this many at least: a table of three files is not ill."""


@dataclass(frozen=True)
class Health:
    """How well a table is.

    Attributes:
        score: 0 to 100.
        lost: Ailment -> points that it took, those above zero.
    """

    score: int
    lost: Mapping[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        took = ", ".join(f"{name} -{points}" for name, points in self.lost.items())
        return f"{self.score} ({took})" if took else str(self.score)


def health(found: Inspection, expirable: int) -> Health:
    """Judge a table: 100, less each ailment's points times its share.

    - small files: those that could be merged away, of all data files. Of a partition that is all small files but those
      that they would fill.
    - delete files: per data file, at most one.
    - snapshots: those that an expiry would take, of all.
    - manifests: those that could be merged away, of all.
    """
    shares = {
        "small files": avoidable_files(found) / max(found.files, _FEW),
        "delete files": min(1.0, found.deletes / max(found.files, _FEW)),
        "snapshots": expirable / max(len(found.snapshots), _FEW),
        "manifests": avoidable_manifests(found) / max(found.manifests, _FEW),
    }
    lost = {name: round(WEIGHTS[name] * share) for name, share in shares.items()}
    return Health(100 - sum(lost.values()), {name: points for name, points in lost.items() if points})


def avoidable_files(found: Inspection) -> int:
    """Small files less those that they would fill, partition by partition."""
    return sum(of.small_files - -(-of.small_bytes // found.target_bytes) for of in found.partitions if of.small_files)


def avoidable_manifests(found: Inspection) -> int:
    """Manifests less those that would do."""
    return max(0, found.manifests - found.manifests_needed)
