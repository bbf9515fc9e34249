"""A batch of Kafka records becomes rows, dead letters and counts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from frazil.batch.changes import OP
from frazil.batch.facts import UnknownFields
from frazil.batch.schema_change import bounded
from frazil.error_codes import BAD_SCHEMA
from frazil.records.decoder.orc_times import without_altered_times
from frazil.records.decoder.partitions import PartitionBound, refused_by_partition
from frazil.records.decoder.tombstones import DeletedRowFitter, TombstoneDecoder, with_deleted
from frazil.records.decoder.typed_decoder import LeftOut, ShapedDecoder
from frazil.records.evolution.agreement import EXACT, Agreement
from frazil.records.evolution.inferred import InferredJson
from frazil.records.evolution.json_values import EvolvingJson
from frazil.records.evolution.schema_requests import SchemaRequests
from frazil.records.formats.catalogue import open_format
from frazil.records.formats.keys import DecodedKeys, KeyColumns, KeyDecoder
from frazil.records.formats.payload_decoder import HalfName, PayloadDecoder
from frazil.records.json.values import JsonValues
from frazil.records.model.changes import merge_columns
from frazil.records.model.dead_letter import DeadCode, Reason, dead_letters
from frazil.records.model.format import JSON, FormatSpec
from frazil.records.model.kafka_schema import BAD_HEADERS, NOT_UNPACKED, UNREAD_BYTES, conform
from frazil.records.model.outcome import FilterReason, Outcomes, count_outcomes
from frazil.records.model.positions import distinct_positions, take_records
from frazil.records.model.rows import Block, drop_dead_rows, in_order
from frazil.records.model.spec import RecordSpec
from frazil.records.transforms.flatten import Flatten
from frazil.records.transforms.named_fields import named_fields

Dead = dict[int, Reason]
"""Reasons by the record's position in the batch, ascending."""

Filtered = dict[FilterReason, pa.Int64Array]
"""Positions of the records that were left out on purpose, ascending."""

_ORIGIN: Final = ("topic", "partition", "offset", "timestamp")
"""Columns of a record that its rows carry too."""

_UNREADABLE: Final = Reason(DeadCode.UNREADABLE_BATCH, "the Kafka client can't unpack the batch of this record")
_BAD_HEADERS: Final = Reason(DeadCode.INVALID_HEADERS, "the name of a header is not UTF-8")
_NULL_VALUE: Final = Reason(DeadCode.NULL_VALUE, "expected a value, found a record without one (a tombstone)")


