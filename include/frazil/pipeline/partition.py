"""Partition fields of a destination, in Iceberg's syntax."""

from __future__ import annotations

import re
from typing import Literal

from frazil.pipeline.strict import Model

_PARTITION_FIELD = re.compile(
    r"(?P<column>[^()\s,]+)|(?P<transform>year|month|day|hour)\((?P<of>[^(),\s]+)\)"
    r"|(?P<sized>bucket|truncate)\((?P<size>[1-9]\d*),\s*(?P<sized_of>[^(),\s]+)\)"
)


class PartitionField(Model):
    """One field of a partition spec: a column, or a transform of one."""

    column: str
    transform: Literal["identity", "year", "month", "day", "hour", "bucket", "truncate"] = "identity"
    size: int | None = None

    @property
    def name(self) -> str:
        """Name of the field in the partition spec."""
        return self.column if self.transform == "identity" else f"{self.column}_{self.transform}"


def parse_partition_field(text: str) -> PartitionField:
    """Parse Iceberg's transform syntax: ``document``, ``day(created_at)``, ``bucket(16, id)``, ``truncate(4, name)``.

    Raises:
        ValueError: The text is none of these.
    """
    match = _PARTITION_FIELD.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is no partition field; examples: document, day(created_at), bucket(16, id)")
    if match["column"]:
        return PartitionField(column=match["column"])
    if match["transform"]:
        return PartitionField(column=match["of"], transform=match["transform"])  # type: ignore[arg-type]
    return PartitionField(column=match["sized_of"], transform=match["sized"], size=int(match["size"]))  # type: ignore[arg-type]
