"""What is said of a pipeline that can be read in part."""

from __future__ import annotations

import pytest

from frazil.batch.facts import ClusterFacts, PartitionFacts, TopicFacts
from frazil.error_codes import INTERNAL
from frazil.monitor import reading
from frazil.project import Project


def test_unreachable_catalog_leaves_lag_unknown(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the position is not known nothing is said of lag, though Kafka would answer."""

    def away(_: object) -> None:
        raise INTERNAL.retryable("no answer")

    facts = ClusterFacts("c", {"orders": TopicFacts("t", (PartitionFacts(0, 500, 500),))})
    monkeypatch.setattr(reading, "table_status", away)
    monkeypatch.setattr(reading, "observe", lambda *_, **__: facts)

    condition = reading.read(project, project.pipeline("orders"))

    assert (condition.n, condition.lag, condition.retention, condition.unreadable) == (
        None,
        None,
        (),
        "no answer [FRZ-901]",
    )
