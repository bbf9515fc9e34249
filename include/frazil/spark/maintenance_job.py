"""The maintenance job: what spark-submit runs, or a process beside a spark connect server. Arguments in, exit code and a result file out."""

from __future__ import annotations

from frazil.maintain.need import Order
from frazil.maintain.result import MaintenanceResult
from frazil.maintain.run import maintain
from frazil.project import Project
from frazil.run.scope import Scope
from frazil.spark.catalog import open_catalog
from frazil.spark.driver import end_with_parent, exit_code, say, session
from frazil.spark.handover import Handover
from frazil.spark.procedures import SparkProcedures


def main(argv: list[str]) -> int:
    """Maintain the tables of a pipeline.

    Returns:
        See `frazil.spark.driver.exit_code`: 0 also if a step failed, which the result says.
    """
    end_with_parent()
    handover = Handover.of("maintain", argv)

    def work() -> None:
        order = Order.from_json(handover.asked())
        handover.hand_back(_run(handover.pipeline, order).to_json())

    return exit_code(work)


def _run(name: str, order: Order) -> MaintenanceResult:
    project = Project.load()
    scope = Scope.of(project, project.pipeline(name), say)
    with session(project, writes=True) as spark:
        for catalog in scope.pipeline.catalogs:
            open_catalog(spark, catalog, project.settings.catalogs[catalog])
        return maintain(scope, order, SparkProcedures(spark))
