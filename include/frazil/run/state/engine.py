"""Chooses the engine of a run: the one that its pipeline names, or the choice of `auto` for this run."""

from __future__ import annotations

from dataclasses import dataclass

from frazil.batch.plan import RunPlan
from frazil.pipeline.models.pipeline_file import AUTO_ENGINE, INLINE_ENGINE, AutoEngine, Pipeline


@dataclass(frozen=True, slots=True)
class ChosenEngine:
    """The engine of a run.

    It is `inline`, or one of the settings. The reason is for the log; it is empty if there was nothing to choose.
    """

    name: str
    reason: str = ""

    @property
    def is_inline(self) -> bool:
        """Whether the process that runs the plan does the work."""
        return self.name == INLINE_ENGINE

    @property
    def description(self) -> str:
        """Name and reason."""
        return f"{self.name} ({self.reason})" if self.reason else self.name


def needs_writer(pipeline: Pipeline, plan: RunPlan) -> bool:
    """Whether Spark writes tables in a run: those of the pipeline file, or of a decided batch that waits for it."""
    return plan.waits or _has_engine_tables(pipeline)


def keeps_engine(pipeline: Pipeline) -> bool:
    """Whether a session keeps its engine. An engine chosen by `auto` may change at every tick."""
    return pipeline.engine != AUTO_ENGINE or _has_engine_tables(pipeline)


def chosen_engine(pipeline: Pipeline, auto: AutoEngine, plan: RunPlan) -> ChosenEngine:
    """Choose the engine of a run."""
    if pipeline.engine != AUTO_ENGINE:
        return ChosenEngine(pipeline.engine)
    if needs_writer(pipeline, plan):
        return ChosenEngine(auto.engine, "auto: Spark writes its tables")
    few = plan.records < auto.inline_below
    reason = f"auto: {plan.records:,} offsets, {'fewer than' if few else 'not fewer than'} {auto.inline_below:,}"
    return ChosenEngine(INLINE_ENGINE if few else auto.engine, reason)


def _has_engine_tables(pipeline: Pipeline) -> bool:
    return any(template.by_engine for template in pipeline.declared.values())
