"""Rewind: the position goes back to what the closing table holds, on demand (`frazil reset --to-table`).

Whoever rolls a table back wants its rows gone or landed again. The last batch that the closing table and the ledger both
have is what counts. Whatever landed behind it is abandoned: its rows go from the followers, and from the closing table
where it still has some, its dead letters go, and the next run lands the records again. So one command ends every state in
which the two say different things: rolled back, restored, two batches of one number, a decided batch without manifest.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from frazil.batch.facts import ClusterFacts, Range
from frazil.batch.manifest import Manifest
from frazil.batch.position import BatchMark, Position
from frazil.batch.removal import RemovedRange, landed_after, moved_back
from frazil.batch.reset import Abandoned, rewound, within_log
from frazil.errors import Terminal
from frazil.iceberg.holdings import BATCH_KEY, MANIFEST_KEY, POSITION_KEY, manifest_path, moved_with
from frazil.iceberg.landed import summaries
from frazil.iceberg.ledger import first_rows, read_ledger
from frazil.iceberg.table import Table, missing_files, read_text
from frazil.kafka.topics import compacted
from frazil.run.manifests import row_columns
from frazil.run.reset_batch import PlannedReset, ResetOrder, read_all
from frazil.run.scope import Scope
from frazil.run.settled import settled
from frazil.run.source import lost_ends, observe_source
from frazil.run.standing import Standing, to_table_command
from frazil.run.tables import Tables, open_tables, with_own_columns

KIND_KEY = "frazil.kind"
"""Summary key: what kind of batch a snapshot is of."""


@dataclass(frozen=True)
class _Past:
    """What is known of the pipeline's batches.

    Attributes:
        agreed: Position of the last batch that the closing table and the ledger both have.
        abandoned: The batches behind it, by number.
        newest: The farthest position that was reached.
    """

    agreed: Position
    abandoned: tuple[Abandoned, ...]
    newest: Position


def look_at_rewind(scope: Scope, order: ResetOrder) -> PlannedReset:
    """Look at what a rewind would do. Commits nothing, makes nothing, finishes nothing.

    Raises:
        Terminal: The closing table was lost, or rows would have to go from a table that does not say where they came from.
        Retryable: Kafka or the catalog is not available now.
    """
    scope, tables, missing, now = _read(scope)
    return _planned(scope, order, tables, now, missing)


def _read(scope: Scope) -> tuple[Scope, Tables, list[str], Standing]:
    """The tables, those included that records made, the names of those that are not there, and where the pipeline stands."""
    tables, missing, now = read_all(scope)
    told = scope.told_by(tables.ledger)
    return (scope, tables, missing, now) if told is scope else (told, *read_all(told))


def plan_rewind(scope: Scope, order: ResetOrder) -> PlannedReset:
    """Plan a rewind that can be done. Where nothing was rolled back, the last batch is finished, and that is all.

    Raises:
        Terminal: As `look_at_rewind`; or a table can't take its part of a decided batch.
        Retryable: Kafka or the catalog is not available now.
    """
    if look_at_rewind(scope, order).is_idle:
        scope, tables, now = settled(scope)
        return _planned(scope, order, tables, now)
    scope, tables, missing, now = _read(scope)
    pipeline = scope.pipeline
    if pipeline.ledger_table in missing:
        names = (*pipeline.tables, pipeline.dead_letters_table, pipeline.ledger_table)
        tables, missing = open_tables(scope.lake, pipeline, recreate=names), []
    tables = with_own_columns(pipeline, tables, missing)
    return _planned(scope, order, tables, now, missing)


def _planned(
    scope: Scope, order: ResetOrder, tables: Tables, now: Standing, missing: Collection[str] = ()
) -> PlannedReset:
    if now.closing_lost is not None:
        raise now.closing_lost
    there = {name: of for name, of in tables.destinations.items() if name not in missing}
    tables = replace(tables, destinations=there)  # the next run makes those that are new
    if order.topics:
        raise Terminal(
            "a table holds the rows of all topics, so the position goes back to it in all of them",
            next_step=f"reset without --topic: {to_table_command(scope.pipeline.name)}",
        )
    if not _is_behind(scope, tables, now):
        return _idle(scope, order, tables, now)
    rows = read_ledger(scope.lake, scope.pipeline.ledger_table, scope.pipeline.name)
    past = _past(scope, tables, now, rows)
    agreed, number = past.agreed, now.newest + 1
    target = rewound(agreed, past.abandoned, n=number, epoch=now.newest_epoch + 1)
    after = _reachable(scope, order, target, past)
    skipped = tuple(_skipped(target, after))
    lost = _lost(scope, tables, now, rows, agreed.n)
    lost |= {name: "is gone" for name in missing if name == scope.pipeline.dead_letters_table}
    planned = PlannedReset(
        order=order,
        tables=tables,
        now=now,
        before=past.newest,
        after=after,
        first=tuple(_first(tables, now, agreed, skipped, lost)),
        kind="rewind",
        skipped=skipped,
        marks=_marked(scope, tables, now, lost, whole=order.allow_duplicates),
    )
    if order.allow_duplicates:
        return planned
    removed = (*_landed_since(past, after, skipped), *moved_back(agreed, after))
    emptied = _emptied(scope, tables, now, agreed, after) - lost.keys()
    letters = removed if scope.pipeline.dead_letters_table not in lost else ()
    return replace(planned, removed_rows=dict.fromkeys(emptied, removed), removed=letters)


def _is_behind(scope: Scope, tables: Tables, now: Standing) -> bool:
    """Whether the closing table and the others say different things, or nobody knows what the last batch gives them."""
    if now.rolled_back is not None:
        return True
    if not now.unfinished or now.mark is None:
        return False
    path = now.manifest or manifest_path(tables.closing, scope.pipeline.name, now.mark)
    return _manifest(tables.closing, path) is None


def _idle(scope: Scope, order: ResetOrder, tables: Tables, now: Standing) -> PlannedReset:
    if now.position is None or now.mark is None:
        raise Terminal(
            f"pipeline {scope.pipeline.name} never ran, so there is no position to move",
            next_step="`start` in the pipeline file says where the first run begins",
        )
    said = f"table {tables.closing_name} holds batch {now.mark.n}, the last one: there is nothing to go back to"
    return PlannedReset(order, tables, now, now.position, now.position, first=(said,), kind="rewind", is_idle=True)


def _past(scope: Scope, tables: Tables, now: Standing, rows: list[dict[str, Any]]) -> _Past:
    agreed = _agreed(scope, tables, now, rows)
    recorded = dict(_recorded(rows, agreed.n))
    batches = recorded | dict(_unrecorded(scope, tables, now, agreed.n, recorded.keys()))
    known = [agreed, *(of.position for _, of in sorted(batches.items(), key=lambda item: item[0].n))]
    rewinds = {row["n"] for row in rows if row["kind"] == "rewind"}
    for before, after in pairwise(known):
        # What is not known before a rewind is what that one dealt with. A repair of the ledger leaves gaps, too.
        if before.n + 1 < after.n and after.n not in rewinds:
            batches[BatchMark(after.n - 1, "", after.epoch)] = _unknown(after)
    newest = known[-1]
    if newest.n < now.newest:
        batches[BatchMark(now.newest, "", newest.epoch)] = _unknown(newest)
    return _Past(agreed, tuple(of for _, of in sorted(batches.items(), key=lambda item: item[0].n)), newest)


def _agreed(scope: Scope, tables: Tables, now: Standing, rows: list[dict[str, Any]]) -> Position:
    """Position of the last batch that both have. A ledger that was made anew does not count."""
    recorded = {(row["n"], row["batch"]): row["position"] for row in rows}
    key = BATCH_KEY.format(scope.pipeline.name)
    texts = (of[key] for of in summaries(tables.closing.metadata) if key in of)
    held = [*([now.mark] if now.mark is not None else []), *map(BatchMark.from_json, texts)]
    for mark in held:
        if (position := recorded.get((mark.n, mark.batch))) is not None:
            return Position.from_json(position)
    if now.position is not None:
        return now.position
    return _start(scope, tables, rows)


def _start(scope: Scope, tables: Tables, rows: list[dict[str, Any]]) -> Position:
    """The start position, where the closing table was rolled back behind the pipeline's first commit."""
    for row in rows:
        if row["kind"] == "start":
            return Position.from_json(row["position"])
    raise Terminal(
        f"pipeline {scope.pipeline.name}: table {tables.closing_name} was rolled back behind the"
        " pipeline's first commit, and the ledger does not know where the pipeline began",
        next_step=f'say where to go on: frazil reset {scope.pipeline.name} --to earliest --reason "table was rolled back"',
    )


