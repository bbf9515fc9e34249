"""Keys of a worker file: those that say how to reach Kafka and how values are decoded matter, the rest runs Kafka Connect."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Final

from frazil.connect.findings import Finding, Keys
from frazil.connect.kafka_clients import is_client_property

_RUNS_CONNECT: Final = (
    *("group.id", "plugin.path", "plugin.discovery", "listeners", "client.id", "exactly.once.source.support"),
    *("task.shutdown.graceful.timeout.ms", "connector.client.config.override.policy", "header.converter"),
    *("scheduled.rebalance.max.delay.ms", "rebalance.timeout.ms", "worker.sync.timeout.ms", "worker.unsync.backoff.ms"),
    *("connect.protocol", "topic.creation.enable", "topic.tracking.enable", "topic.tracking.allow.reset"),
    *("inter.worker.key.generation.algorithm", "access.control.allow.origin", "access.control.allow.methods"),
    *("response.http.headers.config", "key.converter", "value.converter", "bootstrap.servers"),
)
_FAMILIES: Final = (
    *("offset.", "config.", "status.", "rest.", "admin.", "producer.", "metrics.", "inter.worker.", "internal."),
    *("listeners.https.", "topic.creation.", "confluent.", "header.converter.", "key.converter.", "value.converter."),
)


def close_worker(worker: Keys) -> tuple[Finding, ...]:
    """Put what is left over of a worker file into classes, and hand all findings out."""
    for name in list(worker.unsaid()):
        plain = name.removeprefix("consumer.")
        if name in _RUNS_CONNECT or name.startswith(_FAMILIES) or is_client_property(plain):
            worker.say(name, "changed", "runs Kafka Connect's workers, of which there are none here")
            continue
        near = get_close_matches(name, _RUNS_CONNECT, 1, 0.75)
        hint = f"did you mean {near[0]}?" if near else None
        worker.say(name, "unknown", "not a key of a worker of Kafka Connect", hint)
    return worker.close()
