"""What the address of Spark's master tells. No pyspark here."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Final

_LOCAL: Final = re.compile(r"local(?:\[(\d+|\*)(?:,\d+)?\])?")

_STANDALONE: Final = "spark://"
"""Begin of the address of a standalone cluster's master."""


def is_local(master: str) -> bool:
    """Return whether Spark is one JVM and its Python workers: no cluster, and no executors of their own."""
    return _LOCAL.fullmatch(master) is not None


def cores(told: Callable[[str], str]) -> int:
    """Cores of the executors, as far as the configuration tells. By configuration alone, for Spark Connect's sake.

    Args:
        told: What a key of Spark's configuration is set to; empty: it is not set.
    """
    master = told("spark.master")
    if (local := _LOCAL.fullmatch(master)) is not None:
        return (os.cpu_count() or 1) if local[1] == "*" else int(local[1] or 1)
    each = int(told("spark.executor.cores") or 1)
    instances = _executors(told)
    if master.startswith(_STANDALONE) and (most := told("spark.cores.max")):
        # As many executors as that takes, all of one size: there is no number of them to configure.
        return max(int(most) // each, 1) * each
    return instances * each


def _executors(told: Callable[[str], str]) -> int:
    """Executors that there may be: as many tasks bring them, where they come and go by need."""
    if told("spark.dynamicAllocation.enabled") == "true" and (most := told("spark.dynamicAllocation.maxExecutors")):
        return int(most)
    return int(told("spark.executor.instances") or 1)
