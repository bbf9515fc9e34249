"""The topic of positions of captures."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from frazil.batch.facts import PartitionFacts
from frazil.errors import Terminal
from frazil.kafka.client.cluster import Cluster
from frazil.kafka.write import captures
from frazil.kafka.write.captures import ready_positions

CLUSTER = Cluster("local", {"bootstrap.servers": "127.0.0.1:1"})


def set_policies(monkeypatch: pytest.MonkeyPatch, *policies: str) -> None:
    """The topic is there, and Kafka removes its records so."""
    facts: Any = SimpleNamespace(topics={"positions": SimpleNamespace(partitions=(PartitionFacts(0, 0, 0),))})
    monkeypatch.setattr(captures, "observe", lambda *_, **__: facts)
    monkeypatch.setattr(captures, "cleanup_policies", lambda *_: {"positions": frozenset(policies)})


@pytest.mark.parametrize("policies", [("compact", "delete"), ("delete",), ()])
def test_topic_that_deletes_old_records_is_refused_for_positions(
    policies: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where Kafka removes old records too, the position of a capture that pauses is lost: refused."""
    set_policies(monkeypatch, *policies)
    with pytest.raises(Terminal, match=f"found {','.join(policies) or 'none'}"):
        ready_positions(CLUSTER, "positions")
    set_policies(monkeypatch, "compact")
    ready_positions(CLUSTER, "positions")


def test_topic_of_positions_has_short_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kafka cleans no segment that is still written, so they are short; and begins early."""
    set_policies(monkeypatch, "compact")
    policies_set: dict[str, str] = {}
    monkeypatch.setattr(captures, "create_topic", lambda *arguments: policies_set.update(arguments[-1]))
    absent = iter([SimpleNamespace(topics={})])
    real_observe = captures.observe
    monkeypatch.setattr(
        captures, "observe", lambda *arguments, **more: next(absent, None) or real_observe(*arguments, **more)
    )

    ready_positions(CLUSTER, "positions")

    assert int(policies_set["segment.ms"]) <= 10 * 60_000
    assert float(policies_set["min.cleanable.dirty.ratio"]) <= 0.1
