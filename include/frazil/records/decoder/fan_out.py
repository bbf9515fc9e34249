"""A batch of Kafka records becomes rows of several tables: decoded once, routed, then fitted table by table.

A record may be a row of one table and a dead letter of another. Of each table that it is routed to it is exactly one of
both; a record that can't be decoded or routed is a dead letter as a whole.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from frazil.batch.facts import TableCounts, UnknownFields
from frazil.batch.schema_change import Demands, Untold, first_names
from frazil.error_codes import RECORD_REFUSED
from frazil.records.decoder.declared_names import DeclaredNames
from frazil.records.decoder.decode import Decoder, Filtered, screen_values, unread_reasons, with_kafka_columns
from frazil.records.decoder.decoded_groups import DecodedGroup, GroupDecoder
from frazil.records.decoder.orc_times import without_altered_times
from frazil.records.decoder.partitions import PartitionBound, refused_by_partition
from frazil.records.decoder.route import Route, RoutedRows, Router, find_unrouted, unrouted_error
from frazil.records.decoder.tombstones import with_deleted
from frazil.records.model.dead_letter import DEAD_SCHEMA, DeadCode, Reason, Stage, dead_letters
from frazil.records.model.kafka_schema import conform
from frazil.records.model.outcome import Counts, FilterReason, count_outcomes
from frazil.records.model.rows import Block, drop_dead_rows, in_order
from frazil.records.model.spec import RecordSpec
from frazil.records.model.unknown_fields import UnknownFieldPairs


@dataclass(frozen=True, slots=True)
class TableOutcomes:
    """The outcome of one Arrow batch of records.

    Attributes:
        rows: Table -> rows, in the order of the records.
        dead: Of `LETTER_SCHEMA`, in the order of the records.
        counts: Per topic partition, one outcome per record: dead with any letter, written with rows and no letter.
        tables: Counts per table of the records that were routed to it; empty if the pipeline has one table and no route.
        whole_dead: Dead letters of records as a whole, if `tables` is there.
        unknown_fields: Fields of the written records that are in no row, or, of several tables, not in the rows of each.
        demands: Table -> the schema changes that its records need. If there is any, all else is void.
        new_tables: Names of missing tables that records need. If there is any, all else is void.
        untyped_paths: Table -> paths without a column whose values have no type.
    """

    rows: Mapping[str, pa.RecordBatch]
    dead: pa.RecordBatch
    counts: Counts
    tables: Mapping[str, TableCounts] = field(default_factory=dict)
    whole_dead: int = 0
    unknown_fields: UnknownFields = field(default_factory=UnknownFields)
    demands: Demands = field(default_factory=dict)
    new_tables: tuple[str, ...] = ()
    untyped_paths: Untold = field(default_factory=dict)

    @property
    def asks(self) -> bool:
        """Whether records need schema changes or new tables first."""
        return bool(self.demands or self.new_tables)


_INCOMPATIBLE_CODES: Final = pa.array([DeadCode.WRONG_TYPE, DeadCode.OUT_OF_RANGE, DeadCode.LOSSY_CAST], pa.string())


def refuse_incompatible(letters: pa.RecordBatch, specs: Mapping[str, RecordSpec]) -> None:
    """Refuse a batch with a value that does not fit its column, if the table's policy is to fail then.

    Args:
        letters: Dead letters, with the table in `destination`.
        specs: Table -> how records become its rows.

    Raises:
        Terminal: there is such a value; the error says where it is, never what it is.
    """
    strict = [table for table, spec in specs.items() if spec.evolution and spec.evolution.on_incompatible == "fail"]
    if not strict or not letters.num_rows:
        return
    destinations = letters.column("destination")  # null where there is one table
    is_strict = pc.or_(destinations.is_null(), pc.is_in(destinations, value_set=pa.array(strict, pa.string())))
    incompatible = letters.filter(pc.and_(is_strict, pc.is_in(letters.column("code"), value_set=_INCOMPATIBLE_CODES)))
    if not incompatible.num_rows:
        return
    first = incompatible.slice(0, 1).drop_columns("timestamp").to_pylist()[0]  # Python knows no years beyond 9999
    names = DeclaredNames.from_specs(specs.values())
    path = names.visible_path(first["path"] or "")  # a key of a map, say, may be secret
    raise RECORD_REFUSED.terminal(
        f"topic {first['topic']}, partition {first['partition']}, offset {first['offset']}: field {path} does not"
        f" fit its column of {first['destination'] or strict[0]} ({first['code']}), which can't be widened to it;"
        f" nothing was published",
        next_step="mend the producer, or set on_incompatible of the destination to rescue, dead_letter or variant_column",
    )


LETTER_SCHEMA: Final = DEAD_SCHEMA.append(pa.field("destination", pa.string()))
"""Dead letters with the table that the record does not fit; null for a record as a whole."""

_RECORD_ID: Final = ["topic", "partition", "offset"]
_ORIGIN: Final = [*_RECORD_ID, "timestamp"]
_NO_POSITIONS: Final = pa.array([], pa.int64())


class _Letter(NamedTuple):
    position: int
    table: int | None
    reason: Reason


@dataclass(frozen=True)
class _FittedRows:
    """Rows fitted to the columns of a group of tables: their row numbers in the decoded group, and reasons of dead ones."""

    rows: pa.RecordBatch
    group_rows: pa.Int64Array
    dead: Mapping[int, Reason]


@dataclass
class _BatchState:
    """What became of the records of a batch so far. Lists have an element per table, and sets hold positions of records.

    Attributes:
        blocks: Fitted rows.
        whole_dead: Reasons of records that are dead for all tables.
        dead: Reasons of records that are dead for one table.
        routed: Records that were routed to the table.
        left_out: Records that were routed to the table, and have some row that lands nothing there.
        deleted_blocks: Rows to delete, from tombstones.
        tombstones: Records without value that may delete rows.
        unrouted: Records without a table that are filtered.
        unknown_fields: Fields without a column.
        new_tables: Names of tables to create.
    """

    blocks: list[list[Block]]
    whole_dead: dict[int, Reason]
    dead: list[dict[int, Reason]]
    routed: list[set[int]]
    left_out: list[set[int]]
    deleted_blocks: list[list[Block]]
    tombstones: set[int] = field(default_factory=set)
    unrouted: set[int] = field(default_factory=set)
    unknown_fields: list[list[UnknownFieldPairs]] = field(default_factory=list)
    new_tables: set[str] = field(default_factory=set)


class FanOut:
    """Decodes the batches of a pipeline into its tables. Keeps nothing from batch to batch but what is costly to build.

    Args:
        specs: Table -> how records become its rows. Format, transforms and policies are the same for all tables.
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
        # The spec of tables that records may create comes last. If no table exists yet, it alone says how to decode.
        self._specs: Final = (*specs.values(), *new)
        self._batch_number: Final = batch_number
        self._route: Final = route
        self._spec: Final = self._specs[0]
        is_one = len(specs) == 1 and route is None
        bound = self._partitions.get(self._tables[0]) if is_one else None
        self._decoder: Final = Decoder(self._spec, batch_number, blocks=blocks, partitions=bound) if is_one else None
        self._router: Final = Router(route, self._tables)
        self._group_decoder: Final = GroupDecoder(self._specs, None if route is None else route.field, blocks=blocks)

    @cached_property
    def declared(self) -> DeclaredNames:
        """Field names that dead letters may show where payloads are secret."""
        return DeclaredNames.from_specs(self._specs)

    def decode(self, batch: pa.RecordBatch, only: str | None = None) -> TableOutcomes:
        """Return the outcomes of `batch` (of `KAFKA_SCHEMA`), in its order. No value makes this fail.

        Args:
            batch: The records.
            only: The one table to decode for; records of other tables are filtered.

        Raises:
            Retryable: a writer schema can't be had now.
            Terminal: what `Decoder.decode` raises; or a record has no table, or its table no type for it, and the pipeline
                wants to fail then.
        """
        outcomes = (
            self._decode_tables(batch, only) if self._decoder is None else self._decode_table(self._decoder, batch)
        )
        if not outcomes.asks:
            refuse_incompatible(outcomes.dead, self._by_table)
        return outcomes

    def _decode_tables(self, batch: pa.RecordBatch, only: str | None) -> TableOutcomes:
        records = conform(batch)
        self._group_decoder.clear_requests()
        present, unread, filtered = screen_values(self._spec, records.column("value"), unread_reasons(batch))
        groups, dead, left_out, format_unknown = self._group_decoder.decode(records, present)
        for reason, left_out_positions in left_out.items():
            filtered[reason] = pa.concat_arrays(
                [filtered.get(reason, _NO_POSITIONS), pa.array(left_out_positions, pa.int64())]
            )
        count = len(self._tables)
        state = _BatchState(
            [[] for _ in range(count)],
            unread | dead,
            [{} for _ in range(count)],
            [set() for _ in range(count)],
            [set() for _ in range(count)],
            [[] for _ in range(count)],
        )
        # Of change events only unknown fields of rows count, not those of the envelope.
        state.unknown_fields = [[] if spec.tells_changes else [format_unknown] for spec in self._specs]
        tombstones = self._decode_tombstones(records, state, filtered)
        routed = [self._route_group(records, group, state, only) for group in (*groups, *tombstones)]
        for group, group_routes in zip((*groups, *tombstones), routed, strict=True):
            self._fit_group(group, group_routes, state, state.deleted_blocks if group in tombstones else state.blocks)
        self._merge_decode_letters(state)
        return self._table_outcomes(records, state, filtered)

    def _decode_tombstones(self, records: pa.RecordBatch, state: _BatchState, filtered: Filtered) -> list[DecodedGroup]:
        """Decode tombstones into rows to delete; a tombstone is then no longer filtered, unless no table takes it."""
        positions = filtered.get(FilterReason.TOMBSTONE, _NO_POSITIONS)
        if not self._group_decoder.take_tombstones or not len(positions):
            return []
        groups, dead, filtered_positions = self._group_decoder.decode_tombstones(
            records, positions.take(pc.array_sort_indices(positions))
        )
        state.whole_dead |= dead
        state.tombstones.update(positions.to_pylist())
        filtered[FilterReason.TOMBSTONE] = _NO_POSITIONS
        _add_filtered(filtered, FilterReason.TRANSFORM, filtered_positions)
        return groups

    def _decode_table(self, decoder: Decoder, batch: pa.RecordBatch) -> TableOutcomes:
        outcomes = decoder.decode(batch)
        (table,) = self._tables
        no_destination = pa.nulls(outcomes.dead.num_rows, pa.string())
        letters = pa.RecordBatch.from_arrays([*outcomes.dead.columns, no_destination], schema=LETTER_SCHEMA)
        demands = {table: outcomes.demands} if outcomes.demands else {}
        untyped_paths = {table: outcomes.untyped_paths} if outcomes.untyped_paths else {}
        rows, unknown_fields = {table: outcomes.rows}, outcomes.unknown_fields
        return TableOutcomes(
            rows, letters, outcomes.counts, unknown_fields=unknown_fields, demands=demands, untyped_paths=untyped_paths
        )

    def _route_group(
        self, records: pa.RecordBatch, group: DecodedGroup, state: _BatchState, only: str | None
    ) -> RoutedRows:
        routed = self._router.route(group.texts)
        if len(routed.unrouted) and self._route is not None:
            positions = group.positions.take(routed.unrouted).to_pylist()
            texts = zip(positions, group.texts.take(routed.unrouted).to_pylist(), strict=True)
            unrouted, new_tables = find_unrouted(self._route, self._router, texts, only)
            state.new_tables |= new_tables
            if unrouted and self._route.otherwise == "fail":
                raise unrouted_error(records.slice(min(unrouted), 1).select(_RECORD_ID).to_pylist()[0], self._route)
            if self._route.otherwise == "filter":
                state.unrouted.update(unrouted)
            else:
                state.whole_dead = unrouted | state.whole_dead
        if only is None:
            return routed
        is_only = pc.equal(routed.tables, self._tables.index(only))
        state.unrouted.update(group.positions.take(routed.rows.filter(pc.invert(is_only))).to_pylist())
        return replace(routed, rows=routed.rows.filter(is_only), tables=routed.tables.filter(is_only))

    def _fit_group(
        self, decoded: DecodedGroup, routed: RoutedRows, state: _BatchState, blocks: list[list[Block]]
    ) -> None:
        by_table = routed.rows_by_table(len(self._specs))
        if state.whole_dead:
            dead_positions = pa.array(list(state.whole_dead), pa.int64())
            alive = pc.indices_nonzero(pc.invert(pc.is_in(decoded.positions, value_set=dead_positions)))
            by_table = [rows.filter(pc.is_in(rows, value_set=alive.cast(pa.int64()))) for rows in by_table]
        for group, tables in enumerate(self._group_decoder.tables_by_group):
            table_rows = [(table, by_table[table]) for table in tables if len(by_table[table])]
            if not table_rows:
                continue
            rows = _union([rows for _, rows in table_rows])
            fitted = decoded.fit(group, rows)
            fitted_rows = _FittedRows(
                fitted.rows,
                rows.take(fitted.input_rows),
                {rows[index].as_py(): reason for index, reason in fitted.dead.items()},
            )
            for table, rows_of_table in table_rows:
                _add_table_rows(decoded, table, rows_of_table, fitted_rows, state, blocks[table])
                ignored = fitted.ignored.map_positions(rows).at_positions(rows_of_table)
                state.unknown_fields[table].append(ignored.map_positions(decoded.positions))

    def _merge_decode_letters(self, state: _BatchState) -> None:
        """Merge dead letters: a record that can't be decoded for any of its tables is dead as a whole."""
        undecoded = {
            position
            for reasons in state.dead
            for position, reason in reasons.items()
            if reason.code.stage is Stage.DECODE
        }
        for position in undecoded:
            tables = [table for table, positions in enumerate(state.routed) if position in positions]
            table_reasons = [state.dead[table].get(position) for table in tables]
            if (
                all(reason is not None and reason.code.stage is Stage.DECODE for reason in table_reasons)
                and table_reasons[0] is not None
            ):
                state.whole_dead[position] = table_reasons[0]
                for table in tables:
                    del state.dead[table][position]
                    state.routed[table].discard(position)

    def _table_outcomes(self, records: pa.RecordBatch, state: _BatchState, filtered: Filtered) -> TableOutcomes:
        rows, tables = {}, {}
        written, without_row = set[int](), set[int]()
        unknown_fields: list[UnknownFieldPairs] = []
        for number, table in enumerate(self._by_table):
            block, rows[table] = self._landing_rows(records, number, table, state)
            table_positions = set(block.positions.to_pylist())
            dead = state.dead[number].keys()
            empty = state.left_out[number] - table_positions - dead
            routed = len(state.routed[number] - empty)
            unknown_fields.append(UnknownFieldPairs.concat(state.unknown_fields[number]).at_positions(block.positions))
            tables[table] = TableCounts(
                routed, len(table_positions), len(dead), block.rows.num_rows, unknown_fields[-1].count()
            )
            written |= table_positions
            without_row |= empty
        letters = sorted(
            _letters(state), key=lambda letter: (letter.position, -1 if letter.table is None else letter.table)
        )
        first_letters = {letter.position: letter for letter in reversed(letters)}
        without_row -= written | first_letters.keys()
        _add_filtered(filtered, FilterReason.TOMBSTONE, without_row & state.tombstones)
        _add_filtered(filtered, FilterReason.TRANSFORM, without_row - state.tombstones)
        filtered[FilterReason.ROUTE] = pa.array(
            sorted(state.unrouted - written - first_letters.keys() - without_row), pa.int64()
        )
        landed = pa.array(sorted(written - first_letters.keys()), pa.int64())
        counts = count_outcomes(
            records,
            records.take(landed),
            _dead_letters(records, [first_letters[position] for position in sorted(first_letters)]),
            {reason: records.take(positions) for reason, positions in filtered.items() if len(positions)},
        )
        destinations = pa.array(
            [None if letter.table is None else self._tables[letter.table] for letter in letters], pa.string()
        )
        letter_batch = pa.RecordBatch.from_arrays(
            [*_dead_letters(records, letters).columns, destinations], schema=LETTER_SCHEMA
        )
        demands = {self._tables[number]: changes for number, changes in self._group_decoder.demands()}
        written_unknown = UnknownFieldPairs.concat(unknown_fields).at_positions(landed).count()
        untyped_paths = {self._tables[number]: paths for number, paths in self._group_decoder.untyped_paths()}
        new = first_names(tuple(state.new_tables))
        return TableOutcomes(
            rows, letter_batch, counts, tables, len(state.whole_dead), written_unknown, demands, new, untyped_paths
        )

    def _landing_rows(
        self, records: pa.RecordBatch, number: int, table: str, state: _BatchState
    ) -> tuple[Block, pa.RecordBatch]:
        """Return the rows that land in a table; a record with a partition value beyond the limit becomes a dead letter."""
        spec, origins = self._by_table[table], records.select(_ORIGIN)
        block = _table_block(records, number, spec, state)
        rows = with_kafka_columns(spec, self._batch_number, block, origins.take(block.positions))
        if partition_dead := refused_by_partition(self._partitions.get(table), rows, block.positions):
            state.dead[number] |= partition_dead
            block = drop_dead_rows(block, partition_dead)
            rows = with_kafka_columns(spec, self._batch_number, block, origins.take(block.positions))
        return block, rows


