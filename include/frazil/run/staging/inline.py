"""The `inline` engine: this process reads the ranges itself. For tests, tiny topics and trying things out."""

from __future__ import annotations

from frazil.batch.facts import Staged
from frazil.kafka.read.read import read_ranges
from frazil.run.staging.stage import StageOrder, stage_records


def stage_inline(order: StageOrder) -> Staged:
    """Stage one batch in this process. A `frazil.run.staging.stage.Stage`."""
    return stage_records(order, read_ranges(order.cluster, order.ranges, limits=order.limits))
