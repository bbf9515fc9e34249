"""The line a demo ends with."""

from __future__ import annotations

import pytest

from frazil.report.reconcile import Reconciliation


def test_the_line_names_every_outcome() -> None:
    """Rows and dead letters add up to what was produced; filtered records show only if there are any."""
    assert str(Reconciliation(100, 97, 3, 0)) == "produced 100 = rows 97 + dead letters 3"
    assert str(Reconciliation(100, 96, 3, 1)) == "produced 100 = rows 96 + dead letters 3 + filtered 1"


@pytest.mark.parametrize(("rows", "difference"), [(96, 1), (98, -1)])
def test_a_lost_or_doubled_record_never_reads_as_even(rows: int, difference: int) -> None:
    """One record in a hundred is enough."""
    found = Reconciliation(100, rows, 3, 0)

    assert found.difference == difference
    assert "!=" in str(found)
    assert " = " not in str(found)
