"""Publishing a staged batch: its manifest, the deciding commit, and everything that follows from it."""

from __future__ import annotations

from dataclasses import replace

from frazil import stopping
from frazil.batch.manifest import Manifest
from frazil.batch.plan import RunPlan
from frazil.batch.position import Position
from frazil.errors import Retryable, Terminal
from frazil.iceberg.commit import Refused, fit_of, refuse_lost_files
from frazil.run.follow import claim_topics
from frazil.run.forward import decide, roll_forward
from frazil.run.letter_topic import ready_letter_topic
from frazil.run.manifests import Batch, write_manifest
from frazil.run.scope import Scope
from frazil.run.staging import refuse_if_asked
from frazil.run.standing import Standing
from frazil.run.tables import Tables, in_parallel


def planned_position(scope: Scope, plan: RunPlan, now: Standing) -> Position:
    """The position, if the plan is still meant for it.

    Raises:
        Terminal: There is none any more.
        Retryable: It was reset since the plan.
    """
    if now.position is None:
        raise Terminal(f"pipeline {scope.pipeline.name} was planned, but its table holds no position any more")
    if now.position.epoch != plan.epoch:
        raise Retryable(
            f"pipeline {scope.pipeline.name} was planned in epoch {plan.epoch} and is in epoch {now.position.epoch}:"
            " it was reset or rolled back meanwhile",
            next_step="start a new run; it plans from where the pipeline stands now",
        )
    return now.position


def publish(scope: Scope, tables: Tables, now: Standing, batch: Batch) -> None:
    """Write the manifest of a staged batch, decide it, roll it forward.

    Raises:
        Refused: A rival was first, a table no longer takes its files, or they lay so long that an orphan removal may have
            taken some of them.
        Retryable: Kafka, the catalog or the storage is not available now.
        Terminal: A person must act; the dead-letter topic is looked at before the decision.
        Stopped: The run was asked to stop, before the decision.
    """
    topic = ready_letter_topic(scope, batch)
    manifest, path = write_manifest(scope, tables, now, replace(batch, letter_topic=topic))
    _refuse_changed_followers(scope, manifest)
    refuse_if_asked(scope, tables, batch.position.n, batch.staged)
    with stopping.finishing():
        snapshot = decide(scope, manifest, path, now)
        scope.report(f"batch {batch.position.n}: decided, snapshot {snapshot}")
        roll_forward(scope, manifest, path, now)
        scope.report(f"batch {batch.position.n}: finished")


def _refuse_changed_followers(scope: Scope, manifest: Manifest) -> None:
    """After the decision a follower that can't take its files blocks the pipeline; before it, they are staged again."""
    names = [part.table for part in manifest.followers]
    found = in_parallel(scope.lake.load_table, names)
    for part, table in zip(manifest.followers, found, strict=True):
        mismatch = part.fit.mismatch(fit_of(table.metadata))
        if mismatch is not None:
            raise Refused(f"table {part.table}: {mismatch}")
        refuse_lost_files(part.table, part.files, table)
    there = dict(zip(names, found, strict=True))
    for part in sorted(
        manifest.followers, key=lambda of: of.table
    ):  # in one order: of two pipelines one has all it needs
        if part.role == "destination":
            claim_topics(scope.lake, manifest, part, there[part.table].metadata)