class Decoder:
    """Decodes the batches of one table. Keeps nothing from batch to batch but what is costly to build.

    Args:
        spec: How records become rows of the table.
        batch_number: Goes into the batch column of every row.
        blocks: Whether JSON values may be parsed as blocks where that is exact. Without, the outcome is the same, later.
        partitions: Bounds the partition values of the table; None: it has none.

    Raises:
        Terminal: the spec can't be met: a type without a JSON form, a default that does not fit, a schema that is none.
    """

    def __init__(
        self, spec: RecordSpec, batch_number: int, *, blocks: bool = True, partitions: PartitionBound | None = None
    ) -> None:
        self._spec: Final = spec
        self._partitions: Final = partitions
        self._batch_number: Final = batch_number
        self._requests: Final = SchemaRequests(spec.fold is not None)
        self._values: Final = _value_decoder(spec, self._requests, blocks=blocks)
        takes = spec.tombstone == "delete"
        self._tombstones: Final = tombstone_decoder(spec, blocks=blocks) if takes else None
        self._deleted: Final = DeletedRowFitter(spec) if takes else None

    def decode(self, batch: pa.RecordBatch) -> Outcomes:
        """Return the outcomes of `batch` (of `KAFKA_SCHEMA`), in its order.

        No value makes this fail.

        Raises:
            Retryable: a writer schema can't be had now.
            Terminal: the batch has other columns; the registry refuses; a transform does not fit the fields that it gets.
        """
        records = conform(batch)
        self._requests.clear()
        present, dead, filtered = screen_values(self._spec, records.column("value"), unread_reasons(batch))
        block, value_dead, left_out = self._values.decode(records, present)
        for reason, left_out_positions in left_out.items():
            filtered[reason] = pa.concat_arrays([filtered.get(reason, _positions([])), _positions(left_out_positions)])
        block, tombstone_dead = self._with_tombstones(records, block, filtered)
        block, time_dead = without_altered_times(self._spec, block, records)
        dead |= value_dead | tombstone_dead | time_dead
        origins, rows = self._rows(records, block)
        if partition_dead := refused_by_partition(self._partitions, rows, block.positions):
            dead, block = dead | partition_dead, drop_dead_rows(block, partition_dead)
            origins, rows = self._rows(records, block)
        dead = dict(sorted(dead.items()))
        letters = dead_letters(take_records(records, _positions(dead)), list(dead.values()))
        written_positions = distinct_positions(block.positions)
        written = origins if written_positions is block.positions else records.take(written_positions)
        filtered_records = {reason: records.take(positions) for reason, positions in filtered.items() if len(positions)}
        counts = count_outcomes(records, written, letters, filtered_records)
        demands = self._requests.demands(self._spec)
        unknown_fields = UnknownFields() if demands else block.unknown_fields.at_positions(block.positions).count()
        return Outcomes(rows, letters, counts, unknown_fields, demands, bounded(self._requests.untyped_paths))

    def _rows(self, records: pa.RecordBatch, block: Block) -> tuple[pa.RecordBatch, pa.RecordBatch]:
        """Return the origin (Kafka coordinates) of each row, and the rows with their Kafka columns."""
        origins = take_records(records.select(_ORIGIN), block.positions)
        return origins, with_kafka_columns(self._spec, self._batch_number, block, origins)

    def _with_tombstones(self, records: pa.RecordBatch, block: Block, filtered: Filtered) -> tuple[Block, Dead]:
        """Add delete rows for tombstones to the block; tombstones are then no longer filtered."""
        tombstones = filtered.get(FilterReason.TOMBSTONE)
        if self._tombstones is None or self._deleted is None or tombstones is None or not len(tombstones):
            return block, {}
        frames, dead, filtered_tombstones = self._tombstones.frames(
            records, tombstones.take(pc.array_sort_indices(tombstones))
        )
        filtered[FilterReason.TOMBSTONE] = _positions([])
        if filtered_tombstones:
            transformed = filtered.get(FilterReason.TRANSFORM, _positions([]))
            filtered[FilterReason.TRANSFORM] = pa.concat_arrays([transformed, _positions(sorted(filtered_tombstones))])
        blocks = []
        for frame in frames:
            fitted = self._deleted.fit(frame)
            blocks.append(Block(fitted.rows, frame.positions.take(fitted.input_rows)))
            dead |= {frame.positions[row].as_py(): reason for row, reason in fitted.dead.items()}
        return with_deleted(self._spec, block, blocks), dead

    def problems(self, shape: pa.Schema | None, key_shape: pa.Schema | None = None) -> list[str]:
        """Return which columns nothing could ever fill, and why.

        Args:
            shape: The fields that all values have before transforms; None if each says its own.
            key_shape: The fields of keys, likewise.

        Raises:
            Terminal: a transform does not fit the fields that it gets.
        """
        return self._values.problems(shape, key_shape)


def unread_reasons(batch: pa.RecordBatch) -> Dead:
    """Return why records of a consumed batch could not be read whole, by position."""
    if UNREAD_BYTES not in batch.schema.names:
        return {}
    reasons = {NOT_UNPACKED: _UNREADABLE, BAD_HEADERS: _BAD_HEADERS}
    sizes = enumerate(batch.column(UNREAD_BYTES).to_pylist())
    return {position: reasons.get(size) or _too_large(size) for position, size in sizes if size is not None}


def _too_large(size: int) -> Reason:
    return Reason(
        DeadCode.RECORD_TOO_LARGE, f"{size:,} bytes of key, value and headers, more than limits.max_record_bytes"
    )


