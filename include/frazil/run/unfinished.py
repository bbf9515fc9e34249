"""The last decided batch while it is not finished, and finishing as much of it as can be."""

from __future__ import annotations

from dataclasses import dataclass

from frazil.batch.manifest import Manifest
from frazil.errors import Terminal
from frazil.iceberg.holdings import BATCH_KEY, landed
from frazil.run.apply import EngineNeeded
from frazil.run.decided import lake_of_batch
from frazil.run.follow import follow
from frazil.run.forward import roll_forward
from frazil.run.manifests import read_manifest, recovered, refuse_foreign_parts
from frazil.run.scope import Scope
from frazil.run.standing import Standing
from frazil.run.tables import Tables


@dataclass(frozen=True)
class Unfinished:
    """The last decided batch, which the ledger does not know yet.

    Attributes:
        manifest: The batch.
        path: Where its manifest lies.
        earlier: Batches before it that the ledger does not know either, with the paths of their manifests.
    """

    manifest: Manifest
    path: str
    earlier: tuple[tuple[str, Manifest], ...] = ()

    @property
    def all(self) -> tuple[tuple[str, Manifest], ...]:
        """All batches that the ledger does not know, the oldest first."""
        return (*self.earlier, (self.path, self.manifest))


def unfinished(scope: Scope, tables: Tables, now: Standing) -> Unfinished | None:
    """The last decided batch, or None if it is finished.

    Raises:
        Terminal: Its manifest is gone.
    """
    if not now.unfinished or now.mark is None:
        return None
    manifest, path = read_manifest(tables, scope.pipeline, now.mark, now.manifest)
    done = -1 if now.done is None else now.done.n
    earlier = zip(manifest.recovers, recovered(tables.closing, manifest), strict=True)
    return Unfinished(manifest, path, tuple((at, of) for at, of in earlier if of.position.n > done))


def finish(scope: Scope, last: Unfinished, now: Standing, table: str) -> bool:
    """Roll a batch forward if that is possible. False: `table` can't take its part, at least not here, which is reported.

    A part that only an engine can give may be the one that no engine can: a run tells that, a process without one can't.

    Raises:
        Terminal: Another table can't take its part.
    """
    try:
        roll_forward(scope, last.manifest, last.path, now)
    except (Terminal, EngineNeeded) as refusal:
        if table not in _lacking(scope, last.manifest):
            raise
        scope.report(refusal.message)
        return False
    return True


def _lacking(scope: Scope, manifest: Manifest) -> tuple[str, ...]:
    """The followers that lack their part; the ledger, if none does."""
    key, lake = BATCH_KEY.format(manifest.pipeline), lake_of_batch(scope.lake, manifest)
    without = (
        part.table
        for part in manifest.followers
        if (table := lake.find_table(part.table)) is None
        or landed(table.metadata, key, manifest.mark, part.table) is None
    )
    return tuple(without) or (manifest.ledger,)


def follow_where_possible(scope: Scope, last: Unfinished, now: Standing, settled: str) -> None:
    """Give the followers their parts of a batch. What one can't take is reported, and stays its own debt.

    Args:
        scope: The pipeline and its doors.
        last: The batch.
        now: Where the pipeline stands.
        settled: The table that gets its part in another way.
    """
    refuse_foreign_parts(scope, now, last.manifest)
    lake = lake_of_batch(scope.lake, last.manifest)
    for part in last.manifest.followers:
        if part.table == settled:
            continue
        try:
            follow(lake, last.manifest, part, last.path, scope.apply)
        except Terminal as refusal:
            scope.report(refusal.message)
