"""A pipeline at rest: nothing half done. Every command begins here."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta
from typing import Final

from frazil.batch.manifest import Manifest
from frazil.errors import Retryable, Terminal
from frazil.iceberg.branch import BranchName, remove_stale_branches
from frazil.iceberg.clocks import refuse_skew
from frazil.iceberg.holdings import BATCH_KEY, CLOSING_KEY, DONE_KEY, MANIFEST_KEY, Held, lookup, mark_of
from frazil.iceberg.pipeline_lake import PipelineLake
from frazil.iceberg.schema import check_destination
from frazil.iceberg.table import read_text
from frazil.pipeline.model import Pipeline
from frazil.run.evolution import with_declared_columns
from frazil.run.forward import lake_of_batch, roll_forward
from frazil.run.identifier import refuse_no_key, refuse_other_key
from frazil.run.manifests import read_manifest
from frazil.run.scope import EngineNeeded, Scope
from frazil.run.source import mirror_position
from frazil.run.standing import LOOKS, Standing, kept_moving, read_state
from frazil.run.tables import Tables, open_tables, refuse_shared

FILES_ARRIVE: Final = timedelta(minutes=15)
"""How long a changed pipeline file may take to reach every host: git-sync and Airflow's bundles look every five minutes at most,
and images are rolled out in about ten."""


def settled(scope: Scope, mends: Collection[str] = (), *, leaves: bool = False) -> tuple[Scope, Tables, Standing]:
    """The tables and where the pipeline stands, with the last decided batch rolled forward to its end.

    The scope comes along, since a decided batch may have made tables: they are the pipeline's from then on.

    Args:
        scope: The pipeline and its doors.
        mends: Tables that the caller is about to mend, so that their loss is no reason to refuse.
        leaves: Whether a batch that only waits for an engine is left unfinished, for the ingest step.

    Raises:
        Terminal: A table can't take its part of a decided batch, or a table is not the one that was written, or was rolled
            back.
        EngineNeeded: A decided batch waits for an engine, and is not to be left.
    """
    waits = False
    has_worked = False
    for _ in range(LOOKS):
        tables, now = _look(scope, mends)
        # By the ledger that says where the pipeline stands: one read before knows nothing of what rivals made since.
        told = scope.told_by(tables.ledger)
        if told is not scope:
            scope = told
            continue
        if now.rolled_back is not None:  # the caller is about to mend it
            return scope, tables, now
        if not now.unfinished:
            tables = _checked(scope, tables, now)
            if has_worked:
                mirror_position(scope, now.position)
        if waits or not now.unfinished:
            return scope, tables, now
        waits = _advance(scope, tables, now, leaves=leaves)
        has_worked = True
    raise kept_moving(scope.pipeline)


def _look(scope: Scope, mends: Collection[str]) -> tuple[Tables, Standing]:
    """The tables and where the pipeline stands, as the file has them; as a decided batch has them, while the file is refused.

    So the batch is finished before the edited file is: what is decided is the manifest's word alone.
    """
    try:
        return _look_in(scope.lake, scope, mends)
    except Terminal as refusal:
        decided = _lake_of_last(scope.lake, scope.pipeline)
        if decided is None:
            raise
        scope.report(f"the last batch is finished where it was decided to; then: {refusal.message}")
        return _look_in(decided, scope, mends)


def _look_in(lake: PipelineLake, scope: Scope, mends: Collection[str]) -> tuple[Tables, Standing]:
    def load() -> Tables:
        tables = open_tables(lake, scope.pipeline, recreate=mends)
        refuse_shared(scope.pipeline, tables)
        return tables

    tables, now = read_state(scope.pipeline, load)
    lost = _lost(now, tables.closing_name, mends)
    if lost is not None:
        raise lost
    return tables, now


def _lake_of_last(lake: PipelineLake, pipeline: Pipeline) -> PipelineLake | None:
    """The lake as the last decided batch has it.

    Returns:
        The lake; None if that batch is finished, or can't be read, or if the pipeline file has its tables where they were.

    Raises:
        Retryable: A catalog can't be reached.
    """
    try:
        manifest = _unfinished(lake, pipeline)
    except Terminal:  # its manifest, or its branch, is gone: who needs it says so
        return None
    if manifest is None:
        return None
    moved = any(
        (part.catalog, part.branch) != (lake.catalog_of(part.table).name, lake.branch_of(part.table))
        for part in manifest.parts
        if part.catalog is not None and part.table in pipeline.tables
    )
    return lake_of_batch(lake, manifest) if moved else None


def _unfinished(lake: PipelineLake, pipeline: Pipeline) -> Manifest | None:
    """The manifest of the last decided batch, if the ledger does not know it."""
    ledger = lake.find_table(pipeline.ledger_table)
    closing = None if ledger is None else ledger.metadata.properties.get(CLOSING_KEY.format(pipeline.name))
    if ledger is None or closing is None:
        return None
    table = lake.as_landed(closing)
    last = None if table is None else lookup(table.metadata, BATCH_KEY.format(pipeline.name), closing)
    done = lookup(ledger.metadata, DONE_KEY.format(pipeline.name), pipeline.ledger_table)
    if table is None or mark_of(last) == mark_of(done) or not isinstance(last, Held):
        return None
    path = last.summary.get(MANIFEST_KEY)
    return None if path is None else Manifest.from_json(read_text(table, path))


def _lost(now: Standing, closing: str, mends: Collection[str]) -> Terminal | None:
    """Why a table is not the one that was written, unless it is about to be mended."""
    lost = now.closing_lost or now.rollback
    if lost is not None and closing not in mends:
        return lost
    return next((lost for table, lost in now.followers_lost.items() if table not in mends), None)


def _advance(scope: Scope, tables: Tables, now: Standing, *, leaves: bool) -> bool:
    """Finish the last batch. Returns whether it waits for an engine."""
    try:
        if now.mark is not None:
            roll_forward(scope, *read_manifest(tables, scope.pipeline, now.mark, now.manifest), now)
    except EngineNeeded as need:
        if not leaves:
            raise
        scope.report(need.message)
        return True
    return False


def _checked(scope: Scope, tables: Tables, now: Standing) -> Tables:
    """Hold the tables against the pipeline file. Only now: an edited one must not keep a decided batch from its end."""
    for loaded in (*tables.destinations.values(), tables.dead_letters, tables.ledger):
        refuse_skew(loaded)
    _refuse_older_file(scope, now)
    fold = scope.pipeline.value.folds_names
    for table in scope.pipeline.tables:
        refuse_no_key(scope.pipeline, table, tables.destinations.get(table))
    for table in scope.pipeline.tables:
        check_destination(tables.destinations[table], scope.pipeline.destination(table), fold=fold)
        refuse_other_key(scope.pipeline, table, tables.destinations[table].metadata)
    _tidy(scope, tables, now)
    return with_declared_columns(scope, tables, now.newest + 1)


def _refuse_older_file(scope: Scope, now: Standing) -> None:
    """Refuse a file that names other destinations than the batches have, unless it is the one on this host, and not late.

    A run may have read its file before a deploy, and a host may have the file of before. A destination that the batches have and
    the file does not name was taken out of the file, or put in since: which of them, only time tells.
    """
    name, clock = scope.pipeline.name, scope.clock()
    known = {table: of.since for table, of in now.told.items() if of.role == "destination"}
    if not known or known.keys() == set(scope.pipeline.tables):
        return
    read, on_disk = set(scope.pipeline.file.tables), set(scope.project.pipeline_on_disk(name).tables)
    if read != on_disk:
        raise Retryable(
            f"pipeline {name}: the file that this run read names the destinations {_listed(read)}, the file names"
            f" {_listed(on_disk)} by now; batch {now.newest + 1} is not landed by the older one",
            next_step="run again: it reads the file as it is now",
        )
    left = {table: datetime.fromisoformat(since) for table, since in known.items() if since is not None}
    for table in sorted(left.keys() - set(scope.pipeline.tables)):
        since = left[table]
        if abs(clock - since) < FILES_ARRIVE:
            raise Retryable(
                f"pipeline {name}: an edit of its file brought table {table} at {since.isoformat()}, and the file on this host"
                " does not name it: the edit may not have arrived here",
                next_step=f"bring the newest file to this host. If {table} was taken out again on purpose, runs go on without it"
                f" from {(since + FILES_ARRIVE).isoformat()}",
            )


def _listed(tables: Collection[str]) -> str:
    return ", ".join(sorted(tables))


def _tidy(scope: Scope, tables: Tables, now: Standing) -> None:
    closing = tables.destinations.get(tables.closing_name)
    if now.mark is not None and closing is not None and any(map(BranchName.parse, closing.metadata.refs)):
        instant, table = int(scope.clock().timestamp() * 1000), tables.closing_name
        for name in remove_stale_branches(scope.lake, table, scope.pipeline.name, now.mark.n, instant):
            scope.report(f"dropped branch {name} of {table}, left behind by a run that ended early")
