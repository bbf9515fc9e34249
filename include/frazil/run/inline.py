"""The `inline` engine: this process reads the ranges itself. For tests, tiny topics and trying things out."""

from __future__ import annotations

from itertools import chain

from frazil.batch.facts import Staged
from frazil.kafka.read import read_range
from frazil.run.stage import StageOrder, stage_records


def stage_inline(order: StageOrder) -> Staged:
    """Stage one batch in this process, range after range. A `frazil.run.stage.Stage`.

    Raises:
        Retryable: Kafka or the storage is not available now.
        Terminal: Records in the ranges are gone, or access is refused.
    """
    readers = (read_range(order.cluster, r.topic, r.partition, r.start, r.end) for r in order.ranges)
    return stage_records(order, chain.from_iterable(readers))
