"""Makes rows, dead letters and counts of a batch of Kafka records, which are decoded once, routed, then fitted table by table.

A record may be a row of one table and a dead letter of another: in each table that it is routed to, it is exactly one of the
two. The dead letter of a record that can't be decoded or routed names no table; nor does any of a pipeline with one table.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from frazil.batch.facts import TableCounts
from frazil.batch.schema_change import first_names
from frazil.error_codes import RECORD_REFUSED
from frazil.records.casting.fitter import Dead, Fitted
from frazil.records.decoder.redaction import DeclaredNames
from frazil.records.decoder.route import Route, Router
from frazil.records.decoder.table_rows import PartitionBound, TableRows
from frazil.records.decoder.value_decoder import DecodedGroup, ValueDecoder
from frazil.records.model.dead_letter import DeadCode, Reason, Stage
from frazil.records.model.rows import (
    BAD_HEADERS,
    NOT_UNPACKED,
    UNREAD_BYTES,
    Counts,
    FilterReason,
    Outcomes,
    UnknownFieldPairs,
    conform,
    count_outcomes,
    dead_letters,
    distinct_positions,
    take_records,
)
from frazil.records.model.spec import RecordSpec

Filtered = dict[FilterReason, pa.Int64Array]
"""Positions of the records that are filtered out."""

Rows: TypeAlias = pa.Int64Array | None
"""Some rows of a decoded group, ascending; None: all of them."""

_UNREADABLE: Final = Reason(DeadCode.UNREADABLE_BATCH, "the Kafka client can't unpack the batch of this record")
_BAD_HEADERS: Final = Reason(DeadCode.INVALID_HEADERS, "the name of a header is not UTF-8")
_NULL_VALUE: Final = Reason(DeadCode.NULL_VALUE, "expected a value, found a record without one (a tombstone)")
_RECORD_ID: Final = ["topic", "partition", "offset"]
_PLACE: Final = ["topic", "partition"]
_NO_POSITIONS: Final = pa.array([], pa.int64())
_INCOMPATIBLE_CODES: Final = pa.array([DeadCode.WRONG_TYPE, DeadCode.OUT_OF_RANGE, DeadCode.LOSSY_CAST], pa.string())


@dataclass
class _Batch:
    """The records of a batch, and the outcomes that they have whatever the tables are, by position.

    Attributes:
        records: The records.
        dead: Reasons of records that are dead as a whole.
        filtered: Records that are filtered out.
        tombstones: Records without value that may delete rows.
        unrouted: Records that no table is for. They count as filtered if they have no other outcome.
        new_tables: Names of missing tables that records need.
    """

    records: pa.RecordBatch
    dead: Dead
    filtered: Filtered
    tombstones: frozenset[int] = frozenset()
    unrouted: set[int] = field(default_factory=set)
    new_tables: set[str] = field(default_factory=set)

    def filter(self, reason: FilterReason, positions: Collection[int]) -> None:
        """Add records to those that are filtered out."""
        if positions:
            before = self.filtered.get(reason, _NO_POSITIONS)
            self.filtered[reason] = pa.concat_arrays([before, _positions(sorted(positions))])


class Decoder:
    """Decodes the batches of a pipeline into its tables. Between batches it keeps only caches.

    Args:
        specs: Table -> how records become its rows. Format, transforms and policies are the same for all tables.
        route: How records find their tables; None: each record goes to all tables.
        batch_number: The value of the batch column in every row.
        blocks: False decodes each value alone: the outcome is the same, but takes longer.
        partitions: Table -> what bounds its partition values. Tables without partitions are not in it.

    Raises:
        Terminal: a spec can't be met: a type without a JSON form, a default that does not fit, a text that is no schema.
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
        self._tables: Final = tuple(specs)
        new = () if route is None or route.new is None else (route.new.spec,)
        # The spec of tables that records may create comes last. If no table exists yet, it alone tells how to decode.
        self._specs: Final = (*specs.values(), *new)
        self._has_one_table: Final = len(specs) == 1 and route is None
        self._batch_number: Final = batch_number
        self._partitions: Final = partitions or {}
        self._router: Final = None if route is None else Router(route, self._tables)
        self._values: Final = ValueDecoder(self._specs, route, blocks=blocks)

    @cached_property
    def declared(self) -> DeclaredNames:
        """The field names that dead letters may show where payloads are secret."""
        return DeclaredNames.from_specs(self._specs)

    def decode(self, batch: pa.RecordBatch, only: str | None = None) -> Outcomes:
        """Return the outcomes of `batch` (of `KAFKA_SCHEMA`), in its order. No value makes this fail.

        Args:
            batch: The records.
            only: The one table to decode for; records of other tables are filtered out.

        Raises:
            Retryable: a writer schema can't be had now.
            Terminal: the batch has other columns; the registry refuses; a transform does not fit the fields that it gets; or
                a record has no table, or does not fit its table, and the pipeline file says that this fails the batch.
        """
        records = conform(batch)
        present, unread, filtered = _screen_values(self._specs[0], records.column("value"), _unread_reasons(batch))
        groups, dead, left_out, format_unknown = self._values.decode(records, present)
        state = _Batch(records, unread | dead, filtered)
        for reason, positions in left_out.items():
            state.filter(reason, positions)
        groups += self._decode_tombstones(state)
        tables = [TableRows(spec, format_unknown) for spec in self._specs]
        for group, rows_by_table in zip(groups, self._route(groups, state, only), strict=True):
            self._fit(group, rows_by_table, tables)
        outcomes = self._outcomes(state, tables[: len(self._tables)])
        if not outcomes.asks:
            _refuse_incompatible(outcomes.dead, self._by_table)
        return outcomes

    def _decode_tombstones(self, state: _Batch) -> list[DecodedGroup]:
        """Decode tombstones into rows to delete. Tombstones are no longer filtered out then, unless no table takes them."""
        positions = state.filtered.get(FilterReason.TOMBSTONE, _NO_POSITIONS)
        if not self._values.takes_tombstones or not len(positions):
            return []
        groups, dead, filtered = self._values.decode_tombstones(
            state.records, positions.take(pc.array_sort_indices(positions))
        )
        state.dead |= dead
        state.tombstones = frozenset(positions.to_pylist())
        state.filtered[FilterReason.TOMBSTONE] = _NO_POSITIONS
        state.filter(FilterReason.TRANSFORM, filtered)
        return groups

    def _route(self, groups: Sequence[DecodedGroup], state: _Batch, only: str | None) -> list[list[Rows]]:
        """Return the rows of each table, group by group. If one row of a record has no table, the record is dead with all its rows."""
        count = len(self._specs)
        numbers = range(count) if only is None or self._has_one_table else (self._tables.index(only),)
        if self._router is None:
            return [[None if number in numbers else _NO_POSITIONS for number in range(count)]] * len(groups)
        dead = set[int]()
        routes: list[list[Rows]] = []
        for group in groups:
            rows_by_table, unrouted = self._router.rows_by_table(group.texts)
            dead |= self._sort_out_unrouted(self._router, group, unrouted, state, only)
            for number, rows in enumerate(rows_by_table):
                if number not in numbers:
                    state.unrouted.update(group.positions.take(rows).to_pylist())
                    rows_by_table[number] = _NO_POSITIONS
            routes.append([*rows_by_table, *[_NO_POSITIONS] * (count - len(rows_by_table))])
        if not dead:
            return routes
        return [
            [_alive_rows(rows, group.positions, _positions(dead)) for rows in rows_by_table]
            for group, rows_by_table in zip(groups, routes, strict=True)
        ]

    def _sort_out_unrouted(
        self, router: Router, group: DecodedGroup, rows: pa.Int64Array, state: _Batch, only: str | None
    ) -> AbstractSet[int]:
        """Note the records of rows without a table, and the tables that they need; return the records that are dead.

        Raises:
            Terminal: there are such records, and the pipeline file says that they fail the batch.
        """
        if not len(rows):
            return set()
        positions = group.positions.take(rows).to_pylist()
        reasons, new_tables = router.find_unrouted(
            zip(positions, group.texts.take(rows).to_pylist(), strict=True), only
        )
        state.new_tables |= new_tables
        if reasons and router.otherwise == "fail":
            raise router.unrouted_error(state.records.slice(min(reasons), 1).select(_RECORD_ID).to_pylist()[0])
        if router.otherwise == "filter":
            state.unrouted.update(reasons)
            return set()
        state.dead = reasons | state.dead
        return reasons.keys()

    def _fit(self, decoded: DecodedGroup, rows_by_table: Sequence[Rows], tables: Sequence[TableRows]) -> None:
        """Fit rows once for all tables that have the same columns, and add to each table its share."""
        for group, numbers in enumerate(self._values.tables_by_group):
            routed = {number: rows for number in numbers if (rows := rows_by_table[number]) is None or len(rows)}
            if not routed:
                continue
            rows = _union(list(routed.values()))
            fitted = decoded.fit(group, rows)
            dead_rows = pa.array(fitted.dead, pa.int64())
            for number, table_rows in routed.items():
                positions = decoded.positions if table_rows is None else decoded.positions.take(table_rows)
                share = fitted if rows is None or table_rows is rows else _share(fitted, dead_rows, rows, table_rows)
                tables[number].add(share, positions, deletes=decoded.deletes)

    def _outcomes(self, state: _Batch, tables: Sequence[TableRows]) -> Outcomes:
        """Land the rows of each table, and count one outcome per record."""
        records = state.records
        rows = {
            name: table.land(records, self._batch_number, self._partitions.get(name))
            for name, table in zip(self._tables, tables, strict=True)
        }
        if not self._has_one_table:
            _move_undecoded(tables, state.dead)
        letters = [(position, -1, reason) for position, reason in state.dead.items()]
        for number, table in enumerate(tables):
            letters += [(position, number, reason) for position, reason in table.dead.items()]
        letters.sort()  # no record has two letters of one table
        dead = dead_letters(
            take_records(records, _positions(position for position, _, _ in letters)),
            [reason for _, _, reason in letters],
            [None if self._has_one_table or number < 0 else self._tables[number] for _, number, _ in letters],
        )
        unknown_fields, counts = [table.unknown_fields for table in tables], dict[str, TableCounts]()
        landed, record_counts = _count(state, tables, _positions(position for position, _, _ in letters), dead)
        if not self._has_one_table:
            unknown_fields = [UnknownFieldPairs.concat(unknown_fields).at_positions(landed)]
            counts = {name: table.counts(state.dead) for name, table in zip(self._tables, tables, strict=True)}
        return Outcomes(
            rows,
            dead,
            record_counts,
            counts,
            len(state.dead),
            unknown_fields[0].count(),
            {self._tables[number]: changes for number, changes in self._values.demands()},
            first_names(tuple(state.new_tables)),
            {self._tables[number]: paths for number, paths in self._values.untyped_paths()},
        )


