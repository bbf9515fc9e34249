"""Spark in S3: the whole way of a table that is merged, and of one that is maintained, by spark-submit."""

from __future__ import annotations

import os
from collections.abc import Callable
from uuid import uuid4

import pytest

from frazil.batch.position import RunRequest
from frazil.maintain.need import Order
from frazil.maintain.run import MaintenanceResult
from frazil.run.batches.plan import plan_run
from frazil.spark.submit.submission import maintenance_run, run_maintenance, run_spark
from tests.integration.stores.conftest import S3Shop
from tests.operations import assert_clean, order, places, send
from tests.s3_server import BUCKET
from tests.spark.test_merge_repaired import BATCHES, FILE


@pytest.mark.full
def test_spark_reaches_s3_by_one_settings_entry(
    s3_shop: Callable[..., S3Shop], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One entry of the settings: PyIceberg's properties bring Spark to the same bucket, with the jars that it needs."""
    shop = s3_shop(partitions=1).shop
    shop = shop.with_pipeline(FILE.format(topic=shop.topic))
    monkeypatch.setenv("FRAZIL_KAFKA_PORT", str(shop.project.home.ports.kafka))  # the job's, too
    for values in BATCHES[:2]:
        send(shop, {0: values})
        planned = plan_run(shop.project, shop.pipeline, RunRequest(str(uuid4())))
        run_spark(shop.project, shop.pipeline, planned.plan, print)

    assert sorted((row["id"], row["name"]) for row in shop.rows()) == [
        (0, "a"), (1, "b"), (4, "a"), (5, "a"), (30, "moved"),
    ]  # fmt: skip
    assert_clean(shop)


@pytest.mark.full
def test_maintenance_works_in_s3(s3_shop: Callable[..., S3Shop], monkeypatch: pytest.MonkeyPatch) -> None:
    """Small objects become one, an old one that nobody names goes, and the rows and the position stay."""
    shop = s3_shop(partitions=1)
    orders = shop.shop
    monkeypatch.setenv("FRAZIL_KAFKA_PORT", str(orders.project.home.ports.kafka))  # the job's, too
    for n in range(6):
        send(orders, {0: [order(n)]})
        orders.run()
    table = f"{BUCKET}/{shop.prefix}/shop/orders"
    with shop.server.files().open_output_stream(f"{table}/data/nobodys.parquet") as stream:
        stream.write(b"left by a killed run")
    for path in (shop.server.folder / table).rglob("*.*"):
        os.utime(path, (1e9, 1e9))

    wanted = Order("shop.orders", ("compaction", "orphans"), force=True)
    text = run_maintenance(orders.project, orders.pipeline, maintenance_run(str(uuid4())), wanted.to_json(), print)

    assert text is not None
    (done,) = MaintenanceResult.from_json(text).tables
    assert [(step.step, step.status) for step in done.steps] == [("compaction", "done"), ("orphans", "done")]
    assert (done.before.files, done.after.files) == (6, 1)
    assert done.steps[1].counts["orphan_files"] == 1
    assert f"{table}/data/nobodys.parquet" not in shop.objects()
    assert [offset for _, offset in places(orders)] == list(range(6))
    assert_clean(orders)
    assert orders.run().read == 0
