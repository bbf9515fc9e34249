"""Spark in S3: the whole way of a table that is merged, by spark-submit."""

from __future__ import annotations

from collections.abc import Callable
from uuid import uuid4

import pytest

from frazil.batch.request import RunRequest
from frazil.run.plan import plan_run
from frazil.spark.submit import run_spark
from tests.integration.stores.conftest import S3Shop
from tests.operations import assert_clean, send
from tests.spark.test_merge_settled import BATCHES, FILE


@pytest.mark.full
def test_spark_finds_no_way_to_s3(s3_shop: Callable[..., S3Shop], monkeypatch: pytest.MonkeyPatch) -> None:
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
