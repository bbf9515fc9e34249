"""A pipeline with a dead-letter topic, and the limit of such a topic."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType


def sending(orders: Any, *, partitions: int = 1) -> tuple[Any, str]:
    """The shop under a pipeline file with a dead-letter topic, and the topic's name."""
    topic = f"letters-{uuid4().hex[:8]}"
    text = (orders.project.pipelines_folder / "orders.yaml").read_text()
    letters = f"dead_letters: {{topic: {{name: {topic}, partitions: {partitions}}}, "
    return orders.with_pipeline(text.replace("dead_letters: {", letters)), topic


def limit(orders: Any, topic: str, size: int) -> None:
    """The largest record that a topic takes."""
    admin = AdminClient(dict(orders.cluster.properties))
    entry = ConfigEntry("max.message.bytes", str(size), incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result()
