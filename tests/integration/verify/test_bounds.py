"""`--from` and `--to`: what was asked for is compared, and what can't be asked for is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from frazil.errors import Terminal

Make = Callable[..., Any]


def totals(verification: Any, *names: str) -> tuple[int, ...]:
    return tuple(sum(getattr(partition, name) for partition in verification.partitions) for name in names)


def test_only_what_was_asked_for_is_compared(shop: Make, check: Make, tmp_path: Path) -> None:
    """A file of offsets bounds the check per partition; an instant does it for all."""
    orders = shop(partitions=1)
    orders.produce_orders(range(20))
    orders.run()
    low, high = tmp_path / "low.json", tmp_path / "high.json"
    low.write_text(json.dumps({orders.topic: {"0": 5}}))
    high.write_text(json.dumps({orders.topic: [12]}))

    assert totals(check(orders, str(low), str(high)), "covered", "records", "rows") == (7, 7, 7)
    assert totals(check(orders, "2001-01-01"), "records") == (20,)
    assert totals(check(orders, "2101-01-01"), "records") == (0,)


def test_bounds_that_name_nothing_are_refused(shop: Make, check: Make, tmp_path: Path) -> None:
    """A mistyped partition, an end before the beginning: nothing would be compared, and called clean."""
    orders = shop(partitions=1)
    orders.produce_orders(range(5))
    orders.run()
    second_file, low, high = (tmp_path / name for name in ("other.json", "low.json", "high.json"))
    second_file.write_text(json.dumps({orders.topic: {"7": 5}}))
    low.write_text(json.dumps({orders.topic: [1]}))
    high.write_text(json.dumps({orders.topic: [4]}))

    with pytest.raises(Terminal, match=f"{orders.topic}/7"):
        check(orders, str(second_file))
    with pytest.raises(Terminal, match="4 to 1"):
        check(orders, str(high), str(low))
    with pytest.raises(Terminal, match="before --from"):
        check(orders, "latest", "earliest")
    assert totals(check(orders, "earliest", "latest"), "records") == (5,)
    assert totals(check(orders, str(low), "latest"), "records") == (4,)
    assert totals(check(orders, "latest"), "records", "covered") == (0, 0)
