"""A batch of Kafka records becomes rows of several tables: decoded once, routed, then fitted table by table.

A record may be a row of one table and a dead letter of another. Of each table that it is routed to it is exactly one of
both; a record that can't be decoded or routed is a dead letter as a whole.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from frazil.batch.facts import TableCounts, UnknownFields
from frazil.batch.schema_change import Demands, Untold, first_names, unfit_because
from frazil.errors import Terminal
from frazil.records.decoder.declared_names import DeclaredNames
from frazil.records.decoder.decode import Decoder, Filtered, screened, unread, with_kafka_columns
from frazil.records.decoder.decoded_groups import DecodedGroup, Sheets
from frazil.records.decoder.orc_times import without_altered_times
from frazil.records.decoder.partitions import PartitionBound, refused_by_partition
from frazil.records.decoder.route import Route, Routed, Router
from frazil.records.decoder.tombstones import with_deleted
from frazil.records.model.dead_letter import DEAD_SCHEMA, DeadCode, Reason, Stage, dead_letters
from frazil.records.model.kafka_schema import conform
from frazil.records.model.outcome import Counts, FilterReason, count_outcomes
from frazil.records.model.rows import Block, in_order, without
from frazil.records.model.spec import RecordSpec
from frazil.records.model.unknown_fields import UnknownAt


@dataclass(frozen=True, slots=True)
class FannedOut:
    """The outcome of one Arrow batch of records.

    Attributes:
        rows: Table -> rows, in the order of the records.
        dead: Of `LETTER_SCHEMA`, in the order of the records.
        counts: Per topic partition, one outcome per record: dead with any letter, written with rows and no letter.
        tables: What became of the records that were meant for each table; empty where only one could be meant.
        whole_dead: Dead letters of records as a whole, if `tables` is there.
        unknown: Fields of the written records that are in no row, or, of several tables, not in the rows of each.
        demands: Table -> what its records need that it does not have. If there is any, all else has no meaning.
        new_tables: Names of tables that records need and that are not there. Likewise.
        untold: Table -> paths without a column whose values tell no type.
    """

    rows: Mapping[str, pa.RecordBatch]
    dead: pa.RecordBatch
    counts: Counts
    tables: Mapping[str, TableCounts] = field(default_factory=dict)
    whole_dead: int = 0
    unknown: UnknownFields = field(default_factory=UnknownFields)
    demands: Demands = field(default_factory=dict)
    new_tables: tuple[str, ...] = ()
    untold: Untold = field(default_factory=dict)

    @property
    def asks(self) -> bool:
        """Whether records need what is not there yet."""
        return bool(self.demands or self.new_tables)


_SHOWN: Final = 80
"""Characters of a value that a message shows."""


def unrouted(route: Route, text: str | None) -> Reason:
    """Return why a record is in no table; `text` is what decides about it, or None."""
    what = "topic" if route.field is None else ".".join(route.field)
    if text is None:
        return Reason(DeadCode.UNROUTED, "expected a text to find the table by, found none", what)
    shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
    why = unfit_because(text) if route.new is not None and route.field is not None else None
    so = f", which {why}" if why else ""
    if route.field is None:
        return Reason(DeadCode.UNROUTED, f"expected a topic that a destination is for, found {shown!r}")
    return Reason(DeadCode.UNROUTED, f"expected a value that a destination is for, found {shown!r}{so}", what)


def without_table(
    route: Route, router: Router, texts: Iterable[tuple[int, str | None]], only: str | None = None
) -> tuple[dict[int, Reason], set[str]]:
    """Tell records that are in no table from those whose table is to be made first.

    Args:
        route: How records find their tables.
        router: Knows the tables that are there.
        texts: Position of a record, and what decides about it; a record may have several rows.
        only: The one table that is asked about: no other is made then.

    Returns:
        Position -> why; and the names of tables that are to be made.
    """
    lost, new_tables = dict[int, Reason](), set[str]()
    reasons: dict[str | None, Reason | None] = {}
    for position, text in texts:
        if text not in reasons:
            name = router.new_table(text)
            reasons[text] = unrouted(route, text) if name is None else _not_made(route, name, only)
            if name is not None and reasons[text] is None:
                new_tables.add(name)
        if (reason := reasons[text]) is not None:
            lost.setdefault(position, reason)
    return lost, new_tables


def _not_made(route: Route, name: str, only: str | None) -> Reason | None:
    """Why a table that a record names is not made; None if it is to be."""
    refusal = None if route.new is None else route.new.refusal(name)
    if refusal is None and only is not None:
        refusal = f"the letter is of table {only}"
    what = "" if route.field is None else ".".join(route.field)
    return None if refusal is None else Reason(DeadCode.TABLE_NOT_MADE, f"table {name} is not made: {refusal}", what)


def no_table(record: Mapping[str, object], route: Route) -> Terminal:
    """Return what ends a run: it says where the record is, never what it holds: errors go to logs, and payloads may be secrets."""
    what = "its topic" if route.field is None else f"its field {'.'.join(route.field)}"
    return Terminal(
        f"topic {record['topic']}, partition {record['partition']}, offset {record['offset']}: {what} names no destination"
        " for this record; nothing was published",
        next_step="name its table under destinations and route, or set route.otherwise to dead_letter or filter",
    )


_CODES: Final = pa.array([DeadCode.WRONG_TYPE, DeadCode.OUT_OF_RANGE, DeadCode.LOSSY_CAST], pa.string())


def refuse_incompatible(letters: pa.RecordBatch, specs: Mapping[str, RecordSpec]) -> None:
    """Refuse a batch that has such values for a table whose policy it is. Says where, never what.

    Args:
        letters: Dead letters, with the table in `destination`.
        specs: Table -> how records become its rows.

    Raises:
        Terminal: there is one.
    """
    strict = [table for table, of in specs.items() if of.evolution and of.evolution.on_incompatible == "fail"]
    if not strict or not letters.num_rows:
        return
    to = letters.column("destination")  # null where there is one table
    meant = pc.or_(to.is_null(), pc.is_in(to, value_set=pa.array(strict, pa.string())))
    found = letters.filter(pc.and_(meant, pc.is_in(letters.column("code"), value_set=_CODES)))
    if not found.num_rows:
        return
    first = found.slice(0, 1).drop_columns("timestamp").to_pylist()[0]  # Python knows no years beyond 9999
    path = DeclaredNames.of(specs.values()).shown(first["path"] or "")  # a key of a map, say, may be secret
    raise Terminal(
        f"topic {first['topic']}, partition {first['partition']}, offset {first['offset']}: field {path} does not fit"
        f" its column of {first['destination'] or strict[0]} ({first['code']}), which can't be widened to it; nothing was published",
        next_step="mend the producer, or set on_incompatible of the destination to rescue, dead_letter or variant_column",
    )


LETTER_SCHEMA: Final = DEAD_SCHEMA.append(pa.field("destination", pa.string()))
"""Dead letters with the table that the record does not fit; null for a record as a whole."""

_WHERE: Final = ["topic", "partition", "offset"]
_PLACE: Final = [*_WHERE, "timestamp"]
_NOWHERE: Final = pa.array([], pa.int64())


class _Letter(NamedTuple):
    position: int
    table: int | None
    reason: Reason


@dataclass(frozen=True)
class _Shared:
    """Rows in the columns of a group of tables, which rows of the sheet they are, and reasons by rows of the sheet."""

    rows: pa.RecordBatch
    kept: pa.Int64Array
    dead: Mapping[int, Reason]


@dataclass
class _Found:
    """What became of a batch so far, as a whole or per table. `left_out` were routed there and tell of no row."""

    blocks: list[list[Block]]
    whole: dict[int, Reason]
    dead: list[dict[int, Reason]]
    routed: list[set[int]]
    left_out: list[set[int]]
    deleted: list[list[Block]]
    tombstones: set[int] = field(default_factory=set)
    unrouted: set[int] = field(default_factory=set)
    unknown: list[list[UnknownAt]] = field(default_factory=list)
    new_tables: set[str] = field(default_factory=set)


class FanOut:
    """Decodes the batches of a pipeline into its tables. Keeps nothing from batch to batch but what is costly to make.

    Args:
        specs: Table -> what is wanted of the records there. Format, transforms and policies are the same everywhere.
        route: How records find their tables; None: each goes to all.
        batch_number: Goes into the batch column of every row.
        blocks: Whether JSON values may be parsed as blocks where that is exact. Without, the outcome is the same, later.
        partitions: Table -> what bounds its partition values; tables without partitions are left out.

    Raises:
        Terminal: a spec can't be met.
    """

    def __init__(
        self,
        specs: Mapping[str, RecordSpec],
        route: Route | None,
        batch_number: int,
        *,
        blocks: bool = True,
        partitions: Mapping[str, PartitionBound] | None = None,
    ) -> None:
        self._by_table: Final = dict(specs)
        self._partitions: Final = partitions or {}
        self._tables: Final = tuple(specs)
        new = () if route is None or route.new is None else (route.new.spec,)
        # That of tables which are not there yet comes last; before any is, it tells what can be decoded.
        self._specs: Final = (*specs.values(), *new)
        self._number: Final = batch_number
        self._route: Final = route
        self._spec: Final = self._specs[0]
        is_one = len(specs) == 1 and route is None
        bound = self._partitions.get(self._tables[0]) if is_one else None
        self._decoder: Final = Decoder(self._spec, batch_number, blocks=blocks, partitions=bound) if is_one else None
        self._router: Final = Router(route, self._tables)
        self._sheets: Final = Sheets(self._specs, None if route is None else route.field, blocks=blocks)

    @cached_property
    def declared(self) -> DeclaredNames:
        """Names that letters may tell where payloads are secrets."""
        return DeclaredNames.of(self._specs)

    def decode(self, batch: pa.RecordBatch, only: str | None = None) -> FannedOut:
        """Return the outcomes of `batch` (of `KAFKA_SCHEMA`), in its order. No value makes this fail.

        Args:
            batch: The records.
            only: The one table that is asked about; what is not meant for it is left out on purpose.

        Raises:
            Retryable: a writer schema can't be had now.
            Terminal: what `Decoder.decode` raises; or a record has no table, or its table no type for it, and the pipeline
                wants to fail then.
        """
        told = self._of_several(batch, only) if self._decoder is None else self._of_one(self._decoder, batch)
        if not told.asks:
            refuse_incompatible(told.dead, self._by_table)
        return told

    def _of_several(self, batch: pa.RecordBatch, only: str | None) -> FannedOut:
        records = conform(batch)
        self._sheets.forget()
        present, whole, filtered = screened(self._spec, records.column("value"), unread(batch))
        sheets, dead, left_out, outside = self._sheets.of(records, present)
        for reason, places in left_out.items():
            filtered[reason] = pa.concat_arrays([filtered.get(reason, _NOWHERE), pa.array(places, pa.int64())])
        count = len(self._tables)
        found = _Found(
            [[] for _ in range(count)],
            whole | dead,
            [{} for _ in range(count)],
            [set() for _ in range(count)],
            [set() for _ in range(count)],
            [[] for _ in range(count)],
        )
        # Of changes the fields of rows count, not those of their envelope.
        found.unknown = [[] if spec.tells_changes else [outside] for spec in self._specs]
        gone = self._deleted(records, found, filtered)
        routed = [self._routed(records, sheet, found, only) for sheet in (*sheets, *gone)]
        for sheet, where in zip((*sheets, *gone), routed, strict=True):
            self._fit(sheet, where, found, found.deleted if sheet in gone else found.blocks)
        self._join(found)
        return self._told(records, found, filtered)

    def _deleted(self, records: pa.RecordBatch, found: _Found, filtered: Filtered) -> list[DecodedGroup]:
        """Return the rows that records without value delete; those are left out no more, unless no table takes them."""
        places = filtered.get(FilterReason.TOMBSTONE, _NOWHERE)
        if not self._sheets.take_tombstones or not len(places):
            return []
        sheets, dead, others = self._sheets.deleted(records, places.take(pc.array_sort_indices(places)))
        found.whole |= dead
        found.tombstones.update(places.to_pylist())
        filtered[FilterReason.TOMBSTONE] = _NOWHERE
        _leave_out(filtered, FilterReason.TRANSFORM, others)
        return sheets

    def _of_one(self, decoder: Decoder, batch: pa.RecordBatch) -> FannedOut:
        outcomes = decoder.decode(batch)
        (table,) = self._tables
        nowhere = pa.nulls(outcomes.dead.num_rows, pa.string())
        letters = pa.RecordBatch.from_arrays([*outcomes.dead.columns, nowhere], schema=LETTER_SCHEMA)
        demands = {table: outcomes.demands} if outcomes.demands else {}
        untold = {table: outcomes.untold} if outcomes.untold else {}
        rows, unknown = {table: outcomes.rows}, outcomes.unknown
        return FannedOut(rows, letters, outcomes.counts, unknown=unknown, demands=demands, untold=untold)

    def _routed(self, records: pa.RecordBatch, sheet: DecodedGroup, found: _Found, only: str | None) -> Routed:
        routed = self._router.route(sheet.texts)
        if len(routed.without) and self._route is not None:
            positions = sheet.positions.take(routed.without).to_pylist()
            texts = zip(positions, sheet.texts.take(routed.without).to_pylist(), strict=True)
            lost, new_tables = without_table(self._route, self._router, texts, only)
            found.new_tables |= new_tables
            if lost and self._route.otherwise == "fail":
                raise no_table(records.slice(min(lost), 1).select(_WHERE).to_pylist()[0], self._route)
            if self._route.otherwise == "filter":
                found.unrouted.update(lost)
            else:
                found.whole = lost | found.whole
        if only is None:
            return routed
        asked = pc.equal(routed.tables, self._tables.index(only))
        found.unrouted.update(sheet.positions.take(routed.rows.filter(pc.invert(asked))).to_pylist())
        return replace(routed, rows=routed.rows.filter(asked), tables=routed.tables.filter(asked))

    def _fit(self, sheet: DecodedGroup, routed: Routed, found: _Found, into: list[list[Block]]) -> None:
        by_table = routed.of_tables(len(self._specs))
        if found.whole:
            gone = pa.array(list(found.whole), pa.int64())
            alive = pc.indices_nonzero(pc.invert(pc.is_in(sheet.positions, value_set=gone)))
            by_table = [rows.filter(pc.is_in(rows, value_set=alive.cast(pa.int64()))) for rows in by_table]
        for group, tables in enumerate(self._sheets.groups):
            meant = [(table, by_table[table]) for table in tables if len(by_table[table])]
            if not meant:
                continue
            rows = _union([rows for _, rows in meant])
            fitted = sheet.fit(group, rows)
            shared = _Shared(
                fitted.rows,
                rows.take(fitted.kept),
                {rows[at].as_py(): reason for at, reason in fitted.dead.items()},
            )
            for table, of in meant:
                _share(sheet, table, of, shared, found, into[table])
                ignored = fitted.ignored.among(rows).only(of)
                found.unknown[table].append(ignored.among(sheet.positions))

    def _join(self, found: _Found) -> None:
        """Make one letter of those that say for all tables of a record that it can't be decoded."""
        bad = {position for of in found.dead for position, reason in of.items() if reason.code.stage is Stage.DECODE}
        for position in bad:
            meant = [table for table, of in enumerate(found.routed) if position in of]
            said = [found.dead[table].get(position) for table in meant]
            if all(reason is not None and reason.code.stage is Stage.DECODE for reason in said) and said[0] is not None:
                found.whole[position] = said[0]
                for table in meant:
                    del found.dead[table][position]
                    found.routed[table].discard(position)

    def _told(self, records: pa.RecordBatch, found: _Found, filtered: Filtered) -> FannedOut:
        rows, tables = {}, {}
        written, without_row = set[int](), set[int]()
        unknown: list[UnknownAt] = []
        for number, table in enumerate(self._by_table):
            block, rows[table] = self._rows(records, number, table, found)
            here = set(block.positions.to_pylist())
            dead = found.dead[number].keys()
            nothing = found.left_out[number] - here - dead
            routed = len(found.routed[number] - nothing)
            unknown.append(UnknownAt.together(found.unknown[number]).only(block.positions))
            tables[table] = TableCounts(routed, len(here), len(dead), block.rows.num_rows, unknown[-1].counted())
            written |= here
            without_row |= nothing
        letters = sorted(_letters(found), key=lambda of: (of.position, -1 if of.table is None else of.table))
        first = {of.position: of for of in reversed(letters)}
        without_row -= written | first.keys()
        _leave_out(filtered, FilterReason.TOMBSTONE, without_row & found.tombstones)
        _leave_out(filtered, FilterReason.TRANSFORM, without_row - found.tombstones)
        filtered[FilterReason.ROUTE] = pa.array(
            sorted(found.unrouted - written - first.keys() - without_row), pa.int64()
        )
        landed = pa.array(sorted(written - first.keys()), pa.int64())
        counts = count_outcomes(
            records,
            records.take(landed),
            _dead(records, [first[position] for position in sorted(first)]),
            {reason: records.take(of) for reason, of in filtered.items() if len(of)},
        )
        destinations = pa.array([None if of.table is None else self._tables[of.table] for of in letters], pa.string())
        told = pa.RecordBatch.from_arrays([*_dead(records, letters).columns, destinations], schema=LETTER_SCHEMA)
        demands = {self._tables[number]: changes for number, changes in self._sheets.demands()}
        left_out = UnknownAt.together(unknown).only(landed).counted()
        untold = {self._tables[number]: paths for number, paths in self._sheets.untold()}
        new = first_names(tuple(found.new_tables))
        return FannedOut(rows, told, counts, tables, len(found.whole), left_out, demands, new, untold)

    def _rows(self, records: pa.RecordBatch, number: int, table: str, found: _Found) -> tuple[Block, pa.RecordBatch]:
        """Return what lands in a table; records of partition values beyond its limit become dead letters of it."""
        spec, places = self._by_table[table], records.select(_PLACE)
        block = _landing(records, number, spec, found)
        rows = with_kafka_columns(spec, self._number, block, places.take(block.positions))
        if scattered := refused_by_partition(self._partitions.get(table), rows, block.positions):
            found.dead[number] |= scattered
            block = without(block, scattered)
            rows = with_kafka_columns(spec, self._number, block, places.take(block.positions))
        return block, rows


