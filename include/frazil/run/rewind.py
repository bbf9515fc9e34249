"""Following a rollback: the closing table was moved back, so the position goes back with it, on record.

Whoever rolls a table back wants its rows gone or landed again. The ancestry of the closing table says how far it is
filled; a rewinding batch writes that position anew, in a new epoch, and takes the dead letters of the abandoned
batches with it. The next batch lands the missing records again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from frazil.batch.facts import Range
from frazil.batch.manifest import Manifest
from frazil.batch.position import Position
from frazil.batch.removal import landed_after, moved_back
from frazil.batch.reset import Abandoned, moves, rewound, within_log
from frazil.errors import Terminal
from frazil.iceberg.ledger import first_rows, read_ledger
from frazil.kafka.topics import compacted
from frazil.run.forward import decide, roll_forward
from frazil.run.manifests import Batch, read_manifest, recovered, row_columns, write_manifest
from frazil.run.scope import Scope
from frazil.run.source import observe_source
from frazil.run.standing import Standing
from frazil.run.tables import Tables


def rewind(scope: Scope, tables: Tables, now: Standing) -> None:
    """Write the position that the rolled-back closing table stands for, and what follows from it.

    Raises:
        Terminal: The table was rolled back behind everything that is known of the pipeline.
        Refused: A rival follows the rollback already.
    """
    roll_forward(scope, *decide_rewind(scope, tables, now), now)


def decide_rewind(scope: Scope, tables: Tables, now: Standing) -> tuple[Manifest, str]:
    """Decide on the position that the rolled-back closing table stands for.

    Returns:
        The rewinding batch and the path of its manifest.

    Raises:
        Terminal: The table was rolled back behind everything that is known of the pipeline.
        Refused: A rival follows the rollback already.
    """
    pipeline, abandoned_mark = scope.pipeline, now.rolled_back
    rows = read_ledger(scope.lake, pipeline.ledger_table, pipeline.name)
    holds = now.position or _start(scope, tables, rows)
    abandoned = [*_recorded(rows, holds.n), *_unrecorded(scope, tables, now)]
    position = _reachable(scope, rewound(holds, abandoned, n=now.newest + 1, epoch=now.newest_epoch + 1), holds)
    said = (
        f"table {tables.closing_name} was rolled back from batch {abandoned_mark.n if abandoned_mark else '?'}"
        f" to batch {holds.n}: the position goes back with it, the records come again"
    )
    scope.report(f"REWIND: {said}")
    landed_since = landed_after(_topics(position, abandoned), holds.n)
    emptied = _emptied(scope, tables, now, holds)
    batch = Batch(
        kind="rewind",
        run=f"rewind-{position.n}",
        position=position,
        planned_at=scope.stamp(),
        removed=moved_back(holds, position),
        removed_from=dict.fromkeys(emptied, landed_since),  # their rows were not rolled back
        marks=frozenset(tables.followers.keys() - emptied),  # a late run must not give them an abandoned batch
        removed_letters=(*landed_since, *moved_back(holds, position)),
        reason=said,
    )
    manifest, path = write_manifest(scope, tables, now, batch)
    decide(scope, manifest, path, now)
    return manifest, path


def _emptied(scope: Scope, tables: Tables, now: Standing, holds: Position) -> frozenset[str]:
    """The followers that give rows back. One that can't, without Kafka columns, must not have any.

    Raises:
        Terminal: It may have some.
    """
    bare = [name for name in tables.followers if row_columns(scope.pipeline.destination(name)) is None]
    for name in bare:
        last = now.followers[name]
        if last is not None and last.n > holds.n:
            raise Terminal(
                f"pipeline {scope.pipeline.name}: table {tables.closing_name} was rolled back to batch {holds.n}, and table"
                f" {name} holds batch {last.n}: it keeps no Kafka columns (kafka_columns: false), so the rows that come again"
                " can't be taken out there",
                next_step=f"restore {tables.closing_name}: make the snapshot it was rolled back from its current one again"
                " (Spark: CALL system.set_current_snapshot), then run",
            )
    return frozenset(tables.followers.keys() - set(bare))


def _reachable(scope: Scope, position: Position, holds: Position) -> Position:
    """The position, no further behind the held one than Kafka reaches: rows that can't come again must not go."""
    if not moved_back(holds, position):
        return position
    facts = observe_source(scope)
    # Compaction leaves gaps where rows were, so of a compacted topic nothing is sure to come again.
    gaps = compacted(scope.cluster, facts.topics)
    whole = {name: topic for name, topic in facts.topics.items() if name not in gaps}
    reachable = within_log(position, holds, replace(facts, topics=whole))
    for move in moves(position, reachable):
        scope.report(
            f"topic {move.topic}, partition {move.partition}: {move.before} to {move.after - 1} are gone from Kafka; their"
            " rows stay as they are, dead letters that a later batch had replaced there do not come back"
        )
    return reachable


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


def _recorded(rows: list[dict[str, Any]], n: int) -> Iterator[Abandoned]:
    removing = {row["n"] for row in rows if row.get("removed")}
    settled = max(
        (row["n"] for row in rows if row["kind"] in ("repair", "settle") and row["role"] == "dead_letters"), default=0
    )
    for row in first_rows(rows):
        if row["n"] > n:
            lost = row["kind"] == "dead_letters" and row["n"] < settled
            yield Abandoned(
                Position.from_json(row["position"]), _replayed(row, lost=lost), lost or row["n"] in removing
            )


def _replayed(row: dict[str, Any], *, lost: bool) -> tuple[Range, ...]:
    """What must be read again from its beginning: letters that a batch took out went for good.

    Letters that were brought home are still there, and open again, unless the table was repaired while they were rows.
    """
    return tuple(Range(*r) for r in json.loads(row["ranges"])) if row["kind"] == "replay" or lost else ()


def _unrecorded(scope: Scope, tables: Tables, now: Standing) -> Iterator[Abandoned]:
    """Batches that were decided, rolled back, and never recorded: only their manifests know what they did."""
    mark = now.rolled_back
    if mark is None or (now.done is not None and mark.n <= now.done.n):
        return
    last = read_manifest(tables, scope.pipeline, mark, None)[0]
    for manifest in (*recovered(tables.closing, last), last):
        # A repair that recovers the batch before it is the last one: letters that were rows then are in no table.
        is_lost = manifest.kind == "dead_letters" and manifest is not last and last.kind in ("repair", "settle")
        is_replay = manifest.kind == "replay" or is_lost
        removed = is_lost or any(manifest.taken_out(part) for part in manifest.parts)
        yield Abandoned(manifest.position, manifest.ranges if is_replay else (), removed)


def _topics(position: Position, abandoned: list[Abandoned]) -> dict[str, object]:
    known: dict[str, object] = dict(position.topics)
    for batch in abandoned:
        known |= batch.position.topics
    return known