def _recorded(rows: list[dict[str, Any]], n: int) -> Iterator[tuple[BatchMark, Abandoned]]:
    removing = {row["n"] for row in rows if row.get("removed")}
    repairs = (row["n"] for row in rows if row["kind"] in ("repair", "settle") and row["role"] == "dead_letters")
    repaired = max(repairs, default=0)
    for row in first_rows(rows):
        if row["n"] > n:
            # Letters that were brought home are still there, and open again, unless the table was repaired meanwhile.
            is_lost = row["kind"] == "dead_letters" and row["n"] < repaired
            is_replay = row["kind"] == "replay" or is_lost
            replayed = tuple(Range(*of) for of in json.loads(row["ranges"])) if is_replay else ()
            mark = BatchMark(row["n"], row["batch"], row["epoch"])
            yield mark, Abandoned(Position.from_json(row["position"]), replayed, is_lost or row["n"] in removing)


def _unrecorded(
    scope: Scope, tables: Tables, now: Standing, n: int, recorded: Iterable[BatchMark]
) -> Iterator[tuple[BatchMark, Abandoned]]:
    """Batches that were decided and never recorded: their manifests know what they did.

    Where the manifest of the closing table's last batch is gone, its position and its kind are still known.
    """
    known = set(recorded)
    paths = {mark: path for mark, path in _named(scope, tables, now).items() if mark.n > n and mark not in known}
    found = {mark: of for mark, path in paths.items() if (of := _manifest(tables.closing, path)) is not None}
    for path in [path for of in found.values() for path in of.recovers]:
        earlier = _manifest(tables.closing, path)
        if earlier is not None and earlier.mark.n > n and earlier.mark not in known:
            found.setdefault(earlier.mark, earlier)
    repaired = max((mark.n for mark, of in found.items() if of.kind in ("repair", "settle")), default=0)
    for mark, manifest in found.items():
        is_lost = manifest.kind == "dead_letters" and mark.n < repaired
        replayed = manifest.ranges if manifest.kind == "replay" or is_lost else ()
        removed = is_lost or any(manifest.taken_out(part) for part in manifest.parts)
        yield mark, Abandoned(manifest.position, replayed, removed)
    position, kind = _newest(scope, tables)
    for mark in paths.keys() - found.keys():
        if position is not None and position.n == mark.n:
            scope.report(f"manifest {paths[mark]} of batch {mark.n} is gone: the batch is taken back")
            is_told = kind in ("start", "ingest", "reset", "rewind", "dead_letters")
            yield mark, Abandoned(position, ()) if is_told else _unknown(position)


