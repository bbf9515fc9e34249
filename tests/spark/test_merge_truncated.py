"""A merged table over a log that lost records: what came in their place is later than the rows that they left."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from frazil.batch.position import Target
from frazil.errors import Terminal
from frazil.kafka.admin.topics import create_topic
from frazil.project import Project
from frazil.run.repair import reset as resets
from frazil.run.repair.reset_batch import ResetOrder
from frazil.verify.check import verify
from tests.conftest import FreePorts
from tests.integration.conftest import Shop
from tests.log_truncation import Patient, running_patient
from tests.operations import assert_clean, lake, reset, roll_back, scope, send, to_table
from tests.spark.test_merge_repaired import engine, run
from tests.unit.batch.commands import reset_command

pytestmark = pytest.mark.embedded  # the broker is stopped, and its files are truncated

TABLE = "shop.orders"
COLUMNS = "columns: {id: {type: long, required: true}, name: string}"
MERGED = f"  - {{table: {TABLE}, {COLUMNS}, write: upsert, identifier: [id]}}\n"
APPENDED = f"  - {{table: shop.all, {COLUMNS}}}\n"
"""The destination of a pipeline that closes there; a merged one always follows."""


def file_of(topic: str, *destinations: str) -> str:
    source = f"{{topics: [{topic}], consumer_group: false}}"
    return f"name: orders\nsource: {source}\ndestinations:\n{''.join(destinations)}"


@pytest.fixture(scope="module")
def patient(tmp_path_factory: pytest.TempPathFactory, free_ports: FreePorts) -> Iterator[Patient]:
    """A broker of its own."""
    with running_patient(tmp_path_factory.mktemp("broker"), free_ports(2)) as broker:
        yield broker


@pytest.fixture
def merged(tmp_path: Path, patient: Patient) -> Shop:
    """A pipeline with one row per key over a fresh topic."""
    topic = f"orders-{uuid.uuid4().hex[:8]}"
    create_topic(patient.cluster, topic, 1)
    folder = tmp_path / "pipelines"
    folder.mkdir()
    (folder / "orders.yaml").write_text(file_of(topic, MERGED))
    port = patient.cluster.bootstrap_servers.rpartition(":")[2]
    env = {"FRAZIL_HOME": str(tmp_path / "home"), "FRAZIL_PIPELINES": str(folder), "FRAZIL_KAFKA_PORT": port}
    return Shop(Project.load(env), patient.cluster, topic)


def send_rows(shop: Shop, *changes: tuple[int, str]) -> None:
    """Rows by key, each a record in a batch of its own."""
    for key, name in changes:
        send(shop, {0: [json.dumps({"id": key, "name": name}).encode()]})


def rows(shop: Shop) -> dict[int, str]:
    table = lake(shop).load_table(TABLE).scan(selected_fields=("id", "name")).to_arrow()
    return {row["id"]: row["name"] for row in table.to_pylist()}


def test_change_at_offset_of_lost_record_is_later_than_its_row(
    merged: Shop, patient: Patient, spark: SparkSession
) -> None:
    """Its offset is the smaller one. Keys without another record keep the lost one's row, until all is read again."""
    apply = engine(merged, spark)
    send_rows(merged, (1, "a"), (2, "a"), (3, "a"), (4, "lost"), (3, "lost"), (1, "lost"))
    assert run(merged, apply) == 1
    patient.truncate(merged, 0, 3)
    send_rows(merged, (1, "b"), *((key, "c") for key in range(10, 16)))
    with pytest.raises(Terminal) as refused:
        run(merged, apply)
    target = Target("offsets", offsets={merged.topic: {0: reset_command(refused.value).offsets[merged.topic]["0"]}})

    planned = resets.preview_reset(scope(merged), ResetOrder(target))
    assert planned.remarks == (
        "rows from records that Kafka lost stay in shop.orders until other records of their keys arrive",
    )
    reset(merged, target)
    assert run(merged, apply) == 1

    regrown = dict.fromkeys(range(10, 16), "c")
    assert rows(merged) == {1: "b", 2: "a", 3: "lost", 4: "lost"} | regrown
    assert verify(merged.project, merged.pipeline).count == 2
    reset(merged, "earliest")
    assert run(merged, apply) == 1
    assert rows(merged) == {1: "b", 2: "a", 3: "a", 4: "lost"} | regrown
    assert run(merged, apply) == 0


@pytest.mark.full
def test_rewind_over_truncated_log_treats_rows_of_lost_records_as_older(
    merged: Shop, patient: Patient, spark: SparkSession
) -> None:
    """The position goes back to before the cut, where nothing is lost of what it read; the merged table has more."""
    apply = engine(merged, spark)
    merged = merged.with_pipeline(file_of(merged.topic, APPENDED))
    send_rows(merged, (1, "a"), (2, "a"))
    assert run(merged, apply) == 1
    merged = merged.with_pipeline(file_of(merged.topic, APPENDED, MERGED))
    send_rows(merged, (2, "b"), (3, "lost"), (1, "lost"))
    assert run(merged, apply) == 1
    patient.truncate(merged, 0, 3)
    send_rows(merged, (1, "b"), (3, "b"), (3, "c"))
    roll_back(merged, "shop.all")

    to_table(merged)
    assert run(merged, apply) == 1

    assert rows(merged) == {1: "b", 2: "b", 3: "c"}
    assert_clean(merged)
