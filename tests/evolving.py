"""A shop whose tables follow their records, and what they look like then."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from frazil.batch.facts import Staged
from frazil.batch.schema_change import SchemaChange
from frazil.report.history import history
from frazil.run.staging.stage import stage_inline
from tests.operations import lake, send

KAFKA = ("_kafka_topic", "_kafka_partition", "_kafka_offset", "_kafka_timestamp", "_frazil_batch")

PIPELINE = """
name: orders
source: {{topics: [{topic}]}}
engine: inline
destinations: [{destinations}]
limits: {{max_records: {max_records}}}
dead_letters: {{tolerance: all}}
"""


def evolving(shop: Callable[..., Any], *destinations: str, partitions: int = 1, max_records: int = 1000) -> Any:
    """A shop whose tables follow their records; by default one, without declared columns."""
    second_shop = shop(partitions=partitions)
    return rewritten(second_shop, *destinations, max_records=max_records)


def rewritten(shop: Any, *destinations: str, max_records: int = 1000) -> Any:
    entries = ", ".join(destinations or ("{table: shop.orders}",))
    return shop.with_pipeline(PIPELINE.format(topic=shop.topic, destinations=entries, max_records=max_records))


def put(shop: Any, *values: Any, partition: int = 0) -> None:
    """Send documents."""
    send(shop, {partition: [json.dumps(value).encode() for value in values]})


def types(shop: Any, table: str = "shop.orders") -> dict[str, str]:
    """Column -> type, Kafka's left out; optional all of them."""
    fields = [field for field in lake(shop).load_table(table).schema().fields if field.name not in KAFKA]
    assert not any(field.required for field in fields)
    return {field.name: str(field.field_type) for field in fields}


def rows(shop: Any, table: str = "shop.orders", *names: str) -> list[tuple[Any, ...]]:
    """Columns of all rows by offset."""
    rows = sorted(shop.rows(table), key=lambda row: (row["_kafka_partition"], row["_kafka_offset"]))
    return [tuple(row[name] for name in names) for row in rows]


def changes(shop: Any) -> list[dict[str, tuple[SchemaChange, ...]]]:
    """What every batch changed, those left out that changed nothing."""
    return [dict(batch.schema_changes) for batch in history(shop.project, shop.pipeline) if batch.schema_changes]


def files(shop: Any, table: str = "shop.orders") -> set[str]:
    return {task.file.file_path for task in lake(shop).load_table(table).scan().plan_files()}


def task_by_task(staged: list[Sequence[tuple[int, int, int]]]) -> Any:
    """An engine with a task per partition, which notes what it is asked for."""

    def stage(order: Any) -> Staged:
        staged.append([(r.partition, r.start, r.end) for r in order.ranges])
        return Staged.merged(stage_inline(replace(order, ranges=(r,))) for r in order.ranges)

    return stage
