"""A settle that is killed, or meets a run or another settle: every letter is there once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from frazil.errors import Retryable
from tests.operations import (
    ALL_LETTERS,
    LETTERS,
    Killed,
    assert_clean,
    bad,
    drop,
    landed,
    letters,
    order,
    send,
    settle,
)

MakeShop = Callable[..., Any]
At = Callable[..., Any]


@pytest.mark.short("decide.committed")
@pytest.mark.parametrize(
    "point", ["manifest.written", "decide.committing", "decide.committed", "follow.committing", "follow.committed",
              "record.committing", "record.committed"],
)  # fmt: skip
def test_killed_settle_loses_or_doubles_letters(shop: MakeShop, at: At, point: str) -> None:
    """Killed at any step, a second settle or the next run carries on."""
    orders = landed(shop)
    drop(orders, LETTERS)
    at(point)
    with pytest.raises(Killed):
        settle(orders, LETTERS)

    settle(orders, LETTERS)
    send(orders, {0: [order(12), bad(13)]})
    orders.run()

    assert letters(orders) == [*ALL_LETTERS, (0, 13, 5)]
    assert_clean(orders)


def test_two_settles_at_once_double_letters(shop: MakeShop, at: At) -> None:
    """The slower one is refused or finds its work done; every letter is there once."""
    orders = landed(shop)
    drop(orders, LETTERS)
    at("decide.committing", lambda: settle(orders, LETTERS))
    with pytest.raises(Exception, match="faster"):
        settle(orders, LETTERS)

    assert settle(orders, LETTERS) is None
    assert letters(orders) == ALL_LETTERS
    assert_clean(orders)


def test_run_cannot_finish_a_settle(shop: MakeShop, at: At) -> None:
    """A decided settle is rolled forward by whoever comes next."""
    orders = landed(shop)
    drop(orders, LETTERS)
    at("decide.committed")
    with pytest.raises(Killed):
        settle(orders, LETTERS)
    send(orders, {0: [order(12)]})

    assert orders.run().read == 1
    assert letters(orders) == ALL_LETTERS
    assert_clean(orders)


def test_run_and_settle_at_once(shop: MakeShop, at: At) -> None:
    """A run is stopped by the loss while it follows up; a settle beside it finishes its batch."""
    orders = landed(shop, 2)
    send(orders, {0: [order(8), bad(9), order(10), bad(11)]})

    def lose_and_settle() -> None:
        drop(orders, LETTERS)
        settle(orders, LETTERS)

    at("follow.committing", lose_and_settle)
    with pytest.raises(Retryable, match="finished by another run"):
        orders.run()

    assert orders.run().batches == 0
    assert letters(orders) == ALL_LETTERS
    assert_clean(orders)
