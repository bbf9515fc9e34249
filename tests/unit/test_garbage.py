"""How often Python looks for cycles."""

from __future__ import annotations

import gc

import pytest

from frazil.garbage import collecting_rarely


def test_a_failed_batch_leaves_the_collector_asleep() -> None:
    """Whoever staged in this process, Airflow's task for one, collects as before, also after an error."""
    before = gc.get_threshold()

    with pytest.raises(RuntimeError), collecting_rarely():
        assert gc.get_threshold()[0] > before[0]
        raise RuntimeError

    assert gc.get_threshold() == before