def screen_values(spec: RecordSpec, values: pa.BinaryArray, unread: Dead) -> tuple[pa.Int64Array, Dead, Filtered]:
    """Return the positions of the values to decode, the dead records, and those that are filtered as tombstone or empty.

    Args:
        spec: How records become rows.
        values: The values of the records.
        unread: Records that could not be read whole; they have no value here, and are dead.
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


def with_kafka_columns(spec: RecordSpec, batch_number: int, block: Block, records: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows with their Kafka columns, the batch number, and the columns that a merge needs."""
    names = [name for name in block.rows.schema.names if name != OP]
    columns = [block.rows.column(name) for name in names]
    if spec.kafka_columns is not None:
        columns += [records.column(name) for name in _ORIGIN]
        columns.append(pa.repeat(pa.scalar(batch_number, pa.int64()), len(records)))
    if spec.merge is not None:
        columns += merge_columns(spec.merge, block.rows, block.positions)
    return pa.RecordBatch.from_arrays(columns, schema=spec.row_schema)


class _JsonRows:
    """Decodes JSON values straight into rows, without an intermediate Arrow schema."""

    def __init__(self, json: JsonValues | EvolvingJson) -> None:
        self._json: Final = json

    def decode(self, records: pa.RecordBatch, present: pa.Int64Array) -> tuple[Block, Dead, LeftOut]:
        values = records.column("value")
        if len(present) == len(values):
            return *self._json.rows(values), {}
        block, dead = self._json.rows(values.take(present))
        block_of_batch = Block(block.rows, present.take(block.positions), block.unknown_fields.map_positions(present))
        return block_of_batch, {present[index].as_py(): reason for index, reason in dead.items()}, {}

    def problems(self, _shape: pa.Schema | None, _key_shape: pa.Schema | None) -> list[str]:
        return []


class _JsonRowsWithKeys:
    """Decodes JSON values straight into rows, and joins the columns of their keys."""

    def __init__(self, values: _JsonRows, keys: KeyDecoder, columns: KeyColumns | None) -> None:
        self._values: Final = values
        self._keys: Final = keys
        self._columns: Final = columns

    def decode(self, records: pa.RecordBatch, present: pa.Int64Array) -> tuple[Block, Dead, LeftOut]:
        keys = self._keys.decode(records, present)
        if self._columns is None:
            block, dead, left_out = self._values.decode(records, keys.alive)
            return block, keys.dead | dead, left_out
        fitted, unfit_keys = self._fit_keys(self._columns, keys)
        block, dead, left_out = self._values.decode(records, fitted.positions)
        key_rows = fitted.rows.take(pc.index_in(block.positions, value_set=fitted.positions))
        joined = Block(self._columns.joined(block.rows, key_rows), block.positions, block.unknown_fields)
        return joined, keys.dead | unfit_keys | dead, left_out

    def problems(self, _shape: pa.Schema | None, key_shape: pa.Schema | None) -> list[str]:
        return [] if key_shape is None or self._columns is None else self._columns.check(key_shape)

    def _fit_keys(self, columns: KeyColumns, keys: DecodedKeys) -> tuple[Block, Dead]:
        blocks: list[Block] = []
        dead: Dead = {}
        for group in keys.groups:
            fitted = columns.fit(group.columns, len(group.positions))
            blocks.append(Block(fitted.rows, group.positions.take(fitted.input_rows)))
            dead |= {group.positions[row].as_py(): reason for row, reason in fitted.dead.items()}
        return in_order(blocks, columns.schema), dead


def _value_decoder(
    spec: RecordSpec, requests: SchemaRequests, *, blocks: bool
) -> ShapedDecoder | _JsonRows | _JsonRowsWithKeys:
    if spec.is_shaped:
        return shaped_decoder(spec, requests, blocks=blocks)
    direct = _JsonRows(json_decoder(spec.of_value, requests, blocks=blocks))
    keys, columns = _key_decoder_and_columns(spec, blocks=blocks)
    return direct if keys is None else _JsonRowsWithKeys(direct, keys, columns)


def json_decoder(spec: RecordSpec, requests: SchemaRequests, *, blocks: bool = True) -> JsonValues | EvolvingJson:
    """Return the decoder of JSON values into columns; it adds the schema changes that they need to `requests`.

    Raises:
        Terminal: the spec can't be met.
    """
    return JsonValues(spec, blocks=blocks) if spec.evolution is None else EvolvingJson(spec, requests, blocks=blocks)


