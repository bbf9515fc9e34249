"""What the batches of a window amount to, by the ledger."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from frazil.batch.record_ages import ages_from, freshness
from frazil.iceberg.ledger import first_rows, read_ledger
from frazil.monitor.condition import Condition, Freshness
from frazil.run.scope import Scope


def with_batches(condition: Condition, scope: Scope, since: datetime) -> Condition:
    """The condition with what batches landed since an instant, and when one did last. Replays don't count: they land again.

    Raises:
        Retryable: The catalog or the storage can't be read now.
    """
    rows = read_ledger(scope.lake, scope.pipeline.ledger_table, scope.pipeline.name)
    batches = [row for row in first_rows(rows) if row["kind"] == "ingest" and row["records_read"]]
    recent = [row for row in batches if row["decided_at"] >= since]
    codes: Counter[str] = Counter()
    for row in recent:
        codes.update(json.loads(row["dead_codes"]))
    return replace(
        condition,
        last_commit=max((row["decided_at"] for row in batches), default=None),
        rows=sum(row["records_written"] for row in recent),
        dead=sum(row["records_dead"] for row in recent),
        filtered=sum(row["records_filtered"] for row in recent),
        dead_codes=dict(codes.most_common()),
        freshness=_freshness(recent),
    )


def _freshness(rows: Sequence[Mapping[str, Any]]) -> Freshness:
    aged = ((row["planned_at"], row["decided_at"], ages_from(row.get("record_ages"))) for row in rows)
    found = freshness(aged, (0.5, 0.95, 0.99))
    return Freshness() if found is None else Freshness(*found)
