"""The last decided batch while it is not finished, and finishing as much of it as can be."""

from __future__ import annotations

from dataclasses import dataclass

from frazil.batch.manifest import Manifest
from frazil.errors import Terminal
from frazil.iceberg.holdings import BATCH_KEY, landed
from frazil.run.forward import follow, roll_forward
from frazil.run.manifests import read_manifest, recovered
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
    earlier = zip(manifest.recovers, recovered(tables.destination, manifest), strict=True)
    return Unfinished(manifest, path, tuple((at, of) for at, of in earlier if of.position.n > done))


def finish(scope: Scope, last: Unfinished, now: Standing, table: str) -> bool:
    """Roll a batch forward if that is possible. False: `table` can't take its part, which is reported.

    Raises:
        Terminal: Another table can't take its part.
    """
    try:
        roll_forward(scope, last.manifest, last.path, now)
    except Terminal as refusal:
        if _first_without(scope, last.manifest) != table:
            raise
        scope.report(refusal.message)
        return False
    return True


def _first_without(scope: Scope, manifest: Manifest) -> str:
    """The table whose turn it is: the first follower that lacks its part, at last the ledger."""
    key = BATCH_KEY.format(manifest.pipeline)
    for part in manifest.followers:
        if landed(scope.lake.load_table(part.table).metadata, key, manifest.mark, part.table) is None:
            return part.table
    return manifest.ledger


def follow_where_possible(scope: Scope, last: Unfinished) -> None:
    """Give the followers their parts of a batch. What one can't take is reported, and stays its own debt."""
    for part in last.manifest.followers:
        try:
            follow(scope.lake, last.manifest, part, last.path)
        except Terminal as refusal:
            scope.report(refusal.message)
