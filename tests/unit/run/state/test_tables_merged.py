"""What the driver does with tables that rows are merged into."""

from __future__ import annotations

from typing import Any

import pytest

from frazil.batch.changes import Coordinates, Merge, RemovedRange
from frazil.batch.manifest import Operation
from frazil.batch.position import Position, TopicPosition
from frazil.errors import Terminal
from frazil.pipeline.models.pipeline_file import Pipeline
from frazil.run.commit.manifests import operation_of, row_removal
from frazil.run.state.tables import _full_metrics, closing_table, refuse_other_closing

COLUMNS = {"id": {"type": "long", "required": True}, "name": "string"}
DEBEZIUM = {"format": "debezium"}


def pipeline(**options: Any) -> Pipeline:
    """A pipeline with one merged table."""
    destination = {"table": "shop.customers", "columns": COLUMNS, "identifier": ["id"]} | options
    return Pipeline.model_validate({"name": "customers", "source": {"topics": ["c"]}, "destinations": [destination]})


def test_manifest_has_everything_for_the_merge() -> None:
    """The manifest has all that the engine needs: which rows are one, and what their offsets mean by now."""
    destination = pipeline(write="cdc", changes=DEBEZIUM, deletes="soft").destinations[0]
    topics = {"anew": TopicPosition("b", (0,), (3,), since=7), "c": TopicPosition("a", (0,), (3,))}
    operation = operation_of(destination, Position(9, 1, "cluster", topics))
    columns = Coordinates("_kafka_topic", "_kafka_partition", "_kafka_offset", "_frazil_batch")
    merge = Merge(("id",), columns, "_kafka_timestamp", None, "_frazil_deleted", {"anew": 7})
    assert operation == Operation("merge", (), merge)


def test_merged_table_keeps_its_position_in_the_ledger() -> None:
    """Its rows come by Spark, so the ledger keeps the position; where rows were appended before, it can't become one."""
    merged = pipeline(write="upsert")
    table, ledger = merged.tables[0], merged.ledger_table
    assert closing_table(merged, dict.fromkeys((table, ledger))) == ledger
    with pytest.raises(Terminal, match="only Spark can write"):
        refuse_other_closing(merged, table)


def test_ledger_in_another_namespace_is_reported_with_a_remedy() -> None:
    """The file can say where it is, so that is what to do: the pipeline lost nothing."""
    create = {"namespace": "ops", "columns": COLUMNS}
    route = {"field": {"name": "to", "allow": ["shop.*"]}, "create": create}
    definition = {"name": "customers", "source": {"topics": ["c"]}, "destinations": [], "route": route}
    with pytest.raises(Terminal, match=r"its ledger shop\.customers__ledger") as refusal:
        refuse_other_closing(Pipeline.model_validate(definition), "shop.customers__ledger")
    assert refusal.value.next_step is not None
    assert "route.create.namespace: shop" in refusal.value.next_step


def test_rows_of_a_merged_table_are_never_removed_by_offset() -> None:
    """A row of a merged table is what all changes of its key made of it: none goes because its last one comes again."""
    removed = (RemovedRange("c", 0, 0, None, 0),)
    assert row_removal(pipeline(write="upsert"), "shop.customers", removed) is None
    assert row_removal(pipeline(), "shop.customers", removed) is not None


@pytest.mark.parametrize(
    ("options", "is_forgotten"),
    [
        ({"write": "upsert"}, False),
        ({"write": "cdc", "changes": DEBEZIUM}, True),
        ({"write": "cdc", "changes": DEBEZIUM, "deletes": "soft"}, False),
    ],
)
def test_replay_that_would_restore_deleted_rows_is_refused(options: dict[str, Any], is_forgotten: bool) -> None:
    """Only where nothing is left of them is a replay refused."""
    merged = pipeline(**options)
    assert merged.forgets_deletes(merged.destinations[0]) == is_forgotten


def test_text_keys_have_whole_bounds() -> None:
    """Their bounds are whole, so that a merge can tell which files hold none of its keys."""
    columns = {**COLUMNS, "code": {"type": "string", "required": True}}
    destination = pipeline(write="upsert", columns=columns, identifier=["id", "code"]).destinations[0]
    assert _full_metrics(destination) == {"write.metadata.metrics.column.code": "full"}
