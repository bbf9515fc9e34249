"""A topic that a list of topics leaves out for a moment: a lost permission, or a broker that does not know it yet."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from frazil.errors import Retryable
from frazil.run.state import context
from tests.operations import Killed, assert_clean, ledger, order, send
from tests.servers import delete_topic

MakeShop = Callable[..., Any]
AtFailpoint = Callable[..., Any]


def in_the_middle(shop: MakeShop, at_failpoint: AtFailpoint) -> Any:
    """A pipeline with a pattern that was killed after two of six records, and may give lost records up."""
    orders = shop(partitions=1, max_records=2)
    text = (orders.project.pipelines_folder / "orders.yaml").read_text()
    by_pattern = orders.with_pipeline(
        text.replace(f"topics: [{orders.topic}]", f'topics_pattern: "{orders.topic}", on_data_loss: skip_recorded')
    )
    send(by_pattern, {0: [order(number) for number in range(6)]})
    at_failpoint("record.committed", nth=2)
    with pytest.raises(Killed):
        by_pattern.run()
    assert by_pattern.ids() == [0, 1]
    return by_pattern


def skipped(orders: Any) -> list[list[Any]]:
    """Ranges that were given up, as the ledger tells them."""
    rows = [row for row in ledger(orders) if row["role"] == "destination"]
    return [skipped for row in rows for skipped in json.loads(row["skipped"] or "[]")]


def test_hidden_topic_is_not_given_up(
    shop: MakeShop, at_failpoint: AtFailpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A topic that is there although the list hides it from a plan is not given up for lost: every record lands, once."""
    orders = in_the_middle(shop, at_failpoint)
    monkeypatch.setattr(context, "matching_topics", lambda *_: ())
    at_failpoint("planned", monkeypatch.undo)

    orders.run()

    assert orders.ids() == [0, 1, 2, 3, 4, 5]
    assert skipped(orders) == []
    assert_clean(orders)


def test_hidden_topic_waits_until_it_is_listed(
    shop: MakeShop, at_failpoint: AtFailpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As long as it is hidden nothing lands and nothing is given up; the next run that sees it lands every record."""
    orders = in_the_middle(shop, at_failpoint)
    with monkeypatch.context() as hidden:
        hidden.setattr(context, "matching_topics", lambda *_: ())
        with pytest.raises(Retryable, match=orders.topic):
            orders.run()

    orders.run()

    assert orders.ids() == [0, 1, 2, 3, 4, 5]
    assert skipped(orders) == []
    assert_clean(orders)


def test_deleted_topic_does_not_block_pipeline(shop: MakeShop, at_failpoint: AtFailpoint) -> None:
    """Asked for by name and not there: what was not read of it is given up, on record, as the file allows."""
    orders = in_the_middle(shop, at_failpoint)
    delete_topic(orders.cluster, orders.topic)

    orders.run()

    assert orders.ids() == [0, 1]
    assert skipped(orders) == [[orders.topic, 0, 2, 6]]
