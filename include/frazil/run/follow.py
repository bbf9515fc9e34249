"""Giving the followers of a decided batch their parts: destinations at the same time, then the dead letters.

Every step asks first whether it is done already, so it is safe to repeat, and when two do it at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from frazil.batch.manifest import Manifest, TablePart
from frazil.errors import FrazilError, Retryable, Terminal
from frazil.iceberg.catalog import Lake
from frazil.iceberg.commit import Change, Refused, commit
from frazil.iceberg.holdings import BATCH_KEY, DONE_KEY, MANIFEST_KEY, TOPICS_KEY, Held, held, landed, lookup, mark_of
from frazil.iceberg.pipeline_lake import branch_note
from frazil.iceberg.refs import branch_name
from frazil.iceberg.table import TableMetadata
from frazil.iceberg.variant import FORMAT_VERSION
from frazil.run.identifier import identifier_note
from frazil.run.ledger_entry import ranges_json
from frazil.run.scope import Apply, EngineNeeded, Scope
from frazil.run.standing import BYTES_KEY, READ_KEY, REPAIRS_KEY, repair_command
from frazil.run.tables import in_parallel, landed_by_another, topics_landed


def follow_all(scope: Scope, manifest: Manifest, path: str) -> dict[str, int]:
    """Give all followers their parts, and return the snapshots in which they became visible.

    One that can't take its part holds the batch open alone: all others have theirs when this raises.

    Raises:
        Terminal: A follower can't take its part: dropped, rolled back, changed.
        Retryable: One can't be reached now.
        EngineNeeded: One gets its part by an engine, and there is none.
    """
    destinations = [part for part in manifest.followers if part.role == "destination"]
    letters = [part for part in manifest.followers if part.role != "destination"]
    snapshots: dict[str, int] = {}
    failures: list[FrazilError] = []
    for group in (destinations, letters):
        for part, found in zip(
            group, in_parallel(lambda part: _tried(scope, manifest, part, path), group), strict=True
        ):
            if isinstance(found, FrazilError):
                failures.append(found)
            else:
                snapshots[part.table] = found
    if failures:
        raise _together(failures)
    return snapshots


def _tried(scope: Scope, manifest: Manifest, part: TablePart, path: str) -> int | FrazilError:
    try:
        return follow(scope, manifest, part, path)
    except FrazilError as failure:
        return failure


def _together(failures: Sequence[FrazilError]) -> FrazilError:
    """One error that names them all: what a person must act on goes before what another try may mend."""
    first, *others = sorted(failures, key=lambda of: (not isinstance(of, Terminal), isinstance(of, EngineNeeded)))
    if not others:
        return first
    steps = dict.fromkeys(of.next_step for of in (first, *others) if of.next_step)
    told = type(first)("; and ".join(of.message for of in (first, *others)), next_step="; and ".join(steps) or None)
    told.__cause__ = first
    return told


def follow(scope: Scope, manifest: Manifest, part: TablePart, path: str) -> int:
    """Give one follower its part of a decided batch, and return the snapshot in which it became visible.

    Raises:
        Terminal: It can't take it: dropped, rolled back, changed.
        EngineNeeded: Only an engine can, and there is none.
    """
    lake, key, topics_key = scope.lake, BATCH_KEY.format(manifest.pipeline), TOPICS_KEY.format(manifest.pipeline)
    topics = {topics_key: _topics(manifest, part)} if part.role == "destination" else {}
    holds = holds_last(key, part.table, manifest)

    def check(metadata: TableMetadata) -> None:
        holds(metadata)
        for brought in topics.values():
            _refuse_rival(manifest, part.table, brought, metadata)

    change = Change(
        step="follow",
        table=part.table,
        files=part.files,
        removal=part.removal,
        summary=summary_of(manifest, path) | {key: manifest.mark.to_json()},
        mirrored=(key,),
        topics=topics,
        properties=branch_note(lake, manifest.pipeline, part.table) | identifier_note(manifest.pipeline, part),
        fit=part.fit,
        landed=lambda metadata: landed(metadata, key, manifest.mark, part.table),
        check=check,
        retention=scope.retention(part.table),
    )
    try:
        return _committed(lake, change, manifest, part, scope.apply)
    except Terminal as refusal:
        _refuse_gone(lake, manifest, part, refusal)
        raise


def _topics(manifest: Manifest, part: TablePart) -> frozenset[str]:
    """Topics whose rows a destination may have by this batch; by the first one, all that the pipeline reads."""
    if manifest.kind == "start":
        return frozenset(manifest.position.topics)
    return frozenset(of.topic for of in (*manifest.ranges, *manifest.table_ranges.get(part.table, ())))


def claim_topics(lake: Lake, manifest: Manifest, part: TablePart, metadata: TableMetadata) -> None:
    """Say in a destination that other pipelines land in, too, which topics come by a batch that is not decided yet.

    Of two pipelines that begin to read a topic at the same moment this commit refuses one. Once both were decided nothing could
    end it: rows don't say whose they are. A table of version 3, which PyIceberg can't write, is claimed with its rows only.

    Raises:
        Refused: Another pipeline was first, or the table does not fit the batch's files any more.
    """
    key, topics = TOPICS_KEY.format(manifest.pipeline), _topics(manifest, part)

    def check(found: TableMetadata) -> None:
        rival = landed_by_another(manifest.pipeline, topics, found, part.table)
        if rival is not None:
            raise Refused(rival.said)

    def claimed(found: TableMetadata) -> int | None:
        own = topics_landed(found, part.table).get(manifest.pipeline, frozenset())
        return found.current_snapshot_id if topics <= own else None

    is_shared = topics_landed(metadata, part.table).keys() - {manifest.pipeline}
    if is_shared and metadata.format_version < FORMAT_VERSION and claimed(metadata) is None:
        commit(lake, Change(part.table, (), {}, (), part.fit, claimed, check, "follow", topics={key: topics}))


def _refuse_rival(manifest: Manifest, table: str, topics: frozenset[str], metadata: TableMetadata) -> None:
    """Two pipelines may begin at the same moment: the second one has landed nothing, and is refused by its first commit here."""
    rival = landed_by_another(manifest.pipeline, topics, metadata, table) if manifest.kind == "start" else None
    if rival is not None:
        raise Terminal(
            f"{rival.said} while pipeline {manifest.pipeline} began, which has landed nothing; every record would be there twice",
            next_step=f"give pipeline {manifest.pipeline} another name, and a table of its own in place of {table}",
        )


def _refuse_gone(lake: Lake, manifest: Manifest, part: TablePart, refusal: Terminal) -> None:
    """A table that is gone is repaired by its name, which the pipeline file may have lost meanwhile."""
    if lake.find_table(part.table) is not None:
        return
    named = f"name {part.table} under destinations (again, if the file names it no more), then: "
    raise Terminal(
        f"batch {manifest.position.n} of pipeline {manifest.pipeline} is decided, but table {part.table} is gone; the pipeline"
        " waits",
        next_step=(named if part.role == "destination" else "") + repair_command(manifest.pipeline, part.table),
    ) from refusal


def _committed(lake: Lake, change: Change, manifest: Manifest, part: TablePart, apply: Apply | None) -> int:
    if part.operation is None:
        return committed(lake, change, manifest)
    operation, branch = part.operation, branch_name(manifest.pipeline, manifest.position.n)
    if apply is None:
        found = change.landed(lake.load_table(part.table).metadata)
        if found is None:
            raise EngineNeeded.of(manifest.pipeline, manifest.position.n, part.table)
        return found
    return committed(lake, change, manifest, lambda at, of: apply(at, of, operation, branch))


def holds_last(key: str, table: str, manifest: Manifest) -> Callable[[TableMetadata], None]:
    """The check that a table holds the batch last that a manifest was made on."""

    def check(metadata: TableMetadata) -> None:
        find = lookup if manifest.accepts_rollback(table) else held
        last = mark_of(find(metadata, key, table))
        if not manifest.follows(table, last):
            raise Refused(f"table {table} holds {last} last, expected {manifest.expected_mark(table)}")

    return check


def committed(lake: Lake, change: Change, manifest: Manifest, landing: Callable[[Lake, Change], int] = commit) -> int:
    """Land a change of a decided batch, and return its snapshot.

    Args:
        lake: The catalog.
        change: The change.
        manifest: The batch.
        landing: What lands it: a commit, or an engine.

    Raises:
        Terminal: The table can't take it.
        Retryable: Another run finished the batch meanwhile.
    """
    try:
        return landing(lake, change)
    except Refused as refusal:
        _refuse_overtaken(lake, manifest, refusal)
        raise Terminal(
            f"batch {manifest.position.n} of pipeline {manifest.pipeline} is decided, but {refusal.message};"
            " the pipeline waits",
            next_step=f"undo the change of {change.table} and run again, or: "
            + repair_command(manifest.pipeline, change.table),
        ) from refusal


def _refuse_overtaken(lake: Lake, manifest: Manifest, refusal: Refused) -> None:
    """A run that slept may find its batch finished, and expired from where it looks, or taken back. Nobody has to act then."""
    done, last = (
        lookup(lake.load_table(table).metadata, key.format(manifest.pipeline), table)
        for table, key in ((manifest.ledger, DONE_KEY), (manifest.closing.table, BATCH_KEY))
    )
    recorded = mark_of(done) if isinstance(done, Held) else None
    is_finished = recorded is not None and recorded.n >= manifest.position.n
    if is_finished or not isinstance(last, Held) or mark_of(last) != manifest.mark:
        raise Retryable(
            f"batch {manifest.position.n} of pipeline {manifest.pipeline} was finished by another run meanwhile, or was taken back",
            next_step="run again; it plans from where the pipeline stands now",
        ) from refusal


def summary_of(manifest: Manifest, path: str) -> dict[str, str]:
    """What every snapshot of a batch says of it."""
    counts = manifest.counts
    summary = {
        "frazil.pipeline": manifest.pipeline,
        "frazil.batch": manifest.batch,
        "frazil.run": manifest.run,
        "frazil.kind": manifest.kind,
        "frazil.version": manifest.version,
        "frazil.config": manifest.config,
        READ_KEY: str(counts.read),
        "frazil.rows.written": str(counts.written),
        "frazil.rows.dead": str(counts.dead),
        "frazil.rows.filtered": str(counts.filtered),
        BYTES_KEY: str(manifest.bytes_read),
        MANIFEST_KEY: path,
    }
    optional = {
        "frazil.complete-through": manifest.complete_through,
        "frazil.started-by": manifest.started_by or None,
        "frazil.reason": manifest.reason,
        REPAIRS_KEY: manifest.repairs,
        "frazil.skipped": ranges_json(manifest.skipped) if manifest.skipped else None,
    }
    return summary | {key: value for key, value in optional.items() if value is not None}
