"""The last maintenance result of each table, stored in a table property, so that reading it needs no engine or Airflow."""

from __future__ import annotations

import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Final, Self

import msgspec

from frazil.maintain.result import TableOutcome
from frazil.pipeline.models.pipeline_file import Pipeline
from frazil.project import Project
from frazil.run.state.tables import PARALLEL_CALLS

MAINTAINED_KEY: Final = "frazil.maintained"
"""Table property: the last run that did, or tried, something to the table. Others that did nothing commit nothing."""

_LONGEST: Final = 300
"""Of a reason: each metadata file of the table holds the property."""


@dataclass(frozen=True, slots=True)
class Maintained:
    """The last maintenance of a table.

    Attributes:
        when: When it was over, UTC.
        pipeline: Whose: several may land into one table.
        outcome: Figures before and after, with the scores, and the steps, also those that rested, with the reason.
    """

    when: datetime
    pipeline: str
    outcome: TableOutcome

    def to_json(self) -> str:
        """The property's value as JSON."""
        steps = tuple(replace(step, reason=step.reason[:_LONGEST]) for step in self.outcome.steps)
        body = asdict(replace(self.outcome, steps=steps))
        document = {"v": 1, "when": self.when.isoformat(timespec="seconds"), "pipeline": self.pipeline, "outcome": body}
        return json.dumps(document, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read what `to_json` wrote."""
        body = json.loads(text)
        return cls(
            datetime.fromisoformat(body["when"]), body["pipeline"], msgspec.convert(body["outcome"], TableOutcome)
        )


def last_maintenance(project: Project, pipeline: Pipeline) -> Mapping[str, Maintained]:
    """The last maintenance result of each table of a pipeline, without tables that never had maintenance.

    Costs one load of each table.
    """
    pipeline = project.with_auto_created(pipeline)
    lake = project.lake_of(pipeline)

    def noted(name: str) -> str | None:
        iceberg_table = lake.catalog_of(name).find_table(name)
        return None if iceberg_table is None else iceberg_table.metadata.properties.get(MAINTAINED_KEY)

    names = (*pipeline.tables, pipeline.dead_letters_table, pipeline.ledger_table)
    with ThreadPoolExecutor(PARALLEL_CALLS) as pool:
        notes = dict(zip(names, pool.map(noted, names), strict=True))
    return {name: Maintained.from_json(text) for name, text in notes.items() if text is not None}