def shaped_decoder(
    spec: RecordSpec,
    requests: SchemaRequests,
    *,
    specs: Sequence[RecordSpec] = (),
    route: Sequence[str] = (),
    blocks: bool = True,
) -> ShapedDecoder:
    """Return the decoder of values with a schema of their own; JSON values have one, too, where fields are declared or inferred.

    Args:
        spec: How values become rows.
        requests: Collects the schema changes that they need.
        specs: The specs of all tables, if there are several.
        route: Names from the root of a value to the field that routes it.
        blocks: Whether JSON may be parsed as blocks where that is exact.

    Raises:
        Terminal: the spec can't be met.
    """
    fields = spec.of_value.columns if spec.fields is None else spec.fields
    keys, columns = _key_decoder_and_columns(spec, blocks=blocks)
    agreement = value_agreement(specs or (spec,), route) if spec.infers else EXACT
    values = _payload_decoder("value", spec, spec.format, fields, agreement, blocks=blocks)
    return ShapedDecoder(spec, requests, values, keys, columns, blocks=blocks)


def tombstone_decoder(spec: RecordSpec, *, blocks: bool = True) -> TombstoneDecoder:
    """Return the decoder of tombstones."""
    return TombstoneDecoder(spec, _key_decoder_and_columns(spec, blocks=blocks)[0])


def _key_decoder_and_columns(spec: RecordSpec, *, blocks: bool) -> tuple[KeyDecoder | None, KeyColumns | None]:
    keys = (
        None
        if spec.key is None
        else KeyDecoder(_payload_decoder("key", spec, spec.key, spec.key_fields, blocks=blocks))
    )
    return keys, KeyColumns(spec) if spec.of_key else None


def value_agreement(specs: Sequence[RecordSpec], route: Sequence[str] = ()) -> Agreement:
    """Return in which fields JSON values may differ that are decoded together.

    Args:
        specs: The specs of all tables.
        route: Names from the root of a value to the field that routes it.
    """
    transforms = specs[0].transforms
    named_by_transforms = named_fields(transforms)
    flattens = [transform for transform in transforms if isinstance(transform, Flatten) and transform.target == "value"]
    if named_by_transforms is None or len(flattens) > 1 or any(spec.whole_columns for spec in specs):
        return EXACT
    columns = (
        column for spec in specs for column in spec.column_specs if column.has_default or column.steps != (column.name,)
    )
    exact = (
        named_by_transforms
        | {column.steps[0].casefold() for column in columns}
        | {name.casefold() for name in route[:1]}
    )
    column_types = [{(column.name, column.type) for column in spec.columns} for spec in specs]
    differing = (
        set[tuple[str, pa.DataType]]()
        .union(*column_types)
        .difference(set[tuple[str, pa.DataType]].intersection(*column_types))
    )
    closed = frozenset(name.casefold() for name, _ in differing)
    return Agreement(exact, closed, *((flattens[0].delimiter, flattens[0].depth) if flattens else ()))


def _payload_decoder(
    half: HalfName,
    spec: RecordSpec,
    format_spec: FormatSpec,
    fields: pa.Schema | None,
    agreement: Agreement = EXACT,
    *,
    blocks: bool,
) -> PayloadDecoder:
    if format_spec.name != JSON:
        return PayloadDecoder(half, format_spec, open_format(format_spec))
    if fields is not None and half == "value" and spec.infers:
        return PayloadDecoder(half, format_spec, InferredJson(spec, fields, agreement, blocks=blocks))
    if fields is None:
        raise BAD_SCHEMA.terminal(
            f"record shape: nothing says which fields the JSON of a {half} has", next_step="declare them"
        )
    json = RecordSpec(
        fields, duplicate_keys=spec.duplicate_keys, field_names=spec.field_names, casts=spec.casts, kafka_columns=None
    )
    return PayloadDecoder(half, format_spec, JsonValues(json, blocks=blocks))


def _true_positions(mask: pa.BooleanArray) -> pa.Int64Array:
    return pc.indices_nonzero(mask).cast(pa.int64())


def _positions(positions: Iterable[int]) -> pa.Int64Array:
    return pa.array(list(positions), pa.int64())
