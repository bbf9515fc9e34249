"""What stands before an operator's deed, the deeds, and what must hold afterwards: for tests with a shop."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from pyiceberg.catalog import Catalog, load_catalog

from frazil.batch.position import Position, RunRequest, Target, parse_target
from frazil.iceberg.catalog.catalog import Lake
from frazil.iceberg.commit.summary_state import (
    BATCH_KEY,
    MANIFEST_KEY,
    lookup_position,
    remaining_value,
    summary_value_or_refuse,
)
from frazil.iceberg.ledger.ledger import read_ledger
from frazil.kafka.admin.topics import create_topic
from frazil.run.batches.plan import RunResult, plan_run, run_result
from frazil.run.batches.session import ingest
from frazil.run.repair import repair as repairs
from frazil.run.repair import reset as resets
from frazil.run.repair.reset_batch import ResetOrder
from frazil.run.staging.stage import Stage, stage_inline
from frazil.run.state.context import RunContext
from frazil.verify.check import verify
from tests.servers import delete_topic

ORDERS, LETTERS, LEDGER = "shop.orders", "shop.orders__dead_letters", "shop.orders__ledger"
TABLES = (ORDERS, LETTERS, LEDGER)
"""The tables of a shop with one destination."""

ALL_LETTERS = [(0, 1, 1), (0, 3, 1), (0, 5, 2), (0, 7, 2), (0, 9, 3), (0, 11, 3)]
"""Partition, offset and batch number of the dead letters that three batches of `landed` leave."""

ALL_ROWS = [(p, o) for p in (0, 1) for o in range(8) if o not in (1, 5)]
"""Partition and offset of the rows that `landed_in_two_partitions` leaves."""


class Killed(BaseException):
    """Ends a run like a kill: nothing inside may catch it."""


def landed(shop: Callable[..., Any], batches: int = 3) -> Any:
    """A shop with batches of two good and two bad records each, in one partition: odd offsets are bad."""
    orders = shop(partitions=1)
    for n in range(batches):
        send(orders, {0: [order(4 * n), bad(4 * n + 1), order(4 * n + 2), bad(4 * n + 3)]})
        result = orders.run()
        assert result.batches == 1, result
    return orders


def landed_in_two_partitions(shop: Callable[..., Any]) -> Any:
    """A shop with two batches, in each partition offsets 0 to 3, then 4 to 7; 1 and 5 are bad."""
    orders = shop(partitions=2)
    for n in (0, 4):
        send(orders, {p: [order(n), bad(n + 1), order(n + 2), order(n + 3)] for p in (0, 1)})
        result = orders.run()
        assert result.batches == 1, result
    return orders


def without_kafka_columns(shop: Callable[..., Any]) -> Any:
    """A shop of one partition, whose rows don't say where they came from; nothing is landed."""
    orders = shop(partitions=1)
    text = (orders.project.pipelines_folder / "orders.yaml").read_text()
    destination = "- table: shop.orders\n"
    return orders.with_pipeline(text.replace(destination, f"{destination}    kafka_columns: false\n"))


def scope(shop: Any, report: Callable[[str], None] = lambda _: None) -> RunContext:
    return RunContext.open(shop.project, shop.pipeline, report)


def lake(shop: Any) -> Lake:
    return shop.project.lake_of(shop.pipeline)


def request(reason: str = "a test") -> RunRequest:
    return RunRequest(str(uuid4()), started_by="cli:tester@here", reason=reason)


def offsets(shop: Any, *per_partition: int, topic: str | None = None) -> Target:
    """A target as a file of offsets says it."""
    return Target("offsets", offsets={topic or shop.topic: dict(enumerate(per_partition))})


def reset(shop: Any, to: str | Target, topics: tuple[str, ...] = (), *, allow_duplicates: bool = False) -> Position:
    """Plan and do a reset."""
    target = parse_target(to) if isinstance(to, str) else to
    planned = resets.plan_reset(scope(shop), ResetOrder(target, topics, allow_duplicates))
    return resets.reset(scope(shop), planned, request())


def to_table(shop: Any, *, allow_duplicates: bool = False) -> Position:
    """Reset to what the closing table holds."""
    planned = resets.plan_reset(scope(shop), ResetOrder(None, allow_duplicates=allow_duplicates))
    return resets.reset(scope(shop), planned, request())


def replay(
    shop: Any, start: str | Target, end: str | Target | None = None, run: str | None = None, stage: Stage = stage_inline
) -> RunResult:
    """Plan and do a replay."""
    places = [parse_target(bound) if isinstance(bound, str) else bound for bound in (start, end)]
    run_id = run or str(uuid4())
    run_request = RunRequest(run_id, "cli:tester@here", "replay", *places, reason="a test")
    planned = plan_run(shop.project, shop.pipeline, run_request)
    if planned.plan is not None:
        ingest(shop.project, shop.pipeline, planned.plan, stage, lambda _: None)
    return run_result(shop.project, shop.pipeline, run_id)


