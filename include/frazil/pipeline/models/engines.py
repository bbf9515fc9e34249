"""The engines that a pipeline may name, and the engine that `auto` chooses."""

from __future__ import annotations

from collections.abc import Iterable

from pydantic import Field

from frazil.pipeline.models.destination import TableTemplate
from frazil.pipeline.syntax.strict import AtKey, Model

INLINE_ENGINE = "inline"
"""The engine that needs no entry in the settings: the process that runs the plan."""

AUTO_ENGINE = "auto"
"""Small runs in the process that runs the plan, large ones by a Spark engine of the settings."""


class AutoEngine(Model):
    """What `engine: auto` chooses from, run by run."""

    engine: str = Field("spark", description="Name of the engine that takes large runs, and tables that Spark writes.")
    inline_below: int = Field(
        2_000_000,
        ge=0,
        description="Planned records (offsets) below which a run is done in the process that runs the plan, without starting"
        " Spark. `python -m tests.bench.engines` measures from how many on Spark is faster.",
    )


def refuse_unfit_engine(engine: str, tables: Iterable[TableTemplate]) -> None:
    """Refuse the engine `inline` for tables that only Spark writes.

    Raises:
        AtKey: It names the tables.
    """
    if engine != INLINE_ENGINE:
        return
    templates = tuple(tables)
    if written := [template.title for template in templates if template.by_engine and not template.is_merged]:
        raise AtKey(
            "engine",
            f"inline can't write {', '.join(written)}, of format version 3 (which columns of type variant need) or in"
            " ORC files; name an engine of the settings, such as spark",
        )
    if merged := [template.title for template in templates if template.is_merged]:
        raise AtKey(
            "engine",
            f"inline can't merge rows into {', '.join(merged)}; name an engine of the settings, such as spark",
        )
