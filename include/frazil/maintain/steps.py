"""The maintenance steps: each calls a procedure of the engine and returns its counts. Steps that remove files check first that no
pipeline would lose its state.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlparse

from frazil.error_codes import MAINTENANCE_FAILED, POSITION_LOST
from frazil.errors import OutcomeUnknown, Retryable, Terminal, without_values
from frazil.iceberg.catalog.catalog import Lake
from frazil.iceberg.commit.expiry import (
    HOLD_KEY,
    RetainedState,
    Retention,
    expire_snapshots,
    named_manifests,
    retained_state,
    rewrite_hold,
    with_hold,
    without_hold,
)
from frazil.iceberg.ledger.inspection import Inspection
from frazil.maintain.need import ORPHANS_KEY, most_files, portions
from frazil.maintain.procedures import Argument, Before, Conflict, Procedures, ZOrder
from frazil.pipeline.files.folder import is_rules_file
from frazil.pipeline.models.maintenance import Compaction, Expiry, Orphans, Stats, parse_age
from frazil.run.state.context import RunContext
from frazil.run.state.pipeline_state import pipeline_state
from frazil.run.state.tables import find_tables

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata


TableGuard = Callable[[str], RetainedState]
"""Reads the positions and marks of pipelines in a table anew; raises `UnsafeToRemove` if they are not intact."""

_PAUSES: Final = (1.0, 2.0, 4.0)
"""Pauses in seconds before a pipeline with an unfinished batch is checked again: a batch finishes within a second or two."""


class UnsafeToRemove(Retryable):
    """No file may be removed now, since a pipeline might lose its state or an unfinished batch."""


def table_guard(context: RunContext) -> TableGuard:
    """Make the guard that steps call before they remove files of a table."""

    def check_table(table: str) -> RetainedState:
        _require_settled(context)
        table_state = read_state(context.lake, table)
        if table_state.refusal is not None:
            raise UnsafeToRemove(f"table {table} was rolled back: {table_state.refusal}", code=MAINTENANCE_FAILED)
        return table_state

    return check_table


def read_state(lake: Lake, table: str) -> RetainedState:
    """The positions and marks of pipelines in a table, which is loaded anew."""
    return retained_state(lake.catalog_of(table).load_table(table).metadata, table)


def lost_keys(before: RetainedState, after: RetainedState) -> tuple[str, ...]:
    """Keys that a table lost, or that have an older batch than before."""
    if after.refusal is not None:
        return (after.refusal,)
    return tuple(
        key
        for key, value in before.values.items()
        if (current := after.values.get(key)) is None or _number(current) < _number(value)
    )


def _number(value: str) -> int:
    """The batch number of a position or a mark; 0 without one."""
    body = json.loads(value)
    n = body.get("n", 0) if isinstance(body, dict) else 0
    return n if isinstance(n, int) else 0


def _require_settled(context: RunContext) -> None:
    """Require that no batch is unfinished and all tables have their parts, as a plan does. Waits a few seconds for it.

    Raises:
        UnsafeToRemove: A batch is unfinished, or a table lacks a part.
    """
    why = _removal_refusal(context)
    for seconds in _PAUSES:
        if why is None:
            return
        time.sleep(seconds)
        why = _removal_refusal(context)
    if why is not None:
        raise UnsafeToRemove(f"pipeline {context.pipeline.name}: {why}", code=MAINTENANCE_FAILED)


def _removal_refusal(context: RunContext) -> str | None:
    """Why no file may be removed now; None if files may be removed."""
    try:
        # A batch may have created tables meanwhile.
        context = context.with_created_tables(context.project.auto_created_tables(context.pipeline))
        tables = find_tables(context.lake, context.pipeline)
        if tables is None:
            return "it never ran"
        state = pipeline_state(context.pipeline, tables)
    except Terminal as refusal:  # the next run would be refused, too
        return refusal.message
    if state.loss is not None:
        return state.loss.message
    return f"batch {state.mark.n} is not finished" if state.unfinished and state.mark is not None else None


OWN_FOLDERS: Final = ("data", "metadata", "frazil-staged")
"""Folders below a table's location that belong to the table. Any other folder may be another table's."""

_METADATA_FILE: Final = re.compile(r"/metadata/v?(\d+)(?:-[^/]*)?\.metadata\.json(\.gz)?$")
"""A metadata file, with its version, which grows with each commit. Some catalogs write `v7`, Iceberg's own write `00007-…`."""

