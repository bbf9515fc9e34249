"""The work of one task, on records from memory."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from frazil.batch.audit import Tolerance
from frazil.kafka.cluster import Cluster
from frazil.records.spec import RecordSpec
from frazil.run.stage import StageOrder, stage_records
from tests.unit.records.kafka_batches import kafka_batch

SPEC = RecordSpec(pa.schema([pa.field("id", pa.int64())]))
GOOD, BAD = b'{"id": 1}', b"broken"


def order(tolerance: Tolerance | None) -> StageOrder:
    return StageOrder("p", 1, Cluster("c", {}), (), 100, {"shop.orders": SPEC}, {}, None, tolerance=tolerance)


@pytest.mark.parametrize(
    ("tolerance", "batches"),
    [
        (Tolerance(1, 0, 0), 2),
        (Tolerance(1, 0, 2), 3),
        (Tolerance(1, 0, 0, fails=False), 5),
        (Tolerance(0, 0, None), 5),
        (None, 5),
    ],
    ids=["none", "max_count", "alert", "rate", "dry run"],
)
def test_a_task_reads_on_although_nothing_can_be_published(tolerance: Tolerance | None, batches: int) -> None:
    """It stops behind the batch of records that makes too many; without a limit of the number it reads all."""
    taken: list[int] = []

    def reader() -> Iterator[pa.RecordBatch]:
        for number, values in enumerate(([GOOD], [BAD, BAD], [BAD], [GOOD], [BAD])):
            taken.append(number)
            yield kafka_batch(values)

    staged = stage_records(order(tolerance), reader())

    assert len(taken) == batches
    assert staged.stopped is (batches < 5)
    assert staged.samples["INVALID_JSON"].offset == 100