def _count(
    state: _Batch, tables: Sequence[TableRows], positions: pa.Int64Array, dead: pa.RecordBatch
) -> tuple[pa.Int64Array, Counts]:
    """Return the records that have rows and no letter, and the counts of all records, each counted once."""
    if len(tables) == 1:  # no record has both a row and a letter
        landed = distinct_positions(tables[0].positions)
    else:
        written = pc.unique(pa.chunked_array([table.positions for table in tables], pa.int64()))
        landed = written.filter(pc.invert(pc.is_in(written, value_set=positions)))
        landed = landed.take(pc.array_sort_indices(landed))
    without_row = {position for table in tables for position in table.without_row()}
    if without_row or state.unrouted:
        with_outcome = {*landed.to_pylist(), *positions.to_pylist()}
        without_row -= with_outcome
        state.filter(FilterReason.TOMBSTONE, without_row & state.tombstones)
        state.filter(FilterReason.TRANSFORM, without_row - state.tombstones)
        state.filter(FilterReason.ROUTE, state.unrouted - without_row - with_outcome)
    places = state.records.select(_PLACE)
    first_letters = dead
    if dead.num_rows:  # a record may have letters of several tables
        first_letters = dead.select([*_PLACE, "code"]).filter(pa.array(np.diff(positions.to_numpy(), prepend=-1) > 0))
    filtered = {reason: places.take(which) for reason, which in state.filtered.items() if len(which)}
    return landed, count_outcomes(places, take_records(places, landed), first_letters, filtered)