_COMMIT_BYTES: Final = 2 * 2**30
"""Bytes that a compaction rewrites per commit: a minute or two of work."""

_MOST_COMMITS: Final = 10
"""Commits of one compaction, at most."""

_SHARES: Final = (4, 16)
"""After a conflict, a compaction tries again with a fourth of its files, and then with a sixteenth."""

_BY_ENGINE_ALONE: Final = 3
"""Format version from which on only the engine can write metadata: PyIceberg 0.12 can't."""

MOST_ORPHANS: Final = 1_000_000
"""Orphans that one run removes, since the driver holds their paths. The next run removes more."""


class StateLost(Terminal):
    """A table lost the position or the mark of a pipeline."""


@dataclass(frozen=True)
class Work:
    """A table that a step works on, and the engine.

    Attributes:
        inspection: Present figures of the table.
        is_due: Whether the figures require the step, and not only `Order.force`.
        is_merged: Whether batches change rows of the table.
    """

    context: RunContext
    table: str
    inspection: Inspection
    engine: Procedures
    is_due: bool = True
    is_merged: bool = False

    @property
    def catalog(self) -> str:
        """Name of the table's catalog."""
        return self.context.lake.catalog_of(self.table).name

    def call(self, procedure: str, **arguments: Any) -> dict[str, int]:
        """Call a procedure for the table, and return the counts in its result."""
        rows = self.engine.call(self.catalog, procedure, {"table": self.table, **arguments})
        return {name: int(value) for row in rows for name, value in row.items() if isinstance(value, int)}

    def set_property(self, key: str, value: str) -> None:
        """Set a property of the table."""
        if self.inspection.unreadable is not None and self.inspection.format_version < _BY_ENGINE_ALONE:
            self.context.lake.set_property(self.table, key, value)  # Spark can't load the table
        else:
            self.engine.note(self.catalog, self.table, key, value)


@contextmanager
def _held_snapshots(work: Work) -> Iterator[None]:
    """Keep batches from expiring snapshots that are newer than the rewrite's begin: Iceberg needs them for the rewrite's commit.

    The hold is a table property. After a process was killed, its hold expires. Two runs may rewrite at once: each has its own hold.
    """
    metadata = work.context.lake.load_table(work.table).metadata
    now_ms = int(work.context.clock().timestamp() * 1000)
    own = rewrite_hold(metadata, now_ms)
    work.set_property(HOLD_KEY, with_hold(metadata.properties, own, now_ms))
    try:
        yield
    finally:
        try:
            properties = work.context.lake.load_table(work.table).metadata.properties
            work.set_property(HOLD_KEY, without_hold(properties, own))
        except (Retryable, OutcomeUnknown, Terminal) as failure:
            work.context.report(f"{work.table}: its snapshots are held for longer than needed: {failure.message}")


def rewrite_position_deletes(work: Work) -> dict[str, int]:
    """Merge small delete files."""
    with _held_snapshots(work):
        return work.call("rewrite_position_delete_files", options={"min-input-files": "2"})


def compact(work: Work, rules: Compaction) -> dict[str, int]:
    """Compact small files, closed partitions first; or, if there are enough delete files, rewrite the files that they are for.

    Raises:
        Conflict: Another process changed the same files, at each try.
    """
    calls = compaction_arguments(
        work.inspection, rules, work.context.clock(), branch=work.context.lake.branch_of(work.table)
    )
    counts: dict[str, int] = {}
    with _held_snapshots(work):
        for arguments in calls:
            call_counts = _in_one_commit(work, rules, arguments) if work.is_merged else _rewrite(work, arguments)
            for name, count in call_counts.items():
                counts[name] = counts.get(name, 0) + count
    return counts