def _share(
    sheet: DecodedGroup, table: int, rows: pa.Int64Array, shared: _Shared, found: _Found, into: list[Block]
) -> None:
    """Give a table its rows of what was fitted for all tables of its columns."""
    found.routed[table].update(sheet.positions.take(rows).to_pylist())
    mine = pc.is_in(shared.kept, value_set=rows)
    into.append(Block(shared.rows.filter(mine), sheet.positions.take(shared.kept.filter(mine))))
    others = rows.filter(pc.invert(pc.is_in(rows, value_set=shared.kept)))
    for row, position in zip(others.to_pylist(), sheet.positions.take(others).to_pylist(), strict=True):
        if row in shared.dead:
            found.dead[table].setdefault(position, shared.dead[row])
        else:
            found.left_out[table].add(position)


def _landing(records: pa.RecordBatch, table: int, spec: RecordSpec, found: _Found) -> Block:
    """Return the rows of a table in their order, deleted ones among them."""
    deleted = [without(of, found.dead[table]) for of in found.deleted[table]]
    block = without(in_order(found.blocks[table], spec.block_schema), found.dead[table])
    block, altered = without_altered_times(spec, with_deleted(spec, block, deleted), records)
    found.dead[table] |= altered
    return block


def _leave_out(filtered: Filtered, reason: FilterReason, positions: Collection[int]) -> None:
    """Count further records as left out."""
    if positions:
        others = filtered.get(reason, _NOWHERE)
        filtered[reason] = pa.concat_arrays([others, pa.array(sorted(positions), pa.int64())])


def _union(parts: list[pa.Int64Array]) -> pa.Int64Array:
    """All rows that are in one of them, each once, ascending."""
    if len(parts) == 1:
        return parts[0]
    every = pc.unique(pa.chunked_array(parts))
    return every.take(pc.sort_indices(every))


def _letters(found: _Found) -> Iterator[_Letter]:
    yield from (_Letter(position, None, reason) for position, reason in found.whole.items())
    for table, dead in enumerate(found.dead):
        yield from (_Letter(position, table, reason) for position, reason in dead.items())


def _dead(records: pa.RecordBatch, letters: list[_Letter]) -> pa.RecordBatch:
    places = pa.array([of.position for of in letters], pa.int64())
    return dead_letters(records.take(places), [of.reason for of in letters])
