"""What tests do to servers, and no command does."""

from __future__ import annotations

from dataclasses import replace

from frazil.devstack.secured import Secured
from frazil.kafka.admin.observe import find
from frazil.kafka.client.client import REQUEST_SECONDS, admin
from frazil.kafka.client.cluster import Cluster
from frazil.runtime.home import LOOPBACK, Home
from frazil.runtime.process import until


def with_ports(home: Home, **ports: int) -> Home:
    """The same home on other ports, such as free ones."""
    return replace(home, ports=replace(home.ports, **ports))


def with_password(access: Secured, name: str, mechanism: str = "SCRAM-SHA-512") -> dict[str, str]:
    """Properties of librdkafka for a user, at the listener SASL_SSL."""
    return {
        "bootstrap.servers": f"{LOOPBACK}:{access.sasl}",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": mechanism,
        "ssl.ca.location": str(access.ca),
        "sasl.username": name,
        "sasl.password": access.users[name],
    }


def delete_topic(cluster: Cluster, name: str) -> None:
    """Delete a topic, and wait until the cluster does not know it any more."""
    with admin(cluster) as admin_client:
        futures = admin_client.client.delete_topics([name], request_timeout=REQUEST_SECONDS)
        admin_client.answer(futures[name], topic=name)
        assert until(lambda: find(admin_client, name) is None, 10), f"brokers still know topic {name}"