def _refuse_incompatible(letters: pa.RecordBatch, specs: Mapping[str, RecordSpec]) -> None:
    """Refuse a batch that has a value that does not fit its column, if the table's `on_incompatible` is `fail`.

    Raises:
        Terminal: there is such a value; the error tells where it is, never what it is.
    """
    strict = [table for table, spec in specs.items() if spec.evolution and spec.evolution.on_incompatible == "fail"]
    if not strict or not letters.num_rows:
        return
    destinations = letters.column("destination")  # null if the pipeline has one table
    is_strict = pc.or_(destinations.is_null(), pc.is_in(destinations, value_set=pa.array(strict, pa.string())))
    incompatible = letters.filter(pc.and_(is_strict, pc.is_in(letters.column("code"), value_set=_INCOMPATIBLE_CODES)))
    if not incompatible.num_rows:
        return
    first = incompatible.slice(0, 1).drop_columns("timestamp").to_pylist()[0]  # Python has no years beyond 9999
    names = DeclaredNames.from_specs(specs.values())
    path = names.visible_path(first["path"] or "")  # a map's key, for example, may be secret
    raise RECORD_REFUSED.terminal(
        f"topic {first['topic']}, partition {first['partition']}, offset {first['offset']}: field {path} does not"
        f" fit its column of {first['destination'] or strict[0]} ({first['code']}), which can't be widened to it;"
        f" nothing was published",
        next_step="fix the producer, or set on_incompatible of the destination to rescue, dead_letter or variant_column",
    )


