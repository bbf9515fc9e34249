"""Every way to say who one is, from one entry of the settings, with exactly the grants that docs/grants.md lists."""

from __future__ import annotations

from typing import Any

import pytest

from frazil.kafka.admin.consumer_group import group_offsets
from tests.integration.security.conftest import user_of
from tests.topic_reader import values

pytestmark = pytest.mark.tried("Kafka: PLAIN, SCRAM, certificates and tokens", "real")


@pytest.mark.parametrize("mechanism", ["PLAINTEXT", "SSL", "PLAIN", "SCRAM-SHA-512", "OAUTHBEARER"])
def test_every_client_accepts_cluster_entry(ward: Any, mechanism: str) -> None:
    """Planner, reader, mirror and the producer of dead letters come with the same properties, and need no more than is listed."""
    ward.guarded.allow(*ward.needed(), user=user_of(mechanism))
    shop = ward.shop(ward.guarded.clients()[mechanism])

    exit_code = shop.run()

    assert (exit_code.written, exit_code.dead) == (2, 1)
    assert shop.ids() == [1, 2]
    ruler, topic = ward.guarded.ruler, ward.names["topic"]
    assert values(ruler, ward.names["letters"]) == [b"broken"]
    assert group_offsets(ruler, ward.names["group"], [(topic, 0)]) == {(topic, 0): 3}
