"""What the batches of a window amount to, by the ledger."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from frazil.monitor.batches import Ledger
from frazil.monitor.condition import Condition


def with_batches(condition: Condition, ledger: Ledger) -> Condition:
    """The condition with what batches landed in its window, and when one did last. Replays don't count: they land again.

    Raises:
        Retryable: The storage can't be read now.
    """
    until = condition.at + timedelta(seconds=1)  # a commit of this very second counts
    found = ledger.total(condition.at - timedelta(seconds=condition.window_seconds), until)
    return replace(
        condition,
        last_commit=ledger.last_commit(),
        rows=found.rows,
        dead=found.dead,
        filtered=found.filtered,
        dead_codes=found.dead_codes,
        freshness=found.freshness,
    )