def _add_table_rows(
    group: DecodedGroup,
    table: int,
    rows: pa.Int64Array,
    fitted_rows: _FittedRows,
    state: _BatchState,
    blocks: list[Block],
) -> None:
    """Add to a table its share of the rows that were fitted for all tables of its group."""
    state.routed[table].update(group.positions.take(rows).to_pylist())
    is_of_table = pc.is_in(fitted_rows.group_rows, value_set=rows)
    blocks.append(
        Block(fitted_rows.rows.filter(is_of_table), group.positions.take(fitted_rows.group_rows.filter(is_of_table)))
    )
    unfitted = rows.filter(pc.invert(pc.is_in(rows, value_set=fitted_rows.group_rows)))
    for row, position in zip(unfitted.to_pylist(), group.positions.take(unfitted).to_pylist(), strict=True):
        if row in fitted_rows.dead:
            state.dead[table].setdefault(position, fitted_rows.dead[row])
        else:
            state.left_out[table].add(position)


def _table_block(records: pa.RecordBatch, table: int, spec: RecordSpec, state: _BatchState) -> Block:
    """Return the rows of a table, those to delete included, in the order of the records."""
    deleted = [drop_dead_rows(deleted_block, state.dead[table]) for deleted_block in state.deleted_blocks[table]]
    block = drop_dead_rows(in_order(state.blocks[table], spec.block_schema), state.dead[table])
    block, altered = without_altered_times(spec, with_deleted(spec, block, deleted), records)
    state.dead[table] |= altered
    return block


def _add_filtered(filtered: Filtered, reason: FilterReason, positions: Collection[int]) -> None:
    """Count further records as filtered."""
    if positions:
        filtered_before = filtered.get(reason, _NO_POSITIONS)
        filtered[reason] = pa.concat_arrays([filtered_before, pa.array(sorted(positions), pa.int64())])


def _union(parts: list[pa.Int64Array]) -> pa.Int64Array:
    """All rows that are in one of them, each once, ascending."""
    if len(parts) == 1:
        return parts[0]
    distinct_rows = pc.unique(pa.chunked_array(parts))
    return distinct_rows.take(pc.sort_indices(distinct_rows))


def _letters(state: _BatchState) -> Iterator[_Letter]:
    yield from (_Letter(position, None, reason) for position, reason in state.whole_dead.items())
    for table, dead in enumerate(state.dead):
        yield from (_Letter(position, table, reason) for position, reason in dead.items())


def _dead_letters(records: pa.RecordBatch, letters: list[_Letter]) -> pa.RecordBatch:
    positions = pa.array([letter.position for letter in letters], pa.int64())
    return dead_letters(records.take(positions), [letter.reason for letter in letters])