def _unread_reasons(batch: pa.RecordBatch) -> Dead:
    """Return the reasons of records that were not read whole, by position."""
    if UNREAD_BYTES not in batch.schema.names:
        return {}
    reasons = {NOT_UNPACKED: _UNREADABLE, BAD_HEADERS: _BAD_HEADERS}
    too_large = "bytes of key, value and headers, more than limits.max_record_bytes"
    sizes = enumerate(batch.column(UNREAD_BYTES).to_pylist())
    return {
        position: reasons.get(size) or Reason(DeadCode.RECORD_TOO_LARGE, f"{size:,} {too_large}")
        for position, size in sizes
        if size is not None
    }


def _screen_values(spec: RecordSpec, values: pa.BinaryArray, unread: Dead) -> tuple[pa.Int64Array, Dead, Filtered]:
    """Return the positions of the values to decode, the dead records, and those that are filtered out as tombstone or empty.

    Args:
        spec: How tombstones and empty values are treated.
        values: The values of all records.
        unread: Reasons of records that were not read whole: they have no value here, and are dead.
    """
    dead = dict(unread)
    filtered: Filtered = {}
    present = None
    if unread:
        present = pc.invert(pc.is_in(pa.arange(0, len(values)), value_set=_positions(unread)))
    if values.null_count:
        is_absent = values.is_null() if present is None else pc.and_(present, values.is_null())
        present = values.is_valid() if present is None else pc.and_(present, values.is_valid())
        absent = _true_positions(is_absent)
        if spec.tombstone != "dead_letter":
            filtered[FilterReason.TOMBSTONE] = absent
        else:
            dead |= dict.fromkeys(absent.to_pylist(), _NULL_VALUE)
    if spec.empty_value == "filter":
        empty = pc.fill_null(pc.equal(pc.binary_length(values), 0), fill_value=False)
        empty = empty if present is None else pc.and_(present, empty)
        filtered[FilterReason.EMPTY_VALUE] = _true_positions(empty)
        present = pc.invert(empty) if present is None else pc.and_not(present, empty)
    return pa.arange(0, len(values)) if present is None else _true_positions(present), dead, filtered


def _move_undecoded(tables: Sequence[TableRows], whole_dead: Dead) -> None:
    """Move the reason of a record that can't be decoded for any of its tables to the records that are dead as a whole."""
    undecoded = {
        position for table in tables for position, reason in table.dead.items() if reason.code.stage is Stage.DECODE
    }
    routed = [table.routed(undecoded) for table in tables] if undecoded else []
    for position in undecoded:
        reasons = [table.dead.get(position) for table, own in zip(tables, routed, strict=True) if position in own]
        decode_reasons = [reason for reason in reasons if reason is not None and reason.code.stage is Stage.DECODE]
        if len(decode_reasons) == len(reasons):
            whole_dead[position] = decode_reasons[0]
            for table in tables:
                table.dead.pop(position, None)


def _union(parts: list[Rows]) -> Rows:
    """Return the rows that are in any of the parts, each once, ascending."""
    if len(parts) == 1 or parts[0] is None:  # without a route every table has all rows
        return parts[0]
    distinct_rows = pc.unique(pa.chunked_array(parts))
    return distinct_rows.take(pc.sort_indices(distinct_rows))


def _share(fitted: Fitted, dead_rows: pa.Int64Array, rows: pa.Int64Array, table_rows: pa.Int64Array) -> Fitted:
    """Return the share of one table in rows that were fitted for several tables. It counts rows from the first one of the table.

    There may be thousands of tables, each with dead letters of its own, so a table's share visits only its own dead rows one by one.
    """
    numbers = pc.index_in(rows, value_set=table_rows).cast(pa.int64())
    own_rows = numbers.take(fitted.input_rows)
    is_own = own_rows.is_valid()
    dead_numbers = numbers.take(dead_rows)
    own_dead = zip(
        dead_numbers.drop_null().to_pylist(), dead_rows.filter(dead_numbers.is_valid()).to_pylist(), strict=True
    )
    dead = {number: fitted.dead[row] for number, row in own_dead}
    ignored = fitted.ignored.at_positions(pc.indices_nonzero(numbers.is_valid()).cast(pa.int64()))
    return Fitted(fitted.rows.filter(is_own), own_rows.filter(is_own), dead, ignored.map_positions(numbers))


def _alive_rows(rows: Rows, positions: pa.Int64Array, dead: pa.Int64Array) -> Rows:
    """Return the rows whose records are not dead."""
    return None if rows is None else rows.filter(pc.invert(pc.is_in(positions.take(rows), value_set=dead)))


def _true_positions(mask: pa.BooleanArray) -> pa.Int64Array:
    return pc.indices_nonzero(mask).cast(pa.int64())


def _positions(positions: Iterable[int]) -> pa.Int64Array:
    return pa.array(list(positions), pa.int64())
