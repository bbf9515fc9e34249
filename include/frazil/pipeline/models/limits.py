"""How large a batch may become, and what of its records may become columns."""

from __future__ import annotations

from pydantic import Field

from frazil.pipeline.syntax.strict import Model


class Limits(Model):
    """Bounds of one batch, where a run with more is cut into several, and of the names of new columns."""

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
    max_record_bytes: int = Field(
        16 * 2**20,
        gt=0,
        le=100 * 2**20,
        description="Bytes of key, value and headers of one record. A larger one is a dead letter `RECORD_TOO_LARGE` with its"
        " coordinates and its size, and nothing of the record.",
    )
    max_partitions: int = Field(
        5_000,
        gt=0,
        description="Partition values that one task may give a table: each is a data file. Records of further values are dead"
        " letters `TOO_MANY_PARTITIONS`; a replay lands as many values again.",
    )
    max_name_length: int = Field(
        255,
        gt=0,
        le=1_000,
        description="Characters that the name of a column may have which records bring. A field with a longer name is kept"
        " in `value.rescued_column`.",
    )
