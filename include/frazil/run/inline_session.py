"""What a session lands in its own process, and what it leaves to Spark."""

from __future__ import annotations

from frazil.batch.plan import RunPlan
from frazil.pipeline.model import Pipeline
from frazil.project import Project
from frazil.run.engine import chosen_engine
from frazil.run.ingest import ingest
from frazil.run.inline import stage_inline
from frazil.run.scope import Clock, Report, utc_now
from frazil.run.session import Land


def inline_lander(report: Report, clock: Clock = utc_now) -> Land:
    """Return what lands the plans that are for the `inline` engine, and no others.

    Args:
        report: Takes one line per phase.
        clock: Tells the time, UTC.
    """

    def land(project: Project, pipeline: Pipeline, plan: RunPlan) -> bool:
        engine = chosen_engine(pipeline, project.settings.auto, plan)
        report(f"{pipeline.name}: {plan.records:,} offsets to read, engine {engine.said}")
        if engine.is_inline:
            ingest(project, pipeline, plan, stage_inline, report, clock)
        return engine.is_inline

    return land
