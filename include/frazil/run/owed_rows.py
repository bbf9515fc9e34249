"""What a destination that follows lacks, and staging it again: rows of batches that it does not hold, from Kafka."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial

import pyarrow as pa

from frazil.batch.facts import Range, Staged
from frazil.batch.letters import Place
from frazil.batch.manifest import Manifest
from frazil.batch.position import Position
from frazil.batch.removal import RemovedRange, landed_after, replaced
from frazil.batch.schema_change import Demands
from frazil.batch.settle import Landing, Owed, owed, part_gone
from frazil.iceberg.ledger import read_ledger
from frazil.iceberg.letters import open_letters
from frazil.iceberg.table_writers import writer_of
from frazil.kafka.observe import observe
from frazil.kafka.read import read_range
from frazil.records.cells import in_steps
from frazil.records.fan_out import FanOut
from frazil.records.fanned_out import FannedOut
from frazil.records.spec import RecordSpec
from frazil.run.evolution import Look, columns_of
from frazil.run.manifests import row_columns
from frazil.run.owed import Debt, Row, batches_of, ranges_read, removed_by, topics_of
from frazil.run.record_route import route_of
from frazil.run.record_spec import record_specs
from frazil.run.restage import Restaged
from frazil.run.scope import Scope
from frazil.run.source import read_limits
from frazil.run.staging import row_targets
from frazil.run.standing import Standing
from frazil.run.tables import Tables
from frazil.run.unfinished import Unfinished

_LANDING = ("ingest", "replay", "dead_letters")


def rows_debt(scope: Scope, now: Standing, table: str, last: Unfinished | None) -> Debt:
    """What a destination lacks: the rows of all batches after the one it holds, less what later ones took out.

    Raises:
        Retryable: Kafka or the catalog is not available now.
    """
    mark = now.followers[table]
    after, manifests = -1 if mark is None else mark.n, last.all if last is not None else ()
    rows = read_ledger(scope.lake, scope.pipeline.ledger_table, scope.pipeline.name)
    landings = [*_recorded(scope, rows, table), *(_decided(scope, of, table) for _, of in manifests)]
    position = now.position or Position(0, 0, "")
    owing = owed(landings, after)
    facts = observe(scope.cluster, sorted({r.topic for of in owing for r in of.ranges}), absent_ok=True)
    parts = [(of, *part_gone(of, position, facts)) for of in owing]
    later = [of for of in landings if of.n > after]
    known = {name: None for of in later for name in topics_of(of)} | dict(position.topics)
    has_places = row_columns(scope.pipeline.destination(table)) is not None
    paths = tuple(path for path, _ in manifests)
    return Debt(
        letters_table=None,
        rows_table=table,
        letters=tuple(kept for _, kept, _ in parts if kept.ranges),
        lost=tuple(r for _, _, lost in parts for r in lost),
        removed=(*(landed_after(known, after) if has_places else ()), *(r for of in later for r in of.removed)),
        expected={of.n: of.dead for of in owing},
        incomplete=frozenset(of.n for of, _, lost in parts if lost),
        gone=tuple(
            f"batch {of.n} landed {of.dead} rows; a part of what it read is gone" for of, _, lost in parts if lost
        ),
        must_be_whole=True,
        unfinished=paths,
        recovers=paths,
        marks=frozenset({table}),
    )


def _recorded(scope: Scope, rows: Iterable[Row], table: str) -> Iterator[Landing]:
    for n, of in batches_of(rows).items():
        # A settle takes out what it stages again: its own rows, not those of other batches.
        mine, first = [row for row in of if row["table"] == table and row["kind"] != "settle"], of[0]
        count = sum(row["rows"] for row in mine) if first["kind"] in _LANDING else 0
        is_current = first["config"] == scope.pipeline.outcome_fingerprint
        ranges = _ranges_of_table(first, mine) if count else ()
        taken = (*removed_by(mine), *_again(ranges, first["kind"], Position.from_json(first["position"])))
        yield Landing(n, ranges, count, first["records_filtered"], is_current, taken)


def _ranges_of_table(first: Row, mine: list[Row]) -> tuple[Range, ...]:
    """What a batch read for the table: of letters that came home, those that were meant for it."""
    own = next((row["table_ranges"] for row in mine if row.get("table_ranges")), None)
    return ranges_read(first if own is None else {**first, "ranges": own})


def _again(ranges: tuple[Range, ...], kind: str, position: Position) -> tuple[RemovedRange, ...]:
    """Rows of letters that came home are that batch's, not those of the batch that read them first."""
    return replaced(ranges, position) if kind == "dead_letters" else ()