def _newest(scope: Scope, tables: Tables) -> tuple[Position | None, str | None]:
    """The newest position that the closing table had, and the kind of the batch that it is of, as far as they are told."""
    metadata, key = tables.closing.metadata, POSITION_KEY.format(scope.pipeline.name)
    if key not in metadata.properties:
        return None, None
    value, snapshot_id = moved_with(metadata, key, tables.closing_name)
    snapshot = metadata.snapshot_by_id(snapshot_id)
    summary = snapshot.summary.additional_properties if snapshot is not None and snapshot.summary is not None else {}
    return Position.from_json(value), summary.get(KIND_KEY)


def _named(scope: Scope, tables: Tables, now: Standing) -> dict[BatchMark, str]:
    """Where the manifests of batches lie, as the snapshots of all tables tell, whether main has them or not."""
    key, named = BATCH_KEY.format(scope.pipeline.name), {}
    for table in (tables.closing, tables.dead_letters, *tables.followers.values()):
        for snapshot in table.metadata.snapshots:
            summary = snapshot.summary.additional_properties if snapshot.summary is not None else {}
            if key in summary and MANIFEST_KEY in summary:
                named[BatchMark.from_json(summary[key])] = summary[MANIFEST_KEY]
    for mark in (now.mark, now.rolled_back):
        if mark is not None and mark not in named:
            named[mark] = manifest_path(tables.closing, scope.pipeline.name, mark)
    return named


