"""Sends what a test needs in a topic, in milliseconds."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from frazil.kafka.client import client
from frazil.kafka.client.cluster import Cluster, OutgoingRecord
from frazil.kafka.write import produce as write

_PLAIN = {"enable.idempotence": False, "max.in.flight.requests.per.connection": 1}
"""One request at a time keeps the order. librdkafka looks for an id of an idempotent producer as it is made, before it is
connected, and again half a second later: with thousands of producers that was a quarter of an hour of waiting."""


def produce(cluster: Cluster, topic: str, records: Iterable[OutgoingRecord]) -> write.Produced:
    """Send records as the product does, but by a producer that is not idempotent."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(client, "_PRODUCER", client._PRODUCER | _PLAIN)
        return write.produce(cluster, topic, records)
