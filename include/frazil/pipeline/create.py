"""Tables that the pipeline file does not list: made when a record names them, all to one template."""

from __future__ import annotations

from typing import Final

from pydantic import Field, model_validator

from frazil.pipeline.destination import Destination, TableTemplate
from frazil.pipeline.strict import Namespace

MOST_AT_ONCE: Final = 1_000
"""Tables that one run may make at most."""


class Create(TableTemplate):
    """What tables are like that records name and that are not there yet, and how many of them may be made."""

    max_new_tables: int = Field(
        100,
        gt=0,
        le=MOST_AT_ONCE,
        description="Tables that one run may make. Records that name further ones become what `route.otherwise` says.",
    )
    max_tables: int = Field(
        1_000,
        gt=0,
        le=10_000,
        description="Tables that the pipeline may make in all its runs together, dropped ones included. Records that name further"
        " ones become what `route.otherwise` says.",
    )
    namespace: Namespace | None = Field(
        None,
        description="Namespace of ledger and dead letters. Without, they live beside the first destination; needed if none"
        " is listed.",
    )

    @model_validator(mode="after")
    def _has_a_key(self) -> Create:
        if self.is_merged and not self.identifier:
            raise ValueError(
                f"write: {self.write} needs identifier: a new table has no identifier fields that could be the key"
            )
        return self

    def destination(self, table: str) -> Destination:
        """The table of that name as a destination."""
        given = {name: getattr(self, name) for name in self.model_fields_set if name in TableTemplate.model_fields}
        return Destination(table=table, **given)
