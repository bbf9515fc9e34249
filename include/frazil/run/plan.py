"""Planning a run: no JVM. Reads the tables, finishes what a crash left, asks the broker, fixes the ends."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from frazil import __version__
from frazil.batch.facts import ClusterFacts, Counts
from frazil.batch.manifest import Manifest, TablePart
from frazil.batch.plan import RunPlan, plan_topics, reaches_high_watermarks, start_position
from frazil.batch.position import Position
from frazil.errors import Retryable, Terminal
from frazil.iceberg.catalog import Lake
from frazil.iceberg.commit import Refused, fit_of
from frazil.iceberg.schema import check_destination
from frazil.iceberg.table import metadata_path, read_text, write_text
from frazil.kafka.observe import observe
from frazil.pipeline.model import Pipeline
from frazil.project import Project
from frazil.run.forward import Clock, decide, roll_forward, utc_now
from frazil.run.tables import Standing, Tables, open_tables, standing

ROUNDS = 5
"""How often standing is read again when rivals keep finishing batches in between. Each round ends another's work."""


@dataclass(frozen=True, slots=True)
class Planned:
    """What planning found.

    Attributes:
        plan: What the run will read, or None if there is nothing new.
        position: Where the pipeline stands.
        complete_through: With nothing new: the instant through which the table holds everything, if that is known.
    """

    plan: RunPlan | None
    position: Position
    complete_through: str | None


def plan_run(project: Project, pipeline: Pipeline, run_id: str, clock: Clock = utc_now) -> Planned:
    """Plan a run: where the pipeline stands, what is new, and where the run ends.

    Raises:
        Retryable: Kafka or the catalog is not available now.
        Terminal: The position does not fit the cluster or the topics, or the tables don't fit the pipeline.
    """
    lake = project.lake(pipeline.catalog)
    cluster, names = project.cluster(pipeline.source.cluster), pipeline.source.topics
    _, now = settled(lake, pipeline, clock)
    if now.position is None:
        now = _begin(lake, pipeline, observe(cluster, names), run_id, clock)
    position = _known(now)
    # Asked after the position was read: offsets only grow, so what a rival lands meanwhile can't look like a lost log.
    asked_at = clock().isoformat(timespec="milliseconds")
    facts = observe(cluster, names)
    topics = plan_topics(position, facts)
    complete = reaches_high_watermarks(facts)
    plan = RunPlan(pipeline.name, run_id, asked_at, facts.cluster_id, topics, complete)
    if not plan.ranges:
        return Planned(None, position, asked_at if complete else None)
    return Planned(plan, position, None)


def settled(lake: Lake, pipeline: Pipeline, clock: Clock = utc_now) -> tuple[Tables, Standing]:
    """The tables and where the pipeline stands, with the last decided batch rolled forward to its end.

    Raises:
        Terminal: A table can't take its part of a decided batch, or the tables contradict each other.
    """
    for _ in range(ROUNDS):
        tables = open_tables(lake, pipeline)
        now = standing(pipeline, tables)
        if not now.unfinished:
            # Only now: an edited pipeline file must not keep a decided batch from being finished.
            check_destination(tables.destination, pipeline.destinations[0])
            return tables, now
        _finish(lake, pipeline, tables, now, clock)
    raise Retryable(f"pipeline {pipeline.name}: batches of another run kept being unfinished over {ROUNDS} looks")


def _finish(lake: Lake, pipeline: Pipeline, tables: Tables, now: Standing, clock: Clock) -> None:
    if now.mark is None:
        return
    path = now.manifest or manifest_path(tables, pipeline, now.mark.n, now.mark.batch)
    manifest = Manifest.from_json(read_text(tables.destination, path))
    if manifest.mark != now.mark:
        raise Terminal(f"pipeline {pipeline.name}: manifest {path} is of {manifest.mark}, the table holds {now.mark}")
    roll_forward(lake, manifest, path, clock)


def manifest_path(tables: Tables, pipeline: Pipeline, n: int, batch: str) -> str:
    """Where the manifest of a batch lies: beside the closing table's metadata."""
    return metadata_path(tables.destination, f"frazil-{pipeline.name}-{n}-{batch}.json")


def _known(now: Standing) -> Position:
    if now.position is None:
        raise Retryable("the first commit of the pipeline was taken back by a rival; try again")
    return now.position


def _begin(lake: Lake, pipeline: Pipeline, facts: ClusterFacts, run_id: str, clock: Clock) -> Standing:
    """The very first commit: the resolved start position, before any data."""
    tables, now = settled(lake, pipeline, clock)
    stamp = clock().isoformat(timespec="milliseconds")
    manifest = Manifest(
        pipeline=pipeline.name,
        kind="start",
        batch=str(uuid.uuid4()),
        run=run_id,
        position=start_position(facts, pipeline.start),
        closing=TablePart(
            pipeline.destinations[0].table, "destination", fit_of(tables.destination.metadata), now.mark, ()
        ),
        followers=(),
        ledger=pipeline.ledger_table,
        ledger_after=now.done,
        counts=Counts(),
        dead_codes={},
        planned_at=stamp,
        started_at=stamp,
        written_at=stamp,
        phases={},
        version=__version__,
        config=pipeline.fingerprint,
        complete_through=None,
    )
    path = manifest_path(tables, pipeline, 0, manifest.batch)
    write_text(tables.destination, path, manifest.to_json())
    try:
        decide(lake, manifest, path, before=None)
    except Refused:
        # A rival was first. Its start position counts, and is read below like any other.
        return settled(lake, pipeline, clock)[1]
    roll_forward(lake, manifest, path, clock)
    return settled(lake, pipeline, clock)[1]
