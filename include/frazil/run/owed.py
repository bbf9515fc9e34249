"""What a lost table lacks: letters by what the ledger says of every batch, ledger rows by the manifests that are left."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from frazil.batch.facts import Range
from frazil.batch.manifest import Manifest
from frazil.batch.position import Position
from frazil.batch.removal import RemovedRange, landed_after, replaced
from frazil.batch.settle import Landing, Owed, owed, part_gone, standing
from frazil.errors import Terminal
from frazil.iceberg.holdings import BATCH_KEY, MANIFEST_KEY, RolledBack, lookup
from frazil.iceberg.landed import summaries
from frazil.iceberg.ledger import read_ledger
from frazil.iceberg.table import read_text
from frazil.kafka.observe import observe
from frazil.run.ledger_entry import told_after
from frazil.run.scope import Scope
from frazil.run.standing import Standing
from frazil.run.tables import Tables
from frazil.run.unfinished import Unfinished, follow_where_possible

Row = Mapping[str, Any]
"""One row of the ledger. Older ledgers lack some columns."""

_READING = ("ingest", "replay")


@dataclass(frozen=True)
class Debt:
    """What a table lacks.

    Attributes:
        letters_table: The dead-letter table, if that is the one; None for the ledger.
        rows_table: The destination, if it is one.
        letters: Letters, or of a destination records with rows, that Kafka still holds, by batch.
        lost: Ranges with letters or rows that Kafka does not hold any more.
        removed: Rows of the table that go first: what is there of those batches, and what they took out.
        expected: Letters that each batch left, or rows, at most; for the ledger: 1 for each batch whose rows it lacks.
        incomplete: Numbers of the batches of which something is gone.
        gone: What can't be had again, one line each.
        must_be_whole: Whether it must be said that what is gone may be given up.
        unfinished: Paths of the manifests of batches that the ledger does not know yet.
        recovers: Those, and of the ledger all that are left.
        marks: Followers that get the settling batch's mark whatever else they get.
    """

    letters_table: str | None
    rows_table: str | None = None
    letters: tuple[Owed, ...] = ()
    lost: tuple[Range, ...] = ()
    removed: tuple[RemovedRange, ...] = ()
    expected: Mapping[int, int] = field(default_factory=dict)
    incomplete: frozenset[int] = frozenset()
    gone: tuple[str, ...] = ()
    must_be_whole: bool = False
    unfinished: tuple[str, ...] = ()
    recovers: tuple[str, ...] = ()
    marks: frozenset[str] = frozenset()

    @property
    def is_ledger(self) -> bool:
        """Whether it is the ledger that lacks something."""
        return self.letters_table is None and self.rows_table is None

    @property
    def total(self) -> int:
        """Letters, rows, or batches, that the table lacks, at most."""
        return sum(self.expected.values())


def letters_debt(scope: Scope, now: Standing, last: Unfinished | None) -> Debt:
    """What the dead letters lack: everything that batches after the one they hold left in them.

    Raises:
        Retryable: Kafka or the catalog is not available now.
    """
    pipeline, after = scope.pipeline, -1 if now.dead_letters is None else now.dead_letters.n
    manifests = last.all if last is not None else ()
    rows = read_ledger(scope.lake, pipeline.ledger_table, pipeline.name)
    landings = standing([*_landings(scope, rows), *(_landing(scope, of) for _, of in manifests)])
    position = now.position or Position(0, 0, "")
    owing = owed(landings, after)
    topics = sorted({r.topic for of in owing for r in of.ranges})
    facts = observe(scope.cluster, topics, absent_ok=True)
    parts = [(of, *part_gone(of, position, facts)) for of in owing]
    later = [of for of in landings if of.n > after]
    known = {name: None for of in later for name in topics_of(of)} | dict(position.topics)
    paths = tuple(path for path, _ in manifests)
    return Debt(
        letters_table=pipeline.dead_letters_table,
        letters=tuple(kept for _, kept, _ in parts if kept.ranges),
        lost=tuple(r for _, _, lost in parts for r in lost),
        removed=(*landed_after(known, after), *(r for of in later for r in of.removed)),
        expected={of.n: of.dead for of in owing},
        incomplete=frozenset(of.n for of, _, lost in parts if lost),
        gone=(*_unknown(landings, after, now), *(_said(of, lost) for of, _, lost in parts if lost)),
        must_be_whole=True,
        unfinished=paths,
        recovers=paths,
        marks=frozenset({pipeline.dead_letters_table}),
    )


def topics_of(of: Landing) -> set[str]:
    """Names of the topics that a batch read or took out."""
    return {r.topic for r in of.ranges} | {r.topic for r in of.removed}


def _unknown(landings: Iterable[Landing], after: int, now: Standing) -> Iterator[str]:
    """Batches that neither the ledger nor a manifest knows: the ledger was lost before."""
    known = {of.n for of in landings}
    last = now.mark.n if now.mark is not None else after
    lacking = [n for n in range(after + 1, last + 1) if n not in known and not _is_undone(n, landings)]
    if lacking:
        yield f"the ledger does not know {_numbers(lacking)}: what dead letters they left, nobody can tell"


def _is_undone(n: int, landings: Iterable[Landing]) -> bool:
    """Whether a rollback undid a batch before it was recorded: the rewind took out whatever it left."""
    return any(of.n > n and any(r.partition is None and r.since <= n for r in of.removed) for of in landings)


def _said(of: Owed, lost: tuple[Range, ...]) -> str:
    places = ", ".join(f"topic {r.topic}, partition {r.partition}: {r.start} to {r.end - 1}" for r in lost)
    return f"batch {of.n} left {of.dead} dead letters; Kafka does not hold any more {places}"


def _numbers(numbers: list[int]) -> str:
    if len(numbers) > 1 and numbers[-1] - numbers[0] == len(numbers) - 1:
        return f"batches {numbers[0]} to {numbers[-1]}"
    return f"batch {', '.join(map(str, numbers))}"


def batches_of(rows: Iterable[Row]) -> dict[int, list[Row]]:
    """Rows of the ledger by batch."""
    by_number: dict[int, list[Row]] = {}
    for row in rows:
        by_number.setdefault(row["n"], []).append(row)
    return by_number


def removed_by(rows: Iterable[Row]) -> tuple[RemovedRange, ...]:
    """What a batch took out of tables, by its rows of the ledger."""
    return tuple(RemovedRange(*r) for row in rows for r in json.loads(row.get("removed") or "[]"))


def _landings(scope: Scope, rows: Iterable[Row]) -> Iterator[Landing]:
    for n, of in batches_of(rows).items():
        first = of[0]
        # A settle takes out what it stages again: its own rows, not those of other batches.
        letters = [row for row in of if row["role"] == "dead_letters" and row["kind"] != "settle"]
        yield Landing(
            n=n,
            ranges=ranges_read(first) if first["kind"] in _READING else (),
            dead=sum(row["rows"] for row in of if row["role"] == "dead_letters") if first["kind"] in _READING else 0,
            filtered=first["records_filtered"],
            is_current=first["config"] == scope.pipeline.outcome_fingerprint,
            removed=removed_by(letters),
            brought_home=_brought_home(ranges_read(first), Position.from_json(first["position"]), first["kind"]),
        )


def _brought_home(ranges: tuple[Range, ...], position: Position, kind: str) -> tuple[RemovedRange, ...]:
    return replaced(ranges, position) if kind == "dead_letters" else ()


def ranges_read(row: Row) -> tuple[Range, ...]:
    """What a batch read, by one of its rows of the ledger."""
    if row.get("ranges"):
        return tuple(Range(*r) for r in json.loads(row["ranges"]))
    topics = Position.from_json(row["position"]).topics  # older ledgers say it by the position alone
    moved = ((name, n, *at) for name, t in topics.items() for n, at in enumerate(zip(t.start, t.next, strict=True)))
    return tuple(Range(*r) for r in moved if r[2] < r[3])


def _landing(scope: Scope, manifest: Manifest) -> Landing:
    reads = manifest.kind in _READING
    letters = [part for part in manifest.followers if part.role == "dead_letters" and manifest.kind != "settle"]
    gone = (r for part in letters for r in manifest.taken_out(part))
    return Landing(
        n=manifest.position.n,
        ranges=manifest.ranges if reads else (),
        dead=sum(part.rows for part in letters) if reads else 0,
        filtered=manifest.counts.filtered,
        is_current=manifest.config == scope.pipeline.outcome_fingerprint,
        removed=tuple(gone),
        brought_home=_brought_home(manifest.ranges, manifest.position, manifest.kind),
    )


def ledger_debt(scope: Scope, tables: Tables, now: Standing, last: Unfinished | None) -> Debt:
    """What the ledger lacks: the rows of all batches after the one it holds; their manifests know them.

    Raises:
        Retryable: The catalog is not available now.
    """
    if last is not None:
        follow_where_possible(scope, last, now, scope.pipeline.ledger_table)
    done = -1 if now.done is None else now.done.n
    manifests = {of.position.n: (path, of) for path, of in (last.all if last is not None else ())}
    found = dict(_left(scope, tables, done)) | manifests
    recovered = [found[n] for n in sorted(found)]
    newest = now.mark.n if now.mark is not None else done
    expected = range(done + 1, newest + 1)
    lacking = [n for n in expected if n not in found]
    lost = f"the rows of {_numbers(lacking)}: no snapshot of {tables.closing_name} names their manifests"
    return Debt(
        letters_table=None,
        expected=dict.fromkeys(expected, 1),
        incomplete=frozenset(lacking),
        gone=(lost,) if lacking else (),
        unfinished=tuple(path for path, _ in manifests.values()),
        recovers=tuple(path for path, _ in recovered),
        marks=_accepted(scope, now, [of for _, of in recovered]),
    )


def _left(scope: Scope, tables: Tables, done: int) -> Iterator[tuple[int, tuple[str, Manifest]]]:
    """Manifests that snapshots of the closing table still name, and that are still there."""
    of_pipeline = BATCH_KEY.format(scope.pipeline.name)
    for summary in summaries(tables.closing.metadata):
        path = summary.get(MANIFEST_KEY)
        if path is None or of_pipeline not in summary:
            continue
        try:
            manifest = Manifest.from_json(read_text(tables.closing, path))
        except Terminal as error:
            scope.report(f"manifest {path} can't be read: {error.message}")
            continue
        if manifest.position.n <= done:
            return
        yield manifest.position.n, (path, manifest)


def _accepted(scope: Scope, now: Standing, recovered: list[Manifest]) -> frozenset[str]:
    """Followers that know more of themselves than what is left of the ledger: then their word counts."""
    told = told_after(now.told, *recovered)
    held = {scope.pipeline.dead_letters_table: now.dead_letters, **now.followers}
    return frozenset(
        table
        for table, mark in held.items()
        if mark is not None and _is_whole(scope, table) and (table not in told or told[table].mark.n < mark.n)
    )


def _is_whole(scope: Scope, table: str) -> bool:
    found = lookup(scope.lake.load_table(table).metadata, BATCH_KEY.format(scope.pipeline.name), table)
    return found is not None and not isinstance(found, RolledBack)