def repair(
    shop: Any, table: str, *, replays: bool = True, report: Callable[[str], None] = lambda _: None
) -> repairs.PlannedRepair | None:
    """Plan and do a repair, and the replay behind it, as the command does; None if there is nothing to do."""
    planned = repairs.plan_repair(scope(shop, report), table)
    if not planned.is_needed:
        return None
    run_request = request()
    repairs.repair(scope(shop, report), planned, run_request)
    filling = planned.replay_request(run_request) if replays else None
    plan = plan_run(shop.project, shop.pipeline, filling).plan if filling is not None else None
    if plan is not None:
        ingest(shop.project, shop.pipeline, plan, stage_inline, report)
    return planned


def position(shop: Any) -> Position:
    """The position as the closing table holds it."""
    position = remaining_value(lookup_position(lake(shop).load_table(ORDERS), "orders", ORDERS))
    assert position is not None
    return Position.from_json(position.value)


def ledger(shop: Any, kind: str | None = None) -> list[dict[str, Any]]:
    """Rows of the ledger, of one kind if given."""
    rows = read_ledger(lake(shop), LEDGER, "orders")
    return [row for row in rows if kind in (None, row["kind"])]


def state(orders: Any) -> dict[str, tuple[str, int | None, dict[str, str]] | None]:
    """Identity, head and properties of every table; None for one that is not there."""
    tables = {table: lake(orders).find_table(table) for table in TABLES}
    return {
        name: (str(table.metadata.table_uuid), table.metadata.current_snapshot_id, dict(table.properties))
        if table is not None
        else None
        for name, table in tables.items()
    }


def places(shop: Any) -> list[tuple[int, int]]:
    """Partition and offset of every row, sorted."""
    return sorted((row["_kafka_partition"], row["_kafka_offset"]) for row in shop.rows())


def letters(shop: Any) -> list[tuple[int, int, int]]:
    """Partition, offset and batch number of every dead letter, sorted."""
    return sorted((row["partition"], row["offset"], row["_frazil_batch"]) for row in shop.rows(LETTERS))


def catalog(shop: Any) -> Catalog:
    """The catalog without Frazil, for deeds of others."""
    settings = shop.project.settings.catalogs["lake"]
    places = {"uri": settings.address} | ({"warehouse": settings.warehouse} if settings.warehouse else {})
    if settings.type == "glue":
        places |= {"glue.endpoint": settings.uri}
    return load_catalog("lake", type=settings.type.replace("jdbc", "sql"), **places, **settings.properties)


def drop(shop: Any, table: str) -> None:
    catalog(shop).drop_table(table)


def remake(shop: Any, table: str) -> None:
    """Drop a table and make one of the same shape, as a person does who wants it empty."""
    loaded = lake(shop).load_table(table)
    drop(shop, table)
    catalog(shop).create_table(table, loaded.schema(), partition_spec=loaded.spec())


def roll_back(shop: Any, table: str, snapshots: int = 1) -> None:
    """Roll main back by so many snapshots."""
    loaded = lake(shop).load_table(table)
    snapshot = loaded.current_snapshot()
    for _ in range(snapshots):
        snapshot = loaded.metadata.snapshot_by_id(snapshot.parent_snapshot_id)
    loaded.manage_snapshots().rollback_to_snapshot(snapshot.snapshot_id).commit()


def location(orders: Any, table: str) -> str:
    return str(lake(orders).load_table(table).metadata_location)


def restore(orders: Any, table: str, metadata: str) -> None:
    """Make an older metadata file the table's again, as the restore of a catalog's backup does."""
    drop(orders, table)
    catalog(orders).register_table(table, metadata)


def remove_manifest(orders: Any) -> None:
    """The manifest of the closing table's last batch is deleted."""
    batch = summary_value_or_refuse(lake(orders).load_table(ORDERS).metadata, BATCH_KEY.format("orders"), ORDERS)
    assert batch is not None
    Path(batch.summary[MANIFEST_KEY].removeprefix("file://")).unlink()


def recreate_topic(shop: Any, partitions: int) -> None:
    delete_topic(shop.cluster, shop.topic)
    create_topic(shop.cluster, shop.topic, partitions)


def delete_records(shop: Any, before: int) -> None:
    """Delete the records of partition 0 below an offset, as retention does."""
    admin = AdminClient(dict(shop.cluster.properties))
    for future in admin.delete_records([TopicPartition(shop.topic, 0, before)]).values():
        future.result()


def send(shop: Any, values: Mapping[int, list[bytes]]) -> None:
    """Send values to partitions of choice."""
    producer = Producer(dict(shop.cluster.properties))
    for partition, body in values.items():
        for value in body:
            producer.produce(shop.topic, value, partition=partition)
    assert producer.flush(10) == 0


def order(number: int) -> bytes:
    """A good order."""
    return json.dumps({"id": number, "name": f"order {number}"}).encode()


def bad(number: int) -> bytes:
    """A bad one: an id that is text."""
    return json.dumps({"id": f"x{number}", "name": f"order {number}"}).encode()


def assert_clean(shop: Any) -> None:
    """Every record has its one outcome, value by value, and the ledger fits."""
    verification = verify(shop.project, shop.pipeline)
    assert [str(difference) for difference in verification.differences] == []