def _manifest(table: Table, path: str) -> Manifest | None:
    """A manifest; None if it is gone, or is none.

    Raises:
        Retryable: The storage can't be read now.
    """
    if missing_files(table, [path]):
        return None
    text = read_text(table, path)
    try:
        return Manifest.from_json(text)
    except Terminal:
        return None


def _unknown(position: Position) -> Abandoned:
    """A batch of which nobody knows what it did: it may have replaced anything before its position."""
    whole = (
        Range(name, number, 0, offset)
        for name, topic in position.topics.items()
        for number, offset in enumerate(topic.next)
    )
    return Abandoned(position, tuple(whole))


def _reachable(scope: Scope, order: ResetOrder, position: Position, past: _Past) -> Position:
    """The position, no further back than Kafka reaches: rows that can't come again must not go."""
    reached = (past.agreed, *(batch.position for batch in past.abandoned))
    farthest = within_log(position, reached, ClusterFacts(position.cluster, {}))
    if farthest == position:
        return position  # nothing has to come again, so Kafka is not asked
    facts = observe_source(scope)
    if facts.cluster_id != position.cluster:
        return within_log(position, reached, replace(facts, topics={}))
    # Compaction leaves gaps where rows were, so of a compacted topic nothing is sure to come again.
    gaps = compacted(scope.cluster, facts.topics) if not order.allow_duplicates else ()
    whole = {name: topic for name, topic in facts.topics.items() if name not in gaps}
    return within_log(position, reached, replace(facts, topics=whole)).with_lost(lost_ends(scope, farthest, facts))


def _skipped(wanted: Position, reached: Position) -> Iterator[Range]:
    for name, topic in wanted.topics.items():
        for number, (start, end) in enumerate(zip(topic.next, reached.topics[name].next, strict=True)):
            if start < end:
                yield Range(name, number, start, end)


def _landed_since(past: _Past, after: Position, skipped: Iterable[Range]) -> Iterator[RemovedRange]:
    """What abandoned batches landed, but for what was skipped: it can't come again, so it stays.

    Each topic has a range of all partitions, however short: by it the ledger says that these batches are undone.
    """
    since, positions = past.agreed.n + 1, [batch.position for batch in past.abandoned]
    for name in sorted({*after.topics, *(name for of in positions for name in of.topics)}):
        stays = {of.partition: of for of in skipped if of.topic == name}
        if not stays:
            yield from landed_after({name: None}, past.agreed.n)
            continue
        low = min(of.start for of in stays.values())
        yield RemovedRange(name, None, 0, low, since)
        for number in range(len(after.topics[name].next)):
            gap = stays.get(number, Range(name, number, low, low))
            if low < gap.start:
                yield RemovedRange(name, number, low, gap.start, since)
            yield RemovedRange(name, number, gap.end, None, since)
        # Of an incarnation that only abandoned batches knew, nothing was skipped.
        other = max(of.topics[name].since for of in positions if name in of.topics)
        if other > after.topics[name].since:
            yield RemovedRange(name, None, 0, None, other)


