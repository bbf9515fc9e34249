"""How often Python looks for cycles."""

from __future__ import annotations

import gc

import pytest

from frazil.gc_tuning import collecting_rarely


@collecting_rarely()
def fail(before: int) -> None:
    assert gc.get_threshold()[0] > before
    raise RuntimeError


def test_failed_batch_leaves_the_collector_enabled() -> None:
    """Whoever staged in this process, Airflow's task for one, collects as before, also after an error."""
    before = gc.get_threshold()

    with pytest.raises(RuntimeError):
        fail(before[0])

    assert gc.get_threshold() == before
