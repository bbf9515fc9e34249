"""What keeps a pipeline from reading records once more."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from frazil.errors import Terminal
from frazil.pipeline.models.pipeline_file import Pipeline
from frazil.run.repair.replay import refuse_forgotten_deletes, refuse_without_coordinates
from frazil.run.state.context import RunContext

MERGED = {"write": "cdc", "identifier": ["id"], "changes": {"format": "debezium"}}


def scope(**template: Any) -> RunContext:
    """A pipeline that made no table yet."""
    create = {"namespace": "shop", "columns": {"id": {"type": "long", "required": True}}, **template}
    route = {"field": {"name": "to", "allow": ["shop.*"]}, "create": create}
    definition = {"name": "orders", "source": {"topics": ["t"]}, "engine": "spark", "destinations": [], "route": route}
    return cast("RunContext", SimpleNamespace(pipeline=Pipeline.model_validate(definition)))


def test_replay_into_tables_not_yet_created_is_refused_for_changes() -> None:
    """A replay may make them, and then brings deleted rows back as it would in a listed one."""
    with pytest.raises(Terminal, match=r"route\.create keeps no trace of deleted rows"):
        refuse_forgotten_deletes(scope(**MERGED))
    refuse_forgotten_deletes(scope(**MERGED, deletes="soft"))


def test_replay_into_tables_not_yet_created_needs_kafka_columns() -> None:
    """Rows that they get could not be replaced by the next replay."""
    with pytest.raises(Terminal, match=r"route\.create has no Kafka columns"):
        refuse_without_coordinates(scope(kafka_columns=False))
    refuse_without_coordinates(scope())