def _lost(scope: Scope, tables: Tables, now: Standing, rows: list[dict[str, Any]], n: int) -> dict[str, str]:
    """Followers that lack what batches up to `n` gave them, with why: a rewind leaves them as they are."""
    given: dict[str, int] = {}
    for row in rows:
        if row["n"] <= n and row["snapshot_id"] is not None:
            given[row["table"]] = max(row["n"], given.get(row["table"], 0))
    followers = {**tables.followers, scope.pipeline.dead_letters_table: tables.dead_letters}
    marks = {**now.followers, scope.pipeline.dead_letters_table: now.dead_letters}
    lost = {}
    for name, table in followers.items():
        told, mark = now.told.get(name), marks.get(name)
        is_new = told is not None and told.uuid != str(table.metadata.table_uuid)
        if is_new or (name in given and (mark is None or mark.n < given[name])):
            lost[name] = "was made anew" if is_new else f"lacks batch {given[name]}"
    return lost


def _emptied(scope: Scope, tables: Tables, now: Standing, agreed: Position, after: Position) -> set[str]:
    """The destinations that give rows back. One that can't, without Kafka columns, must not have any.

    Raises:
        Terminal: It may have some.
    """
    closing, marks = tables.closing_name, dict(now.followers)
    holders = {name for name, mark in marks.items() if mark is not None and mark.n > agreed.n}
    if closing in tables.destinations and (
        (now.mark is not None and now.mark.n > agreed.n) or moved_back(agreed, after)
    ):
        holders.add(closing)
    emptied = holders | tables.followers.keys()
    bare = {name for name in emptied if row_columns(scope.pipeline.destination(name)) is None}
    for name in sorted(bare & holders):
        raise Terminal(
            f"pipeline {scope.pipeline.name}: the position of table {closing} goes back to batch {agreed.n}, and table {name} holds"
            " rows of later ones: it keeps no Kafka columns (kafka_columns: false), so those that come again can't be taken"
            " out there",
            next_step=f"restore {closing} as it was, then run; or let them stand beside those that come again:"
            f' frazil reset {scope.pipeline.name} --to-table --allow-duplicates --reason "table was rolled back"',
        )
    return emptied - bare


def _marked(scope: Scope, tables: Tables, now: Standing, lost: Mapping[str, str], *, whole: bool) -> frozenset[str]:
    """Followers that get the mark although they lose no rows, so that a late run can't give them an abandoned batch.

    A merged table loses none: changes that come again find their rows. It needs an engine, so it is marked only where the
    ledger would miss the batch that it holds.
    """
    marked = {scope.pipeline.dead_letters_table} if whole or not now.told else set()
    for name in tables.followers:
        destination, told = scope.pipeline.destination(name), now.told.get(name)
        is_astray = told is not None and now.holds(name) != told.mark
        if is_astray if destination.by_engine else whole or not now.told or row_columns(destination) is None:
            marked.add(name)
    return frozenset(marked - lost.keys())


def _first(
    tables: Tables, now: Standing, agreed: Position, skipped: Iterable[Range], lost: Mapping[str, str]
) -> Iterator[str]:
    newest = now.rolled_back or now.mark
    yield (
        f"table {tables.closing_name} goes on from batch {agreed.n}; the pipeline was at batch {newest.n if newest else '?'}:"
        " the records of the batches between come again"
    )
    for of in skipped:
        yield (
            f"topic {of.topic}, partition {of.partition}: {of.start} to {of.end - 1} are gone from Kafka, or may be, as the topic"
            " is compacted: rows and dead letters that a table has of them stay, what is missing is given up"
            " (of a compacted topic, --allow-duplicates reads again what Kafka has)"
        )
    for table, why in sorted(lost.items()):
        yield f"table {table} {why}, too: it stays as it is, and the next run says how it is mended"
