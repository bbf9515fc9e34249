"""The last line of a demo: what was produced against what `frazil verify` finds in the tables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from frazil.cli.demo.run import _print_reconciliation

Make = Callable[..., Any]


def test_reconciliation_adds_up_or_names_the_record(shop: Make, capsys: pytest.CaptureFixture[str]) -> None:
    """Rows and dead letters of what was produced; a row that somebody deletes is missing by its coordinates."""
    orders = shop(partitions=1)
    orders.produce_orders(range(20))
    orders.produce([b"broken"])
    orders.run()

    assert _print_reconciliation(orders.project, orders.pipeline)
    assert capsys.readouterr().out.splitlines()[-1] == "produced 21 = rows 20 + dead letters 1"

    orders.project.lake("lake").load_table("shop.orders").delete("id = 7")
    assert not _print_reconciliation(orders.project, orders.pipeline)
    lines = capsys.readouterr().out.splitlines()
    assert "produced 21 != rows 19 + dead letters 1" in lines
    assert "1 records are missing" in lines
    assert any("offset 7" in line for line in lines)