def _decided(scope: Scope, manifest: Manifest, table: str) -> Landing:
    parts = [part for part in manifest.parts if part.table == table]
    count = sum(part.rows for part in parts) if manifest.kind in _LANDING else 0
    ranges = manifest.table_ranges.get(table, manifest.ranges) if count else ()
    taken = tuple(r for part in parts for r in manifest.taken_out(part)) if manifest.kind != "settle" else ()
    is_current = manifest.config == scope.pipeline.outcome_fingerprint
    again = _again(ranges, manifest.kind, manifest.position)
    return Landing(manifest.position.n, ranges, count, manifest.counts.filtered, is_current, (*taken, *again))


def restage_rows(scope: Scope, tables: Tables, table: str, batches: tuple[Owed, ...]) -> Restaged:
    """Stage the rows of batches again, with their numbers. Nobody can see the files. Records with a letter have no row.

    Raises:
        Retryable: Kafka or the storage is not available now.
        Terminal: Records in the ranges are gone.
    """
    dead = _lettered(scope, tables, table)
    writer = writer_of(row_targets(scope.pipeline, tables)[table])
    found, missing, problems = {}, {}, []
    for of in batches:
        found[of.n] = without = 0
        for outcomes in _outcomes(scope, tables, table, of, dead):
            writer.write(outcomes.rows[table])
            found[of.n] += outcomes.rows[table].num_rows
            without += _without_row(outcomes, of)
        missing[of.n], problem = _lacking(of, found[of.n], without)
        problems += [problem] if problem else []
        scope.report(f"batch {of.n}: {found[of.n]:,} of {of.dead:,} rows staged again")
    return Restaged(writer.close(), found, missing, tuple(problems))


def _without_row(outcomes: FannedOut, of: Owed) -> int:
    """Records that may have had a row: bad ones without a letter, and those that an edited file leaves out."""
    left_out = 0 if of.is_current else sum(sum(at.filtered.values()) for at in outcomes.counts.values())
    return left_out + sum(sum(at.dead.values()) for at in outcomes.counts.values())


def _lacking(of: Owed, found: int, without: int) -> tuple[int, str | None]:
    """Rows of a batch that are not there again, at most, and why the numbers don't add up; None if they do."""
    lacking = max(0, of.dead - found)
    if of.whole and found != of.dead:
        return lacking, (
            f"batch {of.n} landed {of.dead} rows, its records give {found} now: the pipeline file was edited, or"
            " records are gone"
        )
    if not of.whole and without:
        return min(lacking, without), (
            f"batch {of.n}: {without} of its records have no row now, and a part of its rows was replaced since: nobody"
            " can tell whether they had one before the pipeline file was edited"
        )
    return 0, None


def _outcomes(scope: Scope, tables: Tables, table: str, of: Owed, dead: set[Place]) -> Iterator[FannedOut]:
    columns = columns_of(scope.pipeline, tables)
    decoder = _decoder(scope, columns, record_specs(scope.pipeline, columns, scope.schemas), of.n)
    for _, outcomes in in_steps(partial(decoder.decode, only=table), _records(scope, of, dead)):
        yield outcomes


def _decoder(scope: Scope, columns: Mapping[str, pa.Schema], specs: Mapping[str, RecordSpec], n: int) -> FanOut:
    route = route_of(scope.pipeline, columns, scope.schemas)
    # They were read before: that the file wants to fail now, where nothing is meant for a record, must not end it.
    return FanOut(specs, replace(route, otherwise="filter") if route is not None else None, n)


def _records(scope: Scope, of: Owed, dead: set[Place]) -> Iterator[pa.RecordBatch]:
    """Records of a batch without a letter."""
    for r in of.ranges:
        for records in read_range(
            scope.cluster, r.topic, r.partition, r.start, r.end, limits=read_limits(scope.pipeline)
        ):
            offsets = records.column("offset").to_pylist()
            good = [Place(r.topic, r.partition, offset) not in dead for offset in offsets]
            yield records.filter(pa.array(good, pa.bool_()))


def look_at_rows(scope: Scope, tables: Tables, table: str, batches: tuple[Owed, ...]) -> Look:
    """Looks at the records whose rows are to be staged again, for what the table lacks."""
    pipeline, dead = scope.pipeline, _lettered(scope, tables, table)

    def look(columns: Mapping[str, pa.Schema]) -> tuple[Demands, Mapping[str, RecordSpec]]:
        specs = record_specs(pipeline, columns, scope.schemas)
        if specs[table].evolution is None:
            return {}, specs
        decoder = _decoder(scope, columns, specs, 0)
        records = (part for of in batches for part in _records(scope, of, dead))
        found = in_steps(partial(decoder.decode, only=table), records)
        return Staged.merged(Staged(demands=of.demands) for _, of in found).demands, specs

    return look


def _lettered(scope: Scope, tables: Tables, table: str) -> set[Place]:
    """Records that have a letter of the table, or of the record as a whole."""
    letters = open_letters(tables.dead_letters, scope.pipeline.dead_letters_table, ())
    return {of.place for of in letters if of.destination in (None, table)}