def _in_one_commit(work: Work, rules: Compaction, arguments: dict[str, Any]) -> dict[str, int]:
    """Compact a table that batches merge into, in one commit: each commit makes a concurrent merge start again.

    If a merge commits first, the compaction tries again with fewer files: the less time it takes, the rarer is a conflict.
    """
    options = arguments["options"] = {
        name: value for name, value in arguments["options"].items() if not name.startswith("partial-progress")
    }
    most = int(options.get("max-files-to-rewrite", work.inspection.files))
    for share in _SHARES:
        try:
            return _rewrite(work, arguments)
        except Conflict as conflict:
            options["max-files-to-rewrite"] = str(max(rules.min_files, most // share))
            work.context.report(
                f"{work.table}: another commit was faster than compaction, trying again with fewer files: {conflict.message}"
            )
    return _rewrite(work, arguments)


def _rewrite(work: Work, arguments: dict[str, Any]) -> dict[str, int]:
    """Rewrite data files.

    Raises:
        Conflict: Another process changed the same files. If each part has a commit of its own, Iceberg only logs the
            conflict, so a due step that replaced no file counts as one.
    """
    counts = work.call("rewrite_data_files", **arguments)
    if work.is_due and not counts["rewritten_data_files_count"]:
        raise Conflict(
            f"rewrite_data_files of {work.table}: nothing was replaced, as others changed the same files",
            code=MAINTENANCE_FAILED,
        )
    return counts


def compaction_arguments(
    inspection: Inspection, rules: Compaction, now: datetime, *, branch: str | None = None
) -> list[dict[str, Any]]:
    """The arguments for each call of rewrite_data_files."""
    shared: dict[str, Any] = {} if branch is None else {"branch": branch}
    shared |= _strategy(inspection, rules)
    options = {"min-input-files": str(rules.min_files)}
    if inspection.deletes >= rules.min_deletes:
        deletes = {"delete-file-threshold": "1", "remove-dangling-deletes": "true"}
        mean = max(1, inspection.bytes // max(1, inspection.files))
        capped = (
            {"max-files-to-rewrite": str(max(1, rules.max_bytes // mean))} if inspection.bytes > rules.max_bytes else {}
        )
        return [
            {**shared, "options": {**options, **deletes, **capped, **_commits(min(inspection.bytes, rules.max_bytes))}}
        ]
    calls, bytes_left = [], rules.max_bytes
    for portion in portions(inspection, rules, now):
        if bytes_left <= 0:
            break
        most = most_files(portion, bytes_left, rules.min_files)
        capped = {} if most is None else {"max-files-to-rewrite": str(most)}
        field, before = inspection.time_field, portion.before
        where = {} if field is None or before is None else {"where": Before(field.column, field.type, before)}
        commits = _commits(min(portion.small_bytes, bytes_left))
        calls.append({**shared, **where, "options": {**options, **capped, **commits}})
        bytes_left -= portion.small_bytes
    return calls or [{**shared, "options": options}]


def _commits(size: int) -> dict[str, str]:
    """Options for several commits, so that a killed process loses minutes of work, not hours.

    There are as few commits as possible, since Iceberg's threads conflict with each other, and a part that loses is not rewritten.
    """
    count = min(_MOST_COMMITS, size // _COMMIT_BYTES)
    return {"partial-progress.enabled": "true", "partial-progress.max-commits": str(count)} if count > 1 else {}


def _strategy(inspection: Inspection, rules: Compaction) -> dict[str, Argument]:
    if rules.strategy == "z-order":
        return {"strategy": "sort", "sort_order": ZOrder(tuple(rules.columns))}
    is_sorted = rules.strategy == "sort" or (rules.strategy is None and inspection.is_sorted)
    return {"strategy": "sort" if is_sorted else "binpack"}


def rewrite_manifests(work: Work) -> dict[str, int]:
    """Merge manifests."""
    return work.call("rewrite_manifests")


def count_values(work: Work, rules: Stats) -> dict[str, int]:
    """Count distinct values of columns, into a statistics file of the snapshot."""
    work.call("compute_table_stats", **({"columns": rules.columns} if rules.columns else {}))
    return {}


def expire(work: Work, rules: Expiry, guard: TableGuard) -> dict[str, int]:
    """Expire old snapshots. Positions and marks of pipelines stay.

    Raises:
        StateLost: One of them is gone.
    """
    before, retention = guard(work.table), Retention.from_rules(rules)
    if work.inspection.format_version < _BY_ENGINE_ALONE:
        instant = int(work.context.clock().timestamp() * 1000)
        counts = {"expired_snapshots_count": expire_snapshots(work.context.lake, work.table, retention, instant)}
    else:
        counts = _expire_by_engine(work, retention, before)
    missing = lost_keys(before, read_state(work.context.lake, work.table))
    if missing:
        raise StateLost(
            f"table {work.table}: the expiry removed {', '.join(missing)}, which Frazil needs",
            code=POSITION_LOST,
            next_step=f"frazil lag {work.context.pipeline.name} shows whether the position is still there; please report this",
        )
    return counts


def _expire_by_engine(work: Work, retention: Retention, before: RetainedState) -> dict[str, int]:
    older_than = work.context.clock() - retention.age_in(work.inspection.properties)
    if before.hold_ms is not None:
        older_than = min(older_than, datetime.fromtimestamp(before.hold_ms / 1000, UTC))
    keep = retention.keep_in(work.inspection.properties)
    return work.call("expire_snapshots", older_than=older_than, retain_last=keep, stream_results=True)


def remove_orphans(work: Work, rules: Orphans, guard: TableGuard) -> dict[str, int]:
    """Find old files that no snapshot names, and remove those that belong to the table."""
    now = work.context.clock()
    arguments: dict[str, Argument] = {"table": work.table, "older_than": now - parse_age(rules.older_than)}
    guard(work.table)
    metadata = work.context.lake.catalog_of(work.table).load_table(work.table).metadata
    # Iceberg itself lists object stores, for which Spark has no file system.
    is_local = _normalized(metadata.location).startswith("file:")
    listing: dict[str, Argument] = {} if is_local else {"prefix_listing": True}
    rows = work.engine.call(work.catalog, "remove_orphan_files", {**arguments, **listing, "dry_run": True})
    orphans = _Listing(metadata, (row["orphan_file_location"] for row in rows))
    own = orphans.removable()
    if orphans.left_alone:
        example = without_values(orphans.example)
        work.context.report(f"table {work.table}: {orphans.left_alone:,} files are left alone, for example {example}")
    if own:
        work.context.report(f"table {work.table}: {len(own):,} orphans, for example {without_values(min(own))}")
        guard(work.table)
        with work.engine.listed(own) as listed:
            removal: dict[str, Argument] = {**arguments, "file_list_view": listed, "stream_results": True}
            work.engine.call(work.catalog, "remove_orphan_files", removal)
    if len(own) < MOST_ORPHANS:  # else there may be more, so the next maintenance is to search again
        work.set_property(ORPHANS_KEY, now.isoformat(timespec="seconds"))
    return {"orphan_files": len(own), "left_alone": orphans.left_alone}


@dataclass
class _Listing:
    """Orphans below a table's location. Paths are read one by one, since there may be more than the driver can hold."""

    metadata: TableMetadata
    paths: Iterable[str]
    left_alone: int = 0
    example: str = ""

    def removable(self) -> list[str]:
        """Orphans to remove, at most `MOST_ORPHANS`: files in the table's folders, except manifests of batches, stored
        pipeline files and the newest metadata.

        Another table may lie below this table's location, in a namespace of the same name: its files are no orphans. Paths are
        spelled as in the table's location, since the procedure takes only paths that begin with it, letter by letter.
        """
        location = self.metadata.location.rstrip("/")
        plain = _normalized(location)
        paths = list(islice(without_newest_metadata(self._own_files(plain)), MOST_ORPHANS))
        self.left_alone -= len(paths)
        return [location + _normalized(path).removeprefix(plain) for path in paths]

    def _own_files(self, location: str) -> Iterator[str]:
        below = tuple(f"{location}/{folder}/" for folder in OWN_FOLDERS)
        named = {_normalized(path) for path in named_manifests(self.metadata)}
        for path in self.paths:
            self.left_alone += 1
            plain = _normalized(path)
            if plain.startswith(below) and plain not in named and not is_rules_file(path):
                yield path
            else:
                self.example = path


def without_newest_metadata(paths: Iterable[str]) -> Iterator[str]:
    """All paths except metadata files of the newest version among them: backups of the catalog may still name these."""
    newest, newest_files = 0, list[str]()
    for path in paths:
        match = _METADATA_FILE.search(path)
        version = int(match[1]) if match is not None else -1
        if version < newest:
            yield path
            continue
        if version > newest:
            yield from newest_files
            newest, newest_files = version, []
        newest_files.append(path)


def _normalized(address: str) -> str:
    """An address in one spelling: `file:/lake` for `file:///lake`, and `s3://lake` for `s3a://lake`."""
    parts = urlparse(address)
    scheme = {"": "file", "s3a": "s3", "s3n": "s3"}.get(parts.scheme, parts.scheme)
    return f"{scheme}:{parts.netloc}{parts.path}"
