"""How large a batch may become."""

from __future__ import annotations

from pydantic import Field

from frazil.pipeline.strict import Model


class Limits(Model):
    """Bounds of one batch; a run with more is cut into several."""

    max_records: int = Field(5_000_000, gt=0, description="Records (offsets) of one batch.")
    max_bytes: int = Field(
        4 * 2**30,
        gt=0,
        description="Bytes of keys and values of one batch, as estimated from what earlier batches measured.",
    )
    records_per_task: int = Field(
        500_000,
        gt=0,
        description="Records (offsets) of one task; what is more is split over several, in multiples of the cores.",
    )
